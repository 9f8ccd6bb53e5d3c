"""`fmq cluster remove-group` on real ZooKeeper and brokers, under traffic, interrupted."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import fmqclient
from fmqcli import common, main
from fmqcli.cluster_registry import registry
from fmqcli.tests.test_cluster import TOML
from fmqcli.tests.test_processes import Fmq
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.chain import Chain, ChainGroup, Segment, Sender
from fmqcore.zk.chain_json import chain_to_json
from fmqcore.zk.group_config import Removal
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.layout import chain_node, state_node, topic_node
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqport.coordination import NodeExists

pytestmark = [pytest.mark.processes, pytest.mark.timeout(290)]

G1, G2 = GroupName("g1"), GroupName("g2")
ALONE = AckPolicy(how_many=HowMany.NONE)


class Trial:
    """A cluster of two groups, and the command."""

    def __init__(self, cluster: DevCluster, zookeeper: str) -> None:
        self.cluster = cluster
        self._named = ("-z", zookeeper, "-c", "dev")
        self._zookeeper = zookeeper
        self.fmq = Fmq(cluster.url)

    def command(self, *more: str) -> tuple[str, ...]:
        return ("cluster", "remove-group", "g2", *self._named, *more)

    async def remove(self, *more: str) -> tuple[int, str]:
        code, _, message = await self.fmq(*self.command(*more))
        return code, message

    async def run_until(self, text: str, number: signal.Signals) -> None:
        """Run the command, and end it by a signal once it prints this."""
        process = await self.fmq.start(*self.command("--yes"))
        assert process.stderr is not None
        message = ""
        async with asyncio.timeout(120):
            while text not in message:
                line = (await process.stderr.readline()).decode()
                assert line, message
                message += line
        process.send_signal(number)
        await process.communicate()

    async def config(self) -> tuple[Removal, set[Permission]] | None:
        async with registry(self._zookeeper, "dev") as groups:
            found = await groups.group(G2)
        if found is None:
            return None
        return found.value.removal, {m.permission for m in found.value.members}

    async def topics(self) -> dict[str, dict[str, int]]:
        """Return the weights by topic and group, as ZooKeeper has them."""
        async with registry(self._zookeeper, "dev") as groups:
            found = {t.name: t for g in (G1, G2) for t in await groups.topics_of(g)}
        return {n: {str(g.group): g.weight for g in t.groups} for n, t in found.items()}

    async def is_there(self) -> bool:
        async with registry(self._zookeeper, "dev") as groups:
            return await groups.is_there(G2)


@asynccontextmanager
async def trial(folder: Path, zookeeper: str, *, slaves: int = 0) -> AsyncIterator[Trial]:
    policy = AckPolicy() if slaves else ALONE
    options = ClusterOptions(groups=2, slaves=slaves, policy=policy, zookeeper=zookeeper)
    async with DevCluster(folder / "dev", options) as cluster:
        yield Trial(cluster, zookeeper)


async def fill(trial: Trial, topic: str, count: int, *, read: bool) -> None:
    """Create a topic with messages in both groups, read by a consumer group or not."""
    async with fmqclient.connect(trial.cluster.url) as client:
        await client.admin().create_topic(topic, queues=2)
        async with client.consumer(topic, group="shop") as subscription:
            async with client.producer() as producer:
                for at in range(count):
                    await producer.send(topic, b"%d" % at, key=b"%d" % at)
            for _ in range(count if read else 0):
                await (await anext(aiter(subscription))).ack()
            await subscription.commit()


async def test_group_is_removed_under_traffic_without_loss(tmp_path: Path, zookeeper: str) -> None:
    async with trial(tmp_path, zookeeper, slaves=1) as t:
        sent: set[bytes] = set()
        got: set[bytes] = set()
        over = asyncio.Event()

        async def produce(client: fmqclient.Client) -> None:
            async with client.producer() as producer:
                while not over.is_set():
                    value = b"%d" % len(sent)
                    await producer.send("orders", value, key=value)
                    sent.add(value)
                    await asyncio.sleep(0.01)
                senders = producer._accumulator.senders
                async with asyncio.timeout(30):
                    while "no topic of this producer" not in senders[G2].reason:
                        await asyncio.sleep(0.05)

        async def consume(client: fmqclient.Client) -> None:
            async with client.consumer("orders", group="shop") as subscription:
                while not over.is_set() or got < sent:
                    for message in await subscription.fetch(100, timeout=0.2):
                        got.add(message.value)
                        await message.ack()
                async with asyncio.timeout(30):  # and it does not dial the group for ever
                    while "no longer in group g2" not in subscription.connected["g2"]:
                        await asyncio.sleep(0.05)

        async with fmqclient.connect(t.cluster.url) as client:
            await client.admin().create_topic("orders", queues=2)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce(client))
                tasks.create_task(consume(client))
                await t.run_until("stop g2-0, g2-1 now", signal.SIGKILL)
                assert await t.config() == (Removal.EMPTY, {Permission.READ})
                for broker in ("g2-0", "g2-1"):
                    assert await t.cluster.stop_broker(broker)
                code, message = await t.remove("--yes")
                assert (code, "group g2 is removed" in message) == (0, True), message
                before = len(sent)
                async with asyncio.timeout(60):
                    while len(sent) < before + 50:
                        await asyncio.sleep(0.05)
                over.set()
        assert got == sent
        assert (await t.topics(), await t.is_there()) == ({"orders": {"g1": 1}}, False)
        assert await t.remove("--yes") == (0, "fmq: group g2 was removed before\n")


async def test_removal_is_refused_while_a_consumer_group_has_lag(
    tmp_path: Path, zookeeper: str
) -> None:
    async with trial(tmp_path, zookeeper) as t:
        await fill(t, "orders", 40, read=False)
        code, message = await t.remove("--yes")
        assert code == common.USAGE
        assert "consumer group shop has" in message
        assert "to read of topic orders, and no member" in message
        assert "fmq group seek shop orders --to latest" in message
        assert "Nothing was changed" in message
        assert await t.config() == (Removal.NONE, {Permission.FULL})
        assert await t.topics() == {"orders": {"g1": 1, "g2": 1}}

        code, _, message = await t.fmq("group", "seek", "shop", "orders", "--to", "latest")
        assert code == 0, message
        code, message = await t.remove()
        assert (code, "--yes" in message) == (common.USAGE, True), message
        assert await t.topics() == {"orders": {"g1": 1, "g2": 0}}
        assert await t.config() == (Removal.NONE, {Permission.FULL})


async def test_removal_is_refused_for_unread_messages(tmp_path: Path, zookeeper: str) -> None:
    async with trial(tmp_path, zookeeper) as t:
        async with fmqclient.connect(t.cluster.url) as client:
            await client.admin().create_topic("audit", queues=1)
            async with client.producer() as producer:
                await producer.send("audit", b"x", group="g2")
        code, message = await t.remove("--yes")
        assert (code, "topic audit has 1 message that no consumer group" in message) == (
            64,
            True,
        ), message
        code, _, message = await t.fmq("topic", "create", "alone", "--group", "g2")
        assert code == 0, message
        code, message = await t.remove("--yes")
        assert code == common.USAGE
        assert "topic alone has no group besides g2 that takes messages" in message
        assert "fmq topic alter alone --group GROUP" in message
        assert await t.topics() == {"audit": {"g1": 1, "g2": 1}, "alone": {"g2": 1}}


async def test_removal_resumes_wherever_it_was_killed(tmp_path: Path, zookeeper: str) -> None:
    """A broker that missed the whole removal does not bring the group back."""
    async with trial(tmp_path, zookeeper) as t:
        await fill(t, "orders", 40, read=True)
        await fill(t, "bills", 10, read=True)
        await t.run_until("weight of g2 1 -> 0", signal.SIGKILL)
        await t.run_until("take no messages from now on", signal.SIGKILL)
        found = await t.config()
        assert found is not None
        assert found[1] == {Permission.READ}
        code, _, message = await t.fmq("topic", "create", "late", "-g", "g1", "-g", "g2")
        assert (code, "g2 is being removed" in message) == (common.USAGE, True), message
        code, out, _ = await t.fmq("topic", "create", "late")
        assert (code, "g2" in out) == (0, False)
        await t.run_until("is no longer in group g2", signal.SIGKILL)
        await t.run_until("stop g2-0 now", signal.SIGTERM)
        assert await t.config() == (Removal.EMPTY, {Permission.READ})
        assert await t.topics() == {name: {"g1": 1} for name in ("orders", "bills", "late")}

        t.cluster.pause("g2-0")  # its session ends, and it does not see what follows
        code, message = await t.remove("--yes")
        assert (code, "group g2 is removed" in message) == (0, True), message
        log = t.cluster.group("g2")[0].log
        t.cluster.resume("g2-0")
        async with asyncio.timeout(60):
            while "group_was_removed" not in log.read_text():
                await asyncio.sleep(0.05)
        assert "stop this broker" in log.read_text()
        await asyncio.sleep(1)  # it keeps trying to announce itself
        assert not await t.is_there()
        assert await t.topics() == {name: {"g1": 1} for name in ("orders", "bills", "late")}


def test_a_group_that_never_served_is_removed_without_brokers(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text(TOML)
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    topic = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 4), TopicGroup(G2, 4, 3)))

    async def write_topic() -> None:
        async with registry(zookeeper, "prod") as groups:
            node = topic_node("prod", "orders")
            await groups._coordination.create(node, topic_to_json(topic), make_parents=True)

    async def read_topics() -> list[TopicConfig]:
        async with registry(zookeeper, "prod") as groups:
            return await groups.topics_of(G1)

    asyncio.run(write_topic())
    file.write_text(TOML.partition("[groups.g2]")[0])
    capsys.readouterr()
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    assert "to remove it: fmq cluster remove-group g2" in capsys.readouterr().err
    code = main.run(("cluster", "remove-group", "g2", "--yes", *named))
    assert code == 0, capsys.readouterr().err
    assert asyncio.run(read_topics()) == [TopicConfig("orders", TopicId(1), (TopicGroup(G1, 4),))]
    assert main.run(("cluster", "remove-group", "g2", "--yes", *named)) == 0
    assert main.run(("cluster", "remove-group", "g7", "--yes", *named)) == common.FAILED
    assert "no group 'g7'; it has: g1" in capsys.readouterr().err

    file.write_text(TOML)  # and it may be recreated
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    assert "group g2: new" in capsys.readouterr().err


def test_lost_group_is_removed_and_apply_cancels_a_removal(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text(TOML)
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    topic = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 4), TopicGroup(G2, 4)))
    state = GroupState(Mode.SLAVE_CONSUME, Epoch(3), BrokerId("g2-0"), BrokerId("g2-1"))

    async def prepare() -> None:
        async with registry(zookeeper, "prod") as groups:
            node = topic_node("prod", "orders")
            await groups._coordination.create(node, topic_to_json(topic), make_parents=True)
            await groups._coordination.create(state_node("prod", G2), state_to_json(state))

    async def begin() -> None:
        async with registry(zookeeper, "prod") as groups:
            found = await groups.group(G2)
            assert found is not None
            await groups.write(replace(found.value, removal=Removal.DRAINING), found.version)

    asyncio.run(prepare())
    capsys.readouterr()
    assert main.run(("cluster", "remove-group", "g2", "--yes", *named)) == common.USAGE
    message = capsys.readouterr().err
    assert "group g2 has no master now (SLAVE_CONSUME" in message
    assert "fmq failover g2 --to BROKER --lost g2-0" in message

    asyncio.run(begin())
    assert main.run(("cluster", "show", *named)) == 0
    assert "group g2 is being removed (draining)" in capsys.readouterr().err
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    assert "group g2: its removal is given up" in capsys.readouterr().err
    assert main.run(("cluster", "show", *named)) == 0
    assert "being removed" not in capsys.readouterr().err

    assert main.run(("cluster", "remove-group", "g2", "--yes", "--lost", *named)) == 0
    assert "orders is no longer in group g2" in capsys.readouterr().err
    assert main.run(("cluster", "show", "-o", "json", *named)) == 0
    assert '"g2"' not in capsys.readouterr().out


def test_lost_group_with_unread_segments_of_a_chain_is_removed(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text(TOML)
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    topic = TopicConfig("changes", TopicId(1), (TopicGroup(G1, 1), TopicGroup(G2, 1)), ordered=True)
    chain = Chain(
        "changes",
        1,
        (ChainGroup(G1), ChainGroup(G2)),
        segments=(Segment(1, G2, 1, (1,), (0,), end_unknown=True), Segment(2, G1, 1, (3,), (0,))),
        sender=Sender("copier-0000000000", 1),
        heads=(("app", (1,)),),
        topic_id=topic.id,
    )
    node = chain_node("prod", "changes")

    async def put(chain: Chain) -> None:
        async with registry(zookeeper, "prod") as groups:
            await groups._coordination.delete(node)
            await groups._coordination.create(node, chain_to_json(chain), make_parents=True)
            with suppress(NodeExists):
                await groups._coordination.create(
                    topic_node("prod", "changes"), topic_to_json(topic), make_parents=True
                )

    async def chain_now() -> Chain:
        async with registry(zookeeper, "prod") as groups:
            found = await groups.chain_of(topic)
            assert found is not None
            return found

    removal = ("cluster", "remove-group", "g2", "--yes", *named)
    asyncio.run(put(chain))
    assert main.run((*removal, "--lost")) == common.USAGE
    assert "then take this one out" in capsys.readouterr().err
    left = replace(chain, groups=(ChainGroup(G1), ChainGroup(GroupName("g3"))))
    asyncio.run(put(left))
    assert main.run(removal) == common.USAGE
    assert "that consumers still read" in capsys.readouterr().err
    assert asyncio.run(chain_now()) == left, "nothing is given up without --lost"
    assert main.run((*removal, "--lost")) == 0
    assert "ordered topic changes: the unread records of segments in g2 are given up" in (
        capsys.readouterr().err
    )
    assert asyncio.run(chain_now()).heads == (("app", (2,)),), "consumers go on in g1"
