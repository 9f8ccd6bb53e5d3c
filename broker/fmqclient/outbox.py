"""All that a producer holds, and where each record goes. No I/O; `link.py` carries it out.

A record goes to a lane (group, topic, queue) when it is handed in: by its key's hash, else in
turn, among the groups that are *usable*: their link is up, or has not been tried yet. When a link
goes down, what was certainly not sent moves to the groups that are left; what may have been stored
stays (the rules are in `lane.py`). While no group is usable, records wait where they would go.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from fmqclient.lane import Lane
from fmqclient.records import Flight, Pile, Record, record_bytes, reject
from fmqclient.settings import ProducerSettings
from fmqcore.batch import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.cluster import TopicConfig
from fmqcore.errors import DeliveryUnknown, FmqError, InvalidArgument, Unavailable, UnknownQueue
from fmqcore.routing import Place, Rotation, pick_by_key
from fmqcore.words import GroupName
from fmqport.clock import Clock

KEYS_REMEMBERED: Final = 100_000
"""Keys per topic whose lane is remembered, so that they are hashed once."""
_LOOK_AHEAD: Final = 8  # places to pass over, at most, because something is under way there


class Carrier(Protocol):
    """What the outbox needs of a link."""

    why: str  # it does not take anything, for people; empty if it does
    error: FmqError | None  # the last refusal

    @property
    def usable(self) -> bool:
        """Whether new records may be bound for it."""
        ...

    def offer(self, lane: Lane) -> None:
        """A lane has something to send."""
        ...

    def renew(self) -> None:
        """A lane is poisoned: take a new producer id when nothing is in flight."""
        ...


class Topic:
    """One topic as this producer sees it."""

    __slots__ = ("by_key", "config", "lanes", "name", "rotation", "sticky", "unrouted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.config: TopicConfig | None = None  # None: the routes have not been asked yet
        self.rotation = Rotation(())
        self.lanes: dict[Place, Lane] = {}
        self.by_key: dict[bytes, Lane] = {}
        self.sticky: Lane | None = None  # takes what has no key, until it is sent
        self.unrouted: list[tuple[Record, GroupName | None, int | None]] = []


class Outbox:
    """Topics, lanes, and the window of what is outstanding."""

    def __init__(
        self,
        settings: ProducerSettings,
        clock: Clock,
        link_to: Callable[[GroupName], Carrier],
        released: Callable[[], None],
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.links: dict[GroupName, Carrier] = {}
        self.outstanding_bytes = 0
        self.outstanding_records = 0
        self._clock = clock
        self._timeout_ms = int(settings.delivery_timeout_s * 1000)
        self._born_time = settings.born_time
        self._max_bytes = min(settings.max_batch_bytes, MAX_PAYLOAD)
        self._max_records = min(settings.max_batch_records, MAX_RECORDS)
        self._link_to = link_to
        self._released = released
        self._usable: frozenset[GroupName] = frozenset()

    # ---- in

    def lane_for_key(self, topic: Topic, key: bytes) -> Lane | None:
        """The lane of a key; remembers it. None: the topic's groups are not known yet."""
        if topic.config is None:
            return None
        groups = topic.config.groups
        place = pick_by_key(groups, self._usable, key)
        if place is None:
            place = pick_by_key(groups, {g.group for g in groups}, key)
        if place is None:
            return None
        if len(topic.by_key) >= KEYS_REMEMBERED:
            topic.by_key.clear()
        lane = topic.by_key[key] = self._lane(topic, place)
        return lane

    def next_lane(self, topic: Topic) -> Lane | None:
        """The lane whose turn it is, for what has no key; preferably one that may send."""
        if topic.config is None:
            return None
        lane: Lane | None = None
        for _ in range(_LOOK_AHEAD):
            place = topic.rotation.next(self._usable)
            if place is None:
                place = topic.rotation.next({g.group for g in topic.config.groups})
            if place is None:
                return None
            lane = self._lane(topic, place)
            if not lane.flights:
                break
        topic.sticky = lane
        return lane

    def pinned_lane(self, topic: Topic, group: GroupName | None, queue: int | None) -> Lane | None:
        """The lane that the caller asked for; raise `InvalidArgument`, `UnknownQueue`."""
        if topic.config is None:
            return None
        groups = topic.config.groups
        if group is None:
            if len(groups) != 1:
                names = ", ".join(g.group for g in groups)
                raise InvalidArgument(f"queue={queue} needs group= too: {topic.name} is in {names}")
            group = groups[0].group
        queues = topic.config.queues_in(group)
        if not queues:
            raise InvalidArgument(f"topic {topic.name} has no queue in group {group!r}")
        if queue is None:
            queue = self._spread(topic, group) % queues
        if not 0 <= queue < queues:
            raise UnknownQueue(f"queue {queue}: {topic.name} has {queues} in {group}, from 0")
        return self._lane(topic, (group, queue))

    def put(self, lane: Lane, record: Record, size: int) -> None:
        """Bind a record for a lane."""
        pile = lane.open
        if pile is None or (
            pile.bytes + size > self._max_bytes or len(pile.records) >= self._max_records
        ):
            pile = lane.open = self._new_pile()
            lane.piles.append(pile)
        pile.records.append(record)
        pile.bytes += size
        if not lane.ready:
            self.links[lane.group].offer(lane)

    def limit(self, max_bytes: int, max_records: int) -> None:
        """A broker told its limits: piles begun from now on keep within them."""
        self._max_bytes = min(self._max_bytes, max_bytes)
        self._max_records = min(self._max_records, max_records)

    # ---- out

    def release(self, count: int, size: int) -> None:
        """Records were resolved: room for more."""
        self.outstanding_records -= count
        self.outstanding_bytes -= size
        self._released()

    def fail(self, piles: Iterable[Pile | Flight], error: FmqError) -> None:
        """Tell who waits, and forget them."""
        for pile in piles:
            reject(pile.records, error)
            self.release(len(pile.records), pile.bytes)

    # ---- changes

    def know(self, topic: Topic, config: TopicConfig) -> None:
        """The topic's groups and queues, for the first time or changed."""
        if topic.config == config:
            return
        topic.config = config
        topic.rotation = Rotation(config.groups, self._clock.random_id())
        for group in config.groups:
            if group.weight > 0:
                self._link(group.group)
        self.look()
        waiting, topic.unrouted = topic.unrouted, []
        for record, group_name, queue in waiting:
            self._place(topic, record, group_name, queue)

    def look(self) -> None:
        """Links went up or down: choose anew, and move what was not sent."""
        self._usable = frozenset(g for g, link in self.links.items() if link.usable)
        for topic in self.topics.values():
            topic.by_key.clear()
            topic.sticky = None
        self.move_unsent()

    def move_unsent(self) -> None:
        """What waits for a link that is down goes to the groups that are left."""
        for topic in self.topics.values():
            if topic.config is None:
                continue
            groups = {g.group for g in topic.config.groups if g.weight > 0}
            if not groups & self._usable:
                continue
            for lane in list(topic.lanes.values()):
                if lane.piles and not self.links[lane.group].usable:
                    self._move(topic, lane)

    def forget(self, topic: Topic, error: FmqError) -> None:
        """The topic is gone: nothing more of it can be stored."""
        self.topics.pop(topic.name, None)
        for record, _, _ in topic.unrouted:
            reject((record,), error)
            self.release(1, record_bytes(record))
        topic.unrouted = []
        for lane in topic.lanes.values():
            piles, lane.piles, lane.open = list(lane.piles), type(lane.piles)(), None
            self.fail(piles, error)

    def expire(self, now_ms: int) -> None:
        """Give up what has waited past its deadline."""
        for lane in self.lanes():
            piles, flights = lane.expire(now_ms)
            link = self.links[lane.group]
            if piles:
                kind = type(link.error) if link.error is not None else Unavailable
                why = str(link.error or link.why or "the broker was too slow")
                self.fail(piles, kind(f"not stored in time by group {lane.group}: {why}"))
            if flights:
                self.fail(flights, DeliveryUnknown(_unknown(lane, link)))
                link.renew()

    def close(self) -> None:
        """The producer closes and waits no longer."""
        for topic in list(self.topics.values()):
            for lane in topic.lanes.values():
                flights, lane.flights = list(lane.flights), type(lane.flights)()
                self.fail(
                    flights, DeliveryUnknown("closed before the broker answered: may be stored")
                )
                self.fail(lane.turned_back, Unavailable("closed: refused and not sent again"))
                lane.turned_back = []
            self.forget(topic, Unavailable("closed before it could be sent: not stored"))

    # ---- looking

    def lanes(self) -> Iterator[Lane]:
        """All lanes, in the order in which they came to be."""
        for topic in self.topics.values():
            yield from topic.lanes.values()

    def futures(self) -> "list[asyncio.Future[object]]":
        """Whoever waits now."""
        found: list[asyncio.Future[object]] = []
        for topic in self.topics.values():
            found += [entry[0][4] for entry in topic.unrouted]  # type: ignore[misc]
        for lane in self.lanes():
            held: list[Pile | Flight] = [*lane.flights, *lane.turned_back, *lane.piles]
            for pile in held:
                found += [r[4] for r in pile.records]  # type: ignore[misc]
        return found

    # ---- inside

    def _new_pile(self) -> Pile:
        born_ms = self._clock.wall_ms() if self._born_time else 0
        return Pile(self._clock.monotonic_ms() + self._timeout_ms, born_ms)

    def _place(
        self, topic: Topic, record: Record, group: GroupName | None, queue: int | None
    ) -> None:
        try:
            if group is not None or queue is not None:
                lane = self.pinned_lane(topic, group, queue)
            else:
                lane = self._lane_for(topic, record[1])
            if lane is None:
                raise Unavailable(f"topic {topic.name} has no group that takes messages")
        except FmqError as error:
            reject((record,), error)
            self.release(1, record_bytes(record))
        else:
            self.put(lane, record, record_bytes(record))

    def _lane_for(self, topic: Topic, key: bytes) -> Lane | None:
        if key:
            return topic.by_key.get(key) or self.lane_for_key(topic, key)
        sticky = topic.sticky
        return sticky if sticky is not None and sticky.open else self.next_lane(topic)

    def _move(self, topic: Topic, lane: Lane) -> None:
        for pile in lane.take_unsent():
            for record in pile.records:
                target = self._lane_for(topic, record[1])
                assert target is not None, "a usable group was there a moment ago"
                self.put(target, record, record_bytes(record))
                if target.open is not None:
                    target.open.deadline_ms = min(target.open.deadline_ms, pile.deadline_ms)

    def _lane(self, topic: Topic, place: Place) -> Lane:
        lane = topic.lanes.get(place)
        if lane is None:
            assert topic.config is not None, "a lane is made of a known topic"
            self._link(place[0])
            lane = topic.lanes[place] = Lane(place[0], topic.config.id, place[1])
        return lane

    def _link(self, group: GroupName) -> None:
        if group not in self.links:
            self.links[group] = self._link_to(group)

    def _spread(self, topic: Topic, group: GroupName) -> int:
        place = topic.rotation.next({group})
        return 0 if place is None else place[1]


def _unknown(lane: Lane, link: Carrier) -> str:
    why = str(link.error or link.why or "no answer")
    return (
        f"group {lane.group} queue {lane.queue} did not confirm in time ({why}): it may be stored "
        "or not; sending it again may store it twice"
    )
