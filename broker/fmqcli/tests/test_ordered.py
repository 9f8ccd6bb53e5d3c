"""`fmq topic create --ordered`, `fmq ordered` as a user types them, on real brokers."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fmqclient
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcli.tests.test_processes import Fmq
from fmqcore.ids import GroupName
from fmqcore.ordered.moments import stamped
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Segment, Sender
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(290)]

G1, G2 = GroupName("g1"), GroupName("g2")


@dataclass
class Stage:
    """A cluster of two groups of two, its ZooKeeper, and the command."""

    cluster: DevCluster
    session: ZooKeeperSession
    fmq: Fmq
    named: tuple[str, ...]  # ZooKeeper and cluster, for `fmq cluster`

    async def chain(self) -> Chain:
        node = await self.session.get(layout.chain_node("dev", "changes"), synced=True)
        assert node is not None
        return chain_from_json(node.data)

    async def put(self, **changes: Any) -> Chain:
        """Write the chain as a coordinator leaves it after its steps."""
        node = layout.chain_node("dev", "changes")
        found = await self.session.get(node, synced=True)
        assert found is not None
        before = chain_from_json(found.data)
        after = stamped(before, replace(before, **changes), 1_700_000_000_000)
        await self.session.set(node, chain_to_json(after), found.version)
        return after

    async def refused(self, *arguments: str) -> str:
        code, out, err = await self.fmq(*arguments)
        assert (code, out) == (64, ""), (code, out, err)
        return err


@pytest.fixture
async def stage(tmp_path: Path, zookeeper: str) -> AsyncIterator[Stage]:
    options = ClusterOptions(groups=2, slaves=1, zookeeper=zookeeper)
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    try:
        async with DevCluster(tmp_path / "dev", options) as running:
            yield Stage(running, session, Fmq(running.url), ("-z", zookeeper, "-c", "dev"))
    finally:
        await session.close()


async def test_a_day_with_an_ordered_topic(stage: Stage) -> None:
    """One story, because starting a cluster costs more than the whole test."""
    await bad_creations(stage)
    await creation(stage)
    await ordinary_calls(stage)
    await switch(stage)
    await release(stage)
    await groups(stage)
    await deletion(stage)


async def bad_creations(stage: Stage) -> None:
    create = ("topic", "create", "changes", "--ordered")
    assert "needs two groups or more" in await stage.refused(*create, "--groups", "g1")
    code, _, err = await stage.fmq(*create, "--groups", "g1,g9")
    assert (code, "there is no group 'g9'; the groups are g1, g2" in err) == (1, True)
    code, out, err = await stage.fmq("ordered", "status")
    assert (code, out, "there is no ordered topic" in err) == (0, "", True)
    code, _, err = await stage.fmq("topic", "describe", "changes")
    assert code == 1, "nothing is left of a refused creation"
    assert await stage.session.children(layout.ordered_node("dev")) == []


async def creation(stage: Stage) -> None:
    create = ("topic", "create", "changes", "--ordered", "--groups", "g1:2,g2")
    code, out, _ = await stage.fmq(*create)
    assert (code, "1  ordered over g1 (weight 2), g2" in out) == (0, True), "one queue, not two"
    code, _, err = await stage.fmq(*create)
    assert (code, "there is a topic 'changes' already" in err) == (1, True)
    made = await stage.chain()
    assert (made.queues, made.segments, made.topic_id > 0) == (1, (), True)
    # An interrupted creation, which left the topic without its chain, is completed.
    await stage.session.delete(layout.chain_node("dev", "changes"))
    code, _, err = await stage.fmq("ordered", "status", "changes")
    assert (code, "its creation was interrupted" in err) == (1, True)
    code, out, _ = await stage.fmq(*create, "--if-not-exists", "-o", "json")
    assert (code, json.loads(out)[0]["ordered"]) == (0, True)
    assert await stage.chain() == made
    code, out, _ = await stage.fmq("ordered", "status")
    assert out.splitlines() == [
        "changes: ordered, 1 queue over g1 (weight 2), g2",
        "  sends: empty: no sender has asked for the role",
    ]


async def ordinary_calls(stage: Stage) -> None:
    code, _, err = await stage.fmq("produce", "changes", stdin=b"x\n")
    assert (code, "topic changes is ordered: give --ordered" in err) == (64, True), err
    assert "is ordered: its number of queues" in await stage.refused(
        "topic", "alter", "changes", "-q", "3"
    )
    await stage.fmq("topic", "create", "orders")
    assert "topic orders is not ordered" in await stage.refused("ordered", "status", "orders")
    assert "orders is not ordered" in await stage.refused(
        "topic", "alter", "orders", "--groups", "g1,g2"
    )
    code, _, err = await stage.fmq("ordered", "status", "nowhere")
    assert (code, "there is no topic 'nowhere'" in err) == (1, True)


async def switch(stage: Stage) -> None:
    code, _, err = await stage.fmq("ordered", "switch", "changes")
    assert (code, "no segment yet: nothing was done" in err) == (0, True)
    segment = Segment(1, G1, 1, (1,), (0,))
    await stage.put(segments=(segment,), sender=Sender("copier-0000000000", 1))
    code, out, err = await stage.fmq("ordered", "switch", "changes", "--off", "g2")
    assert (code, "go to g1, not to g2: nothing was done" in err) == (0, True)
    assert (await stage.chain()).closing is None
    message = await stage.refused("ordered", "release", "changes", "1", "-y")
    assert "segment 1 of changes is not ended" in message
    assert await stage.cluster.stop_broker("g2-1")
    message = await stage.refused("ordered", "switch", "changes")
    assert "ordered topic changes stays in g1: no other group may take sends" in message
    assert "g2: g2-1 not in sync" in message
    stage.cluster.start_broker("g2-1")
    await stage.cluster.wait_healthy()
    code, out, _ = await stage.fmq(
        "ordered", "switch", "changes", "--off", "g1", "--reason", "g1 is moved", "-o", "json"
    )
    (status,) = json.loads(out)
    assert (code, status["chain"]["closing"]) == (0, "g1 is moved")
    assert status["phase"] in ("closing", "ended"), "its master gives the end at once"
    assert status["since_ms"] > segment.opened_ms
    closing = await stage.session.get(layout.chains_node("dev", G1))
    assert closing is not None
    assert closing.version == 1
    code, out, _ = await stage.fmq("ordered", "switch", "changes")
    assert (code, "(closed because g1 is moved)" in out) == (0, True)


async def release(stage: Stage) -> None:
    command = ("ordered", "release", "changes")
    assert "has no segment 9" in await stage.refused(*command, "9", "-y")
    assert "has no segment 9" in await stage.refused(*command, "9"), "no question before"
    assert "without an answer" in (await stage.fmq(*command, "1"))[2]
    code, _, err = await stage.fmq(*command, "1", "-y")
    assert (code, "segment 1 of changes has its end" in err) == (0, True)
    first = (await stage.chain()).segments[0]
    following = Segment(2, G2, 1, (5,), (0,))
    await stage.put(
        segments=(replace(first, end=None, end_unknown=True), following),
        closing=None,
        heads=(("billing", (1,)),),
    )
    code, out, _ = await stage.fmq("ordered", "status", "changes")
    assert "billing waits for" in out.splitlines()[-1]
    assert "├ 1 ─?" in out
    message = await stage.refused(*command, "1", "-y")
    assert "segment 1 of changes would lose acknowledged records" in message
    assert (await stage.chain()).segments[0].end is None
    code, out, _ = await stage.fmq(*command, "1", "-y", "--accept-loss", "-o", "json")
    (status,) = json.loads(out)
    assert (code, status["waiting_subscriptions"]) == (0, [])
    released = (await stage.chain()).segment(1)
    assert released is None or (released.end, released.loss) == ((0,), True), "or dropped already"


async def groups(stage: Stage) -> None:
    removal = ("cluster", "remove-group", "g2", *stage.named, "-y")
    code, _, err = await stage.fmq(*removal)
    assert (code, "group g2 belongs to ordered topic changes" in err) == (64, True), err
    assert "needs two groups or more" in await stage.refused(
        "topic", "alter", "changes", "--groups", "g1"
    )
    alter = ("topic", "alter", "changes", "--groups")
    message = await stage.refused(*alter, "g2,g1:0")
    assert "group g1 has weight 0, and a weight is a rank, 1 or more" in message
    code, out, err = await stage.fmq(*alter, "g2:3,g1:2")
    assert (code, "ordered over g1 (weight 2), g2 (weight 3)" in out) == (0, True), (out, err)
    assert [(g.group, g.weight) for g in (await stage.chain()).groups] == [(G2, 3), (G1, 2)]


async def deletion(stage: Stage) -> None:
    assert (await stage.fmq("topic", "delete", "changes", "--yes"))[0] == 0
    assert await stage.session.get(layout.chain_node("dev", "changes")) is None
    async with fmqclient.connect(stage.cluster.url) as client:
        made = await client.admin().ordered.create("changes", ["g1", "g2"], queues=3)
        assert [g.queues for g in made.groups] == [3, 3]
        (status,) = await client.admin().ordered.status()
        assert (status.chain.topic_id, status.chain.queues) == (made.id, 3)
        assert status.chain.segments == ()


async def test_group_of_one_broker_is_for_tries_only(tmp_path: Path, zookeeper: str) -> None:
    options = ClusterOptions(groups=2, slaves=0, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "dev", options) as running:
        fmq = Fmq(running.url)
        create = ("topic", "create", "changes", "--ordered", "--groups", "g1,g2")
        code, _, err = await fmq(*create)
        assert (code, "has 1 broker, and an ordered message needs two disks" in err) == (64, True)
        code, _, _ = await fmq(*create, "--allow-single")
        assert code == 0
