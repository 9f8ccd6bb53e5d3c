"""A subscription's place in a chain: how it gets, changes and loses its heads. Pure.

Each change is one compare-and-set, like the steps of the machine. Refusals are `InvalidArgument`:
they name the topic, what failed, and the next action.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Final

from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName
from fmqcore.ordered.context import MAX_CHAIN_BYTES, has_room
from fmqcore.ordered.invariants import broken_step, require_sound
from fmqcore.zk.chain import Chain, Floor, PerQueue, PerSubscription, Place, Segment, sorted_pairs

MAX_HEADS: Final = 16_384
"""Maximum heads of a chain: subscriptions times queues."""
_MOST_BYTES: Final = MAX_CHAIN_BYTES * 5 // 4
"""A larger chain takes no further subscription; see `MAX_CHAIN_BYTES`."""
CLOCKS_DIFFER_MS: Final = 60_000
"""Two brokers' clocks differ by no more than this, for the place of a moment in a chain."""


def add_subscription(chain: Chain, subscription: str, *, latest: bool) -> Chain:
    """Give a new subscription its heads: at the first segment, or at the newest one."""
    return add_at(chain, subscription, newest_number(chain) if latest else first_number(chain))


def add_at(
    chain: Chain,
    subscription: str,
    number: int,
    offsets: Mapping[int, int] | None = None,
    wall_ms: int = 0,
    *,
    temporary: bool = False,
) -> Chain:
    """Give a new subscription its heads at a segment; one that is there keeps its heads.

    `offsets`: by queue where in that segment it begins, if not at its first record. If the segment
    is dropped by now, it begins at the first record that is kept. `wall_ms`: as for `_started`.
    """
    if chain.heads_of(subscription) is not None:
        return chain if temporary else named(chain, subscription)
    many = (len(chain.heads) + 1) * chain.queues > MAX_HEADS
    if many or not has_room(chain, _MOST_BYTES):
        raise InvalidArgument(
            f"ordered topic {chain.topic} has {len(chain.heads)} consumer groups on "
            f"{chain.queues} queues, and takes no more: delete those that are not used "
            f"(`fmq group list --topic {chain.topic}`), or read it with one of them"
        )
    heads = dict(chain.heads) | {subscription: (0,) * chain.queues}
    unnamed = chain.temporary | ({subscription} if temporary else frozenset())
    added = replace(chain, heads=sorted_pairs(heads), temporary=unnamed)
    numbers = dict.fromkeys(range(chain.queues), number)
    return _started(added, subscription, numbers, offsets or {}, wall_ms)


def named(chain: Chain, subscription: str) -> Chain:
    """Return the chain in which this subscription, opened by name, is not temporary (any more)."""
    if subscription not in chain.temporary:
        return chain
    return replace(chain, temporary=chain.temporary - {subscription})


def _started(
    chain: Chain,
    subscription: str,
    numbers: Mapping[int, int],
    offsets: Mapping[int, int],
    wall_ms: int,
) -> Chain:
    """The subscription starts in these queues at the segments `numbers`, or at the nearest ones.

    The start number is the wall clock `wall_ms` if that is higher than all before: a chain that
    comes from an older backup or a copy does not know all numbers that were given.
    """
    first, newest = first_number(chain), newest_number(chain)
    given = max(chain.last_start + 1, wall_ms)
    heads, starts = list(dict(chain.heads)[subscription]), chain.start_numbers_of(subscription)
    begins = list(chain.start_offsets_of(subscription))
    for queue, number in numbers.items():
        heads[queue] = max(first, min(number, newest))
        begins[queue] = offsets.get(queue, 0) if heads[queue] == number else 0
    starts = tuple(given if queue in numbers else n for queue, n in enumerate(starts))
    kept = {name: values for name, values in chain.start_offsets if name != subscription}
    return require_sound(
        replace(
            chain,
            heads=sorted_pairs(dict(chain.heads) | {subscription: tuple(heads)}),
            start_numbers=sorted_pairs(dict(chain.start_numbers) | {subscription: starts}),
            start_offsets=sorted_pairs(
                kept | ({subscription: tuple(begins)} if any(begins) else {})
            ),
            last_start=given,
        )
    )


def first_number(chain: Chain) -> int:
    """Return the number of the first segment that can still be read."""
    return chain.floor.number + 1


def newest_number(chain: Chain) -> int:
    """Return the last segment that a head may read: none lies beyond one without an end (K8)."""
    unended = (s.number for s in chain.segments if s.end is None)
    return next(unended, max(first_number(chain), chain.next_number - 1))


def number_at(chain: Chain, wall_ms: int) -> int:
    """Return the segment to read from a moment on; rather one too early, as clocks differ.

    Within it the offset of that moment is found in its group's journal.
    """
    opened = (s.number for s in chain.segments if 0 < s.opened_ms <= wall_ms - CLOCKS_DIFFER_MS)
    return min(max(opened, default=first_number(chain)), newest_number(chain))


def remove_subscription(chain: Chain, subscription: str) -> Chain:
    """Take a subscription's place away: it holds no segment back any more, and has read nothing."""
    everything = dict.fromkeys(range(chain.queues), 0)
    return replace(
        _unread(chain, subscription, everything),
        heads=_others(chain.heads, subscription),
        start_numbers=_others(chain.start_numbers, subscription),
        start_offsets=_others(chain.start_offsets, subscription),
        temporary=chain.temporary - {subscription},
    )


def seek(
    chain: Chain,
    subscription: str,
    numbers: Mapping[int, int],
    offsets: Mapping[int, int] | None = None,
    wall_ms: int = 0,
) -> Chain:
    """Move a subscription to other segments, by queue, as a person has asked.

    Each segment from the new head on is read again in full: what the subscription had finished
    above a released end counts no more, nor does its progress in any broker group (K18). `offsets`
    and `wall_ms` as in `add_at`.
    """
    heads = chain.heads_of(subscription)
    if heads is None:
        return chain
    moved = _started(chain, subscription, numbers, offsets or {}, wall_ms)
    now = dict(moved.heads)[subscription]
    after = _unread(moved, subscription, {q: now[q] for q in numbers if now[q] <= heads[q]})
    assert not broken_step(chain, after)
    return require_sound(after)


def _others(values: PerSubscription, subscription: str) -> PerSubscription:
    return tuple((name, numbers) for name, numbers in values if name != subscription)


def _unread(chain: Chain, subscription: str, again: Mapping[int, int]) -> Chain:
    """The subscription reads these queues again from the segments `again` on, in full."""
    return replace(
        chain,
        segments=tuple(_unfinished(s, subscription, again) for s in chain.segments),
        floor=_floor_unfinished(chain, subscription, again),
    )


def _unfinished(segment: Segment, subscription: str, again: Mapping[int, int]) -> Segment:
    """The segment without what the subscription had finished above its end, in those queues."""
    queues = {queue for queue, number in again.items() if number <= segment.number}
    if segment.last_sequence is None:
        return segment
    passed = _without(segment.passed, subscription, segment.last_sequence, queues)
    return replace(segment, passed=passed)


def _floor_unfinished(chain: Chain, subscription: str, again: Mapping[int, int]) -> Floor:
    queues = {queue for queue, number in again.items() if number <= first_number(chain)}
    last = chain.floor.last_sequence
    return replace(chain.floor, passed=_without(chain.floor.passed, subscription, last, queues))


def _without(
    passed: PerSubscription, subscription: str, last: PerQueue, queues: Set[int]
) -> PerSubscription:
    values = dict(passed)
    if subscription not in values or not queues:
        return passed
    left = tuple(last[q] if q in queues else n for q, n in enumerate(values[subscription]))
    values[subscription] = left
    if left == last:
        del values[subscription]
    return sorted_pairs(values)


def oldest_kept(
    chain: Chain, group: GroupName, floor: Callable[[str, int, int], int]
) -> PerQueue | None:
    """Return the offsets below which retention may delete in `group`; None = no bound by chains.

    Of the first segment here, records stay until each subscription that reads it has finished them:
    an open segment may last for months. `floor`: by subscription, queue and start number, the next
    offset that it has not finished in this group since that start, as stored; 0 = none is.
    """
    first = next((s for s in chain.segments if s.group == group and chain.heads), None)
    if first is None:
        return None

    def unread_from(name: str, place: Place, queue: int) -> int:
        done = floor(name, queue, place.start_numbers[queue])
        reached = max(done, place.start_offsets[queue])
        return _unread_from(first, place.heads[queue], reached, queue)

    return tuple(
        min(unread_from(name, place, q) for name, place in chain.places.items())
        for q in range(chain.queues)
    )


def _unread_from(segment: Segment, head: int, floor: int, queue: int) -> int:
    """The first offset from which a subscription with that head needs the segment."""
    start, end = segment.start[queue], segment.end
    if head < segment.number:
        return start
    if head == segment.number:
        reached = max(start, floor)
        return reached if end is None else min(reached, end[queue])
    assert end is not None, "K8: no head passes a segment without an end"
    return end[queue]
