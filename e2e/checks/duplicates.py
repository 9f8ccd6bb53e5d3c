"""Check I5: no record is stored twice, and a finished record is not delivered again.

Delivery is at least once: a record that was not acknowledged may be delivered again after a lost
session. A record that a member has acknowledged is never delivered to that member again, and one
whose ack was confirmed as stored is never delivered to any member, except where `takeover.excuse`
names a reason: the acks of a reader that died before it could hand them over, within its
checkpoint's window. And a record that was lost before its producer had an answer, where the policy
allows that, is another message when it is stored again, even at the same offset (its epoch differs:
acks of the first do not count for the second).
"""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from e2e.checks.content import may_be_gone
from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.progress import Arrival, Confirmed
from e2e.checks.takeover import excuse
from e2e.history.client_events import Delivered, Place, Stored
from e2e.history.cluster_events import FaultKind, Step

_WAKES_MS = 1000.0
"""Milliseconds after waking in which a client may not know yet that it lost its queue."""
_NOTICED_MS = 6200.0
"""Milliseconds in which a client may not notice that its broker went silent.

1.3 beats of 3 s, the pause between two looks, and a question of 1.5 s without an answer.
"""


def duplicates(facts: Facts) -> Iterator[Finding]:
    """I5: no record is stored twice, and no finished record is delivered again."""
    yield from _stored_twice(facts)
    for readers, _, read in facts.reads():
        for arrival in read.arrivals:
            yield from _again(facts, readers, arrival)


def redelivered(facts: Facts) -> int:
    """Count deliveries that repeat one to the same consumer group, without nacks and seeks."""
    return sum(
        arrival.before is not None and not arrival.nacked
        for _, _, read in facts.reads()
        for arrival in read.arrivals
    )


def _stored_twice(facts: Facts) -> Iterator[Finding]:
    """Check that each record has one place and one offset, however often it was tried."""
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
            listed = ", ".join(f"{place} offset {offset}" for place, offset in sorted(where))
            groups = sorted({place.group for place, _ in where})
            text = f"stored {len(where)} times: {listed}"
            yield Finding(Check.I5, sent.at_ms, text, (sent.who, *groups), record=record)


def _slept(facts: Facts, event: Delivered, confirmed: Confirmed) -> bool:
    """Whether the client was paused while another finished the record, and holds an old copy."""
    pauses = [f for f in facts.faults if f.kind is FaultKind.CLIENT and "pause" in f.detail]
    own_pauses = [f for f in pauses if f.on == _machine(event.who)]
    return any(
        woke.at_ms >= confirmed.at_ms >= fell.at_ms and event.at_ms <= woke.at_ms + _WAKES_MS
        for fell in own_pauses
        for woke in own_pauses
        if (fell.number, fell.step, woke.step) == (woke.number, Step.FIRED, Step.HEALED)
    )


def _stale(facts: Facts, event: Delivered, confirmed: Confirmed) -> bool:
    """Whether the copy came from a reader whose term was over at the confirmation.

    A reader that goes silent (its power is cut, or it is paused) is noticed by its silence only;
    until then its client considers the session alive, and hands over what it has.
    """
    states = facts.states.get(event.place.group, ())
    over_ms = next((s.at_ms for s in states if 0 < event.epoch < s.epoch), inf)
    return over_ms <= confirmed.at_ms <= event.at_ms <= over_ms + _NOTICED_MS


def _seek_is_back(facts: Facts, arrival: Arrival) -> bool:
    """Whether the copy came from a reader that did not know of the last seek.

    Then an ack of that copy, which no broker has stored, counts as made before the seek: a member
    that did not know of the seek either sees no difference (ADR 0021).
    """
    event, before, sought = arrival.event, arrival.before, arrival.sought
    if arrival.acked_ms is None or arrival.confirmed is not None:
        return False
    if before is None or sought is None or before.epoch >= event.epoch:
        return False
    return bool(excuse(facts, event.place, sought, event.at_ms))


def _machine(who: str) -> str:
    """Return the machine of a client, whose incarnations are `m00`, `m00.2`, `m00.3`."""
    return who.partition(".")[0]


def _again(facts: Facts, readers: str, arrival: Arrival) -> Iterator[Finding]:
    event, confirmed = arrival.event, arrival.confirmed
    text = ""
    if arrival.acked_ms is not None:
        # The client may know that the ack is stored: it asks by itself now and then.
        acked_ms = arrival.acked_ms
        unreported = Confirmed(event.at_ms, event.who, event.offset, acked_ms, reported=False)
        confirmed = confirmed or unreported
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
