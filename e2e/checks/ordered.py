"""Check I13: an ordered topic is consumed as it was sent, over all segments of the chain.

By queue, for each consumer group that read from the beginning (one that was moved to a time: from
there, see `ordered_sought.py`):

- first deliveries come in the order of the segments, and in a segment in the order of offsets;
- a record is delivered from one place only, although it may be stored in two segments, unless that
  place has lost it, and with it perhaps what consumers had acknowledged there;
- senders follow one another: after a later one's first record none of an earlier one comes;
- of each sender come its first records, in the order in which it sent them, without a gap;
- a sender learns, when it becomes active, the last record before its own; one that accepts unknown
  ends need not learn of the records in segments whose ends were not known then;
- every acknowledged record comes, and acknowledged sequences rise with the order of sending.

An end that is lowered (ADR 0072) passes no acknowledged record. What a person accepted to lose at
one may be the last record that a sender learned.

Of senders: each segment acknowledges records of one sender, and what a sender hands in after a
later one has stored a record is neither acknowledged nor delivered. If the later one accepted that
the end of the earlier one's segment was not known, it may be delivered from there.

A record may be missing only if all its copies may have been gone at one moment, and what comes
behind it only until the chain passes that segment: `ordered_copies.py`, which also checks that an
acknowledged record lay on all members' disks, and is there in the end.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.ordered_copies import Copies
from e2e.checks.ordered_sought import (
    StoreTimes,
    has_to_come,
    in_sending_order,
    store_times,
    too_early,
)
from e2e.history.client_events import (
    OrderedDelivered,
    OrderedHandedOn,
    OrderedLowered,
    OrderedOpened,
    OrderedSent,
    OrderedSought,
    OrderedStored,
    Place,
)
from e2e.history.cluster_events import PhaseName

UNREADABLE = -2
_NONE = -1
"""In place of a record: there is none before."""


@dataclass(slots=True)
class _Topic:
    """The events of one ordered topic by kind."""

    sent: dict[str, list[OrderedSent]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[int, OrderedStored] = field(default_factory=dict)
    opened: dict[str, list[OrderedOpened]] = field(default_factory=lambda: defaultdict(list))
    handed_on: list[OrderedHandedOn] = field(default_factory=list)
    lowered: list[OrderedLowered] = field(default_factory=list)
    sought: dict[str, OrderedSought] = field(default_factory=dict)  # by readers
    delivered: dict[tuple[str, int], list[OrderedDelivered]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sent_of: dict[int, OrderedSent] = field(default_factory=dict)  # by record
    queue_of: dict[str, int] = field(default_factory=dict)  # by key

    def sender_of(self, record: int) -> str:
        """Return the sender of a record; "" if there is none."""
        sent = self.sent_of.get(record)
        return "" if sent is None else sent.who

    def unended(self, who: str, segment: int) -> tuple[int, ...]:
        """Return the segments whose ends a sender with records in `segment` accepted not to know.

        Empty also if such an end was not known to a sender that does not accept that.
        """
        if not any(opened.accepts for opened in self.opened.get(who, ())):
            return ()
        earlier = [event for event in self.handed_on if event.segment <= segment]
        return max(earlier, key=lambda event: event.segment).unended if earlier else ()

    def loss_accepted(self, first: int, until: int) -> bool:
        """Whether a person accepted the loss of records of a segment from `first` to `until`."""
        return any(e.accepted and first <= e.segment < until for e in self.lowered)


def ordered(facts: Facts) -> Iterator[Finding]:
    """I13: an ordered topic is consumed as it was sent."""
    topics: dict[str, _Topic] = defaultdict(_Topic)
    for event in facts.ordered:
        _take(topics[event.topic], event)
    drained = any(phase.name is PhaseName.DRAINED for phase in facts.phases)
    copies = Copies(facts)
    for name, topic in topics.items():
        times = store_times(facts, name) if topic.sought else StoreTimes()
        yield from _queues(topic)
        yield from _sequences(topic)
        yield from _one_sender(topic)
        yield from _zombies(topic)
        yield from _lowered(topic)
        yield from copies.findings(topic.stored.values(), topic.sent_of)
        for (readers, queue), deliveries in topic.delivered.items():
            first, sought = _first_deliveries(deliveries), topic.sought.get(readers)
            yield from _places(deliveries, copies)
            yield from _rising(first)
            yield from _senders(topic, first)
            yield from _gaps(topic, queue, first, copies, behind=sought is not None)
            yield from _last_records(topic, queue, first, copies, behind=sought is not None)
            if sought is not None and (text := too_early(sought, first[0], topic.stored, times)):
                yield _found(first[0], text)
        if drained:
            yield from _missing(topic, copies)
            yield from _missing_since(topic, copies, times)


def _take(topic: _Topic, event: object) -> None:
    match event:
        case OrderedSent():
            topic.sent[event.who].append(event)
            topic.sent_of[event.record] = event
        case OrderedStored():
            topic.stored[event.record] = event
        case OrderedHandedOn():
            topic.handed_on.append(event)
        case OrderedLowered():
            topic.lowered.append(event)
        case OrderedSought():
            topic.sought[event.readers] = event
        case OrderedOpened():
            topic.opened[event.who].append(event)
        case OrderedDelivered():
            topic.delivered[event.readers, event.queue].append(event)


def _queues(topic: _Topic) -> Iterator[Finding]:
    """Learn the queue of each key from any record: a key has one for the life of the topic."""
    for stored in topic.stored.values():
        topic.queue_of.setdefault(topic.sent_of[stored.record].key, stored.queue)
    for (_, queue), deliveries in topic.delivered.items():
        for event in deliveries:
            sent = topic.sent_of.get(event.record)
            if sent is not None and topic.queue_of.setdefault(sent.key, queue) != queue:
                its_queue = topic.queue_of[sent.key]
                yield _found(event, f"came in queue {queue}, its key has queue {its_queue}")


def _first_deliveries(deliveries: list[OrderedDelivered]) -> list[OrderedDelivered]:
    first: dict[int, OrderedDelivered] = {}
    for event in deliveries:
        first.setdefault(event.record, event)
    return list(first.values())


def _places(deliveries: list[OrderedDelivered], copies: Copies) -> Iterator[Finding]:
    places: dict[int, OrderedDelivered] = {}
    for event in deliveries:
        before = places.setdefault(event.record, event)
        here, there = ((e.segment, e.group, e.offset) for e in (event, before))
        if here == there:
            continue
        if copies.lost_since(before, event.at_ms):
            places[event.record] = event
        else:
            yield _found(event, f"came from segment {event.segment}, and from {there[0]} before")


def _rising(first: list[OrderedDelivered]) -> Iterator[Finding]:
    for before, event in pairwise(first):
        if (event.segment, event.offset) <= (before.segment, before.offset):
            yield _found(event, f"came after segment {before.segment} offset {before.offset}")


def _senders(topic: _Topic, first: list[OrderedDelivered]) -> Iterator[Finding]:
    past: set[str] = set()
    before = ""
    for event in first:
        who = topic.sender_of(event.record)
        if not who:
            yield _found(event, "no sender sent it")
            continue
        if who != before:
            past.add(before)
            if who in past:
                yield _found(event, f"of {who} came after a record of {before}")
            before = who


def _gaps(
    topic: _Topic, queue: int, first: list[OrderedDelivered], copies: Copies, *, behind: bool
) -> Iterator[Finding]:
    """Find records that are left out. `behind`: the first sender's first ones need not come."""
    got: dict[str, list[OrderedDelivered]] = defaultdict(list)
    for event in first:
        got[topic.sender_of(event.record)].append(event)
    for who, events in got.items():
        of_queue = [e for e in topic.sent[who] if topic.queue_of.get(e.key) == queue]
        if behind and events[0] is first[0]:
            # A record of another queue is a finding of `_queues`.
            numbers = [e.record for e in of_queue]
            at = numbers.index(events[0].record) if events[0].record in numbers else 0
            of_queue = of_queue[at:] if who else []
        sent = iter(of_queue)
        for event in events:
            expected = next(sent, None)
            while expected is not None and expected.record != event.record:
                if not copies.gone(topic.stored.get(expected.record), expected):
                    break
                expected = next(sent, None)
            if expected is not None and expected.record != event.record:
                text = f"of {who} came where record {expected.record} is next"
                yield _found(event, text)
                break


def _last_records(
    topic: _Topic, queue: int, first: list[OrderedDelivered], copies: Copies, *, behind: bool
) -> Iterator[Finding]:
    """What a sender learned as the last record is what consumers get before its first one."""
    for at, event in enumerate(first):
        who = topic.sender_of(event.record)
        if behind and at == 0:
            continue
        if at == 0 or topic.sender_of(first[at - 1].record) != who:
            opened = topic.opened[who][:1]
            learned = opened[0].last[queue] if opened else UNREADABLE
            lasts = _lasts(first, at, topic.unended(who, event.segment))
            if behind and lasts[-1] == _NONE:
                continue  # the record before was not delivered: the readers were moved behind it
            sent = topic.sent_of.get(learned)
            lost = sent is not None and bool(copies.gone(topic.stored.get(learned), sent))
            lost = lost or topic.loss_accepted(first[at - 1].segment if at else 0, event.segment)
            if learned not in (UNREADABLE, *lasts) and not lost:
                yield _found(event, f"{who} was active after record {learned}, not {lasts[0]}")


def _lasts(first: list[OrderedDelivered], at: int, unended: tuple[int, ...]) -> list[int]:
    """Return which records a sender, whose first one is `first[at]`, may have learned as the last.

    The end of an unended segment may have been given by the time that its record was asked for.
    """
    lasts = []
    while at and first[at - 1].segment in unended:
        segment = first[at - 1].segment
        lasts.append(first[at - 1].record)
        while at and first[at - 1].segment == segment:
            at -= 1
    return [*lasts, first[at - 1].record if at else _NONE]


def _missing(topic: _Topic, copies: Copies) -> Iterator[Finding]:
    """Find what was acknowledged and not delivered, also in a queue that delivered nothing."""
    got: dict[str, set[int]] = defaultdict(set)
    reached: dict[tuple[str, int], int] = {}  # the last segment that delivered something
    for (readers, queue), deliveries in topic.delivered.items():
        if readers in topic.sought:
            continue
        got[readers] |= {event.record for event in deliveries}
        reached[readers, queue] = max(event.segment for event in deliveries)
    lost = _lost(topic, copies)
    for readers, records in (got or {"any consumer": set()}).items():
        for stored in topic.stored.values():
            if stored.record in records:
                continue
            newest = reached.get((readers, stored.queue), 0)
            if not any(_blocks(other, stored, newest) for other in lost):
                text = f"acknowledged in segment {stored.segment}, and not delivered to {readers}"
                yield _found_stored(stored, text, stored.group)


def _missing_since(topic: _Topic, copies: Copies, times: StoreTimes) -> Iterator[Finding]:
    """Find what did not come to a consumer group that was moved to a time."""
    if not topic.sought:
        return
    since = {who: events[0].at_ms for who, events in topic.opened.items() if events}
    order, lost = dict(in_sending_order(topic.sent, since)), _lost(topic, copies)
    for readers, sought in topic.sought.items():
        came = {q: events for (name, q), events in topic.delivered.items() if name == readers}
        records = {event.record for events in came.values() for event in events}
        for stored in topic.stored.values():
            events, sent = came.get(stored.queue, []), topic.sent_of[stored.record]
            newest = max((event.segment for event in events), default=0)
            if stored.record in records or any(_blocks(s, stored, newest) for s in lost):
                continue
            first = order.get(events[0].record, 0) if events else len(order)
            follows = order[stored.record] > first
            if reason := has_to_come(sought, stored, sent, times, follows=follows):
                text = f"acknowledged, {reason}, and not delivered to {readers}"
                yield _found_stored(stored, text, stored.group)


def _lost(topic: _Topic, copies: Copies) -> list[OrderedStored]:
    return [s for s in topic.stored.values() if copies.gone(s, topic.sent_of[s.record])]


def _blocks(lost: OrderedStored, stored: OrderedStored, newest: int) -> bool:
    """Whether a record whose copies may be gone holds back another one, or is that one.

    A group whose members have all lost their disks gives no end to its segment: no reader passes it
    before a person has released it. `newest`: the last segment that reached the reader.
    """
    if lost.record == stored.record:
        return True
    return lost.queue == stored.queue and newest <= lost.segment <= stored.segment


def _one_sender(topic: _Topic) -> Iterator[Finding]:
    """A segment belongs to one sender: another sender, or another epoch, opens the next one."""
    owners: dict[int, str] = {}
    for stored in topic.stored.values():
        owner = owners.setdefault(stored.segment, stored.who)
        if owner != stored.who:
            text = f"acknowledged to {stored.who} in segment {stored.segment}, which {owner} had"
            yield _found_stored(stored, text, stored.group)


def _zombies(topic: _Topic) -> Iterator[Finding]:
    """Check that no record was stored that a sender got after a later one used the role.

    A sender that had it back in between may go on: then the later one has stored nothing.
    """
    seen: dict[int, set[int]] = defaultdict(set)  # by record, the segments that delivered it
    for event in (event for events in topic.delivered.values() for event in events):
        seen[event.record].add(event.segment)
    kept = seen.keys() | topic.stored.keys()
    used, first = {topic.sender_of(record) for record in kept}, _first_segments(topic, seen)
    since = {who: events[0].at_ms for who, events in topic.opened.items()}
    for who, opened_ms in since.items():
        later = {ms: other for other, ms in since.items() if other in used and ms > opened_ms}
        if not later:
            continue
        fenced_ms = min(later)
        unended = set(topic.unended(later[fenced_ms], first[later[fenced_ms]]))
        for sent in topic.sent[who]:
            shown = seen.get(sent.record, set())
            if shown and shown <= unended and sent.record not in topic.stored:
                continue
            if sent.at_ms > fenced_ms and sent.record in kept:
                text = f"sent by {who} after {later[fenced_ms]} took over, and stored"
                place = Place(sent.topic, "?", topic.queue_of[sent.key])
                yield Finding(Check.I13, sent.at_ms, text, (who,), place, record=sent.record)


def _first_segments(topic: _Topic, seen: Mapping[int, set[int]]) -> dict[str, int]:
    """Return each sender's first segment with records."""
    first = {s.who: s.segment for s in sorted(topic.stored.values(), key=lambda s: -s.segment)}
    for record, shown in seen.items():
        who = topic.sender_of(record)
        first[who] = min(first.get(who, min(shown)), *shown)
    return first


def _lowered(topic: _Topic) -> Iterator[Finding]:
    """Check that no lowered end loses an acknowledged record, unless a person accepted it."""
    for event in topic.lowered:
        for stored in topic.stored.values():
            here = stored.segment == event.segment and stored.offset >= event.end[stored.queue]
            if here and not event.accepted:
                text = f"acknowledged, and the end of segment {event.segment} was lowered below it"
                yield _found_stored(stored, text)


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
