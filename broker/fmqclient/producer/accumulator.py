"""All that a producer holds: topics, their lanes, and the window of what is outstanding. No I/O.

A record goes to a lane (group, topic, queue) when it is handed in: by its key's hash, else in
turn, among the groups that are *usable*: their link is up, or has not been tried yet. When a link
goes down, what was certainly not stored moves to the groups that are left; what may have been
stored stays (the rules are in `producer/queue_buffer.py` and `producer/topic_buffers.py`). While no
group is usable, records wait where they would go. `producer/sender.py` carries it all out.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from fmqclient.producer.batches import Flight, Pile, Record, record_bytes, reject
from fmqclient.producer.queue_buffer import Lane
from fmqclient.producer.topic_buffers import Topic
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import (
    DeliveryUnknown,
    FmqError,
    InvalidArgument,
    NotEnoughReplicas,
    Overloaded,
    StorageFull,
    Unavailable,
    UnknownQueue,
)
from fmqcore.ids import GroupName
from fmqcore.routing import Place
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock

_LASTING = (NotEnoughReplicas, Overloaded, StorageFull)
"""What a group may refuse all of its records with, for as long as they wait. Other refusals are of
one batch, and say nothing of the others."""
_PILE_MS = 1000  # a pile takes records for so long at most: they share its deadline


class Carrier(Protocol):
    """What the outbox needs of a link."""

    why: str  # it does not take anything, for people; empty if it does
    error: FmqError | None  # the last refusal, if nothing was stored since

    @property
    def usable(self) -> bool:
        """Whether new records may be bound for it."""
        ...

    def offer(self, lane: Lane) -> None:
        """A lane has something to send."""
        ...

    def renew(self) -> None:
        """A lane is poisoned: begin a new session when nothing is in flight."""
        ...


class Outbox:
    """What one producer holds."""

    def __init__(
        self,
        settings: ProducerSettings,
        clock: Clock,
        link_to: Callable[[GroupName], Carrier],
        released: Callable[[], None],
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.links: dict[GroupName, Carrier] = {}
        self._gone: list[tuple[Topic, FmqError]] = []  # with something of theirs still under way
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

    def new_topic(self, name: str) -> Topic:
        """A topic that nothing is known of yet."""
        topic = self.topics[name] = Topic(name, self._new_lane)
        return topic

    def pinned_lane(self, topic: Topic, group: GroupName | None, queue: int | None) -> Lane | None:
        """The lane that the caller asked for; raises as `pinned_group` does."""
        if topic.config is None:
            return None
        group = pinned_group(topic.config, group, queue)
        if queue is None:
            place = topic.rotation.next({group})
            queue = 0 if place is None else place[1]
        return topic.lane((group, queue))

    def put(self, lane: Lane, record: Record, size: int, source: Pile | None = None) -> None:
        """Bind a record for a lane; `source`: the pile that it was in before, which is as old."""
        pile = lane.open
        if pile is None or (
            pile.bytes + size > self._max_bytes
            or len(pile.records) >= self._max_records
            or (source is not None and abs(pile.deadline_ms - source.deadline_ms) > _PILE_MS)
        ):
            if source is None:
                born_ms = self._clock.wall_ms() if self._born_time else 0
                pile = Pile(self._clock.monotonic_ms() + self._timeout_ms, born_ms)
            else:
                pile = Pile(source.deadline_ms, source.born_ms)
            lane.begin(pile)
        pile.records.append(record)
        pile.bytes += size
        if not lane.ready:
            self.links[lane.group].offer(lane)

    def unplaced(self, topic: Topic, record: Record) -> None:
        """No lane takes it: it waits for the routes, or none of its topic's groups takes any."""
        if topic.config is None:
            topic.unrouted.append((record, None, None))
        else:
            self._refuse(topic, record)

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
        for group in config.groups:
            if group.weight > 0:
                self._link(group.group)
        self._usable = self._usable_now()
        topic.know(config, self._clock.random_id(), self._usable, self._clock.monotonic_ms())
        self._lift(topic)
        waiting, topic.unrouted = topic.unrouted, []
        for record, group_name, queue in waiting:
            self._place(topic, record, group_name, queue)

    def look(self) -> None:
        """Links may have gone up or down: choose anew, and move what was not sent."""
        self._usable = self._usable_now()
        now_ms = self._clock.monotonic_ms()
        for topic in self.topics.values():
            if topic.config is not None:
                topic.remap(self._usable, now_ms)
        self.lift()

    def lift(self) -> None:
        """Go on where what was waited for has been answered."""
        if self._gone:
            self._sweep()
        for topic in self.topics.values():
            if topic.held:
                self._lift(topic)

    def forget(self, topic: Topic, error: FmqError) -> None:
        """The topic is gone: nothing more of it can be stored, but for what is under way.

        It may be there again, under the same id (a broker knew less than another): then its lanes
        count anew, and must not in the same session.
        """
        self.topics.pop(topic.name, None)
        for record, _, _ in topic.unrouted:
            reject((record,), error)
            self.release(1, record_bytes(record))
        topic.unrouted = []
        for lane in topic.lanes.values():
            self.fail(lane.drain(), error)
            if lane.next_sequence:
                self.links[lane.group].renew()
        if any(lane.flights for lane in topic.lanes.values()):
            self._gone.append((topic, error))

    def is_gone(self, lane: Lane) -> bool:
        """Whether the lane's topic is gone."""
        return any(lane.topic is topic for topic, _ in self._gone)

    def has_elsewhere(self, lane: Lane) -> bool:
        """Whether another group of its topic might take what the lane's group does not."""
        topic = lane.topic
        assert isinstance(topic, Topic)
        config = topic.config
        return config is not None and any(
            g.weight > 0 and g.queues > 0 and g.group != lane.group for g in config.groups
        )

    def tick(self, now_ms: int) -> None:
        """Give up what has waited past its deadline; go on with what was held."""
        for lane in self.lanes():
            piles, flights = lane.expire(now_ms)
            link = self.links[lane.group]
            if piles:
                kind = type(link.error) if isinstance(link.error, _LASTING) else Unavailable
                why = str(link.error or link.why or "the broker was too slow")
                self.fail(piles, kind(f"not stored in time by group {lane.group}: {why}"))
            if flights:
                self.fail(flights, DeliveryUnknown(_unknown(lane, link)))
                link.renew()
            if not lane.flights and not lane.piles:
                lane.strange_since_ms = 0
            pile = lane.open
            if pile is not None and pile.deadline_ms < now_ms + self._timeout_ms - _PILE_MS:
                lane.open = None
        self.lift()

    def close(self) -> None:
        """The producer closes and waits no longer."""
        for lane in self.lanes():
            flights, lane.flights = list(lane.flights), type(lane.flights)()
            self.fail(flights, DeliveryUnknown("closed before the broker answered: may be stored"))
        self._sweep()
        for topic in list(self.topics.values()):
            self.forget(topic, Unavailable("closed before it could be sent: not stored"))

    # ---- looking

    def lanes(self) -> Iterator[Lane]:
        """All lanes, in the order in which they came to be; of topics that are gone last."""
        for topic in [*self.topics.values(), *(gone for gone, _ in self._gone)]:
            yield from topic.lanes.values()

    def needs(self, group: GroupName) -> bool:
        """Whether a topic is in the group, or something for it is not answered yet."""
        configs = [topic.config for topic in self.topics.values()]
        if any(config is None or config.queues_in(group) for config in configs):
            return True
        return any(lane.flights or lane.piles for lane in self.lanes() if lane.group == group)

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

    def _usable_now(self) -> frozenset[GroupName]:
        return frozenset(g for g, link in self.links.items() if link.usable)

    def _place(
        self, topic: Topic, record: Record, group: GroupName | None, queue: int | None
    ) -> None:
        try:
            if group is not None or queue is not None:
                lane = self.pinned_lane(topic, group, queue)
            else:
                lane = topic.lane_for(record[1])
            if lane is None:
                self._refuse(topic, record)
                return
        except FmqError as error:
            reject((record,), error)
            self.release(1, record_bytes(record))
        else:
            self.put(lane, record, record_bytes(record))

    def _refuse(self, topic: Topic, record: Record) -> None:
        nobody = Unavailable(f"topic {topic.name} has no group that takes messages")
        reject((record,), nobody)
        self.release(1, record_bytes(record))

    def _sweep(self) -> None:
        """Of topics that are gone: what was refused is not sent again."""
        for topic, error in self._gone:
            for lane in topic.lanes.values():
                if not lane.flights:
                    self.fail(lane.drain(), error)
        self._gone = [
            gone for gone in self._gone if any(lane.flights for lane in gone[0].lanes.values())
        ]

    def _lift(self, topic: Topic) -> None:
        moved = topic.lift(self._clock.monotonic_ms())
        if moved is None:
            return
        for record, source, own in moved:
            lane = own or topic.lane_for(record[1])
            if lane is None:
                self._refuse(topic, record)
            else:
                self.put(lane, record, record_bytes(record), source)
        for lane in topic.lanes.values():
            lane.open = None  # as old as what moved: what is handed in now has its own age
            if lane.piles:
                self.links[lane.group].offer(lane)

    def _new_lane(self, topic: Topic, place: Place) -> Lane:
        assert topic.config is not None, "a lane is made of a known topic"
        self._link(place[0])
        return Lane(topic, place[0], topic.config.id, place[1])

    def _link(self, group: GroupName) -> None:
        if group not in self.links:
            self.links[group] = self._link_to(group)


def _unknown(lane: Lane, link: Carrier) -> str:
    why = str(link.error or link.why or "no answer")
    return (
        f"group {lane.group} queue {lane.queue} did not confirm in time ({why}): it may be stored "
        "or not; sending it again may store it twice"
    )


def pinned_group(topic: TopicConfig, group: GroupName | None, queue: int | None) -> GroupName:
    """The group that the caller of `send` means. Raises `InvalidArgument`, `UnknownQueue`."""
    if group is None:
        if len(topic.groups) != 1:
            names = ", ".join(g.group for g in topic.groups)
            raise InvalidArgument(f"queue={queue} needs group= too: {topic.name} is in {names}")
        group = topic.groups[0].group
    queues = topic.queues_in(group)
    if not queues:
        raise InvalidArgument(f"topic {topic.name} has no queue in group {group!r}")
    if queue is not None and not 0 <= queue < queues:
        raise UnknownQueue(
            f"there is no queue {queue}: topic {topic.name} has 0 to {queues - 1} in group {group}"
        )
    return group
