"""Changing topics and groups, and nodes that do not decode, as a broker sees them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.cluster.view import ClusterView
from fmqbroker.tests import journal_kit
from fmqbroker.tests.cluster.test_view import a_group
from fmqbroker.tests.consume_harness import TOPIC, Rig, consuming, running, until
from fmqbroker.tests.produce_harness import ORDERS, Bench
from fmqcore.errors import NoPermission, Unavailable, UnknownTopic
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk import layout
from fmqcore.zk.group_config import config_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqport.coordination import Node, NoNode
from fmqproto.v1 import client_pb2

G1 = GroupName("g1")
GROWN = replace(TOPIC, groups=(replace(TOPIC.groups[0], queues=6),))
GOOD = TopicConfig("orders", TopicId(2), (TopicGroup(G1, 4),))


async def test_queue_added_without_readers_is_read_from_offset_0(
    tmp_path: Path,
) -> None:
    """`start` applies to a new consumer group, not to a queue added later."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"old")
        await rig.committed()
        async with consuming(rig, start=client_pb2.START_LATEST) as consumer:
            await until(lambda: len(consumer.held) == 4)
        await rig.fetch.groups.stored()
        rig.fetch.groups.drop(NoPermission("another reader, a restart, or idle for long"))
        rig.cluster.set(GROWN)
        rig.produce(5, b"x")
        await rig.committed()
        async with consuming(rig, start=client_pb2.START_LATEST) as consumer:
            await until(lambda: len(consumer.held) == 6)
            assert consumer.begins[5] == 0
            await until(lambda: consumer.got)


async def test_a_topic_does_not_get_the_messages_of_another(tmp_path: Path) -> None:
    """ZooKeeper was lost, so topic numbers count from 1 again."""
    async with journal_kit.running(tmp_path) as journal:
        bench = Bench(journal, tmp_path)
        assert bench.service.admission.queues_of(ORDERS.id) == 4
        bench.view.set(replace(ORDERS, name="payments"))
        with pytest.raises(UnknownTopic, match="holds messages of topic orders"):
            bench.service.admission.queues_of(ORDERS.id)
        assert journal.state.topics[ORDERS.id] == ("orders", 4)


class Tree:
    """Stands in for ZooKeeper: nodes, and watches called by hand."""

    def __init__(self) -> None:
        self.nodes = {layout.config_node("c", G1): config_to_json(a_group(G1))}
        self.watches: dict[str, list[Callable[[], None]]] = {}

    async def get(self, path: str, *, synced: bool = False) -> Node | None:
        data = self.nodes.get(path)
        return None if data is None else Node(data, 0, 0)

    async def sync(self, path: str) -> None: ...

    async def children(self, path: str) -> list[str]:
        under = [p[len(path) + 1 :] for p in self.nodes if p.startswith(path + "/")]
        return sorted({name.partition("/")[0] for name in under})

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        self.watches.setdefault(path, []).append(changed)
        return lambda: self.watches[path].remove(changed)

    def change(self, path: str) -> None:
        for changed in self.watches.get(path, []):
            changed()


class Emptied(Tree):
    """It loses its data before the topic's own node is made."""

    async def create(self, path: str, data: bytes, *, make_parents: bool = False) -> None:
        if not make_parents:
            raise NoNode(path)
        self.nodes[path] = data


async def test_topic_without_a_parent_node_is_to_be_made_again() -> None:
    view = ClusterView(Emptied(), "c")  # type: ignore[arg-type]
    await view.load()
    with pytest.raises(Unavailable, match=r"topic 'orders' was not created.*try again"):
        await view.create_topic("orders", 4, (), if_not_exists=False)


@pytest.mark.parametrize(
    "bad", [layout.config_node("c", GroupName("g0")), layout.topic_node("c", "bad")]
)
async def test_one_node_that_does_not_decode_hides_no_other(bad: str) -> None:
    tree = Tree()
    tree.nodes |= {bad: b"", layout.topic_node("c", "orders"): topic_to_json(GOOD)}
    view = ClusterView(tree, "c")  # type: ignore[arg-type]
    await view.load()
    assert (list(view.configs), list(view.topics)) == ([G1], ["orders"])


async def test_a_topic_that_did_not_decode_is_seen_when_it_does() -> None:
    tree, node = Tree(), layout.topic_node("c", "orders")
    view = ClusterView(tree, "c")  # type: ignore[arg-type]
    await view.load()
    following = asyncio.create_task(view.run())
    try:
        await until(lambda: tree.watches)
        tree.nodes[node] = b""
        tree.change(node.rpartition("/")[0])
        await until(lambda: tree.watches.get(node))
        tree.nodes[node] = topic_to_json(GOOD)
        tree.change(node)
        await until(lambda: "orders" in view.topics)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
