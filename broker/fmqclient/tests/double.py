"""A small cluster that speaks the real protocol over the real transport, for the corner cases.

Not a broker: queues are lists in memory, nothing is stored or replicated. What a test wants to go
wrong it says with `script`: what becomes of the next batches.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fmqcore.batch import BatchHeader, BatchType, encode_header, padding, parse_header
from fmqcore.columns import decode
from fmqcore.consume.inflight import QueueProgress
from fmqcore.consume.ranges import Range
from fmqcore.crc import crc32c
from fmqcore.errors import ErrorCode, OutOfSequence
from fmqcore.journal.producers import ProducerTable
from fmqcore.words import Epoch, Offset, Permission, Position, TopicId
from fmqport.methods import CONSUME, PRODUCE, ROUTES
from fmqport.rpc import GrpcTransport
from fmqport.transport import Server, Stream, Transport, TransportError
from fmqproto.v1 import client_pb2

CREDIT_CHECK_S = 0.01


@dataclass
class Stored:
    """One stored batch."""

    base_offset: int
    raw: bytes
    header: BatchHeader
    values: list[bytes]
    keys: list[bytes] | None


@dataclass
class GroupDouble:
    """A group: its queues and what it believes of itself."""

    name: str
    topic_id: int = 1
    queues: int = 4
    weight: int = 1
    epoch: int = 1
    stored: dict[int, list[Stored]] = field(default_factory=dict)
    producers: ProducerTable = field(default_factory=ProducerTable)
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    acked: dict[tuple[str, int], tuple[Range, ...]] = field(default_factory=dict)
    session: "ConsumeDouble | None" = None  # the one whose word counts

    def values(self, queue: int | None = None) -> list[bytes]:
        wanted = self.stored if queue is None else {queue: self.stored.get(queue, [])}
        return [v for q in sorted(wanted) for b in wanted[q] for v in b.values]

    def next_offset(self, queue: int) -> int:
        batches = self.stored.get(queue)
        return batches[-1].base_offset + len(batches[-1].values) if batches else 0

    def append(self, batch: client_pb2.ProduceBatch, producer_id: int, store_ms: int = 7) -> int:
        base = self.next_offset(batch.queue_id)
        done = self.producers.check(
            producer_id,
            0,
            (TopicId(batch.topic_id), batch.queue_id),
            batch.base_sequence,
            batch.record_count,
        )
        if done is not None:
            return done.base_offset
        assert crc32c(batch.payload) == batch.payload_crc
        raw, _ = encode_header(
            type=BatchType.DATA,
            position=Position(0),
            epoch=Epoch(self.epoch),
            prev_header_crc=0,
            payload_len=len(batch.payload),
            payload_crc=batch.payload_crc,
            store_ms=store_ms,
            attrs=batch.attrs,
            queue_id=batch.queue_id,
            topic_id=TopicId(batch.topic_id),
            record_count=batch.record_count,
            base_offset=base,
            producer_id=producer_id,
            base_sequence=batch.base_sequence,
            tag_mask=batch.tag_mask,
        )
        header = parse_header(raw)
        self.producers.note(header)
        records = decode(batch.attrs, batch.record_count, batch.payload)
        self.stored.setdefault(batch.queue_id, []).append(
            Stored(
                base,
                raw + batch.payload + padding(len(batch.payload)),
                header,
                records.values,
                records.keys,
            )
        )
        return base


Script = Callable[[client_pb2.ProduceBatch], "ErrorCode | str | None"]
"""What becomes of a batch: a code (refused), "lose" (appended, the stream dies), "drop" (not
appended, the stream dies), "unknown" (appended, DELIVERY_UNKNOWN), "hang" (no answer), None: OK."""


class BrokerDouble:
    """One broker of the double."""

    def __init__(self, cluster: "ClusterDouble", name: str, group: GroupDouble) -> None:
        self.cluster = cluster
        self.name = name
        self.group = group
        self.permission = Permission.FULL
        self.address = ""
        self.script: Script = lambda batch: None
        self.opened = 0
        self.requests: list[client_pb2.ProduceRequest] = []
        self.acks: list[tuple[int, int, int]] = []
        self.tokens = True  # answer commit tokens
        self.streams: list[Stream] = []
        self.consumers: list[ConsumeDouble] = []
        self.max_batch_bytes = 0
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = await self.cluster.transport.serve(
            self.address or "127.0.0.1:0",
            calls={ROUTES: self.cluster.routes},
            streams={PRODUCE: self._produce, CONSUME: self._consume},
        )
        self.address = f"127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close(0)

    def reset_streams(self) -> None:
        streams, self.streams = self.streams, []
        for stream in streams:
            stream.cancel()

    async def _produce(self, stream: Stream) -> None:
        opening = (await stream.receive()).open
        self.opened += 1
        reply = client_pb2.ProduceReply(
            opened=client_pb2.ProduceOpened(
                window_bytes=1 << 20, max_batch_bytes=self.max_batch_bytes
            )
        )
        if not self.permission & Permission.WRITE:
            refused = client_pb2.Error(code=client_pb2.NO_PERMISSION, message="not the master")
            reply.opened.error.CopyFrom(refused)
        await stream.send(reply)
        if reply.opened.HasField("error"):
            return
        self.streams.append(stream)
        while (request := await stream.receive()) is not None:
            self.requests.append(request)
            acks = [self._take(b, opening.producer_id, stream) for b in request.batches]
            acks = [a for a in acks if a is not None]
            if acks:
                await stream.send(client_pb2.ProduceReply(acks=acks, epoch=self.group.epoch))

    def _take(self, batch: client_pb2.ProduceBatch, producer_id: int, stream: Stream) -> Any:
        ack: Any = client_pb2.ProduceAck(correlation=batch.correlation)
        fate = self.script(batch)
        if not self.permission & Permission.WRITE:
            fate = ErrorCode.NO_PERMISSION
        if fate == "hang":
            return None
        if fate == "drop":
            stream.cancel()
            raise TransportError("dropped")
        if isinstance(fate, ErrorCode):
            ack.code, ack.message = int(fate), fate.name
            return ack
        try:
            ack.base_offset = self.group.append(batch, producer_id)
        except OutOfSequence as error:
            ack.code, ack.message = int(error.code), str(error)
            return ack
        if fate == "lose":
            stream.cancel()
            raise TransportError("lost")
        if fate == "unknown":
            ack.code, ack.message = int(ErrorCode.DELIVERY_UNKNOWN), "not in time"
        return None if batch.ack == client_pb2.ONE_WAY else ack

    async def _consume(self, stream: Stream) -> None:
        opening = await stream.receive()
        reply = client_pb2.ConsumeReply(
            opened=client_pb2.ConsumeOpened(topic_id=1, queues=4, heartbeat_ms=300),
            epoch=self.group.epoch,
        )
        if not self.permission & Permission.READ:
            refused = client_pb2.Error(code=client_pb2.NO_PERMISSION, message="no reads here")
            reply.opened.error.CopyFrom(refused)
            await stream.send(reply)
            return
        session = ConsumeDouble(self, stream, opening)
        self.consumers.append(session)
        self.streams.append(stream)
        await stream.send(reply)
        await session.run()


class ConsumeDouble:
    """One consume session that holds all queues."""

    generation = 0

    def __init__(
        self, broker: BrokerDouble, stream: Stream, opening: client_pb2.ConsumeRequest
    ) -> None:
        self.broker = broker
        self.stream = stream
        self.group = opening.open.group
        self.credit = opening.credit_bytes
        self.low_credit = self.credit
        ConsumeDouble.generation += 1
        self.generations = dict.fromkeys(range(broker.group.queues), ConsumeDouble.generation)
        self.progress = {q: self._begin(q) for q in self.generations}
        self.nacks: list[client_pb2.NackRange] = []
        self.paused: set[int] = set()
        self.tokens: list[int] = []
        self.left = False
        self.outbox: deque[client_pb2.ConsumeReply] = deque()
        broker.group.session = self

    def _begin(self, queue: int) -> QueueProgress:
        group, key = self.broker.group, (self.group, queue)
        return QueueProgress(Offset(group.floors.get(key, 0)), group.acked.get(key, ()))

    async def run(self) -> None:
        assigned = [
            client_pb2.Assignment(queue_id=q, generation=g, next_offset=self.progress[q].floor)
            for q, g in self.generations.items()
        ]
        await self.stream.send(client_pb2.ConsumeReply(assigned=assigned))
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read())
            while not reading.done():
                for reply in self._deliveries():
                    await self.stream.send(reply)
                if self.left:
                    await self.stream.send(client_pb2.ConsumeReply(left=True))
                    reading.cancel()
                    return
                await asyncio.sleep(CREDIT_CHECK_S)

    def _deliveries(self) -> list[client_pb2.ConsumeReply]:
        if self.tokens and self.broker.tokens:
            self._store()
            self.outbox.append(client_pb2.ConsumeReply(committed_tokens=self.tokens))
            self.tokens = []
        replies = list(self.outbox)
        self.outbox.clear()
        for queue, generation in self.generations.items():
            if queue in self.paused:
                continue
            progress = self.progress[queue]
            for batch in self.broker.group.stored.get(queue, []):
                peeked = progress.peek(Offset(batch.header.end_offset))
                if peeked is None or self.credit <= 0 or peeked[0] < batch.base_offset:
                    continue
                for lease in progress.lease(*peeked, deadline_ms=1 << 60):
                    self.credit -= len(batch.raw)
                    replies.append(
                        client_pb2.ConsumeReply(
                            deliveries=[
                                client_pb2.Delivery(
                                    queue_id=queue,
                                    generation=generation,
                                    first_offset=lease.first,
                                    end_offset=lease.end,
                                    delivery_count=lease.deliveries,
                                    batch=batch.raw,
                                )
                            ]
                        )
                    )
        self.low_credit = min(self.low_credit, self.credit)
        return replies

    async def _read(self) -> None:
        while (request := await self.stream.receive()) is not None:
            self.credit += request.credit_bytes
            for ack in request.acks:
                self.broker.acks.append((ack.queue_id, ack.first_offset, ack.end_offset))
                if self.generations[ack.queue_id] == ack.generation:
                    progress = self.progress[ack.queue_id]
                    up_to = Offset(self.broker.group.next_offset(ack.queue_id))
                    progress.ack(Offset(ack.first_offset), Offset(ack.end_offset), up_to)
            if self.broker.tokens and request.acks:
                self._store()
            for nack in request.nacks:
                self.nacks.append(nack)
                if self.generations[nack.queue_id] == nack.generation:
                    first, end = Offset(nack.first_offset), Offset(nack.end_offset)
                    self.progress[nack.queue_id].nack(first, end, 0, 0)
            for control in request.controls:
                (self.paused.add if control.pause else self.paused.discard)(control.queue_id)
            if request.commit_token:
                self.tokens.append(request.commit_token)
            self.left |= request.leave

    def _store(self) -> None:
        group = self.broker.group
        if group.session is not self:
            return
        for queue, progress in self.progress.items():
            group.floors[(self.group, queue)] = progress.floor
            group.acked[(self.group, queue)] = progress.acked

    def move_to(self, queue: int, offset: int) -> None:
        """A seek: the same holder begins anew under a new generation."""
        ConsumeDouble.generation += 1
        self.generations[queue] = ConsumeDouble.generation
        self.progress[queue] = QueueProgress(Offset(offset))
        move = client_pb2.Assignment(
            queue_id=queue, generation=self.generations[queue], next_offset=offset
        )
        self.outbox.append(client_pb2.ConsumeReply(assigned=[move]))

    def revoke(self, queue: int) -> None:
        move = client_pb2.Assignment(queue_id=queue, generation=self.generations[queue])
        self.outbox.append(client_pb2.ConsumeReply(revoked=[move]))
        self.paused.add(queue)


class ClusterDouble:
    """Groups of two brokers each: `g1-0` the master, `g1-1` the slave."""

    def __init__(self, groups: int, queues: int, transport: Transport) -> None:
        self.transport = transport
        self.groups = {f"g{n}": GroupDouble(f"g{n}", queues=queues) for n in range(1, groups + 1)}
        self.brokers = {
            f"{name}-{n}": BrokerDouble(self, f"{name}-{n}", group)
            for name, group in self.groups.items()
            for n in range(2)
        }
        for name, broker in self.brokers.items():
            broker.permission = Permission.FULL if name.endswith("-0") else Permission.NONE
        self.topics = {"orders": 1}
        self.shown: dict[str, client_pb2.GroupRoute] = {}  # told instead of the truth
        self.asked = 0

    @property
    def url(self) -> str:
        return "fmq://" + ",".join(b.address for b in self.brokers.values())

    async def routes(self, request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        self.asked += 1
        wanted = list(request.topics) or list(self.topics)
        return client_pb2.RouteReply(
            cluster="double",
            groups=[self.shown.get(g) or self.route(g) for g in self.groups],
            topics=[
                client_pb2.TopicRoute(
                    name=name,
                    id=self.topics[name],
                    groups=[
                        client_pb2.TopicGroup(group=g.name, weight=g.weight, queues=g.queues)
                        for g in self.groups.values()
                    ],
                )
                for name in wanted
                if name in self.topics
            ],
        )

    def route(self, group: str) -> client_pb2.GroupRoute:
        return client_pb2.GroupRoute(
            group=group,
            epoch=self.groups[group].epoch,
            mode="MASTER",
            brokers=[
                client_pb2.BrokerRoute(
                    id=b.name, address=b.address, permission=int(b.permission), live=True
                )
                for b in self.brokers.values()
                if b.group.name == group
            ],
        )

    def values(self) -> list[bytes]:
        return [v for g in self.groups.values() for v in g.values()]


@asynccontextmanager
async def cluster(
    groups: int = 1, queues: int = 4, transport: Transport | None = None
) -> AsyncIterator[ClusterDouble]:
    double = ClusterDouble(groups, queues, transport or GrpcTransport())
    try:
        for broker in double.brokers.values():
            await broker.start()
        yield double
    finally:
        for broker in double.brokers.values():
            await broker.stop()


async def until(condition: Callable[[], Any], bound_s: float = 20) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.005)
