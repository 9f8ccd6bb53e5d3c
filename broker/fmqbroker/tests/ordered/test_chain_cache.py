"""The cache of chains, with a real ZooKeeper: it follows its group's topics and no others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.tests.consume_harness import Cluster, until
from fmqcore.errors import NotFound, UnknownTopic
from fmqcore.ids import GroupName, TopicId
from fmqcore.ordered.subscriptions import add_subscription
from fmqcore.ordered.transitions import close
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json

pytestmark = pytest.mark.processes

C = "test"
G1, G2, G3 = GroupName("g1"), GroupName("g2"), GroupName("g3")


def topic(number: int, groups: Iterable[GroupName] = (G1, G2)) -> TopicConfig:
    return TopicConfig(
        f"changes-{number}", TopicId(number), tuple(TopicGroup(g, 1) for g in groups), ordered=True
    )


def chain(of: TopicConfig) -> Chain:
    first, second = of.groups[0].group, of.groups[-1].group
    return Chain(
        of.name,
        1,
        (ChainGroup(first), ChainGroup(second)),
        segments=(Segment(1, first, 1, (1,), (10,)),),
        sender=Sender("copier-0000000001", 1),
        topic_id=of.id,
    )


OWN, FOREIGN = topic(7), topic(8, (G2, G3))


class Counting(ChainNodes):
    """Counts the reads."""

    reads = 0

    async def stored(self, name: str) -> object:  # type: ignore[override]
        self.reads += 1
        return await super().stored(name)


class Bench:
    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.nodes = Counting(session, C, SystemClock())  # the cache's
        self.others = ChainNodes(session, C, SystemClock())  # another broker's
        self.view = Cluster()
        self.cache = ChainCache(self.nodes, self.view, G1)  # type: ignore[arg-type]

    async def create(self, *topics: TopicConfig) -> None:
        for made in topics:
            node = layout.topic_node(C, made.name)
            await self.session.create(node, topic_to_json(made), make_parents=True)
            await self.others.create(chain(made))
        self.view.set(*self.view.topics.values(), *topics)

    def names(self) -> list[str]:
        return sorted(chain.topic for chain in self.cache.topics())


@pytest.fixture
async def bench(zookeeper: str) -> AsyncIterator[Bench]:
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    for group in (G1, G2, G3):
        await session.create(layout.group_node(C, group), b"", make_parents=True)
    made = Bench(session)
    running = asyncio.create_task(made.cache.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await session.close()


async def test_cache_has_the_chains_of_its_group(bench: Bench) -> None:
    await bench.create(OWN, FOREIGN)
    await bench.cache.load()
    assert bench.names() == [OWN.name]
    assert bench.cache.of(OWN.id) == chain(OWN)
    assert bench.cache.version_of(OWN.id) == 0
    assert bench.cache.of(FOREIGN.id) is None
    assert bench.cache.version_of(FOREIGN.id) == -1


async def test_change_by_another_broker_is_seen(bench: Bench) -> None:
    changed: list[TopicId] = []
    calls: list[str] = []
    bench.cache.on_changed(changed.append)
    stop = bench.cache.on_change_of(OWN.id, lambda: calls.append("own"))
    bench.cache.on_change_of(FOREIGN.id, lambda: calls.append("foreign"))
    await bench.create(OWN)
    await until(lambda: bench.cache.of(OWN.id))
    assert calls == ["own"], "of that topic alone"
    stop()
    closed = await bench.others.edit(OWN, lambda c: close(c, "planned"))
    await until(lambda: bench.cache.of(OWN.id) == closed)
    assert bench.cache.version_of(OWN.id) == 1
    assert changed == [OWN.id, OWN.id]
    assert calls == ["own"]


async def test_topic_that_comes_before_its_chain_is_awaited(bench: Bench) -> None:
    bench.view.set(OWN)
    await bench.cache.load()
    assert bench.names() == []
    await bench.create(OWN)
    await until(lambda: bench.names() == [OWN.name])


async def test_group_that_joins_gets_the_chain(bench: Bench) -> None:
    await bench.create(FOREIGN)
    await bench.cache.load()
    assert bench.names() == []
    joined = replace(FOREIGN, groups=(*FOREIGN.groups, TopicGroup(G1, 1)))
    bench.view.set(joined)
    await until(lambda: bench.names() == [FOREIGN.name])


async def test_deleted_topic_leaves_the_cache(bench: Bench) -> None:
    await bench.create(OWN)
    await until(lambda: bench.names() == [OWN.name])
    bench.view.set()
    await until(lambda: bench.cache.of(OWN.id) is None)
    again = topic(9)
    again = replace(again, name=OWN.name)
    await bench.others.delete(OWN.name, OWN.id)
    await bench.session.delete(layout.topic_node(C, OWN.name))
    await bench.create(again)
    await until(lambda: bench.cache.of(again.id) is not None)
    assert bench.names() == [OWN.name]
    assert bench.cache.of(OWN.id) is None


async def test_edit_is_one_compare_and_set(bench: Bench) -> None:
    await bench.create(OWN)
    before = await bench.cache.read(OWN.name)
    after = add_subscription(before.value, "app", latest=False)
    assert await bench.cache.edit(before, after)
    assert bench.cache.of(OWN.id) == after, "at once, without a read"
    assert bench.cache.version_of(OWN.id) == 1
    assert not await bench.cache.edit(before, close(before.value, "late")), "another came first"
    assert (await bench.cache.read(OWN.name)).value == after
    node = await bench.session.get(layout.chains_node(C, G1))
    assert node is not None
    assert node.version == 0, "what is refused raises nothing"
    assert await bench.cache.edit(await bench.cache.read(OWN.name), close(after, "planned"))
    node = await bench.session.get(layout.chains_node(C, G1))
    assert node is not None
    assert node.version == 1


async def test_read_is_of_now_and_typed(bench: Bench) -> None:
    await bench.create(OWN, FOREIGN)
    await bench.cache.load()
    closed = await bench.others.edit(OWN, lambda c: close(c, "planned"))
    assert (await bench.cache.read(OWN.name)).value == closed
    assert bench.cache.of(OWN.id) == closed
    assert (await bench.cache.read(FOREIGN.name)).value == chain(FOREIGN)
    assert bench.cache.of(FOREIGN.id) is None, "a read does not follow"
    with pytest.raises(UnknownTopic):
        await bench.cache.read("nowhere")
    await bench.others.delete(OWN.name, OWN.id)
    with pytest.raises(NotFound, match="has no chain"):
        await bench.cache.read(OWN.name)


async def test_foreign_chain_is_cached_while_it_is_followed(bench: Bench) -> None:
    await bench.create(FOREIGN)
    stops = [bench.cache.follow(FOREIGN.name) for _ in range(2)]
    await until(lambda: bench.cache.of(FOREIGN.id))
    assert bench.names() == [], "it is not of this group"
    closed = await bench.others.edit(FOREIGN, lambda c: close(c, "planned"))
    await until(lambda: bench.cache.of(FOREIGN.id) == closed)
    stops[0]()
    stops[0]()
    assert bench.cache.of(FOREIGN.id) == closed
    stops[1]()
    assert bench.cache.of(FOREIGN.id) is None


async def test_chain_that_does_not_decode_hides_no_other(bench: Bench) -> None:
    other = topic(9)
    await bench.create(OWN, other)
    await until(lambda: len(bench.names()) == 2)
    await bench.session.set(layout.chain_node(C, OWN.name), b"{", -1)
    closed = await bench.others.edit(other, lambda c: close(c, "planned"))
    await until(lambda: bench.cache.of(other.id) == closed)
    await bench.cache.read_all([OWN.name, other.name])
    assert bench.cache.of(OWN.id) == chain(OWN), "the known one stays"


async def test_idle_chain_is_not_read_again(bench: Bench) -> None:
    topics = [topic(number) for number in range(1, 51)]
    await bench.create(*topics)
    await until(lambda: len(bench.names()) == 50)
    counts: list[int] = []

    async def change(number: int) -> None:
        before = bench.nodes.reads
        await bench.others.edit(
            topics[4], lambda c: add_subscription(c, f"app-{number}", latest=False)
        )
        await until(lambda: bench.cache.version_of(5) == number)
        counts.append(bench.nodes.reads - before)

    for number in range(1, 6):  # what the first reads left behind is over with the second
        await change(number)
    assert max(counts[-2:]) <= 2, counts
