"""Allowed changes of a topic: more queues, more groups, other weights. Messages always stay. Pure.

A group's number of queues never falls: consumers would lose what is in them. A group of weight 0
gets no new messages and is read to its end. A group leaves a topic only when it is removed from the
cluster and everything in it was consumed (`fmq cluster remove-group`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.ids import MAX_QUEUES, GroupName
from fmqcore.zk.topic import TopicConfig, TopicGroup


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A group's wanted share of a topic. None: unchanged; for a new group, as in the others."""

    group: GroupName
    queues: int | None = None
    weight: int | None = None


def altered(
    topic: TopicConfig,
    queues: int,
    changes: Sequence[GroupChange],
    known: Collection[GroupName],
) -> TopicConfig:
    """Return the topic with these changes. `queues`: in every group; 0: unchanged.

    Raises `InvalidArgument` naming an impossible change, `NotFound` an unknown group.
    """
    if topic.ordered:
        raise InvalidArgument(
            f"topic {topic.name} is ordered: its number of queues is fixed, and its chain has "
            f"its groups: fmq topic alter {topic.name} --groups GROUP,GROUP"
        )
    groups = {g.group: g for g in topic.groups}
    if len({change.group for change in changes}) < len(changes):
        raise InvalidArgument("a group is named twice")
    for change in changes:
        groups[change.group] = _changed(topic, change, known)
    if queues:
        groups = {name: _grown(topic.name, g, queues) for name, g in groups.items()}
    if not any(g.weight > 0 for g in groups.values()):
        raise InvalidArgument("at least one group needs a weight above 0, to take messages")
    return replace(topic, groups=tuple(groups.values()))


def with_chain_groups(topic: TopicConfig, weights: Mapping[GroupName, int]) -> TopicConfig:
    """Return the ordered topic with its chain's groups and weights.

    All groups have the same number of queues. A group that left the chain keeps its queues, with
    weight 0: consumers read its segments to their ends.
    """
    queues = max(g.queues for g in topic.groups)
    known = {g.group: g for g in topic.groups}
    added = {name: TopicGroup(name, queues) for name in weights if name not in known}
    return replace(
        topic,
        groups=tuple(
            replace(g, weight=weights.get(name, 0)) for name, g in (known | added).items()
        ),
    )


def restored(topic: TopicConfig, group: GroupName, queues: int) -> TopicConfig:
    """Return the topic with at least the queues that a journal of the group holds.

    The number of queues never falls, so a topic with fewer is from an older backup of ZooKeeper. A
    group missing from it comes back with weight 0: its messages are read, and it gets no new ones.
    """
    if queues <= topic.queues_in(group):
        return topic
    groups = {g.group: g for g in topic.groups}
    known = groups.get(group, TopicGroup(group, 0, weight=0))
    return replace(topic, groups=(*(groups | {group: replace(known, queues=queues)}).values(),))


def closed(topic: TopicConfig, group: GroupName) -> TopicConfig:
    """Return the topic with the group's weight 0; `InvalidArgument` if no other takes messages."""
    _require_another(topic, group)
    groups = tuple(replace(g, weight=0) if g.group == group else g for g in topic.groups)
    return replace(topic, groups=groups)


def without(topic: TopicConfig, group: GroupName) -> TopicConfig:
    """Return the topic without the group; `InvalidArgument` if no other takes messages."""
    _require_another(topic, group)
    return replace(topic, groups=tuple(g for g in topic.groups if g.group != group))


def _require_another(topic: TopicConfig, group: GroupName) -> None:
    if not any(g.weight > 0 and g.queues > 0 for g in topic.groups if g.group != group):
        raise InvalidArgument(
            f"topic {topic.name} has no group besides {group} that takes messages: give it one "
            f"(fmq topic alter {topic.name} --group GROUP), or delete it "
            f"(fmq topic delete {topic.name})"
        )


def _changed(topic: TopicConfig, change: GroupChange, known: Collection[GroupName]) -> TopicGroup:
    if change.group not in known:
        names = ", ".join(sorted(known)) or "none"
        raise NotFound(f"there is no group {change.group!r}; the groups are {names}")
    most = max((g.queues for g in topic.groups), default=1)
    was = next((g for g in topic.groups if g.group == change.group), None)
    now = was or TopicGroup(change.group, most)
    if change.weight is not None:
        now = replace(now, weight=change.weight)
    if change.queues is None:
        return now
    if was is None:
        now = replace(now, queues=0)
    return _grown(topic.name, now, change.queues)


def _grown(topic: str, group: TopicGroup, queues: int) -> TopicGroup:
    if queues < group.queues:
        raise InvalidArgument(
            f"topic {topic} has {group.queues} queues in group {group.group}, and never fewer: "
            "they hold messages"
        )
    if not 1 <= queues <= MAX_QUEUES:
        raise InvalidArgument(f"a topic has 1 to {MAX_QUEUES} queues in a group, not {queues}")
    return replace(group, queues=queues)
