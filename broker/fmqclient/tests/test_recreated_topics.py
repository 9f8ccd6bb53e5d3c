"""A recreated topic, and brokers that still know the older one: it is not used."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import fmqclient
from fmqclient.admin.client import Admin
from fmqclient.tests.double import cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqproto.v1 import admin_pb2, client_pb2


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)


def answers_with(admin: Admin, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return that topic number to every request to create the topic "orders"."""
    groups = [client_pb2.TopicGroup(group="g1", weight=1, queues=4)]
    route = client_pb2.TopicRoute(name="orders", id=number, groups=groups)

    async def made(*_: object) -> admin_pb2.CreateTopicReply:
        return admin_pb2.CreateTopicReply(topic=route)

    monkeypatch.setattr(admin._calls, "ask_any", made)


def test_broker_knowing_an_older_topic_is_not_read() -> None:
    """It would deliver records of the older topic."""

    async def work() -> None:
        transport = MemoryTransport(0)
        async with cluster(1, transport=transport) as one:
            one.topics["orders"], one.groups["g1"].topic_id = 2, 1
            client = fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.consumer("orders", group="g") as sub, c.producer() as p:
                await p.send("orders", b"x")
                assert await sub.fetch(timeout=2) == []
                assert "knows an older topic" in sub.connected["g1"]
                one.groups["g1"].topic_id = 2
                assert [m.value for m in await sub.fetch(timeout=20)] == [b"x"]

    run(work())


def test_answer_about_an_older_topic_ends_no_send_to_the_new_one() -> None:
    async def work() -> None:
        transport = MemoryTransport(0)
        async with cluster(1, transport=transport) as one:
            one.topics["orders"] = 2
            client = fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer() as p:
                await p.send("orders", b"a")
                one.brokers["g1-0"].script = lambda _: fmqclient.Overloaded.code
                waits = p.send_nowait("orders", b"b")
                await asyncio.sleep(1)
                one.topics["orders"] = 1
                await c._routes.refresh()
                await asyncio.sleep(1)
                assert not waits.done()
                one.brokers["g1-0"].script = lambda _: None
                await waits
                sent = {b.topic_id for r in one.brokers["g1-0"].requests for b in r.batches}
                assert sent == {2}

    run(work())


@pytest.mark.parametrize("known_id", [None, 1])
def test_creator_knows_its_topic_despite_stale_answers(
    known_id: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        transport = MemoryTransport(0)
        async with cluster(1, transport=transport) as one:
            client = fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))
            async with client as c:
                admin = c.admin()
                answers_with(admin, 2, monkeypatch)
                one.topics = {} if known_id is None else {"orders": known_id}
                assert (await admin.create_topic("orders")).id == 2
                async with c.producer() as p:
                    await p.send("orders", b"x")
                await until(lambda: one.brokers["g1-0"].requests)
                assert one.brokers["g1-0"].requests[0].batches[0].topic_id == 2

    run(work())
