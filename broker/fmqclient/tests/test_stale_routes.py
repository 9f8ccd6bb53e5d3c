"""Stale, incomplete or changing routes under a client: no record is lost, no call hangs."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName
from fmqcore.routing import RouteTable
from fmqport.transport import CallContext, Stream
from fmqproto.v1 import admin_pb2, client_pb2

G1 = GroupName("g1")


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)


def played(groups: int) -> tuple[Any, MemoryTransport]:
    transport = MemoryTransport(0)
    return cluster(groups, transport=transport), transport


def client_of(one: ClusterDouble, transport: MemoryTransport) -> fmqclient.Client:
    return fmqclient.connect(one.url, transport=transport, clock=SeededClock(0))


def test_no_topic_is_unknown_while_no_broker_answers() -> None:
    """Several ask at once; sharing a failed call is not an answer."""

    async def work() -> None:
        double, transport = played(1)
        async with double as one, client_of(one, transport) as c, c.producer() as p:
            one.topics = {"a": 1, "b": 2, "c": 3}
            await c.admin().topics()
            c._routes.table = RouteTable()
            for broker in one.brokers.values():
                await broker.stop()
            sending = [p.send_nowait(topic, b"v") for topic in "abc"]
            await asyncio.sleep(10)
            assert not any(each.done() for each in sending)
            for broker in one.brokers.values():
                await broker.start()
            await asyncio.gather(*sending)

    run(work())


def test_topic_unknown_to_one_broker_is_asked_elsewhere() -> None:
    """A broker that is cut from ZooKeeper, or learns late, answers with old knowledge."""

    async def work() -> None:
        double, transport = played(2)
        async with double as one:
            stale = one.brokers["g1-0"]
            await one.knows_only(stale.name, {"orders": 1})
            async with client_of(one, transport) as c, c.producer() as p:
                await p.send("orders", b"v")
                assert c._routes._asked_last == stale.address
                one.topics["new"] = 2
                await p.send("new", b"v")
                with pytest.raises(fmqclient.UnknownTopic):
                    await p.send("unknown-topic", b"v")

    run(work())


def test_missing_topic_stays_of_interest() -> None:
    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c:
            one.topics["other"] = 2
            async with c.consumer("orders", group="g"), c.producer() as p:
                await p.send("other", b"v")
                del one.topics["orders"]
                await c._routes.refresh()
                with pytest.raises(fmqclient.UnknownTopic):
                    await p.send("orders", b"v")
                one.topics["orders"] = 7
                await asyncio.sleep(30)
                assert c._routes.table.topics["orders"].id == 7

    run(work())


def test_consumer_survives_a_group_that_lacks_its_topic() -> None:
    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c:
            await _forget_topics(one, "g2")
            async with c.consumer("orders", group="g") as sub, c.producer() as p:
                await asyncio.sleep(8)
                await p.send("orders", b"x", group="g1")
                assert [m.value for m in await sub.fetch(timeout=5)] == [b"x"]

    run(work())


def test_send_refused_for_unknown_topic_goes_to_another_group() -> None:
    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c, c.producer() as p:
            for name in ("g2-0", "g2-1"):
                one.brokers[name].script = lambda _: ErrorCode.UNKNOWN_TOPIC
            sending = (p.send("orders", b"%d" % n, key=b"%d" % n) for n in range(20))
            assert {result.group for result in await asyncio.gather(*sending)} == {"g1"}

    run(work())


def test_sends_to_a_deleted_topic_delay_no_other_topic() -> None:
    async def work() -> None:
        double, transport = played(1)
        async with double as one, client_of(one, transport) as c, c.producer() as p:
            one.topics["other"] = 2
            await p.send("orders", b"a", key=b"k")
            await p.send("other", b"a", key=b"k")
            fates: list[Any] = ["drop"]

            def script(batch: client_pb2.ProduceBatch) -> Any:
                if batch.topic_id != 1:
                    return None
                return fates.pop() if fates else ErrorCode.UNKNOWN_TOPIC

            one.brokers["g1-0"].script = script
            sending = asyncio.ensure_future(p.send("orders", b"b", key=b"k"))
            del one.topics["orders"]
            await until(lambda: p._senders[G1]._sent)
            await p._routes.refresh()
            async with asyncio.timeout(20):
                for _ in range(3):
                    await asyncio.sleep(1)
                    await p.send("other", b"c", key=b"k")
                with pytest.raises(fmqclient.DeliveryUnknown):
                    await sending

    run(work())


@pytest.mark.parametrize("known", [True, False])
def test_topic_without_writable_groups_ends_no_producer(known: bool) -> None:
    """Each send gets an error, at once or when its batches in flight are done."""

    async def work() -> None:
        double, transport = played(1)
        async with double as one, client_of(one, transport) as c, c.producer() as p:
            if known:
                await p.send("orders", b"a")
            one.brokers["g1-0"].script = lambda _: "hang"
            sending = [p.send_nowait("orders", b"b", key=b"k")]
            await until(lambda: G1 in p._senders and p._senders[G1]._sent)
            sending.append(p.send_nowait("orders", b"c", key=b"k"))
            one.groups["g1"].weight = 0
            await p._routes.refresh()
            await asyncio.sleep(5)
            sending.append(p.send_nowait("orders", b"d", key=b"k"))
            done, _ = await asyncio.wait(sending, timeout=300)
            assert len(done) == 3
            with pytest.raises(fmqclient.Unavailable, match="no group that takes messages"):
                sending[2].result()
            one.groups["g1"].weight = 1
            one.brokers["g1-0"].script = lambda _: None
            await p._routes.refresh()
            await p.send("orders", b"e")

    run(work())


def test_start_latest_does_not_apply_to_groups_added_later() -> None:
    """Records in added groups were sent after the consumer started."""

    async def work() -> None:
        double, transport = played(2)
        async with double as one:
            later = one.groups.pop("g2")
            client = client_of(one, transport)
            async with client as c, c.consumer("orders", group="g", start="latest"):
                await until(lambda: one.brokers["g1-0"].consumers)
                one.groups["g2"] = later
                await c._routes.refresh()
                await until(lambda: one.brokers["g2-0"].consumers)
                starts = [one.brokers[b].consumers[0].start for b in ("g1-0", "g2-0")]
                assert starts == [client_pb2.START_LATEST, client_pb2.START_EARLIEST]

    run(work())


def test_recreated_topic_is_read_from_its_start() -> None:
    async def work() -> None:
        double, transport = played(1)
        async with double as one, client_of(one, transport) as c:
            broker = one.brokers["g1-0"]
            async with c.consumer("orders", group="g", start="latest") as consumer:
                await until(lambda: broker.consumers and consumer.connected == {"g1": ""})
                one.topics["orders"] = one.groups["g1"].topic_id = 2
                broker.reset_streams()
                await until(lambda: len(broker.consumers) == 2)
                assert broker.consumers[1].start == client_pb2.START_EARLIEST

    run(work())


def test_removed_group_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c:
            del one.groups["g2"]
            asked = []

            async def answer(name: GroupName, *_: object) -> admin_pb2.OffsetsReply:
                asked.append(name)
                return admin_pb2.OffsetsReply()

            admin = c.admin()
            monkeypatch.setattr(admin._calls, "ask_reader", answer)
            await admin.offsets()
            assert asked == ["g1"]

    run(work())


async def _unknown(_: CallContext, stream: Stream) -> None:
    """Return a broker without the topic to be read."""
    await stream.receive()
    reply = client_pb2.ConsumeReply(opened=client_pb2.ConsumeOpened(), epoch=1)
    unknown = client_pb2.Error(code=client_pb2.UNKNOWN_TOPIC, message="no such topic")
    reply.opened.error.CopyFrom(unknown)
    await stream.send(reply)


async def _forget_topics(one: ClusterDouble, group: str) -> None:
    for name in (f"{group}-0", f"{group}-1"):
        await one.brokers[name].stop()
        one.brokers[name]._consume = _unknown  # type: ignore[method-assign]
        one.brokers[name].reset_streams()
        await one.brokers[name].start()


@pytest.mark.parametrize("away_s", [1, 20])
def test_failover_ends_no_consumer_another_group_does_not_know(away_s: int) -> None:
    """An absent broker has not reported that the topic is gone."""

    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c:
            await _forget_topics(one, "g2")
            async with c.consumer("orders", group="g") as sub, c.producer() as p:
                await asyncio.sleep(8)
                await one.brokers["g1-0"].stop()
                one.brokers["g1-0"].reset_streams()
                await asyncio.sleep(away_s)
                await one.brokers["g1-0"].start()
                await p.send("orders", b"x", group="g1")
                assert [m.value for m in await sub.fetch(timeout=60)] == [b"x"]

    run(work())


@pytest.mark.parametrize("by", ["word", "absence"])
def test_topic_missing_everywhere_ends_its_consumers(by: str) -> None:
    """Every broker that is there reports so."""

    async def work() -> None:
        double, transport = played(2)
        async with double as one, client_of(one, transport) as c:
            await _forget_topics(one, "g2")
            async with c.consumer("orders", group="g") as sub:
                await asyncio.sleep(8)
                if by == "word":
                    await _forget_topics(one, "g1")
                else:
                    for name in ("g1-0", "g1-1"):
                        await one.brokers[name].stop()
                        one.brokers[name].reset_streams()
                    await asyncio.sleep(20)
                    assert await sub.fetch(timeout=1) == []
                    del one.groups["g1"]
                with pytest.raises(fmqclient.UnknownTopic):
                    await sub.fetch(timeout=60)

    run(work())


def test_sends_in_flight_outlive_a_stale_broker_answer() -> None:
    """It is cut from ZooKeeper, for example, and the topic is younger than that."""

    async def work() -> None:
        double, transport = played(1)
        async with double as one:
            stale = one.brokers["g1-1"]
            await one.knows_only(stale.name, {})
            async with client_of(one, transport) as c, c.producer() as p:
                await p.send("orders", b"a", key=b"k")
                one.brokers["g1-0"].script = lambda _: ErrorCode.OVERLOADED
                waits = p.send_nowait("orders", b"b", key=b"k")
                await asyncio.sleep(1)
                c._routes._asked_last = stale.address
                await c._routes.refresh()
                await asyncio.sleep(1)
                assert not waits.done()
                one.brokers["g1-0"].script = lambda _: None
                await waits
                assert one.values() == [b"a", b"b"]

    run(work())


@pytest.mark.parametrize("turns", range(6))
def test_route_change_during_producer_close_is_harmless(turns: int) -> None:
    """Its tasks accept nothing more; the client still asks for routes."""

    async def work() -> None:
        double, transport = played(2)
        async with double as one:
            later = one.groups.pop("g2")
            async with client_of(one, transport) as c:
                async with c.producer() as p:
                    await p.send("orders", b"a")
                    listeners, c._routes._listeners = c._routes._listeners, {}
                    one.groups["g2"] = later
                    await c._routes.refresh()
                    c._routes._listeners = listeners
                    closing = asyncio.ensure_future(p.close())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    for listener in list(listeners):
                        listener()
                    await closing
                assert not c._tasks[0].done()

    run(work())
