"""Which group and queue a record goes to. Pure.

| placement | for | a record goes to |
|---|---|---|
| `ByKey` | records with a key | the key's place: the same one while its group takes messages |
| `InTurn` | records without a key | groups in turn by weight, then their queues |
| `ByChain` | ordered topics | the key's queue; the chain decides on the group |

The hash is part of the contract, so that programs in other languages find the same place for a key:

    key_hash(key)  = fmix32(crc32c(key))                      (fmix32: MurmurHash3's finalizer)
    group of a key = the one with the greatest  w / -ln(u),   w its weight,
                     u = (fmix32(key_hash ^ crc32c(group name)) + 0.5) / 2**32
    queue of a key = key_hash % queues of the topic in that group

This is weighted rendezvous hashing: when a group goes away only its keys move, evenly over the
others; when it returns exactly those come back. A group of weight 0 takes no new messages.
"""

from collections.abc import Callable, Collection, Sequence
from math import gcd, log
from typing import Final, NamedTuple, Protocol

from fmqcore.batch.crc import crc32c
from fmqcore.ids import GroupName
from fmqcore.zk.topic import TopicGroup

_U32: Final = 0xFFFFFFFF
Place = tuple[GroupName, int]
"""The (group, queue) that a record goes to."""


class Placement(Protocol):
    """Chooses the place of a record of one topic."""

    def place(self, key: bytes, writable: Collection[GroupName]) -> Place | None:
        """Return the place among the writable groups; None if there is none."""
        ...


class ByKey:
    """The place of a key: the same one, whoever asks."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Sequence[TopicGroup]) -> None:
        self._groups = groups

    def place(self, key: bytes, writable: Collection[GroupName]) -> Place | None:
        """See `Placement`."""
        return pick_by_key(self._groups, writable, key)


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


class InTurn:
    """Groups in turn by weight (smoothly), then their queues.

    `start` shifts the first queue, so that many producers do not move in step.
    """

    __slots__ = ("_credit", "_groups", "_queue")

    def __init__(self, groups: Sequence[TopicGroup], start: int = 0) -> None:
        usable = sorted((g for g in groups if g.weight > 0 and g.queues > 0), key=lambda g: g.group)
        divisor = gcd(*(g.weight for g in usable)) or 1
        self._groups = tuple((g.group, g.weight // divisor, g.queues) for g in usable)
        self._credit = dict.fromkeys((g for g, _, _ in self._groups), 0)
        self._queue = {g: start % queues for g, _, queues in self._groups}

    def place(self, _: bytes, writable: Collection[GroupName]) -> Place | None:
        """See `Placement`."""
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


class ByChain:
    """The queue of a key of an ordered topic. Records without a key count as one key."""

    __slots__ = ("queues",)

    def __init__(self, queues: int) -> None:
        self.queues = queues

    def queue(self, key: bytes) -> int:
        """Return the key's queue, the same one in each group of the chain."""
        return key_hash(key) % self.queues


class Placements(NamedTuple):
    """The placements of one ordinary topic."""

    keyed: Placement
    keyless: Placement


PlacementsOf = Callable[[Sequence[TopicGroup], int], Placements]
"""Makes the placements of a topic with these groups; the number differs between producers."""


def standard_placements(groups: Sequence[TopicGroup], start: int = 0) -> Placements:
    """Return what producers use: by key, and in turn from queue `start` on."""
    return Placements(ByKey(groups), InTurn(groups, start))


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
