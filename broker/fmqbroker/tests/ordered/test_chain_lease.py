"""The lease on chains, with a real ZooKeeper: after a closing the chains are read again first."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_lease import ChainLease, Lease
from fmqbroker.tests.consume_harness import Cluster, until
from fmqbroker.tests.ordered_bench import CHANGES, G1, G2, OPEN
from fmqcore.ids import Epoch
from fmqcore.ordered.transitions import close
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import topic_to_json
from fmqport.coordination import Node, SessionState

pytestmark = pytest.mark.processes

C = "test"


@dataclass
class HandTerm:
    """Stands in for `Term`."""

    held: Epoch = Epoch(1)


class CountingSession(ZooKeeperSession):
    """Counts the reads of one node."""

    reads = 0
    node = layout.chains_node(C, G1)

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        self.reads += path == self.node
        return await super().get(path, synced=synced)


class Bench:
    def __init__(self, session: CountingSession) -> None:
        self.session = session
        self.clock = SystemClock()
        self.nodes = ChainNodes(session, C, self.clock)
        self.view = Cluster(CHANGES)
        self.cache = ChainCache(self.nodes, self.view, G1)  # type: ignore[arg-type]
        self.term = HandTerm()
        parts = (session, self.clock, C, G1, self.cache, self.term)
        self.lease = ChainLease(*parts)  # type: ignore[arg-type]

    def now(self) -> Lease:
        return self.lease.of(self.chain())

    def chain(self) -> Chain:
        chain = self.cache.of(CHANGES.id)
        assert chain is not None
        return chain

    def holds(self) -> bool:
        lease = self.now()
        unchanged = lease.chains_version == lease.read_at_version
        return unchanged and self.clock.monotonic_ms() < lease.until_ms


@pytest.fixture
async def bench(zookeeper: str) -> AsyncIterator[Bench]:
    session = CountingSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    for group in (G1, G2):
        await session.create(layout.group_node(C, group), b"", make_parents=True)
    await session.create(layout.topic_node(C, "changes"), topic_to_json(CHANGES), make_parents=True)
    made = Bench(session)
    await made.nodes.create(OPEN)
    await made.cache.load()
    yield made
    await session.close()


async def test_lease_counts_from_before_the_read(bench: Bench) -> None:
    assert not bench.holds()
    before = bench.clock.monotonic_ms()
    assert await bench.lease.renew()
    after = bench.clock.monotonic_ms()
    assert bench.holds()
    assert before <= bench.now().until_ms - OPEN.lease_ms <= after
    short = replace(OPEN, lease_ms=60_000)
    session_ms = bench.session.session_timeout_ms
    assert bench.lease.of(short).until_ms <= after + session_ms * 2 // 3, "nor longer than its own"


async def test_closing_of_another_topic_has_the_chains_read_again(bench: Bench) -> None:
    assert await bench.lease.renew()
    version = bench.now().chains_version
    closed = await bench.nodes.edit(CHANGES, lambda chain: close(chain, "planned"))
    assert bench.chain() == OPEN, "no watch fires here"
    assert await bench.lease.renew()
    assert bench.now().chains_version == version + 1
    assert bench.chain() == closed, "read before the lease goes on"


async def test_lease_waits_while_the_chains_are_read(bench: Bench) -> None:
    assert await bench.lease.renew()
    before = bench.now().chains_version
    await bench.nodes.edit(CHANGES, lambda chain: close(chain, "planned"))
    held = bench.cache._entries["changes"].lock  # a read that takes long
    await held.acquire()
    renewing = asyncio.create_task(bench.lease.renew())
    await until(lambda: bench.now().chains_version > before)
    assert bench.now().read_at_version != bench.now().chains_version
    held.release()
    assert await renewing


async def test_no_lease_on_a_chain_that_does_not_decode(bench: Bench) -> None:
    assert await bench.lease.renew()
    await bench.nodes.edit(CHANGES, lambda chain: close(chain, "planned"))
    await bench.session.set(layout.chain_node(C, "changes"), b"{", -1)  # of a later version
    assert await bench.lease.renew(), "other chains keep theirs"
    assert bench.chain() == OPEN, "the known one stays, which shows no closing"
    assert bench.now() == Lease()


async def test_closing_of_a_chain_that_is_only_followed_is_read(bench: Bench) -> None:
    name = CHANGES.name
    stop = bench.cache.follow(name)
    bench.view.set()  # this broker does not know yet that the topic has queues here
    await bench.cache.load()
    assert await bench.lease.renew()
    closed = await bench.nodes.edit(CHANGES, lambda chain: close(chain, "planned"))
    assert await bench.lease.renew()
    assert bench.chain() == closed
    stop()


async def test_no_lease_without_a_term_or_of_another_one(bench: Bench) -> None:
    assert await bench.lease.renew()
    bench.term.held = Epoch(2)
    assert bench.now() == Lease()
    assert await bench.lease.renew()
    assert bench.holds()
    bench.term.held = Epoch(0)
    assert bench.now() == Lease()
    assert not await bench.lease.renew()


async def test_lost_session_ends_the_lease(bench: Bench) -> None:
    running = asyncio.create_task(bench.lease.run())
    await until(bench.holds)
    bench.lease._on_session(SessionState.SUSPENDED)
    assert bench.holds()
    bench.lease._on_session(SessionState.LOST)
    assert not bench.holds()
    await until(bench.holds, "it is renewed because it is wanted")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_no_lease_without_the_node(bench: Bench) -> None:
    assert await bench.lease.renew()
    await bench.session.delete(layout.chains_node(C, G1))
    assert not await bench.lease.renew()


async def test_node_that_was_created_again_has_the_chains_read(bench: Bench) -> None:
    """Its version starts again: the same number may be another closing."""
    await bench.nodes.edit(CHANGES, lambda chain: close(chain, "first"))
    await bench.nodes.edit(CHANGES, lambda _: OPEN)
    assert await bench.lease.renew()
    await bench.session.delete(layout.chains_node(C, G1))
    closed = await bench.nodes.edit(CHANGES, lambda chain: close(chain, "second"))
    node = await bench.session.get(layout.chains_node(C, G1))
    assert node is not None
    assert node.version == bench.now().chains_version
    assert await bench.lease.renew()
    assert bench.chain() == closed


async def test_lease_that_is_not_wanted_is_not_read(bench: Bench) -> None:
    running = asyncio.create_task(bench.lease.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.session.reads == 0
    await until(bench.holds)
    assert bench.session.reads > 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
