"""Check I13: an ordered topic is consumed as it was sent, over all segments of the chain.

By queue, for each consumer group that read from the beginning:

- first deliveries come in the order of the segments, and in a segment in the order of offsets;
- a record is delivered from one place only, although it may be stored in two segments;
- senders follow one another: after a later one's first record none of an earlier one comes;
- of each sender come its first records, in the order in which it sent them, without a gap;
- a sender learns, when it becomes active, the last record before its own;
- every acknowledged record comes, and acknowledged sequences rise with the order of sending.

An emptied or damaged disk excuses a gap: no other fault does.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.history.events import (
    FaultKind,
    OrderedDelivered,
    OrderedOpened,
    OrderedSent,
    OrderedStored,
    PhaseName,
    Place,
    Step,
)

UNREADABLE = -2
_LOSSES = frozenset({FaultKind.DISK_EMPTY, FaultKind.DISK_DAMAGE})


@dataclass(slots=True)
class _Topic:
    """The events of one ordered topic by kind."""

    sent: dict[str, list[OrderedSent]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[int, OrderedStored] = field(default_factory=dict)
    opened: dict[str, list[OrderedOpened]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[tuple[str, int], list[OrderedDelivered]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sender_of: dict[int, str] = field(default_factory=dict)
    queue_of: dict[str, int] = field(default_factory=dict)  # by key


def ordered(facts: Facts) -> Iterator[Finding]:
    """I13: an ordered topic is consumed as it was sent."""
    topics: dict[str, _Topic] = defaultdict(_Topic)
    for event in facts.ordered:
        _take(topics[event.topic], event)
    whole = not any(f.kind in _LOSSES and f.step is Step.FIRED for f in facts.faults)
    drained = any(phase.name is PhaseName.DRAINED for phase in facts.phases)
    for topic in topics.values():
        _learn_queues(topic)
        yield from _sequences(topic)
        for (_, queue), deliveries in topic.delivered.items():
            first = _first_deliveries(deliveries)
            yield from _places(deliveries)
            yield from _rising(first)
            yield from _senders(topic, first)
            if whole:
                yield from _gaps(topic, queue, first)
                yield from _last_records(topic, queue, first)
        if whole and drained:
            yield from _missing(topic)


def _take(topic: _Topic, event: object) -> None:
    match event:
        case OrderedSent():
            topic.sent[event.who].append(event)
            topic.sender_of[event.record] = event.who
        case OrderedStored():
            topic.stored[event.record] = event
        case OrderedOpened():
            topic.opened[event.who].append(event)
        case OrderedDelivered():
            topic.delivered[event.readers, event.queue].append(event)


def _learn_queues(topic: _Topic) -> None:
    """Learn the queue of each key, which it has for the life of the topic, from any record."""
    keys = {event.record: event.key for events in topic.sent.values() for event in events}
    for stored in topic.stored.values():
        topic.queue_of[keys[stored.record]] = stored.queue
    for (_, queue), deliveries in topic.delivered.items():
        for event in deliveries:
            if event.record in keys:
                topic.queue_of[keys[event.record]] = queue


def _first_deliveries(deliveries: list[OrderedDelivered]) -> list[OrderedDelivered]:
    first: dict[int, OrderedDelivered] = {}
    for event in deliveries:
        first.setdefault(event.record, event)
    return list(first.values())


def _places(deliveries: list[OrderedDelivered]) -> Iterator[Finding]:
    places: dict[int, tuple[int, str, int]] = {}
    for event in deliveries:
        here = event.segment, event.group, event.offset
        before = places.setdefault(event.record, here)
        if before != here:
            yield _found(event, f"came from segment {event.segment}, and from {before[0]} before")


def _rising(first: list[OrderedDelivered]) -> Iterator[Finding]:
    for before, event in pairwise(first):
        if (event.segment, event.offset) <= (before.segment, before.offset):
            yield _found(event, f"came after segment {before.segment} offset {before.offset}")


def _senders(topic: _Topic, first: list[OrderedDelivered]) -> Iterator[Finding]:
    past: set[str] = set()
    before = ""
    for event in first:
        who = topic.sender_of.get(event.record, "")
        if not who:
            yield _found(event, "no sender sent it")
            continue
        if who != before:
            past.add(before)
            if who in past:
                yield _found(event, f"of {who} came after a record of {before}")
            before = who


def _gaps(topic: _Topic, queue: int, first: list[OrderedDelivered]) -> Iterator[Finding]:
    got: dict[str, list[OrderedDelivered]] = defaultdict(list)
    for event in first:
        got[topic.sender_of.get(event.record, "")].append(event)
    for who, events in got.items():
        sent = [e.record for e in topic.sent[who] if topic.queue_of.get(e.key) == queue]
        for event, expected in zip(events, sent, strict=False):
            if event.record != expected:
                yield _found(event, f"of {who} came where record {expected} is next")
                break


def _last_records(topic: _Topic, queue: int, first: list[OrderedDelivered]) -> Iterator[Finding]:
    """What a sender learned as the last record is what consumers get before its first one."""
    before = None
    for event in first:
        who = topic.sender_of.get(event.record, "")
        if before is None or topic.sender_of.get(before.record, "") != who:
            opened = topic.opened[who][:1]
            learned = opened[0].last[queue] if opened else UNREADABLE
            is_last = -1 if before is None else before.record
            if learned not in (UNREADABLE, is_last):
                yield _found(event, f"{who} was active after record {learned}, not {is_last}")
        before = event


def _missing(topic: _Topic) -> Iterator[Finding]:
    """Find what was acknowledged and not delivered, also in a queue that delivered nothing."""
    got: dict[str, set[int]] = defaultdict(set)
    for (readers, _), deliveries in topic.delivered.items():
        got[readers] |= {event.record for event in deliveries}
    for readers, records in (got or {"any consumer": set()}).items():
        for stored in topic.stored.values():
            if stored.record not in records:
                text = f"acknowledged in segment {stored.segment}, and not delivered to {readers}"
                yield _found_stored(stored, text, stored.group)


def _sequences(topic: _Topic) -> Iterator[Finding]:
    for events in topic.sent.values():
        newest: dict[int, OrderedStored] = {}
        for sent in events:
            stored = topic.stored.get(sent.record)
            if stored is None:
                continue
            before = newest.get(stored.queue)
            if before is not None and stored.sequence <= before.sequence:
                text = f"has sequence {stored.sequence}, sent after one with {before.sequence}"
                yield _found_stored(stored, text)
            newest[stored.queue] = stored


def _found_stored(stored: OrderedStored, text: str, *more: str) -> Finding:
    place = Place(stored.topic, stored.group, stored.queue)
    about = (stored.who, *more)
    return Finding(Check.I13, stored.at_ms, text, about, place, stored.offset, stored.record)


def _found(event: OrderedDelivered, text: str) -> Finding:
    place = Place(event.topic, event.group, event.queue)
    about = (event.who, event.group)
    return Finding(Check.I13, event.at_ms, text, about, place, event.offset, event.record)
