"""Frees large tables that are no longer used, in short turns of the loop.

The last reference to a table of thousands of entries frees them all in one turn. Whatever replaces
such a table gives the old one here, in the turn that replaces it: nothing else may use it then.
"""

from collections import deque

from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.slices import in_turns
from fmqcore.turns import Turns


class Freeing:
    """Tables to be freed one after another, each by its own generator."""

    def __init__(self) -> None:
        self._waiting: deque[Turns[None]] = deque()
        self._added = Signal()

    def add(self, emptying: Turns[None]) -> None:
        """Free what `emptying` empties; it alone still refers to it."""
        self._waiting.append(emptying)
        self._added.notify()

    async def run(self) -> None:
        """Free until cancelled; what is left then is freed at once."""
        while True:
            while self._waiting:
                await in_turns(self._waiting.popleft())
            await self._added.wait()
