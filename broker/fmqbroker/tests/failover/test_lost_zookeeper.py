"""ZooKeeper comes back empty under a real broker: no topic shows another's messages."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fmqclient
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.tests.app.test_broker import ALONE, Process
from fmqcore.errors import FmqError, UnknownTopic
from fmqcore.ids import BrokerId, GroupName, TopicId
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_to_json
from fmqdev.group_nodes import Groups

pytestmark = pytest.mark.processes

G1, ME = GroupName("g1"), BrokerId("g1-0")


class Trial:
    """A broker, and a ZooKeeper that loses its data."""

    def __init__(self, broker: Process, zookeeper: str) -> None:
        self.broker = broker
        self._zookeeper = zookeeper
        config = GroupConfig(G1, ME, (Member(ME, broker.address),), ALONE)
        self._config = config

    async def start(self) -> None:
        groups = Groups(self._zookeeper, "c")
        await groups.put_config(self._config)
        await groups.close()
        await (await self.broker.start()).serves()

    async def lose_zookeeper(self, topic: TopicConfig | None = None) -> None:
        """Stop both, remove ZooKeeper's data, start both, and create that topic elsewhere."""
        assert await self.broker.stop() == 0
        session = ZooKeeperSession(self._zookeeper, timeout_ms=5000)
        await session.start(30)
        await _remove(session, "/fmq")
        if topic is not None:
            node = layout.topic_node("c", topic.name)
            await session.create(node, topic_to_json(topic), make_parents=True)
        await session.close()
        self.broker.cut_log()
        await self.start()


async def _remove(session: ZooKeeperSession, node: str) -> None:
    for name in await session.children(node):
        await _remove(session, f"{node}/{name}")
    await session.delete(node)


@pytest.fixture
async def trial(tmp_path: Path, zookeeper: str) -> AsyncIterator[Trial]:
    trial = Trial(Process(tmp_path, zookeeper), zookeeper)
    await trial.start()
    async with fmqclient.connect(f"fmq://{trial.broker.address}") as client:
        for topic in ("salaries", "orders"):
            await client.admin().create_topic(topic, queues=1)
            async with client.producer() as producer:
                await producer.send(topic, topic.encode())
        async with client.consumer("salaries", group="billing") as subscription:
            await (await anext(aiter(subscription))).ack()
    yield trial
    await trial.broker.stop()


async def test_recreated_topics_have_their_own_messages(trial: Trial) -> None:
    await trial.lose_zookeeper()
    assert "zookeeper_lost_topics" in trial.broker.log
    async with fmqclient.connect(f"fmq://{trial.broker.address}") as client:
        admin = client.admin()
        made = {
            name: await admin.create_topic(name, queues=1)
            for name in ("audit", "orders", "salaries")
        }
        assert {name: topic.id for name, topic in made.items()} == {
            "salaries": 1,
            "orders": 2,
            "audit": 3,
        }
        async with client.consumer("orders", group="billing") as subscription:
            message = await anext(aiter(subscription))
        assert (message.value, message.offset) == (b"orders", 0)
        (row,) = await admin.offsets("billing", "salaries")
        assert (row.committed, row.end) == (1, 1), "progress is that of the right topic"


async def test_a_topic_with_another_ones_number_is_refused(trial: Trial) -> None:
    wrong = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 1),))
    await trial.lose_zookeeper(wrong)
    assert "topic_id_contradicts_journal" in trial.broker.log
    reason = "under which this journal holds messages of topic salaries"
    async with fmqclient.connect(f"fmq://{trial.broker.address}") as client:
        admin = client.admin()
        with pytest.raises(UnknownTopic, match=reason):
            async with client.consumer("orders", group="billing") as subscription:
                await anext(aiter(subscription))
        with pytest.raises(FmqError, match=reason):
            async with client.producer(delivery_timeout_s=2) as producer:
                await producer.send("orders", b"more")
        with pytest.raises(FmqError, match=reason):
            await admin.offsets("billing", "orders")
        with pytest.raises(FmqError, match=reason):
            await admin.lag("billing")
        with pytest.raises(FmqError, match=reason):
            await admin.seek("billing", "orders", offset=0)
        await admin.delete_topic("orders")
        assert (await admin.create_topic("orders", queues=1)).id == 2
        async with client.consumer("orders", group="billing") as subscription:
            assert (await anext(aiter(subscription))).value == b"orders"
