"""Checks I1 to I4: stored and delivered records are those that were sent and acknowledged.

I1: one place and offset holds one record, on every broker. I2: an acknowledged record is there,
except where `promises.may_lose` excuses its loss. I3: no record is there that no producer sent, or
that was certainly not stored. I4: a delivered record is there: a consumer never sees a record that
is taken back later.
"""

from collections.abc import Iterator
from math import inf

from e2e.checks.facts import LATE_MS, Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.promises import may_lose, promise_of
from e2e.history.client_events import Delivered, Failed, Place, Stored
from e2e.traffic.values import UNSENT_RECORD


def inconsistent(facts: Facts) -> Iterator[Finding]:
    """I1: one place and offset holds one record.

    Replicas are compared with each other in I9.
    """
    known: dict[tuple[Place, int], Report] = {}
    for report in _reports(facts):
        truth = facts.truth(report.place).records.get(report.offset)
        if truth is not None and truth != report.record and not may_be_gone(facts, report):
            text = f"record {report.record} for {report.who}, record {truth} in the end"
            yield _of(Check.I1, report, text)
        before = known.setdefault((report.place, report.offset), report)
        if before.record == report.record or truth is not None:
            continue
        if may_be_gone(facts, before):  # the offset was reused
            known[report.place, report.offset] = report
        elif not may_be_gone(facts, report):
            text = (
                f"record {report.record} for {report.who}, record {before.record} for {before.who}"
            )
            yield _of(Check.I1, report, text)
    for event in facts.delivered:
        sent = facts.sent.get(event.record)
        if sent is not None and sent.key != event.key:
            text = f"key {event.key!r}, it was sent with {sent.key!r}"
            yield _of(Check.I1, event, text)


Report = Stored | Delivered


def _reports(facts: Facts) -> Iterator[Report]:
    """Yield every report to a client of where a record is, in the order of time."""
    stored = [o for o in facts.outcome.values() if isinstance(o, Stored) and o.offset >= 0]
    report: list[Report] = [*stored, *facts.delivered]
    yield from sorted(report, key=lambda event: event.at_ms)


def may_be_gone(facts: Facts, report: Report, by_ms: float = inf) -> str:
    """Return why this record may have been lost after it was reported; then its offset is free."""
    sent = facts.sent.get(report.record)
    if sent is None:
        return ""
    level = sent.level if isinstance(report, Stored) else "replicated"
    if isinstance(report, Delivered) and (reason := facts.shown_taken_back(report)):
        return reason
    return excused(facts, report.place.group, level, sent.at_ms, report.at_ms, by_ms=by_ms)


def lost(facts: Facts) -> Iterator[Finding]:
    """Check I2: every acknowledged record is stored."""
    for outcome in facts.outcome.values():
        if not isinstance(outcome, Stored) or outcome.offset < 0:
            continue
        truth = facts.truth(outcome.place)
        if outcome.offset < truth.begin or outcome.offset in truth.records:
            continue  # deleted by retention; or present (as another record: I1 reports that)
        sent = facts.sent.get(outcome.record)
        if not facts.judged(outcome.place.group) or sent is None:
            continue
        if not excused(facts, outcome.place.group, sent.level, sent.at_ms, outcome.at_ms):
            text = f"acknowledged to {outcome.who} (acks={sent.level}), not there in the end"
            yield Finding(
                Check.I2,
                outcome.at_ms,
                text,
                (outcome.who, outcome.place.group),
                outcome.place,
                outcome.offset,
                outcome.record,
            )


def phantom(facts: Facts) -> Iterator[Finding]:
    """I3: a record that is there was sent."""
    for event in facts.delivered:
        if reason := _not_sent(facts, event.record, event.place, event.at_ms):
            yield _of(Check.I3, event, f"delivered to {event.who}: {reason}")
    for group, places in sorted(facts.truths.items()):
        for place, truth in sorted(places.items()):
            for offset, record in truth.records.items():
                if reason := _not_sent(facts, record, place, facts.end_ms):
                    text = f"stored: {reason}"
                    yield Finding(Check.I3, facts.end_ms, text, (group,), place, offset, record)


def _not_sent(facts: Facts, record: int, place: Place, at_ms: float) -> str:
    """Return why the record cannot be there; "" if it can."""
    sent = facts.sent.get(record)
    if record == UNSENT_RECORD or sent is None:
        return "no producer sent this"
    if sent.at_ms > at_ms:
        return f"it was sent only at {sent.at_ms:.0f} ms"
    if sent.topic != place.topic:
        return f"it was sent to topic {sent.topic}"
    outcome = facts.outcome.get(record)
    if isinstance(outcome, Failed):
        return f"its producer got the error that it was not stored ({outcome.reason})"
    return ""


def aborted(facts: Facts) -> Iterator[Finding]:
    """I4: a delivered record is there in the end."""
    report: set[tuple[Place, int, int]] = set()
    for event in facts.delivered:
        truth = facts.truth(event.place)
        if event.offset < truth.begin or event.offset in truth.records:
            continue
        sent = facts.sent.get(event.record)
        if not facts.judged(event.place.group) or sent is None:
            continue
        if (event.place, event.offset, event.record) in report:
            continue
        report.add((event.place, event.offset, event.record))
        if facts.shown_taken_back(event):
            continue
        if not excused(facts, event.place.group, "replicated", sent.at_ms, event.at_ms):
            yield _of(Check.I4, event, f"delivered to {event.who}, not there in the end")


def excused(
    facts: Facts,
    group: str,
    level: str,
    since_ms: float,
    reported_ms: float,
    below: float = inf,
    by_ms: float = inf,
) -> str:
    """Return why a record reported in between, ending at `below` at most, may be lost."""
    losses = facts.losses
    if not losses.all and level != "one_way":
        return ""
    below = min(below, losses.furthest(group, since_ms, reported_ms))
    seen_ms = reported_ms + (LATE_MS if facts.looks else 0.0)  # sampled, a change is seen later
    states = facts.states_between(group, since_ms, seen_ms)
    for setup in facts.setups_between(group, since_ms, reported_ms):
        masters = {state.master for state in states if state.master} or {setup.master}
        for master in sorted(masters):
            isrs = [frozenset(s.isr) for s in states if (s.master or setup.master) == master]
            promise = promise_of(level, setup, isrs, since_ms, reported_ms, master, below)
            if reason := may_lose(promise, [x for x in losses.all if x.from_ms <= by_ms]):
                return reason
    return ""


def _of(check: Check, event: Report, text: str) -> Finding:
    about = (event.who, event.place.group)
    return Finding(check, event.at_ms, text, about, event.place, event.offset, event.record)
