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
    the error of each watched task that ended by one; None = it was cancelled.
    """

    def __init__(self, fail: Callable[[BaseException | None], None]) -> None:
        self._fail = fail
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and `close` was not called since."""
        return self._task is not None

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
        if not self.is_open:
            return
        if task.cancelled():
            self._fail(None)
        elif (error := task.exception()) is not None:
            self._fail(error)

    def cancel(self) -> None:
        """Cancel the task, as what it serves has failed; it is still to be closed."""
        if self._task is not None:
            self._task.cancel()

    async def close(
        self, last: Callable[[], Coroutine[Any, Any, None]] | None = None, timeout_s: float = 0
    ) -> None:
        """End the task, after what `last` does in at most `timeout_s` seconds."""
        task, self._task = self._task, None
        if task is None:
            return
        try:
            if last is not None:
                async with asyncio.timeout(timeout_s):
                    await last()
        except TimeoutError:
            pass
        finally:
            task.cancel()
            await asyncio.wait([task])


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
