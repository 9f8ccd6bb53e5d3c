"""The scenarios' clients: small traffic that records what happened to each message."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

import fmqclient
from e2e.chaos.watch import now_ms
from e2e.history.client_events import Acked, Committed, Committing, Delivered
from e2e.history.client_events import Place as TopicPlace
from e2e.history.history import History as WatchHistory
from fmqadapters.grpc import GrpcTransport
from fmqbroker.tests.scenario_watch import READERS, TOPIC
from fmqclient.consumer.message import Message
from fmqclient.producer.batches import SendResult
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.errors import DeliveryUnknown, ErrorCode, FmqError, StaleAssignment
from fmqcore.ids import BrokerId
from fmqdev.cluster import DevCluster
from fmqdev.demo.verdict import History, Place
from fmqport.transport import Connection, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

BOUND_S: Final = 60.0
_OUTSTANDING: Final = 200


class Traffic:
    """Numbered messages in and out at once, and the outcome of each.

    `watched`: the watch's history, for what its consumer got and acknowledged.
    """

    def __init__(self, client: fmqclient.Client, watched: WatchHistory) -> None:
        self.client = client
        self.history = History()
        self.enough = asyncio.Event()
        self.promised: dict[Place, int] = {}  # committed offsets that were confirmed
        self._watched = watched
        self._lives = 0  # of the consumer
        self._who = ""
        self._next: dict[Place, int] = {}
        self._seen: set[int] = set()

    def row(self, key: bytes | None = None) -> int:
        """Add a message to the history before it is sent."""
        self.history.keys.append(key)
        return len(self.history.keys) - 1

    def acked(self, group: str = "g1") -> int:
        """Return the number of messages that the group has acknowledged."""
        return sum(len(rows) for place, rows in self.history.acked.items() if place.group == group)

    def consumed(self, group: str = "g1") -> int:
        """Return the number of deliveries of the group."""
        return sum(len(s) for place, s in self.history.consumed.items() if place.group == group)

    def missing(self) -> int:
        """Return the messages acknowledged and not consumed yet."""
        return sum(row not in self._seen for r in self.history.acked.values() for row in r.values())

    async def produce(self) -> None:
        """Produce until `enough`, then until every message has an outcome."""
        async with self.client.producer(close_timeout_s=1) as producer:
            while not self.enough.is_set():
                for _ in range(10):
                    row = self.row(key := b"%d" % (len(self.history.keys) % 7))
                    future = producer.send_nowait(TOPIC, b"%d" % row, key=key)
                    future.add_done_callback(partial(self.answered, row))
                await asyncio.sleep(0.01)
                while producer.outstanding > _OUTSTANDING and not self.enough.is_set():
                    await asyncio.sleep(0.01)
            await producer.flush()

    def answered(self, row: int, future: "asyncio.Future[SendResult]") -> None:
        """Record the outcome of a message."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, DeliveryUnknown):
            self.history.unknown[row] = str(error)
        elif error is not None:
            self.history.refused[row] = str(error)
        else:
            r = future.result()
            self.history.acked.setdefault(Place(r.group, r.queue), {})[int(r.offset)] = row

    async def consume(self) -> None:
        """Consume as the only member of the consumer group, until cancelled."""
        self._lives += 1
        self._who = f"{READERS}.{self._lives}"
        self._next = {}  # only the previous member can learn that its last acks are stored
        async with self.client.consumer(TOPIC, group=READERS) as consumer:
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._take(consumer))
                    both.create_task(self._commit_on(consumer))
            finally:  # past an ack that is never confirmed, the watch can promise nothing
                await self._commit(consumer)

    async def _take(self, consumer: fmqclient.Consumer) -> None:
        while True:
            for message in await consumer.fetch(500):
                self._note(message, self.history)
                place = Place(message.group, message.queue)
                self._next[place] = max(self._next.get(place, 0), int(message.offset) + 1)
                self._record_ack(message)
                message.ack_now()

    def _record_ack(self, message: Message) -> None:
        """Add the delivery of a message, and its ack, to the watch's history."""
        place = TopicPlace(TOPIC, message.group, message.queue)
        offset, count = int(message.offset), message.delivery_count
        who = (now_ms(), self._who, READERS, place, offset)
        self._watched.add(Delivered(*who, record=int(message.value), attempt=count))
        self._watched.add(Acked(*who))

    async def _commit_on(self, consumer: fmqclient.Consumer) -> None:
        while True:
            await self._commit(consumer)
            await asyncio.sleep(0.02)

    async def _commit(self, consumer: fmqclient.Consumer) -> None:
        floors, reason, stale = dict(self._next), "", False
        self._watched.add(Committing(now_ms(), self._who, READERS))
        try:
            await consumer.commit()
            self.promised.update(floors)
        except FmqError as error:  # its reader went away: retry later
            reason, stale = str(error), isinstance(error, StaleAssignment)
        self._watched.add(Committed(now_ms(), self._who, READERS, reason, stale))

    def _note(self, message: Message, history: History) -> None:
        place, offset = Place(message.group, message.queue), int(message.offset)
        row = int(message.value)
        if row < len(history.keys) and history.keys[row] == message.key:
            history.consumed.setdefault(place, []).append((offset, row))
            if history is self.history:
                self._seen.add(row)
        else:
            history.foreign.setdefault(place, []).append(offset)

    async def read_again(self) -> History:
        """Read everything from the start as a new group: what is stored now."""
        h = self.history
        again = History(h.keys, h.checksums, h.acked, h.unknown, h.refused)
        wanted = {(p, o) for p, rows in h.acked.items() for o in rows}
        async with self.client.consumer(TOPIC, group="newcomer") as consumer:
            with suppress(TimeoutError):
                async with asyncio.timeout(BOUND_S / 2):
                    while wanted:
                        for message in await consumer.fetch(500, 0.2):
                            self._note(message, again)
                            place = Place(message.group, message.queue)
                            wanted.discard((place, int(message.offset)))
                            message.ack_now()
        return again


class Raw:
    """A producer that does not retry: one session at one broker, as on the wire."""

    def __init__(self, cluster: DevCluster, traffic: Traffic, broker: str) -> None:
        self._cluster = cluster
        self._traffic = traffic
        self._broker = BrokerId(broker)
        self._rows: list[int] = []
        self._stream: Stream | None = None
        self.connection: Connection

    async def __aenter__(self) -> "Raw":
        plan = self._cluster.brokers[self._broker]
        self.connection = GrpcTransport().connect(plan.listen)
        topic = await self._traffic.client.admin().topic(TOPIC)
        self._topic_id = topic.id
        self._stream = await self.connection.open(PRODUCE, 10)
        opening = client_pb2.ProduceOpen(topics=[TOPIC])
        await self._stream.send(client_pb2.ProduceRequest(open=opening))
        opened = (await self._stream.receive()).opened
        assert not opened.HasField("error"), opened
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None
        self._stream.cancel()
        await self.connection.close()

    async def send(self, level: int = client_pb2.REPLICATED) -> None:
        """Send one message; its outcome is unknown until it is answered."""
        assert self._stream is not None
        row = self._traffic.row()
        attrs, payload = encode([b"%d" % row])
        batch = client_pb2.ProduceBatch(
            correlation=len(self._rows),
            topic_id=self._topic_id,
            queue_id=0,
            record_count=1,
            attrs=attrs,
            payload_crc=crc32c(payload),
            payload=payload,
            ack=level,  # type: ignore[arg-type]
        )
        self._rows.append(row)
        await self._stream.send(client_pb2.ProduceRequest(batches=[batch]))

    async def answers(self) -> list[ErrorCode]:
        """Return all answers; OK counts as acknowledged, DELIVERY_UNKNOWN marks a broken stream."""
        assert self._stream is not None
        codes: list[ErrorCode] = []
        try:
            async with asyncio.timeout(BOUND_S):
                while len(codes) < len(self._rows):
                    for ack in (await self._stream.receive()).acks:
                        codes.append(ErrorCode(int(ack.code)))
                        if codes[-1] is ErrorCode.OK:
                            place = Place(self._broker.rpartition("-")[0], 0)
                            rows = self._traffic.history.acked.setdefault(place, {})
                            rows[ack.base_offset] = self._rows[ack.correlation]
        except (TransportError, AttributeError):
            codes += [ErrorCode.DELIVERY_UNKNOWN] * (len(self._rows) - len(codes))
        return codes
