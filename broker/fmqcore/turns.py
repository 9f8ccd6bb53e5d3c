"""Long work as a generator that pauses, for a caller that runs an event loop. Pure.

The generator yields after some hundred steps and returns its result at the end. A caller that may
take its time runs it to the end (`finish`); the broker gives the loop a turn at each pause
(`fmqbroker.runtime.slices.in_turns`). Data that the work reads may change at a pause: each
generator documents what its result is then.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")
V = TypeVar("V")
Turns = Generator[None, None, T]

PIECE: Final = 200
"""Progress entries between two pauses: about 2 ms."""
FREED: Final = 2000
"""Values of a table freed between two pauses: about 1 ms."""


def emptying(
    take: Callable[[], tuple[object, V]], cost: Callable[[V], int], piece: int = FREED
) -> Turns[None]:
    """Empty a table that is no longer used, in pieces; the last use frees all values at once.

    `take` removes an item and raises `KeyError` if there is none: `popitem`.
    """
    left = piece
    while True:
        try:
            _, value = take()
        except KeyError:
            return
        left -= cost(value)
        del value
        if left <= 0:
            left = piece
            yield


def single(_value: object) -> int:
    """Return 1, the `cost` of a value without parts."""
    return 1


def finish(work: Turns[T]) -> T:
    """Run the work to its end without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
