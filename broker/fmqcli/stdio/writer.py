"""Write to standard output without ever blocking the loop.

The reader of a pipe may be slow, a terminal may be stopped (Ctrl-S): the loop has to go on
meanwhile, or the consumer's session is lost and its messages go to another member. A daemon thread
writes to the descriptor itself: a write that waits cannot be stopped, and must neither keep the
process alive nor hold the lock of `sys.stdout` when it ends.
"""

import asyncio
import os
import select
import threading
from contextlib import suppress
from queue import SimpleQueue

from fmqcli.common import NotWritten, ReaderGone
from fmqcli.stdio.streams import wait_for


class Writer:
    """Writes data to a file descriptor, one piece after the other."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._pieces: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Wait until all of `data` is written. Raises `ReaderGone`, `NotWritten`.

        If cancelled, an unknown part of this piece, the last one, may have been written.
        """
        done = self._loop.create_future()
        self._pieces.put((data, done))
        await done

    def close(self) -> None:
        """Stop writing; later lines are dropped."""
        self._pieces.put(None)

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            data, done = piece
            error = self._put(data)
            with suppress(RuntimeError):  # the loop is closed: no task waits for it
                self._loop.call_soon_threadsafe(_settle, done, error)

    def _put(self, data: bytes) -> Exception | None:
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:
                    wait_for(self._fd, select.POLLOUT)
        except BrokenPipeError:
            return ReaderGone()
        except OSError as error:
            return NotWritten(error)
        return None


def _settle(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():
        return  # no task waits for it any more
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
