"""What a consumer group has to get that was moved to a time: a part of check I13. Pure.

It gets all records that were stored at that time or later, in their order; the earliest copy of a
record counts. Where a segment is chosen by its opening time, it may begin earlier:
clocks of brokers differ. But it begins no earlier in the first segment, and in no segment between
two records of which the first one is stored at that time or later.

If a broker's clock was set, store times show nothing. In any case it gets what follows the first
record that it got, and what was sent after the answer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from e2e.checks.facts import Facts
from e2e.history.client_events import OrderedDelivered, OrderedSent, OrderedSought, OrderedStored
from e2e.history.cluster_events import FaultKind, Step
from fmqcore.batch.header import BatchType

FIRST_SEGMENT: Final = 1
"""No seek leads behind it, unless by the time within it."""
_At = tuple[str, int, int]
"""A group, a queue and an offset."""


@dataclass(slots=True)
class StoreTimes:
    """When the records of an ordered topic were stored, by the journals that are left."""

    known: bool = True  # no broker's clock was set
    of_record: dict[int, int] = field(default_factory=dict)  # of the earliest copy
    of_place: dict[_At, int] = field(default_factory=dict)

    def at(self, event: OrderedStored | OrderedDelivered) -> int | None:
        """Return when the record was stored at that place; None: it is there no more."""
        return self.of_place.get((event.group, event.queue, event.offset))


def store_times(facts: Facts, topic: str) -> StoreTimes:
    """Read the store times from the journals."""
    times = StoreTimes(
        not any(f.kind is FaultKind.CLOCK and f.step is Step.FIRED for f in facts.faults)
    )
    for group in facts.group_names():
        journal = facts.final_journal(group)
        for batch in () if journal is None else journal.batches:
            header = batch.header
            if header.type != BatchType.DATA or journal is None:
                continue
            place = journal.place(header)
            if place.topic != topic:
                continue
            for offset, record in enumerate(batch.records, header.base_offset):
                times.of_place[group, place.queue, offset] = header.store_ms
                earliest = times.of_record.get(record, header.store_ms)
                times.of_record[record] = min(earliest, header.store_ms)
    return times


def has_to_come(
    sought: OrderedSought,
    stored: OrderedStored,
    sent: OrderedSent,
    times: StoreTimes,
    *,
    follows: bool,
) -> str:
    """Return why an acknowledged record has to come after the seek; "" if it need not.

    `follows`: it was sent after the first record that came from its queue.
    """
    if follows:
        return "sent after the first record that came"
    if sent.at_ms > sought.at_ms:
        return f"sent after a seek to {sought.to_ms}"
    stored_ms = times.of_record.get(stored.record, -1)
    if times.known and stored_ms >= sought.to_ms:
        return f"stored at {stored_ms}, sought was {sought.to_ms}"
    return ""


def too_early(
    sought: OrderedSought,
    first: OrderedDelivered,
    stored: Mapping[int, OrderedStored],
    times: StoreTimes,
) -> str:
    """Return why the first record of a queue should not have come; "" if it may."""
    known = stored.get(first.record)
    came_ms = times.at(first)
    if not times.known or came_ms is None or came_ms >= sought.to_ms or known is None:
        return ""
    if known.at_ms >= sought.asked_ms or not _begins_exactly(first, stored.values(), times):
        return ""
    return f"came, stored at {came_ms}, after a seek to {sought.to_ms}"


def _begins_exactly(
    first: OrderedDelivered, stored: Iterable[OrderedStored], times: StoreTimes
) -> bool:
    """Whether the place of the first record in its segment was chosen by the time alone.

    A segment may begin with records that were delivered from an earlier one: they have copies
    there.
    """
    here = (s for s in stored if (s.queue, s.segment) == (first.queue, first.segment))
    before = (s for s in here if s.offset < first.offset)
    alone = (s for s in before if (at := times.of_record.get(s.record)) and at == times.at(s))
    return first.segment == FIRST_SEGMENT or any(alone)


def in_sending_order(
    sent: Mapping[str, list[OrderedSent]], since: Mapping[str, float]
) -> Iterator[tuple[int, int]]:
    """Yield each record with its place in the order of sending. `since`: by sender, its turn."""
    turns = sorted(sent, key=lambda who: since.get(who, 0.0))
    records = (event.record for who in turns for event in sent[who])
    for at, record in enumerate(records):
        yield record, at
