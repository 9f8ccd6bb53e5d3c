"""I5: nothing is stored twice, and what is done does not come again.

Delivery is at least once: what was not acknowledged may come again after a lost session. What a
member has acknowledged never comes to that member again, and what was confirmed as stored never
comes to anybody, but for what `takeover.excuse` names: the acks of a reader that died before it
could hand them over, within its checkpoint's window. And a record that was lost before its producer
had an answer, where the policy lets that be, is another message when it is stored again, be it at
the offset that it had (its epoch is another: acks of the first say nothing of it).
"""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from e2e.checks.content import may_be_gone
from e2e.checks.facts import Confirmed, Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.progress import Arrival, read_all
from e2e.checks.takeover import excuse
from e2e.history.events import Delivered, FaultKind, Place, Step, Stored

_WAKES_MS = 1000.0
"""So long after it has woken a client may not know yet that its queue is another's."""
_NOTICED_MS = 6200.0
"""So long after its broker went without a word a client may take its session for whole: 1.3 beats
of 3 s, the pause between two looks, and a question of 1.5 s that nobody answers."""


def duplicates(facts: Facts) -> Iterator[Finding]:
    """I5."""
    yield from _stored_twice(facts)
    for readers, _, read in read_all(facts):
        for arrival in read.arrivals:
            yield from _again(facts, readers, arrival)


def redelivered(facts: Facts) -> int:
    """Deliveries of what the same consumer group had got before, but for nacks and seeks."""
    return sum(
        arrival.before is not None and not arrival.nacked
        for _, _, read in read_all(facts)
        for arrival in read.arrivals
    )


def _stored_twice(facts: Facts) -> Iterator[Finding]:
    """However often it was tried: one record, one place, one offset."""
    seen: dict[int, set[tuple[Place, int]]] = defaultdict(set)
    for outcome in facts.outcome.values():
        if isinstance(outcome, Stored) and outcome.offset >= 0:
            seen[outcome.record].add((outcome.place, outcome.offset))
    for event in facts.delivered:
        still = facts.truth(event.place).records.get(event.offset) == event.record
        if still or not may_be_gone(facts, event):
            seen[event.record].add((event.place, event.offset))
    for places in facts.truths.values():
        for place, truth in places.items():
            for offset, record in truth.records.items():
                seen[record].add((place, offset))
    for record, where in seen.items():
        if len(where) > 1 and record in facts.sent:
            sent = facts.sent[record]
            told = ", ".join(f"{place} offset {offset}" for place, offset in sorted(where))
            groups = sorted({place.group for place, _ in where})
            text = f"stored {len(where)} times: {told}"
            yield Finding(Check.I5, sent.at_ms, text, (sent.who, *groups), record=record)


def _slept(facts: Facts, event: Delivered, confirmed: Confirmed) -> bool:
    """Its client stood still while another was done with it: it wakes with it in its hands."""
    pauses = [f for f in facts.faults if f.kind is FaultKind.CLIENT and "pause" in f.detail]
    mine = [f for f in pauses if f.on == _machine(event.who)]
    return any(
        woke.at_ms >= confirmed.at_ms >= fell.at_ms and event.at_ms <= woke.at_ms + _WAKES_MS
        for fell in mine
        for woke in mine
        if (fell.number, fell.step, woke.step) == (woke.number, Step.FIRED, Step.HEALED)
    )


def _stale(facts: Facts, event: Delivered, confirmed: Confirmed) -> bool:
    """A copy from the session with a reader whose term was over when another was done with it.

    A reader that goes without a word (its power is cut, or it stands still) is noticed by its
    silence only; until then its client takes the session for whole, and hands out what it has.
    """
    states = facts.states.get(event.place.group, ())
    over_ms = next((s.at_ms for s in states if 0 < event.epoch < s.epoch), inf)
    return over_ms <= confirmed.at_ms <= event.at_ms <= over_ms + _NOTICED_MS


def _seek_is_back(facts: Facts, arrival: Arrival) -> bool:
    """Its copy came from a reader that had not heard of the last seek; who has it reads again.

    Then an ack of that copy, which nobody has stored, counts as made before the seek: a member that
    had not heard of the seek either cannot tell (ADR 0021).
    """
    event, before, sought = arrival.event, arrival.before, arrival.sought
    if arrival.acked_ms is None or arrival.confirmed is not None:
        return False
    if before is None or sought is None or before.epoch >= event.epoch:
        return False
    return bool(excuse(facts, event.place, sought, event.at_ms))


def _machine(who: str) -> str:
    """Where a client runs, whose lives are `m00`, `m00.2`, `m00.3`."""
    return who.partition(".")[0]


def _again(facts: Facts, readers: str, arrival: Arrival) -> Iterator[Finding]:
    event, confirmed = arrival.event, arrival.confirmed
    text = ""
    if arrival.acked_ms is not None:
        # Its client may have been told that it is stored: it asks by itself now and then.
        acked_ms = arrival.acked_ms
        confirmed = confirmed or Confirmed(event.at_ms, event.who, event.offset, acked_ms)
        text = f"delivered again to {event.who}, which had acknowledged it at {acked_ms:.0f} ms"
    elif confirmed is not None:
        text = (
            f"delivered again to {event.who} of {readers}; the ack of {confirmed.who} was "
            f"confirmed as stored at {confirmed.at_ms:.0f} ms"
        )
    if arrival.before is not None and may_be_gone(facts, arrival.before, event.at_ms):
        return
    if confirmed is None or _slept(facts, event, confirmed) or _seek_is_back(facts, arrival):
        return
    if arrival.acked_ms is None and _stale(facts, event, confirmed):
        return
    if not excuse(facts, event.place, confirmed, event.at_ms):
        about = (event.who, event.place.group)
        yield Finding(Check.I5, event.at_ms, text, about, event.place, event.offset, event.record)
