"""Shared by the consume tests: a real journal, stand-ins and a test consumer.

Journal and offset store run on the machine's clock, the fetch service on `HandClock`, which moves
only by hand.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmqadapters.disk.files import FileDisk
from fmqadapters.process.clock import SystemClock
from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.offsets.side_journal import SideDisk
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.service import FetchService
from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqcore.batch.columns import decode, encode
from fmqcore.batch.control import encode_epoch
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN, BatchType, parse_header
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import BrokerId, Epoch, GroupName, Offset, Permission, TopicId
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.disk import Disk
from fmqport.tests.call_context import CALL
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeReply, ConsumeRequest

ME = BrokerId("g1-0")
SLAVE = BrokerId("g1-1")
ACK_TIMEOUT_MS = 60_000
TOPIC = TopicConfig("orders", TopicId(1), (TopicGroup(GroupName("g1"), 4),))
GENEROUS_S = 20.0


async def until(seen: Callable[[], object], what: str = "") -> None:
    """Wait for a condition with a generous timeout."""
    try:
        async with asyncio.timeout(GENEROUS_S):
            while not seen():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never came true: {what or seen}") from None


class HandClock(SystemClock):
    """A clock that moves only by `advance`."""

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = 1_000_000
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def monotonic_ms(self) -> int:
        return self._now_ms

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Sleep from the call, not from the task's first turn: time may have moved."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_ms + round(seconds * 1000), future))

        async def until_then() -> None:
            await future

        return until_then()

    def sleeps_until(self, ms: int) -> bool:
        """Return whether some task sleeps until that moment."""
        return any(when == ms and not future.done() for when, future in self._sleepers)

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        due = [f for when, f in self._sleepers if when <= self._now_ms]
        self._sleepers = [s for s in self._sleepers if s[0] > self._now_ms]
        for future in due:
            if not future.done():
                future.set_result(None)


class Group:
    """Stands in for `GroupStore`: a state and its compare-and-set."""

    def __init__(self, mode: Mode = Mode.MASTER, epoch: int = 1) -> None:
        state = GroupState(mode, Epoch(epoch), master=ME, reader=ME)
        self.state = Versioned(state, 0)
        self.changed = Signal()
        self.changes = 0
        self.failing: Exception | None = None

    def become(self, mode: Mode, epoch: int, reader: BrokerId = ME, opened: int = 0) -> None:
        state = replace(self.state.value, mode=mode, epoch=Epoch(epoch), reader=reader)
        state = replace(state, last_opened_epoch=Epoch(opened))
        self.state = Versioned(state, self.state.version + 1)
        self.changed.notify()

    async def change(self, edit: Callable[[GroupState], GroupState | None]) -> GroupState | None:
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing
        after = edit(self.state.value)
        if after is not None:
            self.changes += 1
            self.state = Versioned(after, self.state.version + 1)
        return after


class Cluster:
    """Stands in for `ClusterView`: the topics."""

    def __init__(self, *topics: TopicConfig) -> None:
        self.changed = Signal()
        self.unheard: list[TopicConfig] = []  # in ZooKeeper, not yet known here
        self.topics: dict[str, TopicConfig] = {}
        self.topics_by_id: dict[TopicId, TopicConfig] = {}
        self.set(*topics)

    def set(self, *topics: TopicConfig) -> None:
        self.topics = {t.name: t for t in topics}
        self.topics_by_id = {t.id: t for t in topics}
        self.changed.notify()

    async def refresh(self) -> None:
        await asyncio.sleep(0)
        self.set(*self.topics.values(), *self.unheard)

    async def refresh_groups(self) -> None:
        await asyncio.sleep(0)

    async def find_topics(self, *names: str) -> None:
        if any(name not in self.topics for name in names):
            await self.refresh()

    async def find_ids(self, ids: Iterable[TopicId]) -> None:
        await self.refresh()


class Life:
    """Stands in for the lifecycle: `fatal` raises."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    def fatal(self, reason: str) -> Any:
        raise AssertionError(f"fatal: {reason}")


class Rig:
    """The reading half of one broker, on a real journal in `path`."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.settings = BrokerSettings(
            cluster="c",
            group=settings.pop("group", "g1"),
            broker=ME,
            data_dir=str(path),
            zookeeper="",
            segment_bytes=settings.pop("segment_bytes", 1024 * 1024),
            offsets_interval_ms=settings.pop("offsets_interval_ms", 2),
            takeover_checkpoint_ms=settings.pop("takeover_checkpoint_ms", 10),
            **settings,
        )
        self.disk: Disk = FileDisk(str(path))
        self.life = Life()
        self.side = SideDisk(self.disk, self.life)
        self.clock = SystemClock()
        self.hand = HandClock()
        self.group = Group()
        self.cluster = Cluster(TOPIC)
        self.gate = Gate(self.clock)
        self.commit = CommitFrontier()
        self.hold_commit = False
        self.visible_type = Visible
        self.journal: Journal
        self.offsets: OffsetStore
        self.fetch: FetchService
        self.chains: ChainReads | None = None

    async def open(self) -> None:
        self.journal = await Journal.open(self.disk, self.settings, self.clock, self.life)
        parts: Any = (self.side, self.journal, self.commit, self.group, self.settings, self.clock)
        self.offsets = OffsetStore(*parts)
        self.visible = self.visible_type(self.journal, self.commit)
        parts = (self.journal, self.visible, self.gate, self.cluster, self.offsets, self.chains)
        self.fetch = FetchService(self.settings, self.hand, *parts)

    async def lead(self, epoch: int = 1) -> None:
        """Become master of that epoch."""
        self.group.become(Mode.MASTER, epoch)
        payload = encode_epoch(Epoch(epoch), ME)
        self.journal.append(BatchDraft(BatchType.EPOCH, payload, crc32c(payload)))
        await self.offsets.become_master()
        self.permit(Permission.FULL, epoch)

    def permit(self, permission: Permission, epoch: int = 1) -> None:
        self.gate.epoch = Epoch(epoch)
        self.gate.extend_lease(self.clock.monotonic_ms() + 10**9)
        self.gate.grant(permission, "the test says so")

    def produce(self, queue: int, *values: bytes, topic: TopicId = TOPIC.id) -> Offset:
        """Append one batch and return its base offset."""
        _, payload = encode(values)
        return self.journal.append(
            BatchDraft(BatchType.DATA, payload, crc32c(payload), topic, queue, len(values))
        ).base_offset

    async def committed(self) -> None:
        """Wait until everything appended is committed."""
        await until(lambda: self.commit.commit_end >= self.journal.end, "committed")

    async def follow(self) -> None:
        """Let the commit end follow the durable end, unless held."""
        while True:
            if not self.hold_commit:
                self.commit.advance(self.journal.durable_end, self.journal.durable_end)
            await self.journal.flushed.wait()


@asynccontextmanager
async def running(rig: Rig, *, lead: bool = True, epoch: int = 1) -> AsyncIterator[Rig]:
    """Run a rig; its journal is closed at the end."""
    await rig.open()
    try:
        async with asyncio.TaskGroup() as tasks:
            work = (rig.journal.run(), rig.offsets.run(), rig.fetch.run(), rig.follow())
            running = [tasks.create_task(each) for each in work]
            if lead:
                await rig.lead(epoch)
            yield rig
            for task in reversed(running):
                task.cancel()
    finally:
        await rig.journal.close()
        await rig.disk.close()


class Consumer:
    """A test consumer: it keeps what it receives and acks only on request."""

    def __init__(self, send: Callable[[ConsumeRequest], None]) -> None:
        self.send = send
        self.pipe: Pipe | None = None
        self.opened: client_pb2.ConsumeOpened | None = None
        self.held: dict[int, int] = {}  # queue -> generation
        self.begins: dict[int, int] = {}
        self.seek_number: dict[int, int] = {}
        self.got: list[client_pb2.Delivery] = []
        self.bytes = 0  # of batches
        self.skipped: list[tuple[int, int, int]] = []  # (queue, first, end)
        self.tokens: list[int] = []
        self.ignored: list[tuple[int, int]] = []  # (queue, generation)
        self.error: client_pb2.Error | None = None
        self.left = False
        self.heartbeats = 0
        self.over = False

    def take(self, reply: ConsumeReply) -> None:
        if reply.HasField("opened"):
            self.opened = reply.opened
        for each in reply.revoked:
            if self.held.get(each.queue_id) == each.generation:
                del self.held[each.queue_id]
        for each in reply.assigned:
            assert each.generation > self.held.get(each.queue_id, 0)
            self.held[each.queue_id] = each.generation
            self.begins[each.queue_id] = each.next_offset
            self.seek_number[each.queue_id] = each.seek_number
        before = b""
        for delivery in reply.deliveries:
            self.bytes += len(delivery.batch)
            before = delivery.batch = delivery.batch or before  # `accepts_omitted_batch`
            assert self.held[delivery.queue_id] == delivery.generation, "delivered unassigned"
            self.got.append(delivery)
        self.skipped += [(s.queue_id, s.first_offset, s.end_offset) for s in reply.skipped]
        self.ignored += [(each.queue_id, each.generation) for each in reply.stale_assignments]
        self.tokens += reply.committed_tokens
        if reply.HasField("error"):
            self.error = reply.error
        self.left |= reply.has_left
        self.heartbeats += reply.heartbeat

    def ack(self, delivery: client_pb2.Delivery, *, token: int = 0) -> None:
        self.ack_range(
            delivery.queue_id,
            delivery.first_offset,
            delivery.end_offset,
            generation=delivery.generation,
            token=token,
        )

    def ack_range(
        self,
        queue: int,
        first: int,
        end: int,
        *,
        generation: int = 0,
        token: int = 0,
        epoch: int = 0,
    ) -> None:
        generation = generation or self.held[queue]
        ack = client_pb2.AckRange(
            queue_id=queue, generation=generation, first_offset=first, end_offset=end, epoch=epoch
        )
        self.send(ConsumeRequest(acks=[ack], commit_token=token))

    def nack(self, delivery: client_pb2.Delivery, delay_ms: int = 0) -> None:
        nack = client_pb2.NackRange(
            queue_id=delivery.queue_id,
            generation=delivery.generation,
            first_offset=delivery.first_offset,
            end_offset=delivery.end_offset,
            delay_ms=delay_ms,
        )
        self.send(ConsumeRequest(nacks=[nack]))

    def values(self, since: int = 0) -> list[tuple[int, int, bytes, int]]:
        """Return (queue, offset, value, delivery count) of everything delivered."""
        return [each for delivery in self.got[since:] for each in values_of(delivery)]


def values_of(delivery: client_pb2.Delivery) -> Iterator[tuple[int, int, bytes, int]]:
    """Return the records that a delivery names in its batch."""
    header = parse_header(delivery.batch)
    payload = delivery.batch[HEADER_LEN : HEADER_LEN + header.payload_len]
    values = decode(header.attrs, header.record_count, payload).values
    for offset in range(delivery.first_offset, delivery.end_offset):
        value = values[offset - header.base_offset]
        yield delivery.queue_id, offset, value, delivery.delivery_count


def open_request(session: str = "s1", **fields: Any) -> ConsumeRequest:
    """Return the first message of a session."""
    credit = fields.pop("credit", 100_000_000)
    fields = {"topic": TOPIC.name, "group": "billing", "session_id": session} | fields
    return ConsumeRequest(open=client_pb2.ConsumeOpen(**fields), credit_bytes=credit)


@asynccontextmanager
async def consuming(rig: Rig, session: str = "s1", **fields: Any) -> AsyncIterator[Consumer]:
    """Run a consumer on an in-memory stream, which is torn at the end."""
    pipe = Pipe()
    consumer = Consumer(pipe.requests.put_nowait)
    consumer.pipe = pipe

    async def listen() -> None:
        while True:
            reply = await pipe.replies.get()
            consumer.take(reply)  # looked up now: a test may have replaced it

    async def serve() -> None:
        with suppress(TransportError):
            await rig.fetch.serve(CALL, BrokerEnd(pipe))
        consumer.over = True

    consumer.send(open_request(session, **fields))
    listening = asyncio.create_task(listen())
    serving = asyncio.create_task(serve())
    try:
        await until(lambda: consumer.opened, "opened")
        yield consumer
    finally:
        pipe.torn.set()
        listening.cancel()
        (heard,) = await asyncio.gather(listening, return_exceptions=True)
        async with asyncio.timeout(GENEROUS_S):
            await serving
        if isinstance(heard, Exception):
            raise heard  # why the wait failed


@contextmanager
def commit_held(rig: Rig) -> Iterator[None]:
    """Hold the commit end for the duration."""
    rig.hold_commit = True
    try:
        yield
    finally:
        rig.hold_commit = False
        rig.journal.flushed.notify()


def key(queue: int = 0) -> OffsetKey:
    """Return the key under which the progress of `billing` is stored."""
    return OffsetKey("billing", TOPIC.id, queue)


def stored(rig: Rig, queue: int) -> OffsetEntry:
    """Return that progress from the journal."""
    return rig.journal.state.offsets.get(key(queue)) or OffsetEntry(0, Offset(0))


def numbers(consumer: Consumer, queue: int, since: int = 0) -> list[int]:
    """Return a queue's offsets in the order of delivery."""
    return [offset for q, offset, _, _ in consumer.values(since) if q == queue]


def at(rig: Rig, floor: int, queue: int = 0) -> dict[OffsetKey, OffsetEntry]:
    """Return the next entry of a queue."""
    return {key(queue): OffsetEntry(rig.offsets.next_version(key(queue)), Offset(floor))}


async def take_over(rig: Rig, epoch: int, record: str = "") -> None:
    """Become the reader of a slave-consume term, for the offset store only."""
    rig.group.become(Mode.SLAVE_CONSUME, epoch)
    await rig.offsets.become_taker(record, rig.journal.end)
