"""What a person or the operator may ask of a chain: a new chain, or a refusal. Pure.

Each request is one compare-and-set, like the steps of the machine. Refusals are `InvalidArgument`:
they name the topic, what failed, and the next action.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.ordered.context import MAX_CHAIN_BYTES, Case, has_room, no_room_text
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, eligible, obstacles
from fmqcore.ordered.evidence import CloseReason, Evidence, Params
from fmqcore.ordered.invariants import broken_step, reached_before, require_sound
from fmqcore.ordered.transitions import close, with_segment
from fmqcore.zk.chain import (
    DEFAULT_LEASE_MS,
    NO_TOPIC,
    Chain,
    ChainGroup,
    Floor,
    PerQueue,
    PerSubscription,
    Segment,
    sorted_pairs,
)

MAX_HEADS: Final = 16_384
"""Maximum heads of a chain: subscriptions times queues."""
_MOST_BYTES: Final = MAX_CHAIN_BYTES * 5 // 4
"""A larger chain takes no further subscription; see `MAX_CHAIN_BYTES`."""
CLOCKS_DIFFER_MS: Final = 60_000
"""Two brokers' clocks differ by no more than this, for the place of a moment in a chain."""
NO_END: Final = 1 << 62
"""An offset above all others."""


def create_chain(
    topic: str,
    queues: int,
    groups: Sequence[ChainGroup],
    members: Mapping[GroupName, int],
    *,
    allow_single: bool = False,
    lease_ms: int = DEFAULT_LEASE_MS,
    topic_id: TopicId = NO_TOPIC,
) -> Chain:
    """Return the chain of a new ordered topic. `members`: configured brokers of each group."""
    _require_groups(topic, groups)
    for group in groups:
        count = members.get(group.group, 0)
        if count < 2 and not (allow_single and count):
            raise InvalidArgument(
                f"ordered topic {topic}: group {group.group} has {count} brokers, and an ordered "
                "message needs two disks: add a slave, name another group, or use --allow-single "
                "for a try"
            )
    return require_sound(
        Chain(
            topic,
            queues,
            tuple(groups),
            lease_ms=lease_ms,
            allow_single=allow_single,
            topic_id=topic_id,
        )
    )


def switch(chain: Chain, evidence: Evidence, segment: int, params: Params, reason: str) -> Chain:
    """Close segment `segment` because a person or the operator wants its group free.

    A request that is made twice changes nothing: the segment is closing, or is not the last.
    """
    last = chain.last
    if last is None or segment != last.number or chain.closing is not None:
        return chain
    if not has_room(chain):
        raise InvalidArgument(
            f"ordered topic {chain.topic} stays in {last.group}: {no_room_text(chain)}"
        )
    case = Case(chain, evidence, 0, params, LASTING_CONDITIONS)
    if all(group == last.group for group in eligible(case)):
        raise InvalidArgument(
            f"ordered topic {chain.topic} stays in {last.group}: no other group may take sends "
            f"({obstacles(case)}); mend one, then switch again"
        )
    return close(chain, reason)


def release(
    chain: Chain,
    number: int,
    ends: PerQueue,
    progress: Mapping[str, PerQueue],
    *,
    accept_loss: bool = False,
) -> Chain:
    """End a segment where the members that are left end it, as its own end cannot be reached.

    `ends`: the least that the answering, whole members hold. `progress`: per subscription the next
    offset that it has not finished in this group. What a subscription has finished above the new
    end comes again in a later segment: `Segment.passed` keeps it from being delivered twice.
    """
    segment = chain.segment(number)
    if segment is None:
        raise InvalidArgument(
            f"ordered topic {chain.topic} has no segment {number}: `fmq ordered status` lists them"
        )
    if segment.end is None and not segment.end_unknown:
        raise InvalidArgument(
            f"segment {number} of {chain.topic} is not ended: switch first, and release it once "
            "its end is unknown"
        )
    end = tuple(Offset(max(e, s)) for e, s in zip(ends, segment.start, strict=True))
    if segment.end is not None:
        end = tuple(Offset(min(pair)) for pair in zip(end, segment.end, strict=True))
    ended = replace(segment, end=end, end_unknown=False)
    ended = replace(ended, passed=_passed(chain, segment, ended, progress))
    released = with_segment(chain, ended)
    if _has_gap(released):
        if not accept_loss:
            raise InvalidArgument(
                f"segment {number} of {chain.topic} would lose acknowledged records: its members "
                f"hold {end}; bring back the member that has more, or accept the loss with "
                "--accept-loss"
            )
        released = with_segment(chain, replace(ended, loss=True))
    return require_sound(released)


def _passed(
    chain: Chain, before: Segment, after: Segment, progress: Mapping[str, PerQueue]
) -> tuple[tuple[str, PerQueue], ...]:
    """The highest sequence that each subscription has finished here, if above the end."""
    passed, last = dict(before.passed), after.last_sequence
    assert last is not None
    for name, numbers in chain.heads:
        done = progress.get(name, before.start)
        finished = []
        for queue in range(chain.queues):
            offset = done[queue]
            if before.end is not None:
                left = numbers[queue] > before.number
                offset = before.end[queue] if left else min(offset, before.end[queue])
            finished.append(before.first_sequence[queue] + offset - before.start[queue] - 1)
        earlier = passed.get(name, last)
        highest = tuple(max(v) for v in zip(finished, earlier, last, strict=True))
        if highest != last:
            passed[name] = highest
    return sorted_pairs(passed)


def _has_gap(chain: Chain) -> bool:
    for segment in chain.segments:
        reached = reached_before(chain, segment)
        if reached is not None and any(
            f > r + 1 for f, r in zip(segment.first_sequence, reached, strict=True)
        ):
            return True
    return False


def change_groups(
    chain: Chain, groups: Sequence[ChainGroup], members: Mapping[GroupName, int]
) -> Chain:
    """Return the chain with other groups. A group may leave at any time: it gets no new segment.

    The machine then closes its open segment (row GROUP_LEFT), and its old segments stay readable
    until all subscriptions have left them. Only then may the group itself be deleted
    (`group_in_use`).
    """
    _require_groups(chain.topic, groups)
    old = {g.group for g in chain.groups}
    for group in groups:
        count = members.get(group.group, 0)
        if group.group not in old and count < 2 and not (chain.allow_single and count):
            raise InvalidArgument(
                f"ordered topic {chain.topic}: group {group.group} has {count} brokers: add a "
                "slave first"
            )
    return require_sound(replace(chain, groups=tuple(groups)))


def group_in_use(chain: Chain, group: GroupName) -> str | None:
    """Return why a group must not be deleted; None if the chain does not need it."""
    if any(g.group == group for g in chain.groups):
        return (
            f"group {group} belongs to ordered topic {chain.topic}: take it out first "
            f"(`fmq topic alter {chain.topic} --groups GROUP,GROUP`)"
        )
    held = [s.number for s in chain.segments if s.group == group and s.end != s.start]
    if held:
        return (
            f"group {group} holds segments {held[0]} to {held[-1]} of ordered topic "
            f"{chain.topic} that consumers still read: wait until they are drained "
            "(`fmq ordered status`)"
        )
    return None


def add_subscription(chain: Chain, subscription: str, *, latest: bool) -> Chain:
    """Give a new subscription its heads: at the first segment, or at the newest one."""
    return add_at(chain, subscription, newest_number(chain) if latest else first_number(chain))


def add_at(chain: Chain, subscription: str, number: int) -> Chain:
    """Give a new subscription its heads at a segment; one that is there keeps its heads."""
    if chain.heads_of(subscription) is not None:
        return chain
    many = (len(chain.heads) + 1) * chain.queues > MAX_HEADS
    if many or not has_room(chain, _MOST_BYTES):
        raise InvalidArgument(
            f"ordered topic {chain.topic} has {len(chain.heads)} consumer groups on "
            f"{chain.queues} queues, and takes no more: delete those that are not used "
            f"(`fmq group list --topic {chain.topic}`), or read it with one of them"
        )
    number = max(first_number(chain), min(number, newest_number(chain)))
    heads = dict(chain.heads) | {subscription: (number,) * chain.queues}
    return require_sound(replace(chain, heads=sorted_pairs(heads)))


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
    """Take a subscription's heads away: it holds no segment back any more."""
    heads = {name: numbers for name, numbers in chain.heads if name != subscription}
    return replace(chain, heads=sorted_pairs(heads))


def seek(chain: Chain, subscription: str, numbers: Mapping[int, int]) -> Chain:
    """Move a subscription's heads, by queue, to other segments, because a person asked for it.

    Each segment from the new head on is read again in full: what the subscription had finished
    above a released end counts no more. A request that is made twice changes nothing.
    """
    heads = chain.heads_of(subscription)
    if heads is None:
        return chain
    first, newest = first_number(chain), newest_number(chain)
    moved = tuple(
        max(first, min(numbers.get(queue, head), newest)) if queue in numbers else head
        for queue, head in enumerate(heads)
    )
    again = {queue: moved[queue] for queue in numbers if moved[queue] < heads[queue]}
    after = replace(
        chain,
        heads=sorted_pairs(dict(chain.heads) | {subscription: moved}),
        segments=tuple(_unfinished(s, subscription, again) for s in chain.segments),
        floor=_floor_unfinished(chain, subscription, again),
    )
    assert not broken_step(chain, after, by_seek=True)
    return require_sound(after)


def _unfinished(segment: Segment, subscription: str, again: Mapping[int, int]) -> Segment:
    """The segment without what the subscription had finished above its end, in those queues."""
    queues = {queue for queue, number in again.items() if number <= segment.number}
    if segment.last_sequence is None:
        return segment
    passed = _without(segment.passed, subscription, segment.last_sequence, queues)
    return replace(segment, passed=passed)


def _floor_unfinished(chain: Chain, subscription: str, again: Mapping[int, int]) -> Floor:
    queues = {queue for queue, number in again.items() if number == first_number(chain)}
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


def give_up_group(chain: Chain, group: GroupName) -> Chain:
    """Give up all segments of a group that is lost for good, with everything unread in them.

    They become empty, so heads pass them. What a subscription had finished is not delivered again.
    The group must not take part any more (`change_groups`).
    """
    if any(g.group == group for g in chain.groups):
        raise InvalidArgument(str(group_in_use(chain, group)))
    for segment in chain.segments:
        if segment.group != group or segment.end == segment.start:
            continue
        if segment.end is None and not segment.end_unknown:
            if chain.closing is None:
                chain = close(chain, f"group {group} is lost for good", CloseReason.REMOVAL)
            chain = with_segment(chain, replace(segment, end_unknown=True))
        chain = release(chain, segment.number, segment.start, {}, accept_loss=True)
    everything = dict.fromkeys((name for name, _ in chain.heads), (NO_END,) * chain.queues)
    moved = dict(chain.heads) | due_heads(chain, group, everything)
    return require_sound(replace(chain, heads=sorted_pairs(moved)))


def oldest_kept(
    chain: Chain, group: GroupName, floor: Callable[[str, int], int]
) -> PerQueue | None:
    """Return the offsets below which retention may delete in `group`; None = no bound by chains.

    Of the first segment here, records stay until each subscription that reads it has finished them:
    an open segment may last for months. `floor`: by subscription and queue, the next offset that
    it has not finished in this group, as stored; 0 = none is.
    """
    first = next((s for s in chain.segments if s.group == group and chain.heads), None)
    if first is None:
        return None
    return tuple(
        min(_unread_from(first, heads[q], floor(name, q), q) for name, heads in chain.heads)
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


def _require_groups(topic: str, groups: Sequence[ChainGroup]) -> None:
    names = [g.group for g in groups]
    if len(names) < 2:
        raise InvalidArgument(
            f"ordered topic {topic} needs two groups or more, so that sends go on in another one "
            f"when a broker is lost; it has {', '.join(names) or 'none'}: add --groups g1,g2"
        )
    if len(set(names)) < len(names):
        raise InvalidArgument(f"ordered topic {topic}: a group occurs twice in {', '.join(names)}")
