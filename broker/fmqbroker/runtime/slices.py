"""Long work in short turns of the loop.

Whatever walks through topics, queues, groups or sessions counts its steps here and gives the loop
back after so many, whoever waits: a broker that answers a person must not stop answering
producers, slaves and ZooKeeper meanwhile. Counted, not timed: so it is the same in a simulation.
What was true before a step may be false after it.
"""

import asyncio
from typing import Final

STEPS: Final = 100
"""In one turn. A step is a few dictionary look-ups and one row: some 10 microseconds."""


class Slices:
    """Of one piece of work; `step` in its loop."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS

    async def step(self, cost: int = 1) -> None:
        """That much is done: after `STEPS` of it others have their turn."""
        self._left -= cost
        if self._left <= 0:
            self._left = STEPS
            await asyncio.sleep(0)
