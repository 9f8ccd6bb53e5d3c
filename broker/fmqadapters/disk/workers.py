"""Threads for blocking calls beside an event loop: a queue, one wake-up per finished call.

Not a general executor: calls of one `Worker` with one thread are done in the order in which they
were submitted, even if a waiting caller is cancelled meanwhile.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_Job = tuple[
    asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any], Callable[[Any], None]
]


def _nothing(_result: object) -> None:
    return None


class Worker(Protocol):
    """Runs blocking calls beside the event loop. With one thread: in the order of `submit`."""

    def submit(
        self, call: Callable[[], T], orphan: Callable[[T], None] = _nothing
    ) -> "asyncio.Future[T]":
        """Run `call`. If no caller waits for it any more, `orphan` gets its result."""
        ...

    async def stop(self) -> None:
        """Finish what was submitted; harmless when done twice."""
        ...


class Threads:
    """The real `Worker`: threads, started at the first call, ended by `stop`."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._count = threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def submit(
        self, call: Callable[[], T], orphan: Callable[[T], None] = _nothing
    ) -> "asyncio.Future[T]":
        """See `Worker`."""
        if self._stopped:
            raise RuntimeError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._threads:
            self._start()
        self._jobs.put((loop, future, call, orphan))
        return future

    async def stop(self) -> None:
        """See `Worker`. Ends the threads."""
        if self._stopped:
            return
        ends = [self.submit(_noop) for _ in self._threads]
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)
        await asyncio.gather(*ends)

    def _start(self) -> None:
        for number in range(self._count):
            # Daemon threads: `Lifecycle.fatal` and a crash must not wait for a hanging disk.
            thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, call, orphan = job
            result, error = None, None
            try:
                result = call()
            except BaseException as caught:  # noqa: BLE001 - it is raised where it is awaited
                error = caught
            del job, call
            try:
                loop.call_soon_threadsafe(settle, future, result, error, orphan)
            except RuntimeError:  # the loop is gone: no caller waits
                if error is None:
                    orphan(result)
            del future, result, error


def _noop() -> None:
    return None


def settle(
    future: "asyncio.Future[Any]",
    result: object,
    error: BaseException | None,
    orphan: Callable[[Any], None],
) -> None:
    """End a file operation's future; the result of a cancelled one goes to `orphan`."""
    if future.cancelled():
        if error is None:
            orphan(result)
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
