"""Frees large tables that are no longer used, in short turns of the loop.

The last reference to a table of thousands of entries frees them all in one turn. Whatever replaces
such a table gives the old one here, in the turn that replaces it: nothing else may use it then.
"""

from collections import deque

from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.slices import in_turns
from fmqcore.turns import Turns


class Freeing:
    """A queue of unused tables: each is freed by its own generator, one after another."""

    def __init__(self) -> None:
        self._waiting: deque[Turns[None]] = deque()
        self._added = Signal()

    def add(self, emptying: Turns[None]) -> None:
        """Queue the table that `emptying` empties; nothing else may refer to that table."""
        self._waiting.append(emptying)
        self._added.notify()

    async def run(self) -> None:
        """Free the queued tables until cancelled; those left then are freed in one turn."""
        while True:
            while self._waiting:
                await in_turns(self._waiting.popleft())
            await self._added.wait()
