"""The accumulator: topics, queue buffers and the outstanding window. No I/O.

A record enters the queue buffer of a (group, topic, queue) when it is handed in: by its key's hash,
else in turn, among the groups that are *usable*: their sender is connected, or was not tried yet.
When a sender loses its session, records that were certainly not stored move to the remaining
groups; records that may have been stored stay (rules: `producer/queue_buffer.py`,
`producer/topic_buffers.py`). While no group is usable, records wait where they would go.
`producer/sender.py` does the sending.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from fmqclient.producer.batches import (
    InFlightBatch,
    PendingBatch,
    Record,
    outcome,
    record_bytes,
    reject,
)
from fmqclient.producer.protocols import Carrier
from fmqclient.producer.queue_buffer import QueueBuffer
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
from fmqcore.placement import Place, PlacementsOf, standard_placements
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock

NO_ANSWER = "no answer: see `fmq status`"
"""The reason of a group whose session is open and silent."""
_LASTING = (NotEnoughReplicas, Overloaded, StorageFull)
"""Refusals that may apply to all records of a group for as long as they wait.

Any other refusal concerns one batch only.
"""
_BATCH_AGE_MS = 1000  # a batch takes records for at most this time: they share its deadline


class Accumulator:
    """The pending records of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        clock: Clock,
        sender_to: Callable[[GroupName], Carrier],
        released: Callable[[], None],
        placements_of: PlacementsOf = standard_placements,
    ) -> None:
        self._placements_of = placements_of
        self.topics: dict[str, Topic] = {}
        self.senders: dict[GroupName, Carrier] = {}
        self._gone: list[tuple[Topic, FmqError]] = []  # with something of theirs still under way
        self.outstanding_bytes = 0
        self.outstanding_records = 0
        self._clock = clock
        self._timeout_ms = int(settings.delivery_timeout_s * 1000)
        self._born_time = settings.born_time
        self._max_bytes = min(settings.max_batch_bytes, MAX_PAYLOAD)
        self._max_records = min(settings.max_batch_records, MAX_RECORDS)
        self._sender_to = sender_to
        self._released = released
        self._usable: frozenset[GroupName] = frozenset()

    # ---- in

    def new_topic(self, name: str) -> Topic:
        """Add a topic that nothing is known about yet."""
        topic = self.topics[name] = Topic(name, self._new_buffer, self._placements_of)
        return topic

    def pinned_buffer(
        self, topic: Topic, group: GroupName | None, queue: int | None
    ) -> QueueBuffer | None:
        """Return the queue buffer that the caller asked for; raises as `pinned_group` does."""
        if topic.config is None:
            return None
        group = pinned_group(topic.config, group, queue)
        if queue is None:
            place = topic.placements.keyless.place(b"", {group})
            queue = 0 if place is None else place[1]
        return topic.buffer((group, queue))

    def put(
        self, buffer: QueueBuffer, record: Record, size: int, source: PendingBatch | None = None
    ) -> None:
        """Add a record to a queue buffer; `source`: its batch so far, whose age it keeps."""
        batch = buffer.open
        if batch is None or (
            batch.bytes + size > self._max_bytes
            or len(batch.records) >= self._max_records
            or (source is not None and not _share_outcome(batch, source))
        ):
            if source is None:
                born_ms = self._clock.wall_ms() if self._born_time else 0
                batch = PendingBatch(self._clock.monotonic_ms() + self._timeout_ms, born_ms)
            else:
                batch = PendingBatch(source.deadline_ms, source.born_ms)
                batch.doubtful = source.doubtful
            buffer.begin(batch)
        batch.records.append(record)
        batch.bytes += size
        if not buffer.ready:
            self.senders[buffer.group].offer(buffer)

    def hold_unplaced(self, topic: Topic, record: Record) -> None:
        """Keep a record until its topic's routes are known, or refuse it if no group takes it."""
        if topic.config is None:
            topic.unrouted.append((record, None, None))
        else:
            self._refuse(topic, record)

    def limit(self, max_bytes: int, max_records: int) -> None:
        """Apply a broker's limits to the batches started from now on."""
        self._max_bytes = min(self._max_bytes, max_bytes)
        self._max_records = min(self._max_records, max_records)

    # ---- out

    def release(self, count: int, size: int) -> None:
        """Free the room of records that have an outcome."""
        self.outstanding_records -= count
        self.outstanding_bytes -= size
        self._released()

    def fail(self, batches: Iterable[PendingBatch | InFlightBatch], error: FmqError) -> None:
        """Fail the records of these batches and forget them."""
        for batch in batches:
            reject(batch.records, outcome(batch, error))
            self.release(len(batch.records), batch.bytes)

    # ---- changes

    def set_config(self, topic: Topic, config: TopicConfig) -> None:
        """Set a topic's groups and queues, for the first time or changed."""
        if topic.config == config:
            return
        for group in config.groups:
            if group.weight > 0:
                self._ensure_sender(group.group)
        self._usable = self._usable_now()
        topic.set_config(config, self._clock.random_id(), self._usable, self._clock.monotonic_ms())
        self._lift(topic)
        waiting, topic.unrouted = topic.unrouted, []
        for record, group_name, queue in waiting:
            self._place(topic, record, group_name, queue)

    def remap(self) -> None:
        """Choose groups again after senders went up or down, and move what was not sent."""
        self._usable = self._usable_now()
        now_ms = self._clock.monotonic_ms()
        for topic in self.topics.values():
            if topic.config is not None:
                topic.remap(self._usable, now_ms)
        self.lift()

    def lift(self) -> None:
        """Resume sending where the awaited answers have come."""
        if self._gone:
            self._sweep()
        for topic in self.topics.values():
            if topic.held:
                self._lift(topic)

    def forget(self, topic: Topic, error: FmqError) -> None:
        """Forget a deleted topic: its records cannot be stored, except those in flight.

        The topic may come back under the same id (one broker knew less than another); its queue
        buffers then count from 0, which must not happen in the same session.
        """
        self.topics.pop(topic.name, None)
        for record, _, _ in topic.unrouted:
            reject((record,), error)
            self.release(1, record_bytes(record))
        topic.unrouted = []
        for buffer in topic.buffers.values():
            self.fail(buffer.drain(), error)
            if buffer.next_sequence:
                self.senders[buffer.group].renew()
        if any(buffer.in_flight for buffer in topic.buffers.values()):
            self._gone.append((topic, error))

    def is_gone(self, buffer: QueueBuffer) -> bool:
        """Whether the topic of the queue buffer is gone."""
        return any(buffer.topic is topic for topic, _ in self._gone)

    def has_elsewhere(self, buffer: QueueBuffer) -> bool:
        """Whether another group of the topic might take what the queue buffer's group does not."""
        topic = buffer.topic
        assert isinstance(topic, Topic)
        config = topic.config
        return config is not None and any(
            g.weight > 0 and g.queues > 0 and g.group != buffer.group for g in config.groups
        )

    def tick(self, now_ms: int) -> None:
        """Fail what has waited past its deadline; resume what was held."""
        for buffer in self.buffers():
            pending, in_flight = buffer.expire(now_ms)
            sender = self.senders[buffer.group]
            if pending:
                kind = type(sender.error) if isinstance(sender.error, _LASTING) else Unavailable
                reason = str(sender.error or sender.reason or "the broker was too slow")
                self.fail(pending, kind(f"not stored in time by group {buffer.group}: {reason}"))
            if in_flight:
                self.fail(in_flight, DeliveryUnknown(_unknown(buffer, sender)))
                sender.renew()
            if not buffer.in_flight and not buffer.pending:
                buffer.strange_since_ms = 0
            batch = buffer.open
            if batch is not None and batch.deadline_ms < now_ms + self._timeout_ms - _BATCH_AGE_MS:
                buffer.open = None
        self.lift()

    def close(self) -> None:
        """Fail everything: the producer closes."""
        for buffer in self.buffers():
            in_flight, buffer.in_flight = list(buffer.in_flight), type(buffer.in_flight)()
            self.fail(
                in_flight, DeliveryUnknown("closed before the broker answered: may be stored")
            )
        self._sweep()
        for topic in list(self.topics.values()):
            self.forget(topic, Unavailable("closed before it could be sent: not stored"))

    # ---- looking

    def buffers(self) -> Iterator[QueueBuffer]:
        """Yield all queue buffers in the order of their creation, those of deleted topics last."""
        for topic in [*self.topics.values(), *(gone for gone, _ in self._gone)]:
            yield from topic.buffers.values()

    def needs(self, group: GroupName) -> bool:
        """Whether a topic is in the group, or something for it is not answered yet."""
        configs = [topic.config for topic in self.topics.values()]
        if any(config is None or config.queues_in(group) for config in configs):
            return True
        return any(
            buffer.in_flight or buffer.pending for buffer in self.buffers() if buffer.group == group
        )

    def futures(self) -> "list[asyncio.Future[object]]":
        """Return the futures that wait now."""
        found: list[asyncio.Future[object]] = []
        for topic in self.topics.values():
            found += [entry[0][4] for entry in topic.unrouted]  # type: ignore[misc]
        for buffer in self.buffers():
            held: list[PendingBatch | InFlightBatch] = [
                *buffer.in_flight,
                *buffer.turned_back,
                *buffer.pending,
            ]
            for batch in held:
                found += [r[4] for r in batch.records]  # type: ignore[misc]
        return found

    # ---- inside

    def _usable_now(self) -> frozenset[GroupName]:
        return frozenset(g for g, sender in self.senders.items() if sender.usable)

    def _place(
        self, topic: Topic, record: Record, group: GroupName | None, queue: int | None
    ) -> None:
        try:
            if group is not None or queue is not None:
                buffer = self.pinned_buffer(topic, group, queue)
            else:
                buffer = topic.buffer_for(record[1])
            if buffer is None:
                self._refuse(topic, record)
                return
        except FmqError as error:
            reject((record,), error)
            self.release(1, record_bytes(record))
        else:
            self.put(buffer, record, record_bytes(record))

    def _refuse(self, topic: Topic, record: Record, source: PendingBatch | None = None) -> None:
        error: FmqError = Unavailable(f"topic {topic.name} has no group that takes messages")
        reject((record,), error if source is None else outcome(source, error))
        self.release(1, record_bytes(record))

    def _sweep(self) -> None:
        """Fail what was refused of deleted topics: it is not sent again."""
        for topic, error in self._gone:
            for buffer in topic.buffers.values():
                if not buffer.in_flight:
                    self.fail(buffer.drain(), error)
        self._gone = [
            gone
            for gone in self._gone
            if any(buffer.in_flight for buffer in gone[0].buffers.values())
        ]

    def _lift(self, topic: Topic) -> None:
        moved = topic.lift(self._clock.monotonic_ms())
        if moved is None:
            return
        for record, source, own in moved:
            buffer = own or topic.buffer_for(record[1])
            if buffer is None:
                self._refuse(topic, record, source)
            else:
                self.put(buffer, record, record_bytes(record), source)
        for buffer in topic.buffers.values():
            buffer.open = None  # as old as what moved: what is handed in now has its own age
            if buffer.pending:
                self.senders[buffer.group].offer(buffer)

    def _new_buffer(self, topic: Topic, place: Place) -> QueueBuffer:
        assert topic.config is not None, "the topic of a queue buffer must have its configuration"
        self._ensure_sender(place[0])
        return QueueBuffer(topic, place[0], topic.config.id, place[1])

    def _ensure_sender(self, group: GroupName) -> None:
        if group not in self.senders:
            self.senders[group] = self._sender_to(group)


def _share_outcome(batch: PendingBatch, other: PendingBatch) -> bool:
    """Whether records of both may share a batch: the same error fits all at its deadline."""
    near = abs(batch.deadline_ms - other.deadline_ms) <= _BATCH_AGE_MS
    return near and batch.doubtful is other.doubtful


def _unknown(buffer: QueueBuffer, sender: Carrier) -> str:
    reason = str(sender.error or sender.reason or NO_ANSWER)
    return (
        f"group {buffer.group} queue {buffer.queue} did not confirm in time ({reason}): it may be "
        "stored or not; sending it again may store it twice"
    )


def pinned_group(topic: TopicConfig, group: GroupName | None, queue: int | None) -> GroupName:
    """Return the group that the caller of `send` means; raise `InvalidArgument`, `UnknownQueue`."""
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
