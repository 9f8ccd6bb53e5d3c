"""Count the lines of Python that one turn of the loop executes, the same on any machine.

Lines are counted in all code that runs in a callback of the loop; work of a single call in C (a
sort, a copy of a dictionary) is not seen.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MOST_LINES = 35_000
"""At most 5 ms, at 0.07 to 0.15 microseconds a line."""


class Turns:
    """`longest`: the most lines in one callback so far; `where`: that callback."""

    def __init__(self) -> None:
        self.longest = 0
        self.where = ""
        self._lines = 0

    def run(self, handle: Any, run: Any) -> None:
        """Run one callback and count."""
        self._lines = 0
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            run(handle)
        finally:
            sys.settrace(before)
            if self._lines > self.longest:
                self.longest, self.where = self._lines, repr(handle)

    def _on_call(self, _frame: FrameType, _event: str, _arg: object) -> Any:
        self._lines += 1
        return self._on_line

    def _on_line(self, _frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self._lines += 1
        return self._on_line


@contextmanager
def turns_counted() -> Iterator[Turns]:
    """Count the turns that start meanwhile; only in an asyncio loop written in Python.

    Frames entered earlier are not traced: run the work in its own task.
    """
    turns, run = Turns(), asyncio.events.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        turns.run(handle, run)

    asyncio.events.Handle._run = counted  # type: ignore
    try:
        yield turns
    finally:
        asyncio.events.Handle._run = run  # type: ignore
