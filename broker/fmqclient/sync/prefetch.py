"""What a blocking consumer has fetched and not yet given to its program. Nothing on disk.

The loop's thread fills it, and takes back what the program shall not get; the program's threads
empty it. No lock: a signal handler may close the consumer, and wait for the loop, in the midst of
any of these. Each message is taken by whoever takes it out of the dictionary, and none changes its
place: a message that moved could be passed by those behind it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Messages in their order; any thread may call. They are told apart by what they are."""

    def __init__(self) -> None:
        self._waiting: dict[T, bool] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, messages: Iterable[T]) -> None:
        """To the end."""
        for message in messages:
            self._waiting[message] = True

    def take(self, most: int) -> list[T]:
        """Up to so many of the first."""
        found: list[T] = []
        while len(found) < most and self._waiting:
            try:  # all at once: what was taken leaves gaps, through which each look would go again
                first = list(islice(self._waiting, most - len(found)))
            except RuntimeError:  # another thread has changed it just now
                continue
            found += [m for m in first if self._waiting.pop(m, False)]
        return found

    def all(self) -> list[T]:
        """What waits now; it stays."""
        return list(self._waiting)

    def take_back(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out what the program shall not get."""
        return [m for m in self.all() if unwanted(m) and self._waiting.pop(m, False)]
