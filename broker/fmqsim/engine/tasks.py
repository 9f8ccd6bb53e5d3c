"""Handles of the simulated event loop, and tasks and futures with a fixed hash."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

from fmqsim.engine.node import Process

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


class Handle:
    """A scheduled callback; see `asyncio.Handle` and `asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "gone", "process", "when_s")

    def __init__(
        self,
        process: Process | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        when_s: float,
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.when_s = when_s  # by the clock of whoever asked
        self.gone = False

    def cancel(self) -> None:
        """See `asyncio.Handle`."""
        self.gone = True

    def cancelled(self) -> bool:
        """See `asyncio.Handle`."""
        return self.gone

    def when(self) -> float:
        """See `asyncio.TimerHandle`."""
        return self.when_s
