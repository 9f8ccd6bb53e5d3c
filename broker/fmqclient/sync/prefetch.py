"""Messages that a blocking consumer has fetched ahead of the program. Nothing on disk.

The loop's thread adds them, and takes back what the program shall not get; the program's threads
take them. There is no lock: a signal handler may close the consumer, and wait for the loop, in the
middle of any of these. The thread that takes a message out of the dictionary owns it. No message
changes its place: one that moved could be passed by those behind it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Messages in order; any thread may call. Each is identified by its own value."""

    def __init__(self) -> None:
        self._waiting: dict[T, bool] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, messages: Iterable[T]) -> None:
        """Append messages."""
        for message in messages:
            self._waiting[message] = True

    def take(self, most: int) -> list[T]:
        """Take up to `most` of the first messages."""
        found: list[T] = []
        while len(found) < most and self._waiting:
            try:  # all at once: taken messages leave gaps, which each scan would pass again
                first = list(islice(self._waiting, most - len(found)))
            except RuntimeError:  # another thread has changed it just now
                continue
            found += [m for m in first if self._waiting.pop(m, False)]
        return found

    def all(self) -> list[T]:
        """Return the waiting messages without taking them."""
        return list(self._waiting)

    def take_back(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out and return what the program shall not get."""
        return [m for m in self.all() if unwanted(m) and self._waiting.pop(m, False)]
