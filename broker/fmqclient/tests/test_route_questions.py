"""What a client asks brokers for routes: no more than a call needs, and once for all callers."""

import asyncio
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.net.connections import Connections
from fmqclient.net.routes import Routes
from fmqclient.tests.double import ClusterDouble, cluster
from fmqcore.errors import Unavailable, UnknownTopic
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

TOPICS = {f"t{number}": number for number in range(1, 51)}


def routes_of(one: ClusterDouble) -> Routes:
    clock: Clock = SystemClock()
    seeds = tuple(broker.address for broker in one.brokers.values())
    return Routes(Connections(one.transport), clock, seeds)


async def test_a_new_topic_is_asked_for_alone() -> None:
    async with cluster() as one:
        one.topics = dict(TOPICS)
        routes = routes_of(one)
        for name in TOPICS:
            assert (await routes.topic(name)).name == name
        assert one.questions == [[name] for name in TOPICS]
        await routes.refresh()
        assert sorted(one.questions[-1]) == sorted(TOPICS), "all that are of interest"
        assert routes.table.topics.keys() == TOPICS.keys()


async def test_callers_share_a_question_with_all_their_topics() -> None:
    async with cluster() as one:
        one.topics = dict(TOPICS)
        routes = routes_of(one)
        found = await asyncio.gather(*map(routes.topic, TOPICS))
        assert [topic.name for topic in found] == list(TOPICS)
        assert len(one.questions) <= 2


async def test_a_question_about_no_topic_brings_the_groups_alone() -> None:
    async with cluster(2) as one:
        one.topics = dict(TOPICS)
        routes = routes_of(one)
        await routes.look_up()
        assert one.questions == [[""]]
        assert (list(routes.named), dict(routes.table.topics)) == (["g1", "g2"], {})


async def test_a_client_without_topics_asks_for_none() -> None:
    """A command that sends one message would fetch all topics of the cluster, else."""
    async with cluster() as one:
        one.topics = dict(TOPICS)
        routes = routes_of(one)
        await routes.refresh()
        assert one.questions == [[""]]
        await routes.refresh(everything=True)
        assert routes.table.topics.keys() == TOPICS.keys()


async def test_a_refresh_is_not_served_by_a_question_about_one_topic() -> None:
    async with cluster() as one:
        one.topics = {"a": 1, "b": 2}
        routes = routes_of(one)
        await routes.topic("a")
        del one.topics["a"]
        await asyncio.gather(routes.look_up("b"), routes.refresh())
        assert not routes.table.topics, "one is deleted, and the other of no interest"
        with pytest.raises(UnknownTopic):
            await routes.topic("a")


async def test_no_answer_fails_all_that_share_the_question() -> None:
    async with cluster() as one:
        routes = routes_of(one)
        for broker in one.brokers.values():
            await broker.stop()
        asking = (routes.look_up("a"), routes.look_up("b"), routes.refresh(), routes.refresh())
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 4


class HeldRoutes(Routes):
    """Routes whose questions are answered by hand, with the topics that there are then."""

    def __init__(self) -> None:
        super().__init__(Connections(cast(Any, None)), SystemClock(), ())
        self.there, self.asked = {"a", "b"}, list[tuple[list[str], asyncio.Event]]()

    async def _ask(self, request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        answered = asyncio.Event()
        self.asked.append((list(request.topics), answered))
        await answered.wait()
        names = set(request.topics or self.there) & self.there
        topics = [client_pb2.TopicRoute(name=name, id=1) for name in sorted(names)]
        return client_pb2.RouteReply(topics=topics)

    async def answer(self, expected: list[str]) -> None:
        """Answer the newest question, which must be about these topics."""
        await turns()
        names, answered = self.asked[-1]
        assert sorted(names) == expected
        answered.set()
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_cancelled_caller_leaves_topics_of_others_to_be_asked() -> None:
    routes = HeldRoutes()
    first = asyncio.create_task(routes.look_up("a"))
    await turns()
    second, third = (asyncio.create_task(routes.look_up(name)) for name in ("a", "b"))
    await routes.answer(["a"])  # of the first; the second asks for both now
    await first
    second.cancel()
    await routes.answer(["a", "b"])
    await third
    assert "b" in routes.table.topics


async def test_a_topic_of_interest_since_a_refresh_started_is_kept() -> None:
    routes = HeldRoutes()
    listing = asyncio.create_task(routes.refresh(everything=True))
    await routes.answer([])
    await listing
    refreshing = asyncio.create_task(routes.refresh())
    await turns()
    await routes.topic("a")  # known already
    await routes.answer([""])
    await refreshing
    assert list(routes.table.topics) == ["a"]


async def test_a_look_up_asks_again_if_a_refresh_dropped_its_topic() -> None:
    routes = HeldRoutes()
    first = asyncio.create_task(routes.look_up("a"))
    await turns()
    waiting = [asyncio.create_task(routes.look_up("a")), asyncio.create_task(routes.refresh())]
    late = asyncio.create_task(routes.look_up("b"))
    await routes.answer(["a"])
    await first
    await routes.answer(["a", "b"])  # for the second and the late one
    await routes.answer([""])  # of the refresh, to which neither is of interest
    await routes.answer(["b"])
    await asyncio.gather(late, *waiting)
    assert list(routes.table.topics) == ["b"]
