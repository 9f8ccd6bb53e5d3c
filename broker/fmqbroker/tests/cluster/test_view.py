"""The cluster view on a real ZooKeeper: following, routes, topics by compare-and-set."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.cluster.routes import granted
from fmqbroker.cluster.view import ClusterView
from fmqcore.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqport.tests.call_context import CALL
from fmqproto.v1.client_pb2 import RouteRequest

pytestmark = pytest.mark.processes

CLUSTER = "test"
G1, G2 = GroupName("g1"), GroupName("g2")
A, B = BrokerId("g1-0"), BrokerId("g1-1")


def a_group(name: GroupName) -> GroupConfig:
    members = tuple(
        Member(BrokerId(f"{name}-{n}"), f"127.0.0.1:{9000 + n}", zone=f"z{n}") for n in (0, 1)
    )
    return GroupConfig(name, members[0].id, members)


async def put_group(session: ZooKeeperSession, name: GroupName) -> None:
    node = layout.config_node(CLUSTER, name)
    await session.create(node, config_to_json(a_group(name)), make_parents=True)


@pytest.fixture
async def session(zookeeper: str) -> AsyncIterator[ZooKeeperSession]:
    made = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await made.start(30)
    yield made
    await made.close()


@pytest.fixture
async def other(zookeeper: str) -> AsyncIterator[ZooKeeperSession]:
    made = ZooKeeperSession(zookeeper, timeout_ms=2000)
    await made.start(30)
    yield made
    await made.close()


@pytest.fixture
async def view(session: ZooKeeperSession) -> AsyncIterator[ClusterView]:
    """Return a view of a cluster with two groups, loaded and followed."""
    await put_group(session, G1)
    await put_group(session, G2)
    made = ClusterView(session, CLUSTER)
    await made.load()
    following = asyncio.create_task(made.run())
    yield made
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()


async def until(view: ClusterView, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await view.changed.wait()


async def test_load_reads_groups_states_and_topics(session: ZooKeeperSession) -> None:
    await put_group(session, G1)
    state = GroupState(Mode.MASTER, Epoch(3), A, A, frozenset([B]))
    await session.create(layout.state_node(CLUSTER, G1), state_to_json(state))
    topic = TopicConfig("orders", TopicId(7), (TopicGroup(G1, 8),))
    await session.create(
        layout.topic_node(CLUSTER, "orders"), topic_to_json(topic), make_parents=True
    )
    view = ClusterView(session, CLUSTER)
    await view.load()
    assert view.configs == {G1: a_group(G1)}
    assert view.states == {G1: state}
    assert view.topics == {"orders": topic}
    assert view.topics_by_id == {TopicId(7): topic}


async def test_an_empty_zookeeper_is_an_empty_view(session: ZooKeeperSession) -> None:
    view = ClusterView(session, CLUSTER)
    await view.load()
    assert (view.configs, view.topics) == ({}, {})
    empty = await view.routes(CALL, RouteRequest())
    assert empty.cluster == CLUSTER
    assert not empty.groups


async def test_changes_made_elsewhere_are_followed(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    node = layout.state_node(CLUSTER, G1)
    await other.create(node, state_to_json(GroupState(Mode.MASTER, Epoch(1), A, A)))
    await until(view, lambda: view.states[G1].epoch == 1)
    await other.set(node, state_to_json(GroupState(Mode.SLAVE_CONSUME, Epoch(2), A, B)), 0)
    await until(view, lambda: view.states[G1].epoch == 2)
    live = layout.live_broker_node(CLUSTER, G1, A)
    await other.create(live, b"{}", ephemeral=True, make_parents=True)
    await until(view, lambda: view.live[G1] == {A})
    await other.delete(live)
    await until(view, lambda: not view.live[G1])
    g3 = GroupName("g3")
    await put_group(other, g3)
    await until(view, lambda: g3 in view.configs)
    await other.create(layout.state_node(CLUSTER, g3), state_to_json(GroupState(epoch=Epoch(9))))
    await until(view, lambda: view.states[g3].epoch == 9)


async def test_a_node_that_does_not_decode_keeps_the_old_value(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    await other.set(layout.config_node(CLUSTER, G1), b"not json", 0)
    await put_group(other, GroupName("g3"))
    await until(view, lambda: GroupName("g3") in view.configs)
    assert view.configs[G1] == a_group(G1)


async def test_changes_during_lost_session_are_seen_after_expiry(
    view: ClusterView, session: ZooKeeperSession, other: ZooKeeperSession
) -> None:
    await session.expire()
    await other.create(
        layout.state_node(CLUSTER, G2), state_to_json(GroupState(Mode.MASTER, Epoch(4)))
    )
    await until(view, lambda: view.states[G2].epoch == 4)


async def test_topics_created_and_deleted_elsewhere_are_followed(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    far = ClusterView(other, CLUSTER)
    await far.load()
    made = await far.create_topic("orders", 4, [], if_not_exists=False)
    await until(view, lambda: view.topics.get("orders") == made)
    assert view.topics_by_id == {made.id: made}
    await far.delete_topic("orders")
    await until(view, lambda: not view.topics)
    assert not view.topics_by_id
    again = await far.create_topic("orders", 2, [], if_not_exists=False)
    assert again.id > made.id
    await until(view, lambda: view.topics.get("orders") == again)


async def test_refresh_shows_topics_created_by_another_broker(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    far = ClusterView(other, CLUSTER)
    await far.load()
    for n in range(20):
        made = await far.create_topic(f"t{n}", 1, [], if_not_exists=False)
        await asyncio.gather(view.refresh(), view.refresh(), view.refresh())
        assert view.topics_by_id[made.id] == made


class Counting:
    """A coordination session that notes which nodes are read."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session, self.nodes = session, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def get(self, node: str) -> Any:
        self.nodes.append(node)
        return await self.session.get(node)


async def test_finding_a_topic_reads_no_other_topic(
    session: ZooKeeperSession, other: ZooKeeperSession, view: ClusterView
) -> None:
    """A broker is asked for a topic that another broker has just created."""
    far, counting = ClusterView(other, CLUSTER), Counting(session)
    near = ClusterView(cast(Any, counting), CLUSTER)
    await far.load()
    for n in range(20):
        await far.create_topic(f"t{n}", 1, [], if_not_exists=False)
    await near.load()
    made = [await far.create_topic(name, 1, [], if_not_exists=False) for name in ("a", "b", "c")]
    counting.nodes.clear()
    await near.find_topics("a", "t0", "no/name", "missing")
    assert counting.nodes == [layout.topic_node(CLUSTER, name) for name in ("a", "missing")]
    assert near.topics["a"] == made[0]
    counting.nodes.clear()
    await near.find_ids([made[1].id])
    assert near.topics_by_id[made[2].id] == made[2]
    assert not any(layout.topic_node(CLUSTER, f"t{n}") in counting.nodes for n in range(20))


@pytest.mark.usefixtures("view")
async def test_a_number_of_a_recreated_topic_is_found(
    session: ZooKeeperSession, other: ZooKeeperSession
) -> None:
    """Its name is known with an older number, and no task follows the watches here."""
    far, near = ClusterView(other, CLUSTER), ClusterView(session, CLUSTER)
    await far.load()
    old = await far.create_topic("orders", 1, [], if_not_exists=False)
    await near.load()
    await far.delete_topic("orders")
    new = await far.create_topic("orders", 2, [], if_not_exists=False)
    await near.find_ids([new.id])
    assert near.topics_by_id == {new.id: new} != {old.id: old}


async def test_ids_are_never_given_twice_by_racing_brokers(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    far = ClusterView(other, CLUSTER)
    await far.load()
    made = await asyncio.gather(
        *((view, far)[n % 2].create_topic(f"t{n}", 1, [], if_not_exists=False) for n in range(20))
    )
    assert sorted(topic.id for topic in made) == list(range(1, 21))


async def test_racing_for_one_name_makes_one_topic(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    far = ClusterView(other, CLUSTER)
    await far.load()
    both = await asyncio.gather(
        view.create_topic("orders", 1, [], if_not_exists=True),
        far.create_topic("orders", 1, [], if_not_exists=True),
    )
    assert both[0] == both[1]
    with pytest.raises(AlreadyExists, match="'orders'"):
        await view.create_topic("orders", 1, [], if_not_exists=False)


async def test_a_topic_has_all_groups_unless_some_are_named(view: ClusterView) -> None:
    everywhere = await view.create_topic("a", 8, [], if_not_exists=False)
    assert everywhere.groups == (TopicGroup(G1, 8), TopicGroup(G2, 8))
    chosen = await view.create_topic(
        "b", 8, [TopicGroup(G2, 0, weight=3), TopicGroup(G1, 2)], if_not_exists=False
    )
    assert chosen.groups == (TopicGroup(G2, 8, weight=3), TopicGroup(G1, 2))


@pytest.mark.parametrize(
    ("name", "queues", "groups", "message"),
    [
        ("a/b", 1, [], "'a/b' is no name for a topic"),
        ("", 1, [], "is no name for a topic"),
        ("a", 0, [], "not 0"),
        ("a", 1025, [], "not 1025"),
        ("a", 1, [TopicGroup(G1, 1), TopicGroup(G1, 1)], "named twice"),
        ("a", 1, [TopicGroup(G1, 1, weight=0)], "weight above 0"),
    ],
)
async def test_bad_topics_are_refused_by_name_of_the_fault(
    view: ClusterView, name: str, queues: int, groups: list[TopicGroup], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        await view.create_topic(name, queues, groups, if_not_exists=True)
    assert not view.topics


async def test_a_topic_in_an_unknown_group_is_not_found(view: ClusterView) -> None:
    with pytest.raises(NotFound, match="no group 'gx'; the groups are g1, g2"):
        await view.create_topic("a", 1, [TopicGroup(GroupName("gx"), 1)], if_not_exists=True)
    assert not view.topics


async def test_deleting_missing_topic_is_not_found(view: ClusterView) -> None:
    for name in ("orders", "a/b", ".."):
        with pytest.raises(NotFound):
            await view.delete_topic(name)


async def test_topics_unavailable_without_zookeeper_but_routes_work(
    view: ClusterView, session: ZooKeeperSession
) -> None:
    await view.create_topic("orders", 1, [], if_not_exists=False)
    await session.close()
    with pytest.raises(Unavailable):
        await view.create_topic("more", 1, [], if_not_exists=False)
    with pytest.raises(Unavailable):
        await view.refresh()
    assert [topic.name for topic in (await view.routes(CALL, RouteRequest())).topics] == ["orders"]


async def test_routes_report_role_permission_sync_and_liveness(
    view: ClusterView, other: ZooKeeperSession
) -> None:
    await view.create_topic("orders", 8, [], if_not_exists=False)
    await view.create_topic("bills", 1, [], if_not_exists=False)
    state = GroupState(Mode.SLAVE_CONSUME, Epoch(5), A, B, frozenset([B]))
    await other.create(layout.state_node(CLUSTER, G1), state_to_json(state))
    live = layout.live_broker_node(CLUSTER, G1, B)
    await other.create(live, b"{}", ephemeral=True, make_parents=True)
    await until(view, lambda: view.live[G1] and view.states[G1].epoch)
    reply = await view.routes(CALL, RouteRequest(topics=["orders", "unknown"]))
    assert [topic.name for topic in reply.topics] == ["orders"]
    nothing = await view.routes(CALL, RouteRequest(topics=[""]))
    assert not nothing.topics
    assert list(nothing.groups) == list(reply.groups)
    assert [group.group for group in reply.groups] == ["g1", "g2"]
    first = reply.groups[0]
    assert (first.mode, first.epoch) == ("SLAVE_CONSUME", 5)
    routes = [(b.id, b.role, Permission(b.permission), b.in_sync, b.live) for b in first.brokers]
    assert routes == [
        (A, "master", Permission.NONE, True, False),
        (B, "slave", Permission.READ, True, True),
    ]
    assert first.brokers[1].address == "127.0.0.1:9001"
    assert first.brokers[1].zone == "z1"


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("broker", [A, B])
def test_permissions_granted_by_each_mode(mode: Mode, broker: BrokerId) -> None:
    state = GroupState(mode, Epoch(1), master=A, reader=A if mode is Mode.MASTER else B)
    expected = {(Mode.MASTER, A): Permission.FULL, (Mode.SLAVE_CONSUME, B): Permission.READ}
    assert granted(state, broker) == expected.get((mode, broker), Permission.NONE)
