"""A producer's view of one topic: queue buffers, and ordered moves between groups. No I/O.

Records of one key that end up in one queue are there in the order in which they were handed in,
although groups come and go and batches are refused (L6). For that, a key's records that might still
move are always in one queue buffer. When the groups among which keys are spread change (`remap`),
nothing new is sent for a moment. The batches in flight from queue buffers that lose keys are
awaited: each is stored, refused, or has an unknown outcome and stays there for good. Then all that
was not sent is placed again, in the order in which it was handed in. A flight that is unknown, or
not answered in `HOLD_MS`, *stays*: if it is refused later, it goes to its own queue buffer only.
"""

from collections.abc import Callable, Iterable
from typing import Final

from fmqclient.producer.batches import Flight, Pile, Record
from fmqclient.producer.queue_buffer import Lane
from fmqcore.ids import GroupName
from fmqcore.routing import Place, Rotation, pick_by_key
from fmqcore.zk.topic import TopicConfig

KEYS_REMEMBERED: Final = 100_000
"""Keys per topic whose queue buffer is remembered, so that they are hashed once."""
HOLD_MS: Final = 300
_LOOK_AHEAD: Final = 8  # places to pass over, at most, because something is under way there

Unrouted = tuple[Record, GroupName | None, int | None]


class Topic:
    """Queue buffers of one topic. `mapping`: the groups among which records are spread now."""

    __slots__ = (
        "_awaited",
        "_held_until_ms",
        "_new_lane",
        "by_key",
        "config",
        "held",
        "lanes",
        "mapping",
        "name",
        "rotation",
        "sticky",
        "unrouted",
    )

    def __init__(self, name: str, new_lane: Callable[["Topic", Place], Lane]) -> None:
        self.name = name
        self.config: TopicConfig | None = None  # None: the routes have not been asked yet
        self.mapping: frozenset[GroupName] = frozenset()
        self.rotation = Rotation(())
        self.lanes: dict[Place, Lane] = {}
        self.by_key: dict[bytes, Lane] = {}
        self.sticky: Lane | None = None  # takes what has no key, until it is sent
        self.unrouted: list[Unrouted] = []
        self.held = False  # nothing new is sent until what is awaited is answered
        self._awaited: list[Flight] = []
        self._held_until_ms = 0
        self._new_lane = new_lane

    # ---- placing

    def lane_for(self, key: bytes) -> Lane | None:
        """Return a record's queue buffer. None: no group takes it, or none is known yet."""
        if key:
            return self.by_key.get(key) or self.lane_for_key(key)
        sticky = self.sticky
        return sticky if sticky is not None and sticky.open is not None else self.next_lane()

    def lane_for_key(self, key: bytes) -> Lane | None:
        """Return the queue buffer of a key that is not remembered."""
        place = pick_by_key(self.config.groups, self.mapping, key) if self.config else None
        if place is None:
            return None
        if len(self.by_key) >= KEYS_REMEMBERED:
            self.by_key.clear()
        lane = self.by_key[key] = self.lane(place)
        return lane

    def next_lane(self) -> Lane | None:
        """Return the next queue buffer for records without a key; prefer one with no flight."""
        lane: Lane | None = None
        for _ in range(_LOOK_AHEAD):
            place = self.rotation.next(self.mapping)
            if place is None:
                return None
            lane = self.lane(place)
            if not lane.flights:
                break
        self.sticky = lane
        return lane

    def lane(self, place: Place) -> Lane:
        """Return the queue buffer of a place, created if need be."""
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = self._new_lane(self, place)
        return lane

    # ---- moving

    def know(
        self, config: TopicConfig, start: int, usable: Iterable[GroupName], now_ms: int
    ) -> None:
        """Take the topic's groups and queues, for the first time or changed."""
        self.config = config
        self.rotation = Rotation(config.groups, start)
        before, self.mapping = self.mapping, self._wanted(usable)
        self._hold(before, now_ms)

    def remap(self, usable: Iterable[GroupName], now_ms: int) -> None:
        """Take the groups that are usable now."""
        after = self._wanted(usable)
        if after == self.mapping:
            return
        before, self.mapping = self.mapping, after
        # Keys leave the groups that went away; if groups came, keys may leave any.
        self._hold(before if after - before else before - after, now_ms)

    def lift(self, now_ms: int) -> "list[tuple[Record, Pile, Lane | None]] | None":
        """Return what must be placed again, in order. None: not yet, or not at all.

        Each record comes with its batch so far (its deadline, its time of birth), and the queue
        buffer to which it is pinned, if any.
        """
        if not self.held:
            return None
        self._awaited = [f for f in self._awaited if not f.over]
        if now_ms < self._held_until_ms and not all(f.unknown for f in self._awaited):
            return None
        for flight in self._awaited:
            flight.stays = True
        self._awaited = []
        self.held = False
        moved = [
            (record, pile, lane if record[5] else None)
            for lane in self.lanes.values()
            for pile in lane.take_unsent()
            for record in pile.records
        ]
        moved.sort(key=lambda entry: entry[0][6])
        return moved

    def _wanted(self, usable: Iterable[GroupName]) -> frozenset[GroupName]:
        assert self.config is not None, "a topic is mapped when it is known"
        groups = frozenset(g.group for g in self.config.groups if g.weight > 0 and g.queues > 0)
        return groups & frozenset(usable) or groups

    def _hold(self, leaving: Iterable[GroupName], now_ms: int) -> None:
        self.by_key.clear()
        self.sticky = None
        groups = set(leaving)
        flights = [f for p, lane in self.lanes.items() if p[0] in groups for f in lane.flights]
        self._awaited += [f for f in flights if f not in self._awaited]
        self.held = True
        self._held_until_ms = now_ms + HOLD_MS
