"""What a round and a whole run come to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from e2e.chaos.flow import AUDIT, READERS
from e2e.events import Delivered, Event, Failed, Place, Stored
from e2e.values import NOBODYS

ENOUGH: Final = 500
"""Acknowledged records of a round: with fewer it shows nothing."""


class Verdict(Enum):
    """Of a fault, or of a run."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"  # too little happened; counts as failed
    NOT_RUN = "not run"


@dataclass(slots=True)
class Outcome:
    """One fault, once."""

    name: str
    verdict: Verdict = Verdict.UNKNOWN
    told: str = ""  # what was done; why it was not run
    acked: int = 0
    reads_ms: float = 0.0
    writes_ms: float = 0.0
    whole_s: float = 0.0
    switches: int = 0
    findings: list[str] = field(default_factory=list)


def findings_of(events: Sequence[Event]) -> list[str]:
    """What must not be, from what clients were told."""
    stored: dict[tuple[Place, int], int] = {}
    seen: dict[str, dict[tuple[Place, int], int]] = {READERS: {}, AUDIT: {}}
    found: list[str] = []
    for event in events:
        match event:
            case Stored() if event.offset >= 0:
                at = (event.place, event.offset)
                if stored.setdefault(at, event.record) != event.record:
                    found.append(f"{at} acknowledged for {stored[at]} and {event.record}")
            case Delivered():
                at = (event.place, event.offset)
                if event.record == NOBODYS:
                    found.append(f"{at}: nobody sent that")
                if seen.setdefault(event.readers, {}).setdefault(at, event.record) != event.record:
                    found.append(f"{at}: two messages in one place")
            case Failed():
                found.append(f"record {event.record} was refused: {event.why}")
            case _:
                pass
    for readers, got in seen.items():
        found += [
            f"{at} ({record}) was acknowledged, {readers} got {got.get(at)}"
            for at, record in stored.items()
            if got.get(at) != record
        ]
    return found
