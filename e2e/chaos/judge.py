"""The outcome of a round, and how much must happen for a verdict."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

ENOUGH: Final = 500
"""Acknowledged records of a round: with fewer it is inconclusive."""

ENOUGH_IN_ALL: Final = 10_000
CHANGES_IN_ALL: Final = 3
"""A whole run with fewer acknowledged records, or fewer changes of reader, is inconclusive."""


class Verdict(Enum):
    """The verdict on a fault."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"  # too little happened, or it did not fire; counts as failed
    NOT_RUN = "not run"


@dataclass(slots=True)
class Outcome:
    """The outcome of one fault in one round."""

    name: str
    verdict: Verdict = Verdict.UNKNOWN
    summary: str = ""  # what was done, or why it was not run
    acked: int = 0
    reads_ms: float = 0.0
    writes_ms: float = 0.0
    whole_s: float = 0.0
    switches: int = 0
    findings: list[str] = field(default_factory=list)
