"""The event loop in a thread of its own that the facade for programs without asyncio uses."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from fmqcore.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
_CLOSED = "this client is closed"


class LoopThread:
    """A loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fmq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait; an interrupted wait cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArgument("a sync client cannot be used from its own callbacks")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._stopped:
                raise Unavailable(_CLOSED) from None
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it there."""
        with self._lock:
            if self._stopped:
                work.close()
                raise Unavailable(_CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Call it there, after the delay; nobody waits for it."""
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
    """Nobody waits for ever for what is still under way."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
