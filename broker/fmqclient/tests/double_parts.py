"""Parts of the double: a group's queues in memory, and a session that consumes them all."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from fmqcore.batch.columns import decode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchHeader, BatchType, encode_header, padding, parse_header
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.consume.ranges import Range
from fmqcore.errors import ErrorCode, OutOfSequence
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.producers import ProducerTable
from fmqport.transport import Stream
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
    """A group: its queues, and what it believes its state to be."""

    name: str
    topic_id: int = 1
    queues: int = 4
    weight: int = 1
    epoch: int = 1
    stored: dict[int, list[Stored]] = field(default_factory=dict)
    producers: ProducerTable = field(default_factory=ProducerTable)
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    acked: dict[tuple[str, int], tuple[Range, ...]] = field(default_factory=dict)
    seek_number: dict[tuple[str, int], int] = field(default_factory=dict)
    session: "ConsumeDouble | None" = None  # the one that counts

    def values(self, queue: int | None = None) -> list[bytes]:
        wanted = self.stored if queue is None else {queue: self.stored.get(queue, [])}
        return [v for q in sorted(wanted) for b in wanted[q] for v in b.values]

    def next_offset(self, queue: int) -> int:
        batches = self.stored.get(queue)
        return batches[-1].base_offset + len(batches[-1].values) if batches else 0

    def settled(
        self, batch: client_pb2.ProduceBatch, opening: client_pb2.ProduceOpen
    ) -> ErrorCode | None:
        """Return None for a batch that is stored, else why a drained master refuses it."""
        key = (TopicId(batch.topic_id), batch.queue_id)
        number, count = batch.base_sequence, batch.record_count
        check = self.producers.check
        try:
            known = check(opening.producer_id, opening.producer_epoch, key, number, count)
        except OutOfSequence:
            return ErrorCode.OUT_OF_SEQUENCE
        return None if known is not None else ErrorCode.NO_PERMISSION

    def append(
        self, batch: client_pb2.ProduceBatch, producer_id: int, session: int = 0, store_ms: int = 7
    ) -> int:
        base = self.next_offset(batch.queue_id)
        done = self.producers.check(
            producer_id,
            session,
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
            producer_epoch=session,
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


class Owner(Protocol):
    """The broker that a session is on."""

    group: GroupDouble
    name: str
    tokens: bool
    acks: list[tuple[int, int, int]]


class ConsumeDouble:
    """One consume session that holds all queues."""

    generation = 0

    def __init__(self, broker: Owner, stream: Stream, opening: client_pb2.ConsumeRequest) -> None:
        self.broker = broker
        self.stream = stream
        self.group = opening.open.group
        self.start = opening.open.start
        self.held = list(opening.open.held_queues)
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
        return QueueProgress(
            Offset(group.floors.get(key, 0)),
            group.acked.get(key, ()),
            None,
            group.seek_number.get(key, 0),
        )

    async def run(self) -> None:
        assigned = [
            client_pb2.Assignment(
                queue_id=q,
                generation=g,
                next_offset=self.progress[q].floor,
                seek_number=self.progress[q].seek_number,
            )
            for q, g in self.generations.items()
        ]
        await self.stream.send(client_pb2.ConsumeReply(assigned=assigned))
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read())
            while not reading.done():
                for reply in self._deliveries():
                    await self.stream.send(reply)
                if self.left:
                    await self.stream.send(client_pb2.ConsumeReply(has_left=True))
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
            end = Offset(self.broker.group.next_offset(queue))
            if self.credit <= 0 or progress.peek(end) is None:
                continue
            for batch in self.broker.group.stored.get(queue, []):
                peeked = progress.peek(Offset(batch.header.end_offset))
                if peeked is None or self.credit <= 0 or peeked[0] < batch.base_offset:
                    continue
                fresh = progress.next
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
                                    redelivered=lease.first < fresh,
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
            group.seek_number[(self.group, queue)] = progress.seek_number

    def move_to(self, queue: int, offset: int) -> None:
        """Seek: the same holder starts again under a new generation."""
        ConsumeDouble.generation += 1
        self.generations[queue] = ConsumeDouble.generation
        progress = self.progress[queue]
        progress.seek(Offset(offset))
        move = client_pb2.Assignment(
            queue_id=queue,
            generation=self.generations[queue],
            next_offset=offset,
            seek_number=progress.seek_number,
        )
        self.outbox.append(client_pb2.ConsumeReply(assigned=[move]))

    def revoke(self, queue: int) -> None:
        move = client_pb2.Assignment(queue_id=queue, generation=self.generations[queue])
        self.outbox.append(client_pb2.ConsumeReply(revoked=[move]))
        self.paused.add(queue)
