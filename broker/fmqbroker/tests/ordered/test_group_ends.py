"""The call GroupEnds: the chain is read before the journal is looked at; batches are returned."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.group_ends import GroupEnds, view_of_reply
from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import Cluster
from fmqbroker.tests.copies_kit import lone_copies
from fmqbroker.tests.ordered_harness import G1, C, chain, topic
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, parse_header
from fmqcore.errors import NotFound
from fmqcore.ids import BrokerId, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.transitions import close
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import topic_to_json
from fmqport.tests.call_context import CALL
from fmqproto.v1.replication_pb2 import GroupEndsReply, GroupEndsRequest

pytestmark = pytest.mark.processes

T = topic()


class Bench:
    """One master's handler; its cache follows no watch, so it knows only what is read."""

    def __init__(self, session: ZooKeeperSession, journal: Journal) -> None:
        self.nodes = ChainNodes(session, C, SystemClock())
        view: Any = Cluster(T)
        self.cache = ChainCache(ChainNodes(session, C, SystemClock()), view, G1)
        self.journal = journal
        self.ends = GroupEnds(journal, self.cache, self, lone_copies(self.cache, G1, journal))
        self.view = GroupView(reachable=True, takes_writes=True, members=2)
        self.closing: list[str | None] = []  # of the cached chain, when the journal was looked at

    def own_view(self, topic: Chain) -> GroupView:
        cached = self.cache.of(topic.topic_id)
        self.closing.append(cached.closing if cached is not None else "none")
        return self.view

    async def ask(self, number: int = T.id, **fields: Any) -> GroupEndsReply:
        request = GroupEndsRequest(topic=T.name, topic_id=number, **fields)
        return await self.ends.group_ends(CALL, request)


@asynccontextmanager
async def benched(path: Path, zookeeper: str) -> AsyncIterator[Bench]:
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    try:
        async with journal_kit.running(path) as journal:
            bench = Bench(session, journal)
            node = layout.topic_node(C, T.name)
            await session.create(node, topic_to_json(T), make_parents=True)
            await session.create(layout.group_node(C, G1), b"", make_parents=True)
            await bench.nodes.create(chain(T))
            await bench.cache.load()
            yield bench
    finally:
        await session.close()


async def test_master_reads_the_chain_before_it_gives_its_ends(
    tmp_path: Path, zookeeper: str
) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        await bench.nodes.edit(T, lambda c: close(c, "a switch"))
        cached = bench.cache.of(T.id)
        assert cached is not None
        assert cached.closing is None, "this master has not seen the closing"
        await bench.ask()
        assert bench.closing == ["a switch"], "what it takes later is refused"


async def test_deleted_topics_number_is_refused(tmp_path: Path, zookeeper: str) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        with pytest.raises(NotFound, match="has number 1 now, not 9"):
            await bench.ask(9)
        assert bench.closing == []


async def test_batch_with_the_offset_is_returned(tmp_path: Path, zookeeper: str) -> None:
    async with benched(tmp_path, zookeeper) as bench:
        bench.journal.append(journal_kit.epoch(1))
        for values in ((b"1", b"2"), (b"3",)):
            attrs, payload = encode(values)
            bench.journal.append(
                BatchDraft(
                    BatchType.DATA, payload, crc32c(payload), TopicId(1), 0, len(values), attrs
                )
            )
        reply = await bench.ask(offsets={0: 1})
        header = parse_header(reply.batches[0])
        assert (header.base_offset, header.record_count) == (0, 2)
        first, second = [(await bench.ask(offsets={0: at})).batches[0] for at in (0, 2)]
        assert [parse_header(batch).base_offset for batch in (first, second)] == [0, 2]
        assert dict((await bench.ask(offsets={0: 3})).batches) == {}, "it has no such offset"


def test_trouble_that_either_side_sees_counts() -> None:
    nodes = GroupView(reachable=True, takes_writes=True, members=2, missing=(BrokerId("g1-1"),))
    reply = GroupEndsReply(takes_writes=True, members=2, ends=[5], missing=["g1-2"])
    view = view_of_reply(nodes, reply)
    assert (view.missing, view.ends) == (("g1-1", "g1-2"), (5,))
    assert view_of_reply(nodes, GroupEndsReply()).ends is None


@pytest.mark.parametrize(("in_nodes", "in_reply"), [(True, False), (False, True)])
def test_group_that_either_side_sees_read_only_is(in_nodes: bool, in_reply: bool) -> None:
    view = view_of_reply(GroupView(read_only=in_nodes), GroupEndsReply(read_only=in_reply))
    assert view.read_only
