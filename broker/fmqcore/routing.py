"""A client's route table, and its choice of a group and a queue.

Pure. The table is merged from the answers of any broker; a group's route is replaced only by one of
the same or a higher epoch. The hash is part of the contract, so that programs in other languages
find the same place for a key:

    key_hash(key)  = fmix32(crc32c(key))                      (fmix32: MurmurHash3's finalizer)
    group of a key = the one with the greatest  w / -ln(u),   w its weight,
                     u = (fmix32(key_hash ^ crc32c(group name)) + 0.5) / 2**32
    queue of a key = key_hash % queues of the topic in that group

This is weighted rendezvous hashing: when a group goes away only its keys move, evenly over the
others; when it returns exactly those come back. A group of weight 0 takes no new messages.

Not here: connections, retries, permissions as brokers really hold them (`fmqclient`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, log
from typing import Final

from fmqcore.batch.crc import crc32c
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission
from fmqcore.zk.topic import TopicConfig, TopicGroup

_U32: Final = 0xFFFFFFFF
Place = tuple[GroupName, int]
"""The (group, queue) that a record goes to."""


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
    merged_topics = {n: t for n, t in table.topics.items() if asked and n not in asked}
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


def key_hash(key: bytes) -> int:
    """Return the stable 32-bit hash of a key (see the module's docstring)."""
    return _fmix32(crc32c(key))


def pick_by_key(
    groups: Sequence[TopicGroup], writable: Collection[GroupName], key: bytes
) -> Place | None:
    """Return the place of a key among the writable groups; None if there is none."""
    hashed = key_hash(key)
    best: TopicGroup | None = None
    best_score = 0.0
    for group in groups:
        if group.weight <= 0 or group.queues <= 0 or group.group not in writable:
            continue
        score = _score(hashed, group)
        if best is None or (score, group.group) > (best_score, best.group):
            best, best_score = group, score
    return None if best is None else (best.group, hashed % best.queues)


class Rotation:
    """Places for records without a key: groups in turn by weight (smoothly), then their queues.

    `start` shifts the first queue, so that many producers do not move in step.
    """

    __slots__ = ("_credit", "_groups", "_queue")

    def __init__(self, groups: Sequence[TopicGroup], start: int = 0) -> None:
        usable = sorted((g for g in groups if g.weight > 0 and g.queues > 0), key=lambda g: g.group)
        divisor = gcd(*(g.weight for g in usable)) or 1
        self._groups = tuple((g.group, g.weight // divisor, g.queues) for g in usable)
        self._credit = dict.fromkeys((g for g, _, _ in self._groups), 0)
        self._queue = {g: start % queues for g, _, queues in self._groups}

    def next(self, writable: Collection[GroupName]) -> Place | None:
        """Return the next place among the writable groups; None if there is none."""
        total = 0
        best = GroupName("")
        best_queues = 0
        for group, weight, queues in self._groups:
            if group not in writable:
                continue
            total += weight
            self._credit[group] += weight
            if not best_queues or self._credit[group] > self._credit[best]:
                best, best_queues = group, queues
        if not best_queues:
            return None
        self._credit[best] -= total
        queue = self._queue[best]
        self._queue[best] = (queue + 1) % best_queues
        return best, queue


def tag_bit(tag: bytes) -> int:
    """Return the bit that a tag sets in a batch's `tag_mask`: 1 << (key_hash(tag) % 64)."""
    return 1 << (key_hash(tag) & 63)


def _score(hashed: int, group: TopicGroup) -> float:
    mixed = _fmix32(hashed ^ crc32c(group.group.encode()))
    return group.weight / -log((mixed + 0.5) / 4294967296.0)


def _fmix32(h: int) -> int:
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _U32
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _U32
    return h ^ (h >> 16)
