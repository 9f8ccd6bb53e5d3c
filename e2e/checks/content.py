"""I1 to I4: what is stored and delivered is what was sent, and what was told to be stored is there.

I1: one place and offset holds one record, whoever is asked. I2: what was acknowledged is there, but
for what `promise.may_lose` excuses. I3: nothing is there that nobody sent, or that was certainly
not stored. I4: what was once delivered is there: a consumer never sees what is taken back later.
"""

from collections.abc import Iterator
from itertools import chain

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.promise import may_lose, promise_of
from e2e.events import Delivered, Failed, Place, Sent, Stored
from e2e.values import NOBODYS
from fmqcore.batch import BatchType


def inconsistent(facts: Facts) -> Iterator[Finding]:
    """I1."""
    known: dict[tuple[Place, int], tuple[int, str]] = {}
    for at_ms, source, place, offset, record in chain(_told(facts), _stored(facts)):
        before = known.setdefault((place, offset), (record, source))
        if before[0] != record:
            text = f"record {record} for {source}, record {before[0]} for {before[1]}"
            yield Finding(Check.I1, at_ms, text, (place.group, source, before[1]), place, offset)
    for event in facts.delivered:
        sent = facts.sent.get(event.record)
        if sent is not None and sent.key != event.key:
            text = f"key {event.key!r}, it was sent with {sent.key!r}"
            yield _of(Check.I1, event, text)


def _told(facts: Facts) -> Iterator[tuple[float, str, Place, int, int]]:
    for outcome in facts.outcome.values():
        if isinstance(outcome, Stored) and outcome.offset >= 0:
            yield outcome.at_ms, outcome.who, outcome.place, outcome.offset, outcome.record
    for event in facts.delivered:
        yield event.at_ms, event.who, event.place, event.offset, event.record


def _stored(facts: Facts) -> Iterator[tuple[float, str, Place, int, int]]:
    for broker, journal in sorted(facts.journals.items()):
        for batch in journal.batches:
            if batch.header.type == BatchType.DATA:
                place = journal.place(batch.header)
                for offset, record in enumerate(batch.records, batch.header.base_offset):
                    yield facts.end_ms, broker, place, offset, record


def lost(facts: Facts) -> Iterator[Finding]:
    """I2."""
    for outcome in facts.outcome.values():
        if not isinstance(outcome, Stored) or outcome.offset < 0:
            continue
        truth = facts.truth(outcome.place)
        if outcome.offset < truth.begin or outcome.offset in truth.records:
            continue  # deleted by retention; or there (if as another record, I1 says so)
        sent = facts.sent.get(outcome.record)
        if not facts.judged(outcome.place.group) or sent is None:
            continue
        if not _excused(facts, outcome.place.group, sent.level, sent.at_ms, outcome.at_ms):
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
    """I3."""
    for event in facts.delivered:
        if why := _not_sent(facts, event.record, event.place, event.at_ms):
            yield _of(Check.I3, event, f"delivered to {event.who}: {why}")
    for group, places in sorted(facts.truths.items()):
        for place, truth in sorted(places.items()):
            for offset, record in truth.records.items():
                if why := _not_sent(facts, record, place, facts.end_ms):
                    text = f"stored: {why}"
                    yield Finding(Check.I3, facts.end_ms, text, (group,), place, offset, record)


def _not_sent(facts: Facts, record: int, place: Place, at_ms: float) -> str:
    """Why it cannot be there; "" if it can."""
    sent = facts.sent.get(record)
    if record == NOBODYS or sent is None:
        return "nobody sent this"
    if sent.at_ms > at_ms:
        return f"it was sent only at {sent.at_ms:.0f} ms"
    if sent.topic != place.topic:
        return f"it was sent to topic {sent.topic}"
    outcome = facts.outcome.get(record)
    if isinstance(outcome, Failed):
        return f"its producer was told that it was not stored ({outcome.why})"
    return ""


def aborted(facts: Facts) -> Iterator[Finding]:
    """I4."""
    told: set[tuple[Place, int]] = set()
    for event in facts.delivered:
        truth = facts.truth(event.place)
        if event.offset < truth.begin or event.offset in truth.records:
            continue
        sent = facts.sent.get(event.record)
        if not facts.judged(event.place.group) or sent is None:
            continue
        if (event.place, event.offset) in told:
            continue
        told.add((event.place, event.offset))
        if not _excused(facts, event.place.group, "replicated", sent.at_ms, event.at_ms):
            yield _of(Check.I4, event, f"delivered to {event.who}, not there in the end")


def _excused(facts: Facts, group: str, level: str, since_ms: float, told_ms: float) -> str:
    """Why a record that was told in between may be lost."""
    setup = facts.group(group)
    if setup is None:
        return ""
    if not facts.losses.all and level != "one_way":
        return ""
    states = facts.states_between(group, since_ms, told_ms)
    isrs = [frozenset(state.isr) for state in states]
    masters = {state.master for state in states if state.master} or {setup.master}
    for master in sorted(masters):
        promise = promise_of(level, setup, isrs, since_ms, told_ms, master)
        if why := may_lose(promise, facts.losses.all):
            return why
    return ""


def excused(facts: Facts, group: str, sent: Sent, told_ms: float) -> str:
    """Why this record, told at that moment to be stored, may be lost; "" = it may not."""
    return _excused(facts, group, sent.level, sent.at_ms, told_ms)


def _of(check: Check, event: Delivered, text: str) -> Finding:
    about = (event.who, event.place.group)
    return Finding(check, event.at_ms, text, about, event.place, event.offset, event.record)
