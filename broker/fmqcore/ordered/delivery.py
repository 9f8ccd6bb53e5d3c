"""What a consumer may get of an ordered topic, and when its head moves. Pure.

A queue's segments are read in their order, each from start to end. Only the broker that serves the
head's group delivers, so a consumer sees one order wherever the segments lie.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.evidence import Serving
from fmqcore.zk.chain import Chain, PerQueue, Segment


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets of one queue that may be delivered: from `first` up to, and not including, `end`.

    K17: what is below `first` counts as done, so it never passes what can be read here, nor what
    members are known to hold of an open segment: offsets above may come to be those of a later
    segment. A known end may be too high, too, until its group lowers it (ADR 0072).
    """

    segment: int
    first: Offset
    end: Offset
    reason: str = ""  # why there is nothing, or no more; "" = the end of what was sent


def visible_end(
    chain: Chain, segment: Segment, queue: int, serving: Serving, held: int | None
) -> int:
    """Return the end of what may be shown of a segment whose end is not known.

    Of the open segment a master shows what it knows all members to hold (`held`). From the closing
    on nothing more is shown before the end is known: it may be given by another broker, or by a
    write of an earlier term that is still under way, and must not lie below what was shown (K15). A
    takeover reader does not know what all members hold, so it shows nothing before the end.
    """
    start = segment.start[queue]
    opened = segment.number == chain.next_number - 1 and chain.closing is None
    if not opened or serving is not Serving.MASTER or held is None:
        return start
    return max(start, held)


def shown_end(
    chain: Chain, segment: Segment, queue: int, serving: Serving, held: int | None, readable: int
) -> int:
    """Return the end of what a broker may show of a segment in its group: `readable` if it ended.

    `held`: the queue's end that all members are known to hold. `readable`: the queue's end as this
    broker's readers may see its journal, which need not reach a known end (K17).
    """
    if segment.end is None:
        return visible_end(chain, segment, queue, serving, held)
    return readable


def window(
    chain: Chain,
    subscription: str,
    queue: int,
    group: GroupName,
    progress: int,
    visible: int,
) -> Window:
    """Return what `group` may deliver of a queue to a subscription now.

    `progress`: the next offset that the subscription has not finished in this group's queue.
    `visible`: the `shown_end` of the head's segment. Above a known end lie orphans, which are in no
    segment and reach no consumer.
    """
    numbers = chain.heads_of(subscription)
    if numbers is None:
        return _nothing(0, f"subscription {subscription} has no place in the chain yet")
    segment = chain.segment(numbers[queue])
    if segment is None:
        return _nothing(numbers[queue], f"segment {numbers[queue]} is not open yet")
    if segment.group != group:
        return _nothing(
            segment.number, f"{subscription} reads segment {segment.number} in {segment.group}"
        )
    start_offset = chain.start_offsets_of(subscription)[queue]
    first = begin_offset(chain, segment, subscription, queue, start_offset)
    if first is None:
        return _nothing(
            segment.number, f"the end of a segment before segment {segment.number} is unknown"
        )
    end = visible if segment.end is None else min(segment.end[queue], visible)
    first = max(min(first, end), progress)
    reason = _missing(segment, queue, end)
    return Window(segment.number, Offset(first), Offset(max(first, end)), reason)


def _missing(segment: Segment, queue: int, end: int) -> str:
    """Return why records from `end` on are not shown although they were sent; "" if none were."""
    if segment.end_unknown:
        return "its end is unknown: a member has to come back"
    if segment.end is not None and end < segment.end[queue]:
        return (
            "its last records cannot be read here: a member with them has to come back, or the "
            "group, once it is whole, ends the segment before them"
        )
    return ""


def floor_since_start(entry: OffsetEntry | None, start_number: int) -> Offset:
    """Return below which offset all is done, by a subscription's progress in one queue (K18).

    0 if it counts from another start than the chain's: the subscription was removed and added
    again, or moved, while this broker group was not there to delete what it had stored.
    """
    if entry is None or entry.deleted or entry.start_number != start_number:
        return Offset(0)
    return entry.floor


def begin_offset(
    chain: Chain, segment: Segment, subscription: str, queue: int, start_offset: int
) -> int | None:
    """Return `first_offset`, but not less than where the subscription starts in its head's segment.

    `start_offset`: as the chain has it; 0 for a segment that is not the head's.
    """
    first = first_offset(chain, segment, subscription, queue)
    if first is None or start_offset <= first:
        return first
    return start_offset if segment.end is None else min(start_offset, segment.end[queue])


def first_offset(chain: Chain, segment: Segment, subscription: str, queue: int) -> int | None:
    """Return the first offset of the segment whose record no earlier segment has delivered.

    A sender sends again into k+1 what was not acknowledged in k; what of that is stored in k, or in
    any earlier segment of this sender, is delivered there. None: such an end is not known.
    """
    skip = chain.delivered_before(segment, subscription, queue)
    if skip is None:
        return None
    start = segment.start[queue]
    first = start + max(0, skip + 1 - segment.first_sequence[queue])
    return first if segment.end is None else min(first, segment.end[queue])


def due_heads(
    chain: Chain, group: GroupName, progress: Mapping[str, PerQueue]
) -> dict[str, PerQueue]:
    """Return the new heads of the subscriptions that have finished a segment of `group`.

    `progress`: per subscription the next offset of each queue in this group: all below are acked
    since its start (`floor_since_start`).
    """
    due = dict[str, PerQueue]()
    for name, (numbers, _, starts) in chain.places.items():
        done = progress.get(name)
        if done is None:
            continue
        places = zip(numbers, done, starts, strict=True)
        moved = tuple(
            _next_head(chain, group, name, queue, *place) for queue, place in enumerate(places)
        )
        if moved != numbers:
            due[name] = moved
    return due


def _next_head(
    chain: Chain,
    group: GroupName,
    name: str,
    queue: int,
    number: int,
    progress: int,
    start_offset: int,
) -> int:
    """The head after this progress: it passes known ends only (K8), and stays at the last (K7)."""
    segment = chain.segment(number)
    if segment is None or (segment.group != group and segment.end != segment.start):
        return number  # an empty one may be left by any broker: its group may be lost
    newest = chain.next_number - 1
    while number < newest and segment is not None and segment.end is not None:
        first = begin_offset(chain, segment, name, queue, start_offset)
        if first is None:
            break
        reached = max(first, progress) if segment.group == group else first
        if reached < segment.end[queue]:
            break
        number, start_offset = number + 1, 0  # and over segments without more for this queue
        segment = chain.segment(number)
    return number


def _nothing(segment: int, reason: str) -> Window:
    return Window(segment, Offset(0), Offset(0), reason)
