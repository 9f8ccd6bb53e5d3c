"""Chains on a real ZooKeeper: created once, changed by compare-and-set, deleted with the topic."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqcore.errors import InvalidArgument, NotFound, UnknownTopic
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.ordered.evidence import SenderReport
from fmqcore.ordered.subscriptions import add_subscription
from fmqcore.ordered.transitions import close
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.chain_json import chain_to_json
from fmqcore.zk.closed_chains import LastClosing, closing_from_json
from fmqcore.zk.sender_place import PlaceReport, place_report_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqport.coordination import NodeExists

pytestmark = pytest.mark.processes

C = "test"
G1, G2 = GroupName("g1"), GroupName("g2")
TOPIC = TopicConfig("changes", TopicId(7), (TopicGroup(G1, 1), TopicGroup(G2, 1)), ordered=True)
CHAIN = Chain("changes", 1, (ChainGroup(G1), ChainGroup(G2)), topic_id=TopicId(7))
OPEN = replace(
    CHAIN, segments=(Segment(1, G1, 1, (1,), (10,)),), sender=Sender("copier-0000000001", 1)
)


@pytest.fixture
async def session(zookeeper: str) -> AsyncIterator[ZooKeeperSession]:
    made = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await made.start(30)
    for group in (G1, G2):
        await made.create(layout.group_node(C, group), b"", make_parents=True)
    node = layout.topic_node(C, "changes")
    await made.create(node, topic_to_json(TOPIC), make_parents=True)
    yield made
    await made.close()


@pytest.fixture
def chains(session: ZooKeeperSession) -> ChainNodes:
    return ChainNodes(session, C, SystemClock())


async def test_chain_is_created_once_and_read(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    with pytest.raises(NotFound, match=r"changes has no chain.*--if-not-exists"):
        await chains.read(TOPIC)
    await chains.create(CHAIN)
    other = replace(CHAIN, groups=(ChainGroup(G2), ChainGroup(G1)))
    await chains.create(other)
    assert (await chains.read(TOPIC)).value == CHAIN, "the first one stays"
    assert await chains.topics() == ["changes"]
    for group in (G1, G2):
        assert await session.get(layout.chains_node(C, group)) is not None


async def test_chain_of_a_deleted_topic_is_replaced(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    await session.create(
        layout.chain_node(C, "changes"),
        chain_to_json(replace(OPEN, topic_id=TopicId(3))),
        make_parents=True,
    )
    with pytest.raises(NotFound, match="has no chain"):
        await chains.read(TOPIC)
    await chains.delete("changes", TOPIC.id)  # not its own: it stays
    await chains.create(CHAIN)
    assert (await chains.read(TOPIC)).value == CHAIN


async def test_closing_raises_the_version_that_leases_look_at(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    await chains.create(CHAIN)
    opened = await chains.edit(TOPIC, lambda _: OPEN)
    assert opened.segments[0].opened_ms > 0
    node = layout.chains_node(C, G1)
    before = await session.get(node)
    assert before is not None
    assert before.version == 0, "only a closing counts"
    closed = await chains.edit(TOPIC, lambda chain: close(chain, "g1 is restarted"))
    after = await session.get(node)
    assert after is not None
    assert after.version == 1
    assert closing_from_json(after.data) == LastClosing("changes", 1, "g1 is restarted")
    assert (await chains.read(TOPIC)).value == closed
    assert closed.closing_since_ms >= opened.segments[0].opened_ms
    same = await chains.edit(TOPIC, lambda chain: close(chain, "g1 is restarted"))
    assert same == closed
    again = await session.get(node)
    assert again is not None
    assert again.version == 1, "asked twice it is done once"


async def test_closing_whose_node_was_lost_recreates_it(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    await chains.create(CHAIN)
    await chains.edit(TOPIC, lambda _: OPEN)
    await session.delete(layout.chains_node(C, G1))
    await chains.edit(TOPIC, lambda chain: close(chain, "planned"))
    after = await session.get(layout.chains_node(C, G1))
    assert after is not None
    assert after.version == 1


async def test_concurrent_changes_are_all_made(chains: ChainNodes) -> None:
    await chains.create(CHAIN)

    async def subscribe(name: str) -> None:
        await chains.edit(TOPIC, lambda chain: add_subscription(chain, name, latest=False))

    await asyncio.gather(*(subscribe(f"app-{n}") for n in range(5)))
    heads = (await chains.read(TOPIC)).value.heads
    assert [name for name, _ in heads] == [f"app-{n}" for n in range(5)]


async def test_deletion_takes_the_line_of_senders_with_it(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    await chains.create(CHAIN)
    line = layout.senders_node(C, "changes")
    await session.create(line, b"")
    names = [await session.create_sequential(f"{line}/{name}-", b"") for name in ("b", "a")]
    assert await chains.senders(TOPIC) == tuple(names), "first in line first"
    await chains.delete("changes", TOPIC.id)
    assert await session.get(layout.chain_node(C, "changes")) is None
    assert await chains.topics() == []
    await chains.delete("changes", TOPIC.id)


@pytest.mark.parametrize("race", ["a sender joins", "the chain changes"])
async def test_deletion_goes_on_beside_brokers_unaware_of_it(
    chains: ChainNodes, session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch, race: str
) -> None:
    await chains.create(CHAIN)
    line, delete, raced = layout.senders_node(C, "changes"), session.delete, 0

    async def late(path: str, version: int = -1) -> None:
        nonlocal raced
        if path == line and raced < 2:
            raced += 1
            if race == "a sender joins":
                with contextlib.suppress(NodeExists):
                    await session.create(line, b"")
                await session.create_sequential(f"{line}/x-", b"")
            else:
                name = f"app-{raced}"
                await chains.edit(TOPIC, lambda c: add_subscription(c, name, latest=False))
        await delete(path, version)

    monkeypatch.setattr(session, "delete", late)
    await chains.delete("changes", TOPIC.id)
    assert raced == 2
    assert await session.get(layout.chain_node(C, "changes")) is None


async def test_chain_that_a_deletion_left_goes_with_a_second_one(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    await chains.create(CHAIN)
    assert not await chains.delete_left("changes"), "its topic is there"
    await session.delete(layout.topic_node(C, "changes"))
    assert await chains.delete_left("changes")
    assert await chains.topics() == []
    assert not await chains.delete_left("changes")


async def test_topic_that_is_not_ordered_is_refused(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    ordinary = replace(TOPIC, name="orders", ordered=False)
    await session.create(layout.topic_node(C, "orders"), topic_to_json(ordinary))
    with pytest.raises(
        InvalidArgument, match=r"orders is not ordered.*topic describe orders.*--group GROUP"
    ):
        await chains.topic("orders")
    for name in ("nowhere", "a/b", ""):
        with pytest.raises(UnknownTopic, match="there is no topic"):
            await chains.topic(name)
    assert await chains.topic("changes") == TOPIC


async def test_report_counts_for_one_sender_and_one_closing(
    chains: ChainNodes, session: ZooKeeperSession
) -> None:
    """A sender that moved has two nodes: the older may have the report of an earlier closing."""
    line = layout.senders_node(C, "changes")
    closing = replace(
        OPEN, closing="planned", segments=(Segment(2, G1, 1, (4,), (10,), end=(12,)),)
    )
    me = closing.sender.id
    places = (f"other-1-1-{1:010}", f"{me}-1-{2:010}", f"{me}-2-{3:010}")
    for place, segment in zip(places, (2, 1, 2), strict=True):
        node = place_report_to_json(PlaceReport(segment, (Offset(segment + 3),)))
        await session.create(f"{line}/{place}", node, make_parents=True)
    assert await chains.report(closing, places[:2]) is None
    assert await chains.report(closing, places) == SenderReport(me, 2, (5,))
    assert await chains.report(replace(closing, closing=None), places) is None
