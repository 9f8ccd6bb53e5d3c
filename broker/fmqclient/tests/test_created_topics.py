"""A topic created by this client is known to its next call, whichever broker answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import fmqclient
from fmqclient.admin.client import Admin
from fmqclient.net.routes import STRANGE_MS
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.memory import MemoryTransport, answering
from fmqclient.tests.test_stale_routes import client_of, played, run
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import CREATE_TOPIC, DELETE_GROUP, DELETE_TOPIC, OFFSETS, SEEK

UNKNOWN = client_pb2.Error(code=client_pb2.UNKNOWN_TOPIC, message="no topic called new")
ROW = admin_pb2.QueueOffsets(group="g", topic="new", broker_group="g1", end=3)


class _Brokers:
    """Brokers that create and delete a topic; their readers learn it after `deaf` calls each."""

    def __init__(self, one: ClusterDouble, transport: MemoryTransport) -> None:
        self.deaf: dict[Any, int] = {}
        self._one = one
        for broker in one.brokers.values():
            server = transport.servers[int(broker.address.rpartition(":")[2])]
            handlers = cast("dict[Any, Any]", server.handlers)
            handlers[CREATE_TOPIC] = answering(self._create)
            handlers[DELETE_TOPIC] = answering(self._delete)
            for method, reply in (
                (OFFSETS, admin_pb2.OffsetsReply),
                (SEEK, admin_pb2.SeekReply),
                (DELETE_GROUP, admin_pb2.DeleteGroupReply),
            ):
                handlers[method] = answering(self._reader(method, reply))

    async def _create(self, request: Any) -> admin_pb2.CreateTopicReply:
        group = client_pb2.TopicGroup(group="g1", weight=1, queues=request.queues)
        return admin_pb2.CreateTopicReply(
            topic=client_pb2.TopicRoute(name=request.name, id=7, groups=[group])
        )

    async def _delete(self, request: Any) -> admin_pb2.DeleteTopicReply:
        return admin_pb2.DeleteTopicReply()

    def _reader(self, method: Any, reply: Any) -> Callable[[Any], Awaitable[Any]]:
        async def call(request: Any) -> Any:
            if self.deaf.get(method, 0) > 0:
                self.deaf[method] -= 1
                return reply(error=UNKNOWN)
            return reply(deleted=1) if method is DELETE_GROUP else reply(queues=[ROW])

        return call


Script = Callable[[_Brokers, fmqclient.Client, Admin], Awaitable[None]]


def play(script: Script) -> None:
    async def work() -> None:
        double, transport = played(1)
        async with double as one, client_of(one, transport) as c:
            brokers = _Brokers(one, transport)  # whose routes never have the topic "new"
            await script(brokers, c, c.admin())

    run(work())


def test_created_topic_is_known_though_routes_lack_it() -> None:
    async def script(brokers: _Brokers, c: fmqclient.Client, admin: Admin) -> None:
        await admin.create_topic("new", queues=2)
        assert [row.end for row in await admin.seek("g", "new", offset=0)] == [3]
        assert [row.end for row in await admin.offsets("g", "new")] == [3]
        assert (await admin.topic("new")).id == 7
        assert "new" in [topic.name for topic in await admin.topics()]
        assert await admin.delete_group("g", "new") == 1

    play(script)


@pytest.mark.parametrize("method", [OFFSETS, SEEK, DELETE_GROUP])
def test_reader_that_does_not_know_the_topic_yet_is_asked_again(method: Any) -> None:
    async def script(brokers: _Brokers, c: fmqclient.Client, admin: Admin) -> None:
        await admin.create_topic("new", queues=2)
        brokers.deaf[method] = 2
        if method is DELETE_GROUP:
            assert await admin.delete_group("g", "new") == 1
        else:
            assert [row.end for row in await admin.seek("g", "new", offset=0)] == [3]
        assert brokers.deaf[method] == 0

    play(script)


def test_reader_that_never_learns_the_topic_ends_the_call() -> None:
    async def script(brokers: _Brokers, c: fmqclient.Client, admin: Admin) -> None:
        await admin.create_topic("new", queues=2)
        brokers.deaf[OFFSETS] = 10**6
        with pytest.raises(fmqclient.UnknownTopic):
            await admin.offsets("g", "new")

    play(script)


@pytest.mark.parametrize("by", ["time", "deletion"])
def test_created_topic_is_not_remembered_for_ever(by: str) -> None:
    async def script(brokers: _Brokers, c: fmqclient.Client, admin: Admin) -> None:
        await admin.create_topic("new", queues=2)
        if by == "time":
            await asyncio.sleep(STRANGE_MS / 1000 + 1)
        else:
            await admin.delete_topic("new")
        with pytest.raises(fmqclient.UnknownTopic):
            await admin.topic("new")

    play(script)


def test_created_topic_keeps_its_queues() -> None:
    """An answer with fewer is older: queues are added, never removed."""

    async def script(brokers: _Brokers, c: fmqclient.Client, admin: Admin) -> None:
        made = await admin.create_topic("new", queues=20)
        brokers._one.topics["new"] = 7  # with the queues of the double: fewer
        assert await admin.topic("new") == made

    play(script)
