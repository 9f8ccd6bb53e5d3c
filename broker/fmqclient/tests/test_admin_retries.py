"""Admin calls whose earlier try was applied, with its answer lost."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

import fmqclient
from fmqclient.admin.client import Admin
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.memory import MemoryTransport, SeededClock, answering
from fmqclient.tests.test_recreated_topics import run
from fmqcore.errors import AlreadyExists, NotFound, Unavailable
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import CREATE_TOPIC, DELETE_GROUP, DELETE_TOPIC, OFFSETS

GONE = TransportError("the connection was reset")
CUT = Unavailable("not connected to ZooKeeper")


class _Answers:
    """The state that all brokers share: topics, and the groups in which "billing" has progress."""

    def __init__(self, one: ClusterDouble, transport: MemoryTransport) -> None:
        self.topics: dict[str, client_pb2.TopicRoute] = {}
        self.progress = set(one.groups)
        self.asked: list[str] = []
        self.fails: dict[str, tuple[bool, Exception]] = {}  # broker -> (was it done?, its error)
        self._one = one
        for name, broker in one.brokers.items():
            server = transport.servers[int(broker.address.rpartition(":")[2])]
            handlers = cast("dict[Any, Any]", server.handlers)
            handlers[CREATE_TOPIC] = answering(self._of(name, self._create))
            handlers[DELETE_TOPIC] = answering(self._of(name, self._delete))
            handlers[OFFSETS] = answering(self._of(name, self._offsets))
            handlers[DELETE_GROUP] = answering(self._of(name, self._forget))

    def there(self, name: str, number: int, queues: int) -> client_pb2.TopicRoute:
        groups = [client_pb2.TopicGroup(group=g, weight=1, queues=queues) for g in self._one.groups]
        self.topics[name] = client_pb2.TopicRoute(name=name, id=number, groups=groups)
        return self.topics[name]

    def _of(self, broker: str, work: Callable[[str, Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def call(request: Any) -> Any:
            self.asked.append(broker)
            asks = isinstance(request, admin_pb2.OffsetsRequest)
            done, error = self.fails.pop(broker, (True, None)) if not asks else (True, None)
            reply = work(broker, request) if done else None
            if isinstance(error, Unavailable):
                refusal = client_pb2.Error(code=client_pb2.UNAVAILABLE, message=str(error))
                return admin_pb2.CreateTopicReply(error=refusal)
            if error is not None:
                raise error
            return reply

        return call

    def _create(self, _: str, request: Any) -> admin_pb2.CreateTopicReply:
        if request.name in self.topics and not request.if_not_exists:
            return admin_pb2.CreateTopicReply(error=_error(client_pb2.ALREADY_EXISTS))
        if request.name not in self.topics:
            self.there(request.name, 7, request.queues)
        return admin_pb2.CreateTopicReply(topic=self.topics[request.name])

    def _delete(self, _: str, request: Any) -> admin_pb2.DeleteTopicReply:
        if self.topics.pop(request.name, None) is None:
            return admin_pb2.DeleteTopicReply(error=_error(client_pb2.NOT_FOUND))
        return admin_pb2.DeleteTopicReply()

    def _offsets(self, broker: str, request: Any) -> admin_pb2.OffsetsReply:
        group = broker[:2]
        rows = [admin_pb2.QueueOffsets(group="billing", queue_id=q) for q in range(4)]
        return admin_pb2.OffsetsReply(queues=rows if group in self.progress else [])

    def _forget(self, broker: str, request: Any) -> admin_pb2.DeleteGroupReply:
        if broker[:2] not in self.progress:
            return admin_pb2.DeleteGroupReply(error=_error(client_pb2.NOT_FOUND))
        self.progress.discard(broker[:2])
        return admin_pb2.DeleteGroupReply(deleted=4)


def _error(code: client_pb2.ErrorCode) -> client_pb2.Error:
    return client_pb2.Error(code=code, message="no")


Play = Callable[[ClusterDouble, _Answers, Admin], Awaitable[None]]


def play(script: Play) -> None:
    async def work() -> None:
        transport = MemoryTransport(0)
        async with cluster(2, transport=transport) as one:
            answers = _Answers(one, transport)
            client = fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))
            async with client as c:
                await script(one, answers, c.admin())

    run(work())


@pytest.mark.parametrize("error", [GONE, CUT])
def test_topic_created_by_an_unanswered_try_counts_as_created(error: Exception) -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.fails["g1-0"] = (True, error)
        made = await admin.create_topic("new", queues=3)
        assert made.id == 7
        assert {g.queues for g in made.groups} == {3}

    play(script)


@pytest.mark.parametrize("shape", [3, 8])
def test_existing_topic_is_not_taken_for_the_one_created(shape: int) -> None:
    """The first try did nothing, and had no answer."""

    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.there("new", 3, shape)
        if shape == 3:  # as requested; else another client created it
            one.topics["new"] = 3
        answers.fails["g1-0"] = (False, GONE)
        with pytest.raises(AlreadyExists):
            await admin.create_topic("new", queues=3)

    play(script)


def test_existing_topic_name_is_refused_by_the_first_answer() -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.there("new", 3, 8)
        with pytest.raises(AlreadyExists):
            await admin.create_topic("new")

    play(script)


def test_broker_without_zookeeper_leaves_the_call_to_the_next() -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.fails["g1-0"] = (False, CUT)
        assert (await admin.create_topic("new")).id == 7
        assert answers.asked == ["g1-0", "g1-1"]
        answers.fails = dict.fromkeys(one.brokers, (False, CUT))
        with pytest.raises(Unavailable, match="not connected to ZooKeeper"):
            await admin.create_topic("more")

    play(script)


def test_topic_deleted_by_an_unanswered_try_counts_as_deleted() -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.there("orders", 1, 4)
        answers.fails["g1-0"] = (True, GONE)
        await admin.delete_topic("orders")
        assert not answers.topics

    play(script)


def test_deleting_a_missing_topic_is_refused() -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.fails["g1-0"] = (True, GONE)
        with pytest.raises(NotFound):
            await admin.delete_topic("nobodys")

    play(script)


def test_group_deleted_by_an_unanswered_try_counts_as_deleted() -> None:
    async def script(one: ClusterDouble, answers: _Answers, admin: Admin) -> None:
        answers.progress = {"g2"}
        answers.fails["g2-0"] = (True, GONE)
        assert await admin.delete_group("billing") == 4
        answers.fails["g2-0"] = (True, GONE)
        with pytest.raises(NotFound):
            await admin.delete_group("billing")

    play(script)
