"""The event loop in its own thread, on which the client for programs without asyncio runs."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fmqcore.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
_CLOSED = "this client is closed"
_FORKED = (
    "this process was forked from one that had a client open: it cannot use that, nor make one "
    "(gRPC); connect after the fork, or spawn"
)

_log = logging.getLogger("fmqclient")


class LoopThread:
    """An event loop in a daemon thread."""

    _started: "ClassVar[tuple[LoopThread, ...]]" = ()  # by this process, or by one that forked it

    def __init__(self) -> None:
        self._stopped = False
        started = [other for other in LoopThread._started if not other._stopped]
        if any(other.gone for other in started):
            raise Unavailable(_FORKED)  # gRPC would hang, or end the process
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # a signal handler may come in the midst of a call
        self._thread = threading.Thread(target=self._turn, name="fmq", daemon=True)
        self._thread.start()
        LoopThread._started = (*started, self)

    def _turn(self) -> None:
        """Run until stopped, even if a callback of the program exits: other callers wait."""
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # noqa: BLE001 - `SystemExit`, of a callback
                _log.exception("a callback raised what would have ended the client's thread")
            else:
                return

    @property
    def gone(self) -> bool:
        """Whether the thread no longer runs: it was stopped, or the process was forked."""
        return not self._thread.is_alive()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called: the thread accepts no more work."""
        return self._stopped

    def check_there(self) -> None:
        """Raise `Unavailable` if nothing runs here any more."""
        if self.gone:
            raise Unavailable(_CLOSED if self._stopped else _FORKED)

    def check(self) -> None:
        """Raise `InvalidArgument` in the loop's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise InvalidArgument("a sync client cannot be used from its own callbacks")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop's thread and return its result; an interrupted wait cancels it."""
        try:
            self.check()
        except InvalidArgument:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._stopped:
                raise Unavailable(_CLOSED) from None
            if isinstance(error, CancelledError):
                raise Unavailable("the call was cancelled in the client's thread") from None
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work` in the loop's thread and return its future. Raises `Unavailable`."""
        if self.gone:  # no lock: after a fork its holder may never release it
            work.close()
            raise Unavailable(_CLOSED if self._stopped else _FORKED)
        with self._lock:
            if self._stopped:
                work.close()
                raise Unavailable(_CLOSED)
            try:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:  # a signal handler has just closed the client
                work.close()
                raise Unavailable(_CLOSED) from None
            if self._loop.is_closed() and not future.done():  # a moment later: no loop will run it
                work.close()
                raise Unavailable(_CLOSED)
            return future

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Call `work` in the loop's thread after `delay_s` seconds, without waiting for it."""
        if self.gone and not self._stopped:
            raise Unavailable(_FORKED)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, delay_s, work)

    def stop(self) -> None:
        """End the thread."""
        with self._lock:
            self._stopped = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    """Cancel what is still running, so that no caller waits for it for ever."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
