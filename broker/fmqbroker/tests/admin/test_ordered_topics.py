"""Calls on chains, answered from a real ZooKeeper and a real journal: status, release."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.admin import ordered_topics
from fmqbroker.admin.ordered_topics import OrderedAdmin, Views
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.replication.view import LinkView
from fmqbroker.tests.calls import Calls
from fmqbroker.tests.consume_harness import ME, SLAVE, Rig, key, running
from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import Epoch, GroupName, Offset, Permission, Position, TopicId
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.sender_place import PlaceReport, place_report_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqproto.v1 import client_pb2
from fmqproto.v1.admin_pb2 import OrderedReleaseRequest, OrderedStatusRequest, OrderedSwitchRequest

pytestmark = pytest.mark.processes

C = "c"
G1, G2 = GroupName("g1"), GroupName("g2")
CHANGES = TopicConfig("changes", TopicId(1), (TopicGroup(G1, 1), TopicGroup(G2, 1)), ordered=True)
CHAIN = Chain(
    "changes",
    1,
    (ChainGroup(G1), ChainGroup(G2)),
    segments=(
        Segment(1, G1, 1, (1,), (0,), end_unknown=True),
        Segment(2, G2, 1, (3,), (0,)),
    ),
    sender=Sender("copier-0000000000", 1),
    heads=(("billing", (1,)),),
    topic_id=TopicId(1),
)


class Links:
    """Stands in for the master's half of replication."""

    def __init__(self) -> None:
        self.links = {SLAVE: LinkView()}


class Stage:
    """The admin calls of one broker, a master of g1 with a slave in sync."""

    def __init__(self, rig: Rig, session: ZooKeeperSession) -> None:
        self.rig, self.session, self.replication = rig, session, Links()
        view: Any = rig.cluster
        view.configs = {
            g: GroupConfig(g, ME, (Member(ME, "a:1"), Member(SLAVE, "b:1"))) for g in (G1, G2)
        }
        view.states = dict.fromkeys(
            (G1, G2), GroupState(Mode.MASTER, Epoch(1), ME, ME, frozenset([SLAVE]))
        )
        view.live = dict.fromkeys((G1, G2), frozenset([ME, SLAVE]))
        chains = ChainNodes(session, C, rig.hand)
        parts: Any = (rig.settings, rig.hand, rig.journal, rig.gate, rig.group, view, chains)
        self.behind: str | None = None
        copies = SimpleNamespace(behind=lambda _: self.behind)
        self.ends: dict[GroupName, tuple[int, ...]] = {}
        self.cached: Chain | None = None
        group: Any = rig.group
        group.connected, group.disconnected_ms = True, 0
        asked: Any = (self.asked, lambda _: self.cached)
        others: Any = (rig.offsets, self.replication, copies, *asked)
        self.calls = Calls(OrderedAdmin(*parts, *others))

    async def asked(self, _: Chain, nodes: Views) -> Views:
        """Return the groups with the ends that their masters give."""
        return {name: replace(view, ends=self.ends.get(name)) for name, view in nodes.items()}

    async def put(self, topic: TopicConfig, chain: Chain) -> None:
        for node, data in (
            (layout.topic_node(C, topic.name), topic_to_json(topic)),
            (layout.chain_node(C, topic.name), chain_to_json(chain)),
        ):
            await self.session.create(node, data, make_parents=True)

    async def release(self, segment: int, *, accepts_loss: bool = False) -> Any:
        request = OrderedReleaseRequest(
            topic="changes", chain_segment=segment, accepts_loss=accepts_loss
        )
        return await self.calls.ordered_release(request)


@asynccontextmanager
async def staged(path: Path, zookeeper: str, chain: Chain = CHAIN) -> AsyncIterator[Stage]:
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    try:
        async with running(Rig(path)) as rig:
            stage = Stage(rig, session)
            await stage.put(CHANGES, chain)
            yield stage
    finally:
        await session.close()


async def test_release_ends_a_segment_at_this_journals_end(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        stage.rig.produce(0, b"1", b"2", b"3", topic=CHANGES.id)
        await stage.rig.committed()
        await stage.rig.offsets.put({key(0): OffsetEntry(1, Offset(2))})
        reply = await stage.release(1)
        assert not reply.HasField("error"), reply.error.message
        (first, _) = chain_from_json(reply.topic.chain).segments
        assert (first.end, first.end_unknown, first.loss) == ((3,), False, False)
        again = await stage.release(1)
        assert chain_from_json(again.topic.chain).segments[0] == first, "asked twice: done once"


async def test_release_counts_linked_slaves_in_sync_too(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        stage.rig.group.state = replace_isr(stage.rig.group.state)
        stage.rig.produce(0, b"1", topic=CHANGES.id)
        await stage.rig.committed()
        held = stage.rig.journal.end
        stage.rig.produce(0, b"2", topic=CHANGES.id)
        stage.rig.produce(0, b"3", topic=CHANGES.id)
        await stage.rig.committed()
        link = stage.replication.links[SLAVE]
        link.connected, link.durable_end = True, Position(held)
        link.epoch = stage.rig.journal.epoch
        stage.rig.gate.count_grants(lambda: 0)  # as of a master
        refused = await stage.release(1)
        assert refused.error.code == client_pb2.INVALID_ARGUMENT
        assert (
            "would lose acknowledged records: its members end it at sequence 1 of queue 0;"
            in refused.error.message
        )
        link.connected = False
        reply = await stage.release(1)
        assert chain_from_json(reply.topic.chain).segments[0].end == (3,)


async def test_release_waits_for_the_report_of_a_slave_that_came_back(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        stage.rig.group.state = replace_isr(stage.rig.group.state)
        stage.rig.produce(0, b"1", b"2", b"3", topic=CHANGES.id)
        await stage.rig.committed()
        stage.rig.gate.count_grants(lambda: 0)  # as of a master
        stage.replication.links[SLAVE] = LinkView(connected=True)  # linked, no ack yet
        for accepts_loss in (False, True):
            refused = await stage.release(1, accepts_loss=accepts_loss)
            assert refused.error.code == client_pb2.UNAVAILABLE
            assert "has linked again and not reported yet" in refused.error.message
        link = stage.replication.links[SLAVE]
        link.epoch, link.durable_end = stage.rig.journal.epoch, stage.rig.journal.end
        reply = await stage.release(1)
        assert chain_from_json(reply.topic.chain).segments[0].end == (3,)


def replace_isr(state: Any) -> Any:
    return replace(state, value=replace(state.value, isr=frozenset([SLAVE])))


async def test_release_is_refused_at_another_group_and_without_read(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        elsewhere = await stage.release(2)
        assert elsewhere.error.code == client_pb2.INVALID_ARGUMENT
        assert "segment 2 of changes lies in group g2" in elsewhere.error.message
        stage.rig.gate.grant(Permission.WRITE, "only writes")
        assert (await stage.release(1)).error.code == client_pb2.NO_PERMISSION


async def test_chain_behind_the_journals_is_named_and_not_released(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        stage.behind = "the chain is older than the journals"
        status = await stage.calls.ordered_status(OrderedStatusRequest(topic="changes"))
        assert status.topics[0].reason == stage.behind
        assert [stuck.segment for stuck in status.topics[0].stuck] == [1]
        assert "all brokers of g1 are there" in status.topics[0].stuck[0].remedy
        refused = await stage.release(1)
        assert (refused.error.code, refused.error.message) == (
            client_pb2.UNAVAILABLE,
            stage.behind,
        )


async def test_status_of_all_topics_comes_in_pages(
    tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        for number, name in ((2, "deeds"), (3, "events")):
            topic = replace(CHANGES, name=name, id=TopicId(number))
            await stage.put(topic, replace(CHAIN, topic=name, topic_id=topic.id))
        deleted = replace(CHAIN, topic="dead", topic_id=TopicId(9))
        await stage.session.create(layout.chain_node(C, "dead"), chain_to_json(deleted))
        every = await stage.calls.ordered_status(OrderedStatusRequest())
        assert [t.topic for t in every.topics] == ["changes", "deeds", "events"]
        assert not every.has_more
        monkeypatch.setattr(ordered_topics, "_REPLY_BYTES", 100)
        first = await stage.calls.ordered_status(OrderedStatusRequest())
        assert ([t.topic for t in first.topics], first.has_more) == (["changes"], True)
        rest = await stage.calls.ordered_status(OrderedStatusRequest(after="deeds"))
        assert ([t.topic for t in rest.topics], rest.has_more) == (["events"], False)


def short_chain() -> Chain:
    """A chain whose first segment, in g1, ends at 2; the second is open in g2."""
    first, second = CHAIN.segments
    return replace(CHAIN, segments=(replace(first, end=(2,), end_unknown=False), second))


async def test_status_names_an_end_that_a_group_does_not_reach(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, short_chain()) as stage:
        asked = OrderedStatusRequest(topic="changes")
        (whole,) = (await stage.calls.ordered_status(asked)).topics
        assert ([g.obstacle for g in whole.groups], list(whole.stuck)) == (["", ""], [])
        stage.ends = {G1: (1,), G2: (0,)}
        (status,) = (await stage.calls.ordered_status(asked)).topics
        assert "its journal ends below segment 1" in status.groups[0].obstacle
        (stuck,) = status.stuck
        assert (stuck.segment, "acknowledged records are lost" in stuck.remedy) == (1, True)


async def test_status_of_all_topics_asks_the_masters_too(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper, short_chain()) as stage:
        stage.ends = {G1: (1,), G2: (0,)}
        every = await stage.calls.ordered_status(OrderedStatusRequest())
        named = await stage.calls.ordered_status(OrderedStatusRequest(topic="changes"))
        assert list(every.topics) == list(named.topics)
        assert [stuck.segment for stuck in every.topics[0].stuck] == [1]


async def test_page_of_slow_masters_ends_at_a_topic(
    tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        for number, name in ((2, "deeds"), (3, "events")):
            topic = replace(CHANGES, name=name, id=TopicId(number))
            await stage.put(topic, replace(CHAIN, topic=name, topic_id=topic.id))
        monkeypatch.setattr(ordered_topics, "_AT_ONCE", 1)
        monkeypatch.setattr(ordered_topics, "_PAGE_MS", 0)
        first = await stage.calls.ordered_status(OrderedStatusRequest())
        assert ([t.topic for t in first.topics], first.has_more) == (["changes"], True)
        rest = await stage.calls.ordered_status(OrderedStatusRequest(after="deeds"))
        assert ([t.topic for t in rest.topics], rest.has_more) == (["events"], False)


async def test_status_names_a_loss_by_the_report_in_the_line(
    tmp_path: Path, zookeeper: str
) -> None:
    """Any broker reads it there: the sender's session may be at another one."""
    ended = replace(CHAIN.segments[0], end=(2,), end_unknown=False)
    chain = replace(CHAIN, segments=(ended,), closing="g1 lacks g1-1", heads=())
    async with staged(tmp_path, zookeeper, chain) as stage:
        asked = OrderedStatusRequest(topic="changes")
        place = f"{layout.senders_node(C, 'changes')}/copier-0000000000-0000000000000001-0000000001"
        await stage.session.create(place, b"", make_parents=True)
        (status,) = (await stage.calls.ordered_status(asked)).topics
        assert "has not reported yet" in status.reason
        await stage.session.set(place, place_report_to_json(PlaceReport(1, (Offset(9),))), -1)
        (status,) = (await stage.calls.ordered_status(asked)).topics
        assert "g1 has lost acknowledged records of segment 1" in status.reason
        await stage.session.set(place, place_report_to_json(PlaceReport(1, (Offset(3),))), -1)
        (status,) = (await stage.calls.ordered_status(asked)).topics
        assert status.reason.startswith("next step: copier-0000000000 sends into segment 2")
        await stage.session.set(place, b"[1", -1)
        (status,) = (await stage.calls.ordered_status(asked)).topics
        assert "has not reported yet" in status.reason, "one that does not decode is none"


async def test_status_without_zookeeper_is_the_last_chain_known(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        group: Any = stage.rig.group
        group.connected, group.disconnected_ms = False, stage.rig.hand.wall_ms() - 8_000
        view: Any = stage.rig.cluster
        view.topics = {CHANGES.name: CHANGES}
        await stage.session.close()
        stage.cached = CHAIN
        refused = await stage.calls.ordered_status(OrderedStatusRequest(topic="changes"))
        assert refused.error.code == client_pb2.UNAVAILABLE, "another broker may know more"
        for topic in ("changes", ""):
            asked = OrderedStatusRequest(topic=topic, last_known=True)
            stage.cached = None
            refused = await stage.calls.ordered_status(asked)
            assert refused.error.code == client_pb2.UNAVAILABLE
            assert "no connection to ZooKeeper for 8 s" in refused.error.message
            assert "Start ZooKeeper" in refused.error.message
            stage.cached = CHAIN
            (status,) = (await stage.calls.ordered_status(asked)).topics
            assert (chain_from_json(status.chain), status.phase) == (CHAIN, "unknown")
            assert status.since_ms == group.disconnected_ms
            assert "Start ZooKeeper" in status.reason


async def test_switch_to_a_group_that_lost_records_is_refused(
    tmp_path: Path, zookeeper: str
) -> None:
    async with staged(tmp_path, zookeeper, short_chain()) as stage:
        stage.ends = {G1: (1,), G2: (0,)}
        asked = OrderedSwitchRequest(topic="changes", chain_segment=2, reason="planned")
        refused = await stage.calls.ordered_switch(asked)
        assert "g1: its journal ends below segment 1" in refused.error.message
        stage.ends = {}
        await stage.session.create(layout.chains_node(C, G2), b"", make_parents=True)
        closed = await stage.calls.ordered_switch(asked)
        assert chain_from_json(closed.topic.chain).closing == "planned"


async def test_switch_of_an_earlier_segment_changes_nothing(tmp_path: Path, zookeeper: str) -> None:
    async with staged(tmp_path, zookeeper) as stage:
        reply = await stage.calls.ordered_switch(
            OrderedSwitchRequest(topic="changes", chain_segment=1, reason="late")
        )
        assert chain_from_json(reply.topic.chain) == CHAIN
        last = await stage.calls.ordered_switch(
            OrderedSwitchRequest(topic="changes", chain_segment=2)
        )
        assert last.error.code == client_pb2.INVALID_ARGUMENT
        assert "stays in g2: no other group may take sends (g1: it has not given the end of" in (
            last.error.message
        )
