"""How many records of an ordered topic are still to come to a consumer group. Pure.

Each broker group counts its own segments, so the sum over the groups is the lag over the chain. No
orphan counts and nothing counts twice: what lies above a known end, and what an earlier segment
delivers, is not to come from this one. Of a segment without a known end, records count up to those
that the sender sent again into a later segment.
"""

from collections.abc import Iterator

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.consume.offsets.lag import acked_above
from fmqcore.consume.ranges import Range
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.delivery import begin_offset, floor_since_start
from fmqcore.zk.chain import Chain, Segment


def to_come(
    chain: Chain,
    subscription: str,
    group: GroupName,
    queue: int,
    entry: OffsetEntry | None,
    begin: Offset,
    end: Offset,
) -> int:
    """Return how many records in [begin, end) of the group's queue are still to come.

    `entry`: the subscription's stored progress in this queue, None if it has none.
    """
    start_number = chain.start_numbers_of(subscription)[queue]
    entry = entry if entry is not None and entry.start_number == start_number else None
    total, floor = 0, max(floor_since_start(entry, start_number), begin)
    for first, last in _ranges(chain, subscription, group, queue, end):
        low = max(first, floor)
        if low < last:
            acked = 0 if entry is None else acked_above(entry, low, last)
            total += last - low - acked
    return total


def end_to_come(
    chain: Chain, subscription: str, group: GroupName, queue: int, end: Offset, stored_end: Offset
) -> Offset:
    """Return the end of the group's records in [end, stored_end) that are to come; else `end`.

    What lies behind it is an orphan, or is delivered by another segment.
    """
    ranges = _ranges(chain, subscription, group, queue, stored_end)
    return max([end, *(last for first, last in ranges if first < last)])


def started_at(chain: Chain, subscription: str, group: GroupName, queue: int) -> Offset:
    """Return the offset at which the subscription starts in the group's queue, after a seek.

    0 if it starts elsewhere, or at a segment's first record.
    """
    heads = chain.heads_of(subscription)
    segment = None if heads is None else chain.segment(heads[queue])
    here = segment is not None and segment.group == group
    return Offset(chain.start_offsets_of(subscription)[queue] if here else 0)


def _ranges(
    chain: Chain, subscription: str, group: GroupName, queue: int, end: Offset
) -> Iterator[Range]:
    """Yield what the group's segments, from the subscription's head on, are to deliver."""
    heads = chain.heads_of(subscription)
    head = chain.floor.number + 1 if heads is None else heads[queue]
    offsets = chain.start_offsets_of(subscription)
    for segment in chain.segments:
        if segment.group != group or segment.number < head:
            continue
        start_offset = offsets[queue] if segment.number == head else 0
        first = begin_offset(chain, segment, subscription, queue, start_offset)
        if first is None:  # an earlier end is unknown: that segment counts up to this one's start
            first = segment.start[queue]
        last = end if segment.end is None else min(segment.end[queue], end)
        if segment.end is None:
            last = min(last, _sent_again_from(chain, segment, queue, last))
        yield Offset(first), Offset(last)


def _sent_again_from(chain: Chain, segment: Segment, queue: int, end: int) -> int:
    """Return the offset from which the segment's records are in a later one of the sender, too."""
    later = chain.segment(segment.number + 1)
    if later is None or later.sender_epoch != segment.sender_epoch:
        return end
    again = later.first_sequence[queue] - segment.first_sequence[queue]
    return segment.start[queue] + max(again, 0)
