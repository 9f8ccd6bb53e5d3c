"""`alter_topic`: running clients find new queues and groups; queues with messages stay."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import fmqclient
from fmqcli import common, main
from fmqcli.commands import topics
from fmqclient.admin.topic_changes import alter_request
from fmqcore.errors import InvalidArgument, NotFound, UnknownTopic
from fmqcore.ids import TopicId
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.topic import TopicConfig
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqproto.v1 import admin_pb2


@pytest.mark.processes
@pytest.mark.timeout(180)
async def test_running_clients_use_added_queues(tmp_path: Path, zookeeper: str) -> None:
    alone = AckPolicy(how_many=HowMany.NONE)
    options = ClusterOptions(groups=2, slaves=0, policy=alone, zookeeper=zookeeper)
    got: set[tuple[str, int, bytes]] = set()

    async def consume(consumer: Any, count: int) -> None:
        async with asyncio.timeout(60):
            while len(got) < count:
                for m in await consumer.fetch(10, 1.0):
                    got.add((m.group, m.queue, m.value))
                    await m.ack()

    async with DevCluster(tmp_path / "dev", options) as running:
        async with fmqclient.connect(running.url) as client, client.producer() as producer:
            admin = client.admin()
            made = await admin.create_topic("grows", queues=2, groups=["g1"])
            async with client.consumer("grows", group="r") as consumer:
                await producer.send("grows", b"before", group="g1", queue=1)
                await consume(consumer, 1)
                grown = await admin.alter_topic("grows", queues=4, all_groups=True)
                assert [(g.group, g.queues, g.weight) for g in grown.groups] == [
                    ("g1", 4, 1),
                    ("g2", 4, 1),
                ]
                assert grown.id == made.id
                await producer.send("grows", b"more", group="g1", queue=3)
                await producer.send("grows", b"new", group="g2", queue=0)
                await consume(consumer, 3)
            await admin.alter_topic("grows", groups={"g1": 0})
            sent = [await producer.send("grows", b"x") for _ in range(4)]
            assert {result.group for result in sent} == {"g2"}, "weight 0: no new messages"
            for change in ({"queues": 2}, {"groups": {"g2": 0}}):
                with pytest.raises(InvalidArgument):
                    await admin.alter_topic("grows", **change)
            with pytest.raises(NotFound, match="there is no group 'g9'"):
                await admin.alter_topic("grows", groups=["g9"])
            with pytest.raises(NotFound, match="there is no group 'g9'"):
                await admin.create_topic("other", groups=["g9"])
            with pytest.raises(UnknownTopic):
                await admin.alter_topic("nope", queues=9)
            assert (await admin.topic("grows")).groups[0].weight == 0
    assert got == {("g1", 1, b"before"), ("g1", 3, b"more"), ("g2", 0, b"new")}


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("-q 9", {"queues": 9, "groups": None, "all_groups": False}),
        ("--all-groups", {"queues": None, "groups": None, "all_groups": True}),
        ("-g g1:0 -g g2", {"queues": None, "groups": {"g1": 0, "g2": None}, "all_groups": False}),
    ],
)
def test_command_requests_the_given_change(
    monkeypatch: pytest.MonkeyPatch, line: str, asked: dict[str, Any]
) -> None:
    found: list[Any] = []

    class Admin:
        def admin(self) -> "Admin":
            return self

        async def alter_topic(self, name: str, **given: Any) -> TopicConfig:
            found.append((name, given))
            return TopicConfig(name, TopicId(1))

    @asynccontextmanager
    async def client(_: str) -> Any:
        yield Admin()

    monkeypatch.setattr(topics, "client", client)
    assert main.run(["topic", "alter", "t", *line.split()]) == 0
    assert found == [("t", asked)]
    assert main.run(["topic", "alter", "t", "-g", "g1", "-g", "g1:3"]) == common.USAGE


def test_omitted_fields_stay_unset_on_the_wire() -> None:
    request = alter_request("t", None, {"g1": None, "g2": 0}, all_groups=False)
    assert (request.queues, [g.HasField("weight") for g in request.groups]) == (0, [False, True])
    assert not any(g.HasField("queues") for g in request.groups)
    assert alter_request("t", 3, ["g1"], all_groups=True) == admin_pb2.AlterTopicRequest(
        name="t", queues=3, all_groups=True, groups=[admin_pb2.GroupChange(group="g1")]
    )


@pytest.mark.parametrize(
    ("queues", "groups", "expected"),
    [
        (None, None, "nothing to change"),
        (0, None, "queues=0 must be a whole number from 1 to 1,024"),
        (True, None, "queues=True must be"),
        (None, "g1", "must be a list"),
        (None, {"g1": -1}, "weight of g1=-1 must be"),
    ],
)
def test_impossible_topic_change_is_refused(queues: Any, groups: Any, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        alter_request("t", queues, groups, all_groups=False)
