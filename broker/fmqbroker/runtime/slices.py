"""Long work in short turns of the loop.

Code that walks through topics, queues, groups or sessions counts its steps here and yields to the
loop after `STEPS`: a broker that answers a person must go on answering producers, slaves and
ZooKeeper. Counted, not timed, so that a simulation behaves the same. What was true before a step
may be false after it.
"""

import asyncio
from typing import Final, TypeVar

from fmqcore.turns import Turns

T = TypeVar("T")

STEPS: Final = 100
"""Steps in one turn. A step is a few dictionary look-ups and one row: some 10 microseconds."""


class Slices:
    """The slices of one piece of work; call `step` in its loop."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS

    async def step(self, cost: int = 1) -> None:
        """Count `cost` steps; yield to other tasks after `STEPS`."""
        self._left -= cost
        if self._left <= 0:
            self._left = STEPS
            await asyncio.sleep(0)


async def in_turns(work: Turns[T]) -> T:
    """Run the work to its end; yield to other tasks at each pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
