"""Run coroutines until one fails; wait for many futures.

A `TaskGroup` that is cancelled while a task in it fails raises only the failure; a caller that
handles the failure and starts again would never end. Here a cancellation is always raised as one.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

CANCELLED: Final = (
    "its inner tasks were cancelled from outside (does the program cancel all of "
    "asyncio.all_tasks()?); close it, and open another"
)


async def until_one_fails(*works: Coroutine[Any, Any, None]) -> None:
    """Run them side by side; when one ends, cancel the others and raise its error."""
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


async def all_done(futures: "Iterable[asyncio.Future[Any]]") -> None:
    """Wait until all are done, with any outcome. A batch ends as one, so few waits are real."""
    for future in futures:
        if not future.done():
            await asyncio.wait([future])
