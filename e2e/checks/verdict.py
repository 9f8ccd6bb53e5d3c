"""The verdict on a run: ok, broken, or unknown because too little happened. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from e2e.checks.content import aborted, inconsistent, lost, phantom
from e2e.checks.duplicates import duplicates, redelivered
from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.liveness import not_healed
from e2e.checks.offsets import offsets
from e2e.checks.order import order
from e2e.checks.ordered import ordered
from e2e.checks.premature_visibility import acked_early, read_early
from e2e.checks.quiet_end import not_calm
from e2e.checks.recovery import recovery
from e2e.checks.replicas import deleted, divergent
from e2e.checks.serving import two_at_once
from e2e.history.client_events import (
    Failed,
    OrderedHandedOn,
    OrderedLowered,
    OrderedOpened,
    OrderedSought,
    OrderedStored,
    Place,
    Stored,
    Unsure,
)
from e2e.history.cluster_events import Step
from e2e.history.events import Event
from e2e.history.journals import Journal


class Outcome(Enum):
    """The result of a run."""

    OK = "ok"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Limits:
    """A run below these limits is inconclusive; `whole_ms` bounds the time to recover."""

    acked_records: int = 10_000
    acked_batches: int = 0
    reader_changes: int = 3
    ordered_records: int = 0  # acknowledged to ordered producers
    segments: int = 0  # of ordered topics, with acknowledged records
    whole_ms: float = 60_000.0


REAL = Limits()
SIMULATED = Limits(acked_records=0, acked_batches=300)
ORDERED = replace(SIMULATED, ordered_records=100, segments=3)
"""The limits of a simulated run with an ordered topic."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`findings`: violations in the order in which they showed; `reasons`: what is missing."""

    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [self.outcome.value, *map(str, self.findings), *self.reasons]
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return "\n".join([*lines, counts])


def judge(events: Iterable[Event], journals: Iterable[Journal], limits: Limits = REAL) -> Verdict:
    """Return the verdict on a run, from its history and the journals that it left."""
    facts = Facts(list(events), {journal.broker: journal for journal in journals})
    findings = sorted(check_all(facts, limits), key=lambda finding: finding.at_ms)
    counts = _counts(facts)
    reasons = tuple(_too_little(facts, counts, limits))
    outcome = Outcome.BROKEN if findings else Outcome.UNKNOWN if reasons else Outcome.OK
    return Verdict(outcome, tuple(findings), reasons, counts)


def check_all(facts: Facts, limits: Limits = REAL) -> Iterator[Finding]:
    """Run the checks I1 to I13."""
    yield from inconsistent(facts)
    yield from lost(facts)
    yield from acked_early(facts)
    yield from phantom(facts)
    yield from aborted(facts)
    yield from read_early(facts)
    yield from duplicates(facts)
    yield from order(facts)
    yield from offsets(facts)
    yield from two_at_once(facts)
    yield from deleted(facts)
    yield from divergent(facts)
    yield from recovery(facts)
    yield from not_healed(facts, limits.whole_ms)
    yield from not_calm(facts)
    yield from ordered(facts)


def checks_of(findings: Iterable[Finding]) -> list[Check]:
    """Return the checks that were broken."""
    return sorted({finding.check for finding in findings}, key=lambda check: int(check.name[1:]))


def _counts(facts: Facts) -> dict[str, int]:
    stored = [o for o in facts.outcome.values() if isinstance(o, Stored) and o.offset >= 0]
    return {
        "sent": len(facts.sent),
        "acknowledged": len(stored),
        "batches acknowledged": _batches(facts, stored),
        "unknown": sum(isinstance(o, Unsure) for o in facts.outcome.values()),
        "failed": sum(isinstance(o, Failed) for o in facts.outcome.values()),
        "delivered": len(facts.delivered),
        "delivered again": redelivered(facts),
        "changes of reader": _reader_changes(facts),
        **_ordered_counts(facts),
        "faults": len({f.number for f in facts.faults if f.step is Step.FIRED}),
    }


def _ordered_counts(facts: Facts) -> dict[str, int]:
    """Count what happened to ordered topics; empty if there were none."""
    stored = [event for event in facts.ordered if isinstance(event, OrderedStored)]
    if not stored:
        return {}
    lowered = [event for event in facts.ordered if isinstance(event, OrderedLowered)]
    return {
        "acknowledged in order": len(stored),
        "segments": len({(event.topic, event.segment) for event in stored}),
        "senders": sum(isinstance(event, OrderedOpened) for event in facts.ordered),
        "accepted unknown ends": sum(
            isinstance(event, OrderedHandedOn) and bool(event.unended) for event in facts.ordered
        ),
        "seeks to times": sum(isinstance(event, OrderedSought) for event in facts.ordered),
        "lowered ends": len(lowered),
        "accepted losses": sum(event.accepted for event in lowered),
    }


def _batches(facts: Facts, stored: list[Stored]) -> int:
    """Count batches as the journals have them; for records not there, answers at one moment."""
    stored_offsets = {(o.place, o.offset) for o in stored}
    found: set[tuple[Place, int]] = set()
    heads = 0
    for group in facts.group_names():
        journal = facts.final_journal(group)
        if journal is None:
            continue
        for batch in journal.batches:
            if not batch.records:
                continue
            place, base = journal.place(batch.header), batch.header.base_offset
            heads += (place, base) in stored_offsets
            found |= {(place, base + at) for at in range(len(batch.records))}
    return heads + len({(o.place, o.at_ms) for o in stored if (o.place, o.offset) not in found})


def _reader_changes(facts: Facts) -> int:
    changes = 0
    for group in facts.group_names():
        states = facts.states.get(group, ())
        changes += sum(one.reader != two.reader for one, two in pairwise(states))
    return changes


def _too_little(facts: Facts, counts: Mapping[str, int], limits: Limits) -> Iterator[str]:
    for name, least in (
        ("acknowledged", limits.acked_records),
        ("batches acknowledged", limits.acked_batches),
        ("changes of reader", limits.reader_changes),
        ("acknowledged in order", limits.ordered_records),
        ("segments", limits.segments),
    ):
        if (count := counts.get(name, 0)) < least:
            yield f"only {count} {name}, at least {least} show something"
    fired = {fault.number for fault in facts.faults if fault.step is Step.FIRED}
    for fault in facts.faults:
        if fault.step is Step.SCHEDULED and fault.number not in fired:
            yield f"fault {fault.number} ({fault.kind.value} of {fault.on}) never fired"
