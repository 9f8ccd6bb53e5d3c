"""The interface of an engine: it runs one function over the tasks of a job."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from fmqcore.errors import FmqError

T = TypeVar("T")
R = TypeVar("R")

AGAIN: Final = (
    "run the same command again: an archive, and a check with --out, go on where they ended"
)


class EngineFailed(FmqError):
    """The engine, not the work, failed: a worker died. What was finished is kept."""


class Engine(Protocol):
    """Runs a function over tasks."""

    workers: int
    """Tasks that run at a time."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results as they come, one per task. Raises `EngineFailed`."""
        ...
