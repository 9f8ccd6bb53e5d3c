"""What a client asks brokers for routes: no more than a call needs, and once for all callers."""

import asyncio

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.net.connections import Connections
from fmqclient.net.routes import Routes
from fmqclient.tests.double import ClusterDouble, cluster
from fmqcore.errors import Unavailable, UnknownTopic
from fmqport.clock import Clock

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
        assert list(routes.table.topics) == ["b"] or not routes.table.topics
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
