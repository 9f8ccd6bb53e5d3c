"""What a fault is: something that is done to a running cluster, seen to be done, and undone."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from e2e.chaos.ground import Ground
from e2e.history.events import FaultKind
from fmqcore.errors import FmqError

if TYPE_CHECKING:
    from e2e.chaos.stage import Stage


class NotFired(FmqError):
    """The fault was made but nothing was seen of it: what follows proves nothing."""


class Fault(ABC):
    """One object is one time that it happens. `inject`, then a while, then `heal`."""

    name: ClassVar[str]
    what: ClassVar[str]
    """One line for a list."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Properties of `Ground`."""

    kind: ClassVar[FaultKind]

    patience: ClassVar[float] = 1.0
    """It stands so many times as long as others do."""

    def __init__(self) -> None:
        self.ended: set[str] = set()  # brokers whose end belongs to the fault

    @classmethod
    def available(cls, ground: Ground) -> str | None:
        """Why it cannot be made here; None if it can."""
        reasons = (getattr(ground, need) for need in cls.needs)
        return next((reason for reason in reasons if reason), None)

    @abstractmethod
    async def inject(self, stage: "Stage") -> str:
        """Make it, and wait until its effect is seen; what was done. Raises `NotFired`."""

    @abstractmethod
    async def heal(self, stage: "Stage") -> None:
        """Undo it; also after an `inject` that failed half-way."""
