"""The event loop in a thread of its own that the facade for programs without asyncio uses."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from fmqcore.errors import InvalidArgument

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class LoopThread:
    """A loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fmq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait; an interrupted wait cancels it."""
        if threading.current_thread() is self._thread or not self._loop.is_running():
            work.close()
            raise InvalidArgument("a sync client cannot be used from its own callbacks, or closed")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run it there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Call it there, after the delay; nobody waits for it."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, delay_s, work)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
