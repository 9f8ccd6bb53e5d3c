"""The findings of checks: each violation with enough facts for its story. Pure."""

from enum import Enum
from typing import NamedTuple

from e2e.history.client_events import Place


class Check(Enum):
    """The checks I1 to I13."""

    I1 = "inconsistent offset"
    I2 = "lost"
    I3 = "phantom"
    I4 = "aborted read"
    I5 = "duplicate"
    I6 = "order"
    I7 = "offsets went back"
    I8 = "two at once"
    I9 = "divergent replicas"
    I10 = "recovery"
    I11 = "not healed"
    I12 = "not calm"
    I13 = "order over a chain"


class Finding(NamedTuple):
    """A violation, first visible at `at_ms`.

    `about` names the brokers, groups and clients that its story needs.
    """

    check: Check
    at_ms: float
    text: str
    about: tuple[str, ...] = ()
    place: Place | None = None
    offset: int = -1
    record: int = -1

    def __str__(self) -> str:
        where = "" if self.place is None else f"{self.place}"
        if self.offset >= 0:
            where += f" offset {self.offset}"
        if self.record >= 0:
            where += f" record {self.record}"
        text = f"{where.strip()}: {self.text}" if where else self.text
        return f"{self.check.name} {self.check.value}: {text}"
