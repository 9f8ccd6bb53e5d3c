"""The verdict on the copy, pure: takes what really happened, returns findings.

A run that showed nothing (no switch, no kill that the sends survived) is a finding, not a success.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fmqdev.demo.ordered.copying import Acked
from fmqdev.demo.verdict import Finding, finding_of

Holds = Callable[[str, int], bool]
"""Whether a broker's journal holds an offset of the queue."""


@dataclass(slots=True)
class Kill:
    """One killed broker, by the loop's clock, and what followed."""

    broker: str
    group: str
    role: str
    killed_ms: float
    acked_before: int  # how many answers had come by then
    segment: int  # which was open
    sends_pause_ms: float = 0.0
    reads_pause_ms: float = 0.0
    lacking: list[str] = field(default_factory=list)  # acknowledged and not in its journal


@dataclass(frozen=True, slots=True)
class Copied:
    """Everything that a run left to judge."""

    total: int
    acked: Sequence[Acked]
    refused: Sequence[str]
    applied: int
    misfits: Sequence[str]
    differences: Sequence[str]  # of the two tables
    segments_read: Sequence[int]
    kills: Sequence[Kill]
    expected_kills: int
    on_one_disk: Sequence[str]  # at the end


def judge_copy(copied: Copied) -> list[Finding]:
    """Return everything that must not be."""
    rows = (
        ("REFUSED", "changes were not stored", copied.refused),
        ("LOST", "changes are missing", _lost(copied)),
        ("ORDER", "changes came in another order", [*copied.misfits, *_inversions(copied)]),
        ("DIFFERENT", "rows differ between source and target", copied.differences),
        ("ONE_DISK", "acknowledged changes are not on two disks", _on_one_disk(copied)),
        ("NO_SWITCH", "faults showed nothing", _without_effect(copied)),
    )
    return [finding for row in rows if (finding := finding_of(*row))]


def lacking(acked: Iterable[Acked], group: str, broker: str, holds: Holds) -> list[str]:
    """Return the acknowledged changes of a group that a broker's journal does not hold."""
    return [
        f"change {one.number} (segment {one.segment}, offset {one.offset}) is not on {broker}"
        for one in acked
        if one.group == group and not holds(broker, one.offset)
    ]


def _lost(copied: Copied) -> list[str]:
    acked = {one.number for one in copied.acked}
    missing = [f"change {n} has no ack" for n in range(1, copied.total + 1) if n not in acked]
    if copied.applied < copied.total:
        missing.append(f"the target ends at change {copied.applied} of {copied.total}")
    return missing


def _inversions(copied: Copied) -> list[str]:
    """Consumers see a chain's segments in their order, each once."""
    return [
        f"segment {later} was delivered after segment {earlier}"
        for earlier, later in pairwise(copied.segments_read)
        if later < earlier
    ]


def _on_one_disk(copied: Copied) -> list[str]:
    return [text for kill in copied.kills for text in kill.lacking] + list(copied.on_one_disk)


def _without_effect(copied: Copied) -> list[str]:
    short = len(copied.kills) - copied.expected_kills
    found = [f"{-short} kills did not happen"] if short else []
    for kill in copied.kills:
        later = any(one.segment > kill.segment for one in copied.acked[kill.acked_before :])
        if not later:
            found.append(f"no sends in another segment after the death of {kill.broker}")
    return found
