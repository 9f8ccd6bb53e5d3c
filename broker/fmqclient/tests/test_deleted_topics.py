"""Topics missing from routes, deleted or not known to a broker yet: no record is lost."""

import asyncio

import pytest

import fmqclient
from fmqclient.tests.double import cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName


async def test_topic_briefly_missing_from_routes_gets_a_new_session() -> None:
    """L1, P5: its new queue buffers count from 0; the broker's table has the old session's 0."""
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer() as p:
        first = await p.send("orders", b"a", key=b"k")
        one.topics.clear()  # the broker asked next does not know the topic
        await p._routes.refresh()
        await until(lambda: "orders" not in p._accumulator.topics)
        one.topics["orders"] = 1
        second = await p.send("orders", b"b", key=b"k")
        assert one.values() == [b"a", b"b"]
        assert first.offset != second.offset


def test_sends_in_flight_to_a_deleted_topic_get_an_outcome() -> None:
    """docs/reference/client.md: `DeliveryUnknown` when `delivery_timeout_s` is over."""

    async def produce() -> None:
        async with cluster(1, transport=(transport := MemoryTransport(0))) as one:
            client = fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=2) as p:
                await p.send("orders", b"a", key=b"k")
                broker = one.brokers["g1-0"]
                broker.script = lambda _: "hang"
                sending = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
                await until(lambda: p._senders[GroupName("g1")]._sent)
                one.topics.clear()
                await p._routes.refresh()
                await until(lambda: "orders" not in p._accumulator.topics)
                broker.reset_streams()
                await asyncio.wait([sending], timeout=60)
                with pytest.raises(fmqclient.DeliveryUnknown):
                    sending.result()
                assert p.outstanding == 0

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())


@pytest.mark.parametrize("again", [True, False])
async def test_refused_send_to_a_deleted_topic_is_not_retried(again: bool) -> None:
    """Its waiter gets the refusal; later records, to a new topic of that name, are stored."""
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"a", key=b"k")
        broker, fates = one.brokers["g1-0"], [ErrorCode.OVERLOADED]
        broker.slow = lambda: 0.2 if fates else 0.0
        broker.script = lambda _: fates.pop() if fates else None
        sending = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
        await until(lambda: p._senders[GroupName("g1")]._sent)
        one.topics.clear()
        await p._routes.refresh()
        await until(lambda: "orders" not in p._accumulator.topics)
        if again:
            one.topics["orders"] = 1
            await p.send("orders", b"c", key=b"k")
        with pytest.raises(fmqclient.UnknownTopic):
            await sending
        assert one.values() == [b"a", *[b"c"] * again]


async def test_close_reports_sends_in_flight_to_a_deleted_topic() -> None:
    async with cluster(1) as one, fmqclient.connect(one.url) as c:
        async with c.producer(delivery_timeout_s=0.5) as p:
            one.brokers["g1-0"].script = lambda _: "hang"
            sending = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
            await until(lambda: GroupName("g1") in p._senders and p._senders[GroupName("g1")]._sent)
            one.topics.clear()
            await p._routes.refresh()
            await until(lambda: "orders" not in p._accumulator.topics)
        with pytest.raises(fmqclient.DeliveryUnknown):
            await sending


async def test_recreated_topic_is_another_topic() -> None:
    """Its number differs, and sends to the old topic are refused or lost."""
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"a", key=b"k")
        one.topics["orders"] = 2
        await p._routes.refresh()
        await p.send("orders", b"b", key=b"k")
        sent = [b.topic_id for r in one.brokers["g1-0"].requests for b in r.batches]
        assert sent == [1, 2]
