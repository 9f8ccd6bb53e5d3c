"""Detect that standard output has no reader any more, although there is nothing to write.

`fmq consume t | head -1`: once `head` has gone a write would fail, but without messages there is no
write. The other end of a pipe or a socket signals by POLLERR or POLLHUP. Files and terminals have
no other end: they are not watched.
"""

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import Final

_POLL_S: Final = 1.0


class ReaderWatch:
    """Calls `gone` once, on the loop, when the last reader of `fd` has gone; until `stop`."""

    def __init__(self, fd: int, gone: Callable[[], None]) -> None:
        self._fd = fd
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._watching = False
        self._later: asyncio.TimerHandle | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            self._watch()

    def stop(self) -> None:
        """Stop watching."""
        if self._watching:
            self._loop.remove_reader(self._fd)
            self._watching = False
        if self._later is not None:
            self._later.cancel()

    def _watch(self) -> None:
        # A loop that watches for input also watches for errors, and here is no input: asyncio's own
        # transport for the writing end of a pipe does the same.
        self._loop.add_reader(self._fd, self._woken)
        self._watching = True

    def _woken(self) -> None:
        self.stop()
        if hung_up(self._fd):
            self._gone()
        else:  # there is something to read, not for this program: check again after a pause
            self._later = self._loop.call_later(_POLL_S, self._watch)


def hung_up(fd: int) -> bool:
    """Whether the other end of a pipe or a socket has gone."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
