"""A client's route table: groups, their brokers, topics.

Pure. The table is merged from the answers of any broker; a group's route is replaced only by one of
the same or a higher epoch. Where a record goes: `fmqcore/placement.py`. Not here: connections,
retries, permissions as brokers really hold them (`fmqclient`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fmqcore.ids import BrokerId, Epoch, GroupName, Permission
from fmqcore.zk.topic import TopicConfig


@dataclass(frozen=True, slots=True)
class BrokerRoute:
    """One broker, according to the group's state."""

    id: BrokerId
    address: str
    zone: str = ""
    role: str = ""
    permission: Permission = Permission.NONE
    in_sync: bool = False
    live: bool = False


@dataclass(frozen=True, slots=True)
class GroupRoute:
    """One group's brokers, as of one epoch."""

    group: GroupName
    epoch: Epoch
    mode: str
    brokers: tuple[BrokerRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Every group and topic that this client has heard of."""

    groups: Mapping[GroupName, GroupRoute] = field(default_factory=dict)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    """The greatest id seen for each topic name, including topics that are gone now."""

    def of_topics(self, names: Collection[str]) -> "RouteTable":
        """Return the table with these topics only."""
        kept = {name: topic for name, topic in self.topics.items() if name in names}
        return RouteTable(self.groups, kept, self.newest)


def merge(
    table: RouteTable,
    groups: Iterable[GroupRoute],
    topics: Iterable[TopicConfig],
    asked: Collection[str] = (),
) -> RouteTable:
    """Return the table merged with one answer; `asked` names the requested topics (empty: all).

    A group's route of a lower epoch is ignored, and so is a topic of a lower id: that one had the
    name before. A requested topic that the answer lacks is gone.
    """
    merged_groups = dict(table.groups)
    for route in groups:
        known = merged_groups.get(route.group)
        if known is None or route.epoch >= known.epoch:
            merged_groups[route.group] = route
    replaced = frozenset(asked or table.topics)
    merged_topics = {n: t for n, t in table.topics.items() if n not in replaced}
    newest = dict(table.newest)
    for topic in topics:
        if topic.id >= newest.get(topic.name, 0):
            merged_topics[topic.name] = topic
            newest[topic.name] = topic.id
        elif topic.name in table.topics:
            merged_topics[topic.name] = table.topics[topic.name]
    return RouteTable(merged_groups, merged_topics, newest)


def candidates(route: GroupRoute, needed: Permission) -> tuple[BrokerRoute, ...]:
    """Return the brokers of a group in the order in which to try them for `needed`.

    First those that hold it, then by permission FULL, WRITE, READ, NONE (a table may be stale:
    a broker that holds nothing in it may be the one that serves), live ones first, then by name.
    """
    return tuple(
        sorted(
            route.brokers,
            key=lambda b: (not needed & b.permission, -b.permission, not b.live, b.id),
        )
    )


def grants(route: GroupRoute | None, needed: Permission) -> bool:
    """Whether some broker of the group holds all of `needed`, according to the route."""
    return route is not None and any(b.permission & needed == needed for b in route.brokers)
