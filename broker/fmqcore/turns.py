"""Long work as a generator that pauses, for a caller that runs an event loop. Pure.

The generator yields after some hundred steps and returns its result at the end. A caller that may
take its time runs it to the end (`finish`); the broker gives the loop a turn at each pause
(`fmqbroker.runtime.slices.in_turns`). Data that the work reads may change at a pause: each
generator documents what its result is then.
"""

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Turns = Generator[None, None, T]

PIECE: Final = 200
"""Progress entries between two pauses: about 2 ms."""


def finish(work: Turns[T]) -> T:
    """Run the work to its end without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
