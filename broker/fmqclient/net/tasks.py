"""Run coroutines until one fails; own the tasks of a producer or consumer; wait for many futures.

A `TaskGroup` that is cancelled while a task in it fails raises only the failure; a caller that
handles the failure and starts again would never end. Here a cancellation is always raised as one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

CANCELLED: Final = (
    "its inner tasks were cancelled from outside (does the program cancel all of "
    "asyncio.all_tasks()?); close it, and open another"
)


async def until_one_fails(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side; when one ends, cancel the others and raise its error."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    errors = [e for e in (t.exception() for t in tasks if not t.cancelled()) if e is not None]
    if errors:
        raise errors[0]


class MainTask:
    """The task of a producer or consumer that owns all its others, from its opening to its closing.

    No caller may wait for ever on a task that has ended: until it is closed, `fail` is called with
    the error of each watched task that ended by one; None = it was cancelled. While it is being
    closed, such an end cuts the last words short.
    """

    def __init__(self, fail: Callable[[BaseException | None], None]) -> None:
        self._fail = fail
        self._task: asyncio.Task[None] | None = None
        self._cut: asyncio.Future[None] | None = None  # while it is being closed
        self.error: BaseException | None = None  # which cut the last words short

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and `close` was not called since."""
        return self._task is not None and self._cut is None

    async def open(self, work: Coroutine[Any, Any, None], ready: "asyncio.Future[None]") -> None:
        """Start `work`; return once it is `ready` or has ended.

        Raises the error that is in `ready`, and closes then, as for a caller that is cancelled.
        """
        self._task = asyncio.create_task(work)
        self.watch(self._task)
        self._task.add_done_callback(lambda _: None if ready.done() else ready.set_result(None))
        try:
            await ready
        except BaseException:
            await self.close()
            raise

    def watch(self, task: "asyncio.Task[None]") -> None:
        """Fail if that task ends by an error or a cancel."""
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        if self.is_open:
            self._fail(error)
        elif self._cut is not None and not self._cut.done():
            self.error = error
            self._cut.set_result(None)

    def cancel(self) -> None:
        """Cancel the task, as what it serves has failed; it is still to be closed."""
        if self._task is not None:
            self._task.cancel()

    async def close(
        self, last: Callable[[], Coroutine[Any, Any, None]] | None = None, timeout_s: float = 0
    ) -> None:
        """End the task, after what `last` does in at most `timeout_s` seconds."""
        task = self._task
        if task is None or self._cut is not None:
            return
        cut = self._cut = asyncio.get_running_loop().create_future()
        try:
            if last is not None:
                async with asyncio.timeout(timeout_s):
                    await _until_cut(last(), cut, task)
        except TimeoutError:
            pass
        finally:
            cut.cancel()
            task.cancel()
            await asyncio.wait([task])
            self._task = self._cut = None


async def _until_cut(work: Coroutine[Any, Any, None], *cuts: "asyncio.Future[None]") -> None:
    """Run a coroutine until it ends, or one of `cuts` does."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait([running, *cuts], return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()


async def all_done(futures: "Iterable[asyncio.Future[Any]]") -> None:
    """Wait until all are done, with any outcome. A batch ends as one, so few waits are real."""
    for future in futures:
        if not future.done():
            await asyncio.wait([future])


async def all_results(futures: "Sequence[asyncio.Future[T]]") -> list[T]:
    """Wait until all are done; return their results in order, or raise the first error."""
    await all_done(futures)
    error = next((e for e in [future.exception() for future in futures] if e is not None), None)
    if error is not None:
        raise error
    return [future.result() for future in futures]
