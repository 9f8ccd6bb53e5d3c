"""Send a replay so that nothing is stored twice, even if the sender is killed at any moment.

A producer of the library takes a new id each time. Here the id, each queue's next sequence and the
topic's shape are noted with the progress, before anything is sent that relies on them. What is sent
from a place on depends on that note alone: which queue a record goes to, where batches end. So a
resumed run sends the same batches under the same sequences, and the broker's table, which keeps the
last five of each queue, answers those that it has. One batch per queue is in flight.

Order of effects: a step (at most one batch per queue) is sent → it is stored whole → it is noted.
After a refusal that may pass, or an answer that leaves the outcome open, the same batch is sent
again. A group that takes no messages any more (drained, removed, its disk full) settles it all the
same: its master answers for what it has, and for what it never appended (ADR 0060).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fmqclient.net.connections import Backoff, Connections, open_at_first
from fmqclient.net.routes import Routes
from fmqclient.producer.accumulator import pinned_group
from fmqclient.producer.batches import InFlightBatch, PendingBatch, Record, record_bytes
from fmqclient.settings import LEVELS
from fmqcore.batch.columns import encode_headers
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.error_spec import spec_of_code
from fmqcore.errors import (
    DeliveryUnknown,
    FmqError,
    InvalidArgument,
    NoPermission,
    OutOfSequence,
    Unavailable,
    error_of,
)
from fmqcore.ids import Epoch, GroupName, Permission, TopicId
from fmqcore.placement import Place, pick_by_key
from fmqcore.routing import candidates
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.clock import Clock
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

BATCH_BYTES: Final = MAX_PAYLOAD // 2
"""A record that does not fit into its queue's batch any more starts the next step."""
CONFIRM_TIMEOUT_S: Final = 120.0
"""How long the same batch is retried; then the run ends, and the next run goes on."""
ANSWER_S: Final = 30.0
_MOST_RUNS: Final = 0xFFFF


class Archived(Protocol):
    """One record, as the archive has it."""

    @property
    def queue(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes: ...  # noqa: D102
    @property
    def tag(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> dict[str, bytes] | None: ...  # noqa: D102


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
        try:
            shape = tuple(
                TopicGroup(_group(g), _number(q), _number(w)) for g, q, w in state["groups"]
            )
            noted = TopicConfig(topic.name, TopicId(_number(state["topic_id"])), shape)
            sequences = {(_group(g), _number(q)): _number(n) for g, q, n in state["sequences"]}
            producer = _number(state["producer"], bits=64)
            run = min(_number(state.get("run", 1)) + 1, _MOST_RUNS)
            plan = cls(noted, producer, sequences, bool(state["same_queue"]), run)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"the noted progress does not decode: {error!r}; with another --name all is sent "
                "again"
            ) from None
        if noted.id != topic.id:
            raise InvalidArgument(
                f"topic {topic.name} was recreated since this replay started: choose another --name"
            )
        if plan.same_queue != same:
            raise InvalidArgument(
                "this replay started with the other setting of --same-queue: keep "
                "it, or choose another --name"
            )
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
    ) -> Iterator[tuple[dict[Place, InFlightBatch], int]]:
        """Yield batches, one per place, and how many records are in all steps so far.

        After each step its sequences count as used.
        """
        pending: dict[Place, PendingBatch] = {}
        for i, record in enumerate(records):
            place, row = self.place(record, number + i), _row(record)
            pending_batch = pending.get(place)
            if pending_batch is not None and pending_batch.bytes + record_bytes(row) > BATCH_BYTES:
                yield self._in_flight(pending), i
                pending, pending_batch = {}, None
            if pending_batch is None:
                pending_batch = pending[place] = PendingBatch(0, 0)
            pending_batch.records.append(row)
            pending_batch.bytes += record_bytes(row)
        if pending:
            yield self._in_flight(pending), len(records)

    def _in_flight(self, pending: dict[Place, PendingBatch]) -> dict[Place, InFlightBatch]:
        batches = {
            p: InFlightBatch(pending_batch, self.sequences.get(p, 0))
            for p, pending_batch in sorted(pending.items())
        }
        for place, in_flight in batches.items():
            self.sequences[place] = in_flight.end_sequence % 2**32
        return batches


def _number(value: object, bits: int = 32) -> int:
    """Return a noted number. Raises `ValueError`."""
    if not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise ValueError(f"{value!r} is no number of {bits} bits")
    return value


def _group(value: object) -> GroupName:
    """Return a noted group name. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no name of a group")
    return GroupName(value)


def _row(record: Archived) -> Record:
    headers = encode_headers(record.headers) if record.headers else b""
    no_future: Any = None
    return (record.value, record.key or b"", record.tag or b"", headers, no_future, True, 0)


def require_ordinary(topic: TopicConfig) -> None:
    """Raise `InvalidArgument` for an ordered topic, which only its sender writes to."""
    if topic.ordered:
        raise InvalidArgument(
            f"topic {topic.name} is ordered: only an ordered producer sends to it, and a replay is "
            "none: replay into an ordinary topic with as many queues in one group (fmq topic "
            "create NAME -g GROUP -q QUEUES) by --same-queue, or send the archive's files from a "
            "program with client.ordered_producer"
        )


# ---- how it is sent
def level_of(acks: str) -> client_pb2.AckLevel:
    """Return the level of `--acks`; raise `InvalidArgument` unless it confirms storage."""
    known = sorted(LEVELS.keys() - {"one_way"})
    if acks not in known:
        raise InvalidArgument(
            f"--acks {acks}: a replay waits until its records are stored: {', '.join(known)}"
        )
    return LEVELS[acks]


class Lines:
    """A session with each group. Close it."""

    def __init__(
        self, wire: tuple[Connections, Routes, Clock], topic: TopicConfig, plan: Plan, acks: str
    ) -> None:
        self._connections, self._routes, self._clock = wire
        self._topic = topic
        self._producer_id = plan.producer_id
        self._attempt = plan.run << 16  # of the newest stream; rises over all runs
        self._level = level_of(acks)
        self._streams: dict[GroupName, tuple[Stream, Epoch]] = {}  # and the term at the opening
        self._correlation = 0
        self._repeats = plan.run > 1  # an earlier run may have sent the first step

    async def store(self, step: Mapping[Place, InFlightBatch]) -> None:
        """Wait until the whole step is stored. Raises the refusal if it cannot be stored.

        After `CONFIRM_TIMEOUT_S`: `NoPermission` if it is certain that nothing more of a group's
        share was ever stored, else `DeliveryUnknown`.
        """
        groups = sorted({group for group, _ in step})
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                share = {queue: in_flight for (g, queue), in_flight in step.items() if g == group}
                tasks.create_task(self._store(group, share))
        self._repeats = False

    def close(self) -> None:
        """End the sessions."""
        for stream, _ in self._streams.values():
            stream.cancel()
        self._streams.clear()

    async def _store(self, group: GroupName, left: dict[int, InFlightBatch]) -> None:
        until_ms = self._clock.monotonic_ms() + CONFIRM_TIMEOUT_S * 1000
        backoff = Backoff(self._clock, first_ms=50, max_ms=1000)
        while True:
            never_appended = False
            try:
                async with asyncio.timeout(ANSWER_S):
                    why, never_appended = await self._try(group, left)
            except (TransportError, Unavailable, TimeoutError) as error:
                why = str(error) or f"no answer in {ANSWER_S:.0f} s"
            if not left:
                return
            self._drop(group)
            if self._clock.monotonic_ms() >= until_ms:
                if not never_appended:
                    raise _unconfirmed(group, why)
                certain = not (self._repeats or any(f.doubtful for f in left.values()))
                raise _not_taken(group, left, why, certain=certain)
            self._routes.request_refresh()
            await backoff.wait()

    async def _try(self, group: GroupName, left: dict[int, InFlightBatch]) -> tuple[str, bool]:
        """Send what is left and take its acks.

        Return why some is still left, and whether the master has no attempt of that in its journal.
        """
        (stream, term), why, never_appended = await self._session(group), "", True
        asked: dict[int, int] = {}
        for queue, in_flight in left.items():
            self._correlation += 1
            asked[self._correlation] = queue
            batch = self._batch(self._correlation, queue, in_flight)
            in_flight.unknown = True
            in_flight.terms.add(term)
            await stream.send(client_pb2.ProduceRequest(batches=[batch]))
        while asked:
            reply: client_pb2.ProduceReply | None = await stream.receive()
            if reply is None:
                raise TransportError(f"{stream.peer} has ended the session")
            for ack in reply.acks:
                queue = asked.pop(ack.correlation)
                if ack.code == client_pb2.OK:
                    del left[queue]
                elif spec_of_code(ack.code).transient:
                    why = ack.message
                    never_appended = never_appended and ack.never_appended
                    if ack.never_appended:
                        left[queue].note_never_appended(term)
                else:
                    raise self._refusal(group, queue, ack)
        return why, never_appended

    async def _session(self, group: GroupName) -> tuple[Stream, Epoch]:
        if group not in self._streams:
            route = self._routes.table.groups.get(group)
            if route is None:
                raise Unavailable(f"the routes do not know group {group}")
            self._attempt += 1
            opening = client_pb2.ProduceOpen(
                producer_id=self._producer_id,
                client="fmq job replay",
                attempt=self._attempt,
                settle=True,
            )
            try:
                _, stream, answer = await open_at_first(
                    self._connections,
                    candidates(route, Permission.WRITE),
                    PRODUCE,
                    client_pb2.ProduceRequest(open=opening),
                )
            except FmqError as error:  # no broker takes writes now
                raise Unavailable(str(error)) from error
            self._streams[group] = stream, Epoch(answer.epoch)
        return self._streams[group]

    def _drop(self, group: GroupName) -> None:
        if group in self._streams:
            self._streams.pop(group)[0].cancel()

    def _batch(
        self, correlation: int, queue: int, in_flight: InFlightBatch
    ) -> client_pb2.ProduceBatch:
        return client_pb2.ProduceBatch(
            correlation=correlation,
            topic_id=self._topic.id,
            queue_id=queue,
            record_count=len(in_flight.records),
            attrs=in_flight.attrs,
            payload_crc=in_flight.crc,
            base_sequence=in_flight.sequence,
            tag_mask=in_flight.tag_mask,
            ack=self._level,
            payload=in_flight.payload,
        )

    def _refusal(self, group: GroupName, queue: int, ack: client_pb2.ProduceAck) -> FmqError:
        where = f"topic {self._topic.name} queue {queue} of group {group}"
        if ack.code == client_pb2.OUT_OF_SEQUENCE:
            return OutOfSequence(
                f"{where} does not end where this replay left it ({ack.message}): what was stored "
                "there is lost, as some policies allow; begin again, into an empty topic, with "
                "another --name"
            )
        return error_of(ack.code, f"{where}: {ack.message}")


def _not_taken(
    group: GroupName, left: Mapping[int, InFlightBatch], why: str, *, certain: bool
) -> FmqError:
    """Return the error for records that are not in the journal of the group's master."""
    count = sum(len(in_flight.records) for in_flight in left.values())
    kind = NoPermission if certain else DeliveryUnknown
    doubt = "" if certain else "; the group may have shown some before a failover, and lost them"
    return kind(
        f"group {group} takes no messages: {why}; the next {count:,} records are not stored"
        f"{doubt}: run the replay again when the group takes messages, or send all, into an empty "
        "topic, with another --name"
    )


def _unconfirmed(group: GroupName, why: str) -> FmqError:
    return DeliveryUnknown(f"group {group} did not confirm in {CONFIRM_TIMEOUT_S:.0f} s: {why}")
