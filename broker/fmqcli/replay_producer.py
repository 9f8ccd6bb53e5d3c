"""Send a replay so that nothing is stored twice, even if the sender is killed at any moment.

A producer of the library takes a new id each time. Here the id, each queue's next sequence and the
topic's shape are noted with the progress, before anything is sent that relies on them. What is sent
from a place on depends on that note alone: which queue a record goes to, where batches end. So a
resumed run sends the same batches under the same sequences, and the broker's table, which keeps the
last five of each queue, answers those that it has. One batch per queue is in flight. `Plan` decides
that; the client's senders send it, under a fixed identity.

Order of effects: a step (at most one batch per queue) is sent → it is stored whole → it is noted.
After a refusal that may pass, or an answer that leaves the outcome open, the same batch is sent
again. A group that takes no messages any more (drained, removed, its disk full) settles it all the
same: its master answers for what it has, and for what it never appended (ADR 0060).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fmqcli.replay_notes import (
    ORDINARY,
    Archived,
    noted_number,
    require_kind,
    require_same,
    undecodable,
)
from fmqclient.net.connections import Connections
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import CANCELLED
from fmqclient.producer.accumulator import NO_ANSWER, pinned_group
from fmqclient.producer.batches import (
    InFlightBatch,
    PendingBatch,
    Record,
    SendResult,
    record_bytes,
    reject,
)
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqclient.producer.sender import FixedIdentity, Sender
from fmqclient.settings import LEVELS, ProducerSettings
from fmqcore.batch.columns import encode_headers
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.errors import (
    DeliveryUnknown,
    ErrorCode,
    FmqError,
    InvalidArgument,
    NoPermission,
    OutOfSequence,
    Unavailable,
)
from fmqcore.ids import GroupName, TopicId
from fmqcore.placement import Place, pick_by_key
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

BATCH_BYTES: Final = MAX_PAYLOAD // 2
"""A record that does not fit into its queue's batch any more starts the next step."""
CONFIRM_TIMEOUT_S: Final = 120.0
"""How long the same batch is retried; then the run ends, and the next run goes on."""
_MOST_RUNS: Final = 0xFFFF


# ---- what is sent: pure
@dataclass(slots=True)
class Plan:
    """The places and sequences of records: all that must outlive the sender."""

    topic: TopicConfig
    producer_id: int
    sequences: dict[Place, int]
    same_queue: bool
    run: int = 1
    """How often the replay was started, this time included: no stream of an earlier run counts."""

    @classmethod
    def of(cls, state: Mapping[str, Any], topic: TopicConfig, fresh_id: int, same: bool) -> "Plan":
        """Return the plan that was noted. Raises `InvalidArgument` if it no longer fits."""
        if not state:
            return cls(topic, fresh_id, {}, same)
        require_kind(state, ORDINARY)
        number = noted_number
        try:
            shape = tuple(
                TopicGroup(_group(g), number(q), number(w)) for g, q, w in state["groups"]
            )
            noted = TopicConfig(topic.name, TopicId(number(state["topic_id"])), shape)
            sequences = {(_group(g), number(q)): number(n) for g, q, n in state["sequences"]}
            producer = number(state["producer"], bits=64)
            run = min(number(state.get("run", 1)) + 1, _MOST_RUNS)
            plan = cls(noted, producer, sequences, bool(state["same_queue"]), run)
        except (KeyError, TypeError, ValueError) as error:
            raise undecodable(error) from None
        require_same(topic, noted.id, plan.same_queue, same)
        return plan

    def state(self) -> dict[str, Any]:
        """Return the plan as it is to be noted."""
        return {
            "producer": self.producer_id,
            "topic_id": self.topic.id,
            "groups": [[g.group, g.queues, g.weight] for g in self.topic.groups],
            "sequences": [[g, q, n] for (g, q), n in sorted(self.sequences.items())],
            "same_queue": self.same_queue,
            "run": self.run,
        }

    def place(self, record: Archived, number: int) -> Place:
        """Return a record's queue: by its key; without one in turn, by its number in the replay."""
        groups = [g for g in self.topic.groups if g.weight > 0 and g.queues > 0]
        if self.same_queue:
            return pinned_group(self.topic, None, record.queue), record.queue
        if record.key:
            chosen = pick_by_key(groups, [g.group for g in groups], record.key)
        else:
            places = [(g.group, q) for g in groups for q in range(g.queues)]
            chosen = places[number % len(places)] if places else None
        if chosen is None:
            raise Unavailable(f"topic {self.topic.name} has no group that takes messages")
        return chosen

    def steps(
        self, records: Sequence[Archived], number: int
    ) -> Iterator[tuple[dict[Place, PendingBatch], int]]:
        """Yield batches, one per place, and how many records are in all steps so far.

        Each bears its sequence. After each step its sequences count as used.
        """
        pending: dict[Place, PendingBatch] = {}
        for i, record in enumerate(records):
            place, row = self.place(record, number + i), _row(record)
            pending_batch = pending.get(place)
            if pending_batch is not None and pending_batch.bytes + record_bytes(row) > BATCH_BYTES:
                yield self._numbered(pending), i
                pending, pending_batch = {}, None
            if pending_batch is None:
                pending_batch = pending[place] = PendingBatch(0, 0)
            pending_batch.records.append(row)
            pending_batch.bytes += record_bytes(row)
        if pending:
            yield self._numbered(pending), len(records)

    def _numbered(self, pending: dict[Place, PendingBatch]) -> dict[Place, PendingBatch]:
        for place, batch in pending.items():
            batch.sequence = self.sequences.get(place, 0)
            self.sequences[place] = (batch.sequence + len(batch.records)) % 2**32
        return dict(sorted(pending.items()))


def _group(value: object) -> GroupName:
    """Return a noted group name. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a group's name")
    return GroupName(value)


def _row(record: Archived) -> Record:
    headers = encode_headers(record.headers) if record.headers else b""
    no_future: Any = None
    return (record.value, record.key or b"", record.tag or b"", headers, no_future, True, 0)


# ---- how it is sent
def level_of(acks: str) -> client_pb2.AckLevel:
    """Return the level of `--acks`; raise `InvalidArgument` unless it confirms storage."""
    known = sorted(LEVELS.keys() - {"one_way"})
    if acks not in known:
        raise InvalidArgument(
            f"--acks {acks}: a replay waits until its records are stored: {', '.join(known)}"
        )
    return LEVELS[acks]


class GroupSenders:
    """The client's senders, one to each group, with the batches of one step at a time.

    Use it as `async with`. For its senders it is the `BufferSource`: each batch has one place.
    """

    held = False  # for the queue buffers: nothing here is placed again

    def __init__(
        self, wire: tuple[Connections, Routes, Clock], topic: TopicConfig, plan: Plan, acks: str
    ) -> None:
        self._connections, self._routes, self._clock = wire
        self._topic = topic
        level_of(acks)
        self._settings = ProducerSettings(acks=acks, client_name="fmq job replay")
        self._identity = FixedIdentity(plan.producer_id, plan.run << 16)
        self._watch = LoopWatch(self._clock)
        self._buffers: dict[Place, QueueBuffer] = {}
        self._senders: dict[GroupName, Sender] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[asyncio.Future[SendResult], Place] = {}  # of the present step
        self._failure: BaseException | None = None  # why a task has ended
        self._repeats = plan.run > 1  # an earlier run may have sent the first step

    async def __aenter__(self) -> "GroupSenders":
        self._start(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def store(self, step: Mapping[Place, PendingBatch]) -> None:
        """Wait until the whole step is stored. Raises the refusal if it cannot be stored.

        After `CONFIRM_TIMEOUT_S`: `NoPermission` if it is certain that nothing more of a group's
        share was ever stored, else `DeliveryUnknown`.
        """
        if self._failure is not None:
            raise self._failure
        deadline_ms = self._clock.monotonic_ms() + int(CONFIRM_TIMEOUT_S * 1000)
        for place, batch in step.items():
            self._put(place, batch, deadline_ms)
        self._repeats = False
        try:
            async with asyncio.TaskGroup() as tasks:
                for future in self._waiting:
                    tasks.create_task(_answered(future))
        finally:
            self._waiting.clear()

    # ---- as its senders see it (`BufferSource`)
    def buffers(self) -> Iterator[QueueBuffer]:
        """Yield all queue buffers."""
        yield from self._buffers.values()

    def needs(self, _: GroupName) -> bool:
        """Every group that was sent to stays connected."""
        return True

    def fail(self, batches: Iterable[PendingBatch | InFlightBatch], error: FmqError) -> None:
        """End batches by an error of a broker that no retry can change."""
        for batch in batches:
            place = self._waiting.get(batch.records[0][4])
            if place is not None:  # else the step has ended by another error
                reject(batch.records, self._refusal(place, error))

    def is_gone(self, _: QueueBuffer) -> bool:
        """No: a topic that brokers do not know is waited for until the deadline."""
        return False

    def has_elsewhere(self, _: QueueBuffer) -> bool:
        """No: each batch has one place."""
        return False

    def place_again(self) -> None:
        """Nothing is: each batch has one place."""

    def limit(self, max_bytes: int, max_records: int) -> None:
        """Nothing: the plan alone decides where batches end."""

    def remap(self) -> None:
        """Nothing: each batch has one place."""

    def lift(self) -> None:
        """Do nothing: this producer holds no records back."""

    def release(self, count: int, size: int) -> None:
        """Nothing: there is one step at a time."""

    # ---- inside
    def _put(self, place: Place, batch: PendingBatch, deadline_ms: int) -> None:
        """Hand one batch to its group's sender; what an earlier run may have sent is unknown."""
        group, queue = place
        if (sender := self._senders.get(group)) is None:
            sender = self._senders[group] = self._new_sender(group)
        if (buffer := self._buffers.get(place)) is None:
            buffer = self._buffers[place] = QueueBuffer(self, group, self._topic.id, queue)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self._waiting[future] = place
        batch.records = [(*record[:4], future, True, 0) for record in batch.records]
        batch.deadline_ms = deadline_ms
        buffer.next_sequence = buffer.accepted_end = batch.sequence
        if self._repeats:
            in_flight = buffer.depart(batch)
            in_flight.unknown = in_flight.doubtful = True
        else:
            buffer.begin(batch)
            sender.offer(buffer)

    def _new_sender(self, group: GroupName) -> Sender:
        sender = Sender(
            *(group, self._connections, self._routes, self._clock, self, self._settings),
            watch=self._watch,
            identity=self._identity,
        )
        self._start(sender.run())
        return sender

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """End the step when a task has ended by an error or a cancel: no caller may wait on."""
        error = Unavailable(f"sending: {CANCELLED}") if task.cancelled() else task.exception()
        self._failure = self._failure or error
        for future in self._waiting:
            if not future.done() and error is not None:
                future.set_exception(error)

    async def _tick(self) -> None:
        """Resume what was postponed, and end what was not confirmed in time."""
        ticks = self._watch.ticks()
        while True:
            now_ms, may_expire = await ticks.wait()
            for group, sender in self._senders.items():
                if may_expire:
                    self._expire(group, str(sender.error or sender.reason or NO_ANSWER), now_ms)
                sender.tick(now_ms)

    def _expire(self, group: GroupName, reason: str, now_ms: int) -> None:
        """End all that a group has not confirmed by its deadline, with one error."""
        pending: list[PendingBatch] = []
        in_flight: list[InFlightBatch] = []
        for place, buffer in self._buffers.items():
            if place[0] == group:
                expired, unanswered = buffer.expire(now_ms)
                pending, in_flight = pending + expired, in_flight + unanswered
        if not pending and not in_flight:
            return
        error = _unconfirmed(group, reason) if in_flight else _not_taken(group, pending, reason)
        for records in [*(p.records for p in pending), *(f.records for f in in_flight)]:
            reject(records, error)

    def _refusal(self, place: Place, error: FmqError) -> FmqError:
        where = f"topic {self._topic.name} queue {place[1]} of group {place[0]}"
        if error.code is ErrorCode.OUT_OF_SEQUENCE:
            return OutOfSequence(
                f"{where} does not end where this replay left it ({error}): what was stored "
                "there is lost, as some policies allow; begin again, into an empty topic, with "
                "another --name"
            )
        return type(error)(f"{where}: {error}")


async def _answered(future: "asyncio.Future[SendResult]") -> None:
    await future


def _not_taken(group: GroupName, left: Sequence[PendingBatch], reason: str) -> FmqError:
    """Return the error for records that are not in the journal of the group's master."""
    count = sum(len(batch.records) for batch in left)
    doubtful = any(batch.doubtful for batch in left)
    kind = DeliveryUnknown if doubtful else NoPermission
    doubt = "; the group may have shown some before a failover, and lost them" if doubtful else ""
    return kind(
        f"group {group} takes no messages: {reason}; the next {count:,} records are not stored"
        f"{doubt}: run the replay again when the group takes messages, or send all, into an empty "
        "topic, with another --name"
    )


def _unconfirmed(group: GroupName, reason: str) -> FmqError:
    return DeliveryUnknown(f"group {group} did not confirm in {CONFIRM_TIMEOUT_S:.0f} s: {reason}")
