"""Tasks and futures of the simulated event loop, with a fixed hash."""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


def _hash_of(future: Any) -> int:
    """Return the number that its loop gave the future at its first hash."""
    try:
        number: int = future.hash_number
    except AttributeError:
        number = future.hash_number = future.get_loop().next_number()  # a `SimLoop`
    return number


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is the same in every run."""

    def __hash__(self) -> int:
        return _hash_of(self)


class SimTask(asyncio.Task[T]):
    """A task whose hash is the same in every run."""

    def __hash__(self) -> int:
        return _hash_of(self)
