"""What a person or the operator may ask of a chain: a new chain, or a refusal. Pure.

Each request is one compare-and-set, like the steps of the machine. Refusals are `InvalidArgument`:
they name the topic, what failed, and the next action.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.context import Case, has_room, no_room_text
from fmqcore.ordered.delivery import due_heads
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, eligible, obstacles
from fmqcore.ordered.evidence import CloseReason, Evidence, Params
from fmqcore.ordered.invariants import require_sound
from fmqcore.ordered.lowering import emptied, loses, lowered, with_segment
from fmqcore.ordered.transitions import close, with_heads
from fmqcore.zk.chain import (
    DEFAULT_LEASE_MS,
    NO_TOPIC,
    Chain,
    ChainGroup,
    PerQueue,
)

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
                f"ordered topic {topic}: group {group.group} has {_brokers(count)}, and an ordered "
                "message needs two disks: add a slave, name another group, or allow a single "
                "broker for a try (--allow-single)"
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
    offset that it has not finished in this group.
    """
    segment = chain.segment(number)
    if segment is None:
        raise InvalidArgument(
            f"ordered topic {chain.topic} has no segment {number}: `fmq ordered status` lists them"
        )
    if not segment.has_ended:
        raise InvalidArgument(
            f"segment {number} of {chain.topic} is not ended: switch first, and release it once "
            "its end is unknown"
        )
    released = lowered(chain, segment, ends, progress)
    # What was acknowledged in the last segment, its sender knows alone: see `HOLDS_ACKED`.
    is_last = number == chain.next_number - 1
    below_start = any(end < start for end, start in zip(ends, segment.start, strict=True))
    if loses(chain, released) or (is_last and (accept_loss or below_start)):
        ended = released.segment(number)
        assert ended is not None
        if not accept_loss and is_last and below_start:
            raise InvalidArgument(
                f"segment {number} of {chain.topic} may lose acknowledged records: the journals of "
                f"{segment.group} end below its start; bring back the member that has more, or "
                "accept the loss with --accept-loss"
            )
        if not accept_loss:
            lasts = enumerate(ended.last_sequence or ())
            held = ", ".join(f"{last} of queue {queue}" for queue, last in lasts)
            raise InvalidArgument(
                f"segment {number} of {chain.topic} would lose acknowledged records: its members "
                f"end it at sequence {held}; bring back the member that has more, or accept "
                "the loss with --accept-loss"
            )
        released = _with_loss(released, number)
    return require_sound(released)


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
                f"ordered topic {chain.topic}: group {group.group} has {_brokers(count)}: "
                "add a slave first"
            )
    return require_sound(replace(chain, groups=tuple(groups)))


def group_in_use(chain: Chain, group: GroupName) -> str | None:
    """Return why a group must not be deleted; None if the chain does not need it."""
    if any(g.group == group for g in chain.groups):
        way = "take it out first"
        if len(chain.groups) < 3:
            way = "a chain needs two: have another group for it, then take this one out"
        return (
            f"group {group} belongs to ordered topic {chain.topic}: {way} "
            f"(`fmq topic alter {chain.topic} --groups GROUP,GROUP`), or delete the topic"
        )
    held = [s.number for s in chain.segments if s.group == group and s.end != s.start]
    if held:
        return (
            f"group {group} holds segments {held[0]} to {held[-1]} of ordered topic "
            f"{chain.topic} that consumers still read: wait until they are drained "
            "(`fmq ordered status`)"
        )
    return None


def give_up_group(chain: Chain, group: GroupName) -> Chain:
    """Give up all segments of a group that is lost for good, with everything unread in them.

    They become empty, so heads pass them. What a subscription had finished is not delivered again.
    The group must not take part any more (`change_groups`).
    """
    if any(g.group == group for g in chain.groups):
        raise InvalidArgument(str(group_in_use(chain, group)))
    last = chain.last
    if last is not None and last.group == group and not last.has_ended:
        if chain.closing is None:
            chain = close(chain, f"group {group} is lost for good", CloseReason.REMOVAL)
        chain = with_segment(chain, replace(last, end_unknown=True))
    due = [s.number for s in chain.segments if s.group == group and s.end != s.start]
    newest = chain.next_number - 1
    loses_newest = newest in due  # what it held of acknowledged records, its sender knows alone
    while due:
        chain, due = _empty_until_loss(chain, due)
    if loses_newest:
        chain = _with_loss(chain, newest)
    everything = dict.fromkeys((name for name, _ in chain.heads), (NO_END,) * chain.queues)
    return require_sound(with_heads(chain, due_heads(chain, group, everything)))


def _empty_until_loss(chain: Chain, numbers: list[int]) -> tuple[Chain, list[int]]:
    """Empty segments up to the first that loses records, and return which are left.

    A loss stays one when more is emptied, so the first is found by bisection: a chain may have
    thousands of segments, and every check of a candidate reads the whole chain.
    """
    counts = range(1, len(numbers) + 1)
    harmless = bisect_left(
        counts, True, key=lambda count: loses(chain, emptied(chain, frozenset(numbers[:count])))
    )
    chain = emptied(chain, frozenset(numbers[: harmless + 1]))
    if harmless < len(numbers):
        chain = _with_loss(chain, numbers[harmless])
    return chain, numbers[harmless + 1 :]


def _with_loss(chain: Chain, number: int) -> Chain:
    segment = chain.segment(number)
    assert segment is not None
    return with_segment(chain, replace(segment, loss=True))


def _brokers(count: int) -> str:
    return f"{count or 'no'} broker{'s' if count > 1 else ''}"


def _require_groups(topic: str, groups: Sequence[ChainGroup]) -> None:
    names = [g.group for g in groups]
    if len(names) < 2:
        raise InvalidArgument(
            f"ordered topic {topic} needs two groups or more, so that sends go on in another one "
            f"when a broker is lost; it has {', '.join(names) or 'none'}: name two or more"
        )
    if len(set(names)) < len(names):
        raise InvalidArgument(f"ordered topic {topic}: a group occurs twice in {', '.join(names)}")
    if weightless := [g.group for g in groups if g.weight < 1]:
        raise InvalidArgument(
            f"ordered topic {topic}: group {weightless[0]} has weight 0, and a weight is a rank, "
            "1 or more: give the preferred groups a higher one, or leave this one out: it gets no "
            "new messages then, and consumers still read what it holds"
        )
