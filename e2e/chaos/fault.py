"""The base of all faults: made on a running cluster, seen to have an effect, and undone."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from e2e.chaos.ground import Ground
from e2e.history.cluster_events import FaultKind
from fmqcore.errors import FmqError

if TYPE_CHECKING:
    from e2e.chaos.stage import Stage


class NotFired(FmqError):
    """The fault was made but no effect was seen: the rest of the round proves nothing."""


class Fault(ABC):
    """One occurrence of a fault: `inject`, then a while, then `heal`."""

    name: ClassVar[str]
    what: ClassVar[str]
    """One line for a list."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Properties of `Ground`."""

    kind: ClassVar[FaultKind]

    patience: ClassVar[float] = 1.0
    """The fault lasts this many times as long as others."""

    def __init__(self) -> None:
        self.ended: set[str] = set()  # brokers whose end belongs to the fault

    @classmethod
    def available(cls, ground: Ground) -> str | None:
        """Return why the fault cannot be made here; None if it can."""
        reasons = (getattr(ground, need) for need in cls.needs)
        return next((reason for reason in reasons if reason), None)

    @abstractmethod
    async def inject(self, stage: "Stage") -> str:
        """Make the fault and wait for its effect; return what was done. Raises `NotFired`."""

    @abstractmethod
    async def heal(self, stage: "Stage") -> None:
        """Undo the fault; also after an `inject` that failed half-way."""
