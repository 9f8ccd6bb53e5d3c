"""A producer's sender to a group: a stalled stream, a silent broker, a new session."""

import asyncio
from typing import Any

import pytest

import fmqclient
from fmqclient.tests.double import cluster, until
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop, answering
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName
from fmqport.transport import TransportError
from fmqwire.methods import ROUTES


@pytest.mark.parametrize("acks", ["one_way", "replicated"])
def test_batch_abandoned_in_a_stalled_stream_ends_nothing(acks: str) -> None:
    """The stream takes it later (and an ack comes), when no caller waits for it any more."""
    transport, stall_s = MemoryTransport(0), [0.0]
    transport.delay = lambda: stall_s[0]  # type: ignore[method-assign]

    async def produce() -> None:
        async with cluster(1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(acks=acks, delivery_timeout_s=1) as p:
                await p.send("orders", b"before")
                stall_s[0] = 5.0
                with pytest.raises(fmqclient.DeliveryUnknown):
                    await p.send("orders", b"late")
                stall_s[0] = 0.0
                await asyncio.sleep(10)
                await p.send("orders", b"after")
                assert p.outstanding == 0
                await asyncio.sleep(1)
                assert double.values() == [b"before", b"late", b"after"]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())


def test_ack_of_an_abandoned_batch_ends_nothing() -> None:
    """Other batches in flight keep the stream open."""
    transport, slow_s = MemoryTransport(0), [1.2]
    transport.delay = lambda: 0.0  # type: ignore[method-assign]

    async def produce() -> None:
        async with cluster(1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=1) as p:
                await p.send("orders", b"a", group="g1", queue=0)
                await p.send("orders", b"b", group="g1", queue=1)
                double.brokers["g1-0"].slow = lambda: slow_s.pop() if slow_s else 0.0
                late = p.send_nowait("orders", b"c", group="g1", queue=0)
                await asyncio.sleep(0.6)
                beside = p.send_nowait("orders", b"d", group="g1", queue=1)
                with pytest.raises(fmqclient.DeliveryUnknown):
                    await late
                assert not beside.done()
                assert (await beside).offset == 1
                await p.send("orders", b"e", group="g1", queue=0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())


def test_unresponsive_broker_is_probed_and_left() -> None:
    """Frozen, its stream stays up: batches in flight are sent again on a new one."""
    transport, silent = MemoryTransport(0), [True]

    async def dead(_: Any) -> Any:
        silent.clear()
        raise TransportError("no answer")

    async def produce() -> None:
        async with cluster(1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=30) as p:
                await p.send("orders", b"a", key=b"k")
                broker = double.brokers["g1-0"]
                broker.script = lambda _: "hang" if silent else None
                server = transport.servers[int(broker.address.rpartition(":")[2])]
                server.handlers = {**server.handlers, ROUTES: answering(dead)}
                await p.send("orders", b"b", key=b"k")
                assert double.values() == [b"a", b"b"]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())


async def test_new_session_waits_for_sends_in_flight() -> None:
    """L5: batches that may be stored are retried in the old one."""
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer() as p:
        await p.send("orders", b"a", key=b"k")
        fates = ["lose"]

        def renewing(_: object) -> str | None:
            if fates:
                p._senders[GroupName("g1")].renew()
            return fates.pop() if fates else None

        one.brokers["g1-0"].script = renewing
        await p.send("orders", b"b", key=b"k")
        await p.send("orders", b"c", key=b"k")
        assert one.values() == [b"a", b"b", b"c"]


def test_late_abandoned_batch_is_not_stored_after_newer_ones() -> None:
    """L8: its broker reads it after the producer has moved on over another connection."""
    late_s = [3.0]

    async def produce() -> None:
        async with cluster(1, transport=(transport := MemoryTransport(0))) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=1) as p:
                await p.send("orders", b"first", key=b"k")
                broker = double.brokers["g1-0"]
                broker.slow = lambda: late_s.pop() if late_s else 0.0
                with pytest.raises(fmqclient.DeliveryUnknown):
                    await p.send("orders", b"late", key=b"k")
                await p.send("orders", b"newer", key=b"k")
                await asyncio.sleep(5)
                assert double.values() == [b"first", b"newer"]
                assert broker.opened == 2

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())


@pytest.mark.parametrize("acks", ["one_way", "replicated"])
async def test_session_numbers_rise_then_producer_id_is_renewed(
    acks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: one producer id until its session numbers are used up."""
    monkeypatch.setattr("fmqclient.producer.sender.MAX_PRODUCER_EPOCH", 1)
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer(acks=acks) as p:
        seen: list[tuple[int, int]] = []
        broker = one.brokers["g1-0"]
        for number in range(3):
            await p.send("orders", b"%d" % number, key=b"k")
            await until(lambda: b"%d" % len(seen) in one.values())
            sender = p._senders[GroupName("g1")]
            seen.append((sender._producer_id, sender._producer_epoch))
            if acks == "replicated":
                sender.renew()
            else:
                broker.reset_streams()
            await until(lambda: broker.opened > len(seen))
        assert one.values() == [b"0", b"1", b"2"]
    ids, numbers = zip(*seen, strict=True)
    assert numbers == (0, 1, 0)
    assert ids[0] == ids[1] != ids[2]
    assert 0 not in ids


async def test_new_session_starts_before_sequences_overflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have 32 bits on the wire: a long-lived producer must not reach their end."""
    monkeypatch.setattr("fmqclient.producer.sender._MAX_SEQUENCE", 3)
    async with cluster(1) as one, fmqclient.connect(one.url) as c, c.producer() as p:
        for number in range(10):
            await p.send("orders", b"%d" % number, key=b"k")
        broker = one.brokers["g1-0"]
        assert one.values() == [b"%d" % number for number in range(10)]
        assert broker.opened > 1
        sequences = [b.base_sequence for request in broker.requests for b in request.batches]
        assert max(sequences) <= 3


def test_old_refusal_is_not_reported_for_a_later_record() -> None:
    transport = MemoryTransport(0)

    async def produce() -> None:
        async with cluster(1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client as c, c.producer(delivery_timeout_s=5) as p:
                fates = [ErrorCode.NOT_ENOUGH_REPLICAS]
                broker = double.brokers["g1-0"]
                broker.script = lambda _: fates.pop() if fates else None
                await p.send("orders", b"a", key=b"k")
                await broker.stop()
                broker.reset_streams()
                with pytest.raises(fmqclient.FmqError) as caught:
                    await p.send("orders", b"b", key=b"k")
                assert type(caught.value) is fmqclient.Unavailable

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(produce())
