"""Copies of chains in a broker's journal, with a real ZooKeeper whose chain is older or new."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqadapters.grpc.transport import GrpcTransport
from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import Cluster
from fmqbroker.tests.copies_kit import lone_copies
from fmqbroker.tests.ordered_harness import G1, G2, C, chain, topic
from fmqcore.batch.control import encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.ids import BrokerId
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Segment, Sender
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.topic import topic_to_json
from fmqport.tests.call_context import CALL
from fmqproto.v1.replication_pb2 import ChainCopiesRequest
from fmqwire.methods import CHAIN_COPIES

pytestmark = pytest.mark.processes

T = topic()
NEW = chain(T)
OLD = replace(NEW, segments=(Segment(1, G1, 1, (1,), (0,)),), sender=Sender("s-0000000000", 1))
ENDED = replace(OLD.segments[0], end=(4,))
LATER = replace(OLD, segments=(ENDED, Segment(2, G2, 1, (5,), (0,)), Segment(3, G1, 1, (9,), (6,))))
LATER = replace(LATER, segments=(ENDED, replace(LATER.segments[1], end=(4,)), LATER.segments[2]))


class Bench:
    """A broker of g1 whose journal gets a copy of the chain, and ZooKeeper loses it then."""

    def __init__(self, session: ZooKeeperSession, journal: Journal) -> None:
        self.session, self.journal = session, journal
        self.nodes = ChainNodes(session, C, SystemClock())
        view: Any = Cluster(T)
        self.cache = ChainCache(self.nodes, view, G1)
        self.copies = lone_copies(self.cache, G1, journal)

    async def note(self, known: Chain) -> None:
        """Have the journal note that chain, as a master does before a segment's first record."""
        await self.put(known)
        payload = encode_topic(T.id, T.name, 1, T.noted_properties)
        self.journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))
        assert known.last is not None
        self.copies.note(T.id, known.last.number)

    async def put(self, known: Chain) -> Versioned[Chain]:
        """Let ZooKeeper hold that chain, and the cache read it."""
        stored = await self.nodes.stored(T.name)
        if stored is None:
            await self.nodes.create(known)
        else:
            await self.nodes.write(stored, known)
        return await self.cache.read(T.name)

    async def restored(self) -> Chain:
        """Take the steps of a restoration; return the chain then."""
        for _ in range(5):
            stored = await self.cache.read(T.name)
            if self.copies.behind(stored.value) is None:
                break
            assert await self.copies.restore(stored)
        return stored.value


@asynccontextmanager
async def benched(path: Path, zookeeper: str) -> AsyncIterator[Bench]:
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    try:
        async with journal_kit.running(path) as journal:
            journal.append(journal_kit.epoch(1))
            bench = Bench(session, journal)
            node = layout.topic_node(C, T.name)
            await session.create(node, topic_to_json(T), make_parents=True)
            for group in (G1, G2):
                await session.create(layout.group_node(C, group), b"", make_parents=True)
            await bench.nodes.create(NEW)
            await bench.cache.load()
            yield bench
    finally:
        await session.close()


@pytest.mark.parametrize("lost", [NEW, OLD])
async def test_lost_or_older_chain_is_restored_from_the_journal(
    tmp_path: Path, zookeeper: str, lost: Chain
) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        await bench.note(LATER)
        assert bench.copies.behind(LATER) is None
        await bench.put(lost)
        after = await bench.restored()
        assert [(s.number, s.group, s.start, s.end) for s in after.segments] == [
            (s.number, s.group, s.start, s.end) for s in LATER.segments
        ]
        assert after.closing_class == "restore", "its segment may be sealed"


async def test_copy_survives_a_restart_of_the_broker(tmp_path: Path, zookeeper: str) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        await bench.note(LATER)
        cache = bench.cache
    async with journal_kit.running(tmp_path) as journal:
        assert "segment 3" in (lone_copies(cache, G1, journal).behind(OLD) or "")


async def test_other_brokers_newer_segment_holds_everything_up(
    tmp_path: Path, zookeeper: str
) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        await bench.note(LATER)
        await bench.put(OLD)
        other, transport = lone_copies(bench.cache, G1, bench.journal), GrpcTransport()
        server = await transport.serve("127.0.0.1:0", other.handlers)
        try:
            member = Member(BrokerId("g1-0"), f"127.0.0.1:{server.port}", "")
            view: Any = SimpleNamespace(
                configs={G1: GroupConfig(G1, member.id, (member,))},
                live={G1: frozenset({member.id})},
            )
            here = lone_copies(bench.cache, G2)
            here._view, here._transport = view, transport
            assert here.behind(OLD) is None
            await here.compare()
            assert "segment 3" in (here.behind(OLD) or "")
            assert not await here.restore(await bench.cache.read(T.name)), "the copy is elsewhere"
        finally:
            await server.close(0)


async def test_reply_has_the_newest_segment_of_each_topic(tmp_path: Path, zookeeper: str) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        handler = bench.copies.handlers[CHAIN_COPIES]
        assert not (await handler(CALL, ChainCopiesRequest())).segments
        await bench.note(LATER)
        assert dict((await handler(CALL, ChainCopiesRequest())).segments) == {T.id: 3}
