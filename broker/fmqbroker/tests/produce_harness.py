"""Shared by the produce tests: a real journal; commit end, gate and topics set by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fmqbroker.journal.journal import Journal
from fmqbroker.produce.service import ProduceService
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.serving.gate import Gate
from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import Cluster, HandClock
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName, Permission, Position, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.tests.call_context import CALL
from fmqproto.v1 import client_pb2 as wire

G1 = GroupName("g1")
ORDERS = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 4),))
ELSEWHERE = TopicConfig("elsewhere", TopicId(2), (TopicGroup(GroupName("g2"), 4),))
FAR = Position(1 << 40)
WINDOW = 1 << 20


class View(Cluster):
    """Topics; `there` is what a refresh finds."""

    def __init__(self, *topics: TopicConfig) -> None:
        super().__init__(*topics)
        self.there = topics
        self.refreshed = 0

    async def refresh(self) -> None:
        await asyncio.sleep(0)
        self.refreshed += 1
        self.set(*self.there)


class Bench:
    """A produce service and its dependencies."""

    def __init__(self, journal: Journal, path: Path, **changes: Any) -> None:
        self.journal = journal
        self.clock = HandClock()
        self.gate = Gate(self.clock)
        self.gate.extend_lease(1 << 60)
        self.gate.grant(Permission.FULL, "serving")
        self.commit = CommitFrontier()
        self.view = View(ORDERS, ELSEWHERE)
        settings = journal_kit.settings(path, session_window_bytes=WINDOW, **changes)
        self.service = ProduceService(
            journal,
            self.commit,
            self.gate,
            self.view,  # type: ignore[arg-type]
            settings,
            self.clock,
        )
        journal.append(journal_kit.epoch(1))

    def commit_all(self) -> None:
        self.commit.advance(self.journal.end, Position(0))

    @asynccontextmanager
    async def session(
        self,
        producer_id: int = 5,
        epoch: int = 0,
        *topics: str,
        settle: bool = False,
        sender: wire.SenderOpen | None = None,
    ) -> AsyncIterator["Session"]:
        session = Session(self)
        task = asyncio.create_task(self.service.serve(CALL, BrokerEnd(session.pipe)))
        opening = wire.ProduceOpen(
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=topics or ["orders"],
            attempt=next(_numbers) if settle else 0,
            settle=settle,
            sender=sender,
        )
        await session.put(wire.ProduceRequest(open=opening))
        session.opened = (await session.reply()).opened
        try:
            yield session
        finally:
            session.task_done = task.done()
            session.pipe.torn.set()
            await asyncio.sleep(0.01)
            task.cancel()  # as a transport does if the handler neither sends nor receives
            await asyncio.gather(task, return_exceptions=True)
            session.ended_with = None if task.cancelled() else task.exception()


class Ack(NamedTuple):
    """An ack as tests compare it."""

    correlation: int
    code: ErrorCode
    message: str
    base_offset: int
    store_ms: int
    never_appended: bool

    @classmethod
    def of(cls, ack: wire.ProduceAck) -> "Ack":
        code = ErrorCode(int(ack.code))
        return cls(
            ack.correlation, code, ack.message, ack.base_offset, ack.store_ms, ack.never_appended
        )


class Session:
    """The producer's end of a session."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.pipe = Pipe()
        self.opened = wire.ProduceOpened()
        self.ended_with: BaseException | None = None
        self.task_done = False
        self._acks: list[Ack] = []
        self.messages = 0

    async def put(self, request: wire.ProduceRequest | None) -> None:
        self.pipe.requests.put_nowait(request)

    async def send(self, *batches: wire.ProduceBatch) -> None:
        await self.put(wire.ProduceRequest(batches=batches))

    async def reply(self) -> wire.ProduceReply:
        async with asyncio.timeout(20):
            reply = await self.pipe.replies.get()
            assert isinstance(reply, wire.ProduceReply)
            return reply

    async def ack(self) -> Ack:
        while not self._acks:
            self._acks += map(Ack.of, (await self.reply()).acks)
            self.messages += 1
        return self._acks.pop(0)

    async def silent(self) -> bool:
        """Assert that no ack arrives, although all tasks had their turns."""
        journal = self.bench.journal
        await journal.wait_durable(journal.end)
        await asyncio.sleep(0.01)
        return not self._acks and self.pipe.replies.empty()


@asynccontextmanager
async def bench(path: Path, **changes: Any) -> AsyncIterator[Bench]:
    async with journal_kit.running(path, segment_bytes=8 << 20) as journal:
        yield Bench(journal, path, **changes)


_numbers = iter(range(1, 1 << 30))


def batch(count: int = 1, sequence: int = 0, size: int = 10, **more: Any) -> wire.ProduceBatch:
    attrs, payload = encode([bytes(size)] * count)
    values: dict[str, Any] = {
        "correlation": next(_numbers),
        "topic_id": 1,
        "queue_id": 2,
        "record_count": count,
        "attrs": attrs,
        "payload_crc": crc32c(payload),
        "base_sequence": sequence,
        "payload": payload,
    }
    return wire.ProduceBatch(**{**values, **more})
