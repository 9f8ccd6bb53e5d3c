"""Tasks and futures of the simulated event loop, with a fixed hash."""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


def _number(of: "asyncio.Future[Any]") -> int:
    number: int = of.get_loop().next_number()  # type: ignore[attr-defined]  # a `SimLoop`
    return number


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is the same in every run."""

    _sim: int

    def __hash__(self) -> int:
        try:
            return self._sim
        except AttributeError:
            self._sim = _number(self)
            return self._sim


class SimTask(asyncio.Task[T]):
    """A task whose hash is the same in every run."""

    _sim: int

    def __hash__(self) -> int:
        try:
            return self._sim
        except AttributeError:
            self._sim = _number(self)
            return self._sim
