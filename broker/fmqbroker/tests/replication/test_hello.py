"""Slaves a master accepts: required Hello fields, refusals, and displaced streams."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqbroker.replication.wire import slave_view
from fmqbroker.tests.replication.test_master_stream import say_hello, send_ack
from fmqbroker.tests.replication_harness import MASTER, Cluster, cluster, turns, until
from fmqcore.ids import BrokerId
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import REPLICATE


async def refusal(c: Cluster, slow_s: float = 0, **changes: Any) -> str:
    """Dial the master by hand; return why it refuses such a Hello."""
    fields: dict[str, Any] = {
        "cluster": "c",
        "group": "g1",
        "broker": "g1-1",
        "incarnation": "by hand",
        "commit_end": 0,
    }
    connection = GrpcTransport().connect(c.master.address)
    try:
        stream = await connection.open(REPLICATE, 5.0)
        await stream.send(wire.SlaveMessage(hello=wire.Hello(**{**fields, **changes})))
        await asyncio.sleep(slow_s)
        message = await stream.receive()
        stream.cancel()
    finally:
        await connection.close()
    assert message.welcome.action == wire.REJECT
    return str(message.welcome.reason)


async def redialled(c: Cluster) -> wire.Hello:
    """Wait until the slave dials again and is accepted; return its Hello."""
    slave = c.slaves[0]
    await until(lambda: slave.slave.upstream.connected, "linked")
    before = slave.tap.dials
    slave.tap.cut()
    await until(lambda: slave.tap.dials > before and slave.slave.upstream.connected, "again")
    hello_sent: list[wire.Hello] = [m.hello for m in slave.tap.sent if m.HasField("hello")]
    return hello_sent[-1]


async def test_refused_slaves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        assert "this is cluster 'c'" in await refusal(c, cluster="d", broker="x")
        assert "this is group 'g1'" in await refusal(c, group="g2", broker="x")
        assert "no member" in await refusal(c, broker="x")
        assert "own name" in await refusal(c, broker="g1-0")
        assert "another process lives" in await refusal(c)
        assert c.isr == {"g1-1"}, "the rightful one is not disturbed"
        c.zoo.config = replace(c.zoo.config, master=BrokerId("g1-1"))
        c.master.group.see_all()
        assert "not the configured master" in await refusal(c, broker="x")
        c.zoo.config = replace(c.zoo.config, master=MASTER)


async def test_the_reason_arrives_at_the_slave(tmp_path: Path) -> None:
    """Even when it is refused in the middle of the stream."""
    async with cluster(tmp_path) as c:
        for slow_s in (0, 0.01, 0.1):
            assert "another process lives" in await refusal(c, slow_s)
        slave = c.slaves[0]
        slave.group.blind = True
        members = tuple(m for m in c.zoo.config.members if m.id != slave.name)
        c.zoo.config = replace(c.zoo.config, members=members)
        c.zoo.notify()
        reported = slave.slave._complained
        await until(
            lambda: any("no member of group g1 any more" in reason for reason in reported), "reason"
        )


async def test_a_newer_stream_of_the_same_process_takes_over(tmp_path: Path) -> None:
    """And a restarted one, once its old stream has fallen silent."""
    async with cluster(tmp_path, heartbeat_ms=20) as c:
        slave = c.slaves[0]
        before = c.master.master._streams._links[slave.name]
        slave.tap.open.clear()
        clock = c.master.clock
        await until(lambda: clock.monotonic_ms() - before.heard_ms > 3 * 20)
        hello = wire.Hello(cluster="c", group="g1", broker=slave.name, incarnation="restarted")
        connection = GrpcTransport().connect(c.master.address)
        stream = await connection.open(REPLICATE, 5.0)
        await stream.send(wire.SlaveMessage(hello=hello))
        message = await stream.receive()
        assert message.welcome.action == wire.APPEND_FROM
        assert c.master.master._streams._links[slave.name].incarnation == "restarted"
        # Data received on the older one is read only now.
        end, view = c.master.journal.end, c.master.master.links[slave.name]
        leased_ms = view.lease_until_ms
        before._take(wire.Ack(received_end=end, durable_end=end, epoch=1, grant_ms=1 << 30))
        assert (view.received_end, view.durable_end, view.epoch) == (0, 0, 0)
        assert view.lease_until_ms == leased_ms
        await connection.close()
        slave.tap.open.set()
        await c.in_sync()


async def test_delayed_hello_does_not_displace_a_newer_stream(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        now = c.master.master._streams._links[BrokerId("g1-1")]
        assert now.dial > 0
        reason = await refusal(c, incarnation=now.incarnation, connection_number=now.dial - 1)
        assert reason == f"dial {now.dial - 1} of g1-1 comes after dial {now.dial}"
        assert c.master.master._streams._links[BrokerId("g1-1")] is now
        assert c.isr == {"g1-1"}


async def test_slave_is_whole_once_level_with_a_serving_master(
    tmp_path: Path,
) -> None:
    """A slave killed with bytes in memory proves nothing by what it lacks."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        for node in (slave, c.master):
            await node.stop(crash=True)
        for node in (c.master, slave):
            await node.start()
        await until(lambda: slave.slave.upstream.caught_up, "level with a master on its way back")
        assert not (await redialled(c)).clean, "that one may lack the same"
        assert not c.master.master.links[slave.name].whole
        await c.master.open_term()
        await until(lambda: not slave.journal.doubts.lacks, "level with one that serves")
        assert (await redialled(c)).clean
        await until(lambda: c.master.master.links[slave.name].whole, "it is taken at its word")


async def test_slave_level_in_memory_is_not_durable_until_fsynced(
    tmp_path: Path,
) -> None:
    """Level in memory with another disk: a power cut would leave less than it acknowledged."""
    rarely = AckPolicy(Flush.OS_CACHE, 600_000, SlaveCounts.RECEIVED, HowMany.ONE)
    async with cluster(tmp_path, policy=rarely) as c:
        slave = c.slaves[0]
        await slave.stop(crash=True)
        slave.put_back(None)
        await slave.start()
        await slave.reaches(c.master.produce())
        await until(lambda: not slave.journal.doubts.lacks, "level with one that serves")
        assert slave.journal.durable_end < slave.journal.end
        assert (await redialled(c)).tail_lost
        c.zoo.set_policy(AckPolicy())
        await until(lambda: not slave.journal.doubts.tail_lost, "and on its disk")
        assert not (await redialled(c)).tail_lost


async def test_slave_whole_at_its_hello_has_proved_it(tmp_path: Path) -> None:
    """The master has all it had then; it may lose its memory later."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        await slave.stop()
        await until(lambda: c.isr == set(), "the next master opens no term: none is taken out")
        await c.master.stop(crash=True)
        await c.master.start()
        await slave.start()
        assert (await redialled(c)).clean, "it had stopped in order"
        await until(lambda: c.master.master.links[slave.name].whole, "so it had all its bytes")
        await slave.stop(crash=True)
        c.zoo.away = True  # it does not join the in-sync set, which would make it whole again
        await slave.start()
        assert not (await redialled(c)).clean
        assert c.master.master.links[slave.name].whole


async def test_grant_counts_from_the_masters_send_and_acks_never_fall(
    tmp_path: Path,
) -> None:
    """F7: an ack may be delayed for long, and a grant counts from the state it was based on."""
    async with cluster(tmp_path, 1, in_sync=False, dead_after_ms=60_000) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        view, end = c.master.master.links[BrokerId("g1-1")], c.master.journal.end
        spoke_ms = c.master.clock.monotonic_ms() - 400
        await send_ack(stream, credit_bytes=1 << 20, epoch=1, echo_ms=spoke_ms, grant_ms=700)
        await until(lambda: view.lease_until_ms)
        assert view.lease_until_ms == spoke_ms + 700
        while not (await stream.receive()).HasField("append"):
            pass
        await send_ack(stream, received_end=end, credit_bytes=1 << 20, epoch=1)
        await until(lambda: view.received_end == end)
        await send_ack(stream, received_end=end - 8, credit_bytes=1 << 20, epoch=1)
        await until(lambda: not view.connected, "its stream ends")
        assert view.received_end == end
        await connection.close()


async def test_failover_hears_link_changes_not_each_ack(tmp_path: Path) -> None:
    """Level or not, bound by a grant or not; failover ignores the rest (ADR 0033)."""
    quiet: dict[str, Any] = {"heartbeat_ms": 15_000, "grant_ms": 30_000, "dead_after_ms": 60_000}
    async with cluster(tmp_path, 1, in_sync=False, **quiet) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        await say_hello(connection, c)
        master, clock = c.master.master, c.master.clock
        link = master._streams._links[BrokerId("g1-1")]

        async def notifies(grant_ms: int) -> bool:
            waiting = asyncio.create_task(master.changed.wait())
            await turns()
            link.heard_ms = clock.monotonic_ms()
            link._take(wire.Ack(epoch=1, echo_ms=link.heard_ms, grant_ms=grant_ms))
            await turns()
            waiting.cancel()
            return waiting.done()

        await notifies(0)  # the first one reports its position
        assert await notifies(300), "bound"
        assert not await notifies(300), "bound for longer"
        await until(lambda: clock.monotonic_ms() > link.view.lease_until_ms)
        assert await notifies(0), "not bound any more"
        assert not await notifies(0)
        await connection.close()


@pytest.mark.parametrize("mode", [Mode.SLAVE_CONSUME, Mode.HANDOVER])
async def test_takeover_reader_announces_that_it_serves_reads(tmp_path: Path, mode: Mode) -> None:
    """R5: delivered records are never truncated, even if its commit end was not on its disk yet."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        assert not any(m.hello.is_reader for m in slave.tap.sent)
        taken = replace(c.zoo.history[-1], mode=mode, reader=slave.name)
        c.zoo.set_state(taken)
        slave.tap.cut()
        await until(lambda: any(m.hello.is_reader for m in slave.tap.sent))


async def test_a_slave_knows_of_no_commit_end_beyond_its_journal(tmp_path: Path) -> None:
    """R4: other bytes may come there later."""
    async with cluster(tmp_path, 2, dead_after_ms=60_000) as c:
        behind, _ = c.slaves
        reported: list[int] = []

        def nothing_to_append(message: Any) -> list[Any]:
            if message.HasField("append"):
                return []
            reported.append(message.commit_end)
            return [message]

        behind.tap.change = nothing_to_append
        end = c.master.produce()
        await c.committed(end)
        await until(lambda: max(reported, default=0) >= end)
        await turns()
        assert behind.commit.commit_end <= behind.journal.end < end


async def test_stream_without_hello_is_ended(tmp_path: Path) -> None:
    async with cluster(tmp_path, dead_after_ms=200) as c:
        connection = GrpcTransport().connect(c.master.address)
        for first in (wire.SlaveMessage(ack=wire.Ack()), None):
            stream = await connection.open(REPLICATE, 5.0)
            if first is not None:
                await stream.send(first)
            with pytest.raises(Exception, match=r"must send Hello|cancelled by the broker"):
                await stream.receive()
        await connection.close()


async def test_a_hello_from_an_earlier_mastership_proves_nothing(tmp_path: Path) -> None:
    """F16: a promotion hears every member; what a slave held then it may not hold now."""
    async with cluster(tmp_path) as c:
        slave, name = c.slaves[0], BrokerId("g1-1")
        now = c.master.master._streams._links[name]
        slave.tap.open.clear()  # it cannot be heard at present
        c.master.master._forget()  # another broker acted as master; now this one does again
        assert not c.master.master.links.get(name)
        try:
            reason = await refusal(c, incarnation=now.incarnation, connection_number=now.dial - 1)
        finally:
            slave.tap.open.set()
        assert reason
        view = c.master.master.links.get(name)
        assert view is None or not view.heard
        await until(lambda: slave.slave.upstream.connected, "linked")


@pytest.mark.parametrize(
    ("fields", "emptied"),
    [
        ({"end": 5}, False),
        ({"end": 0}, True),
        ({"end": 5, "tail_lost": True}, True),  # an older version: its disk may have been lost
        ({"end": 5, "tail_lost": True, "emptied": False}, False),
        ({"end": 0, "emptied": False}, False),
        ({"end": 5, "emptied": True}, True),
    ],
)
def test_a_hello_reports_whether_a_disk_was_lost(fields: dict[str, Any], emptied: bool) -> None:
    assert slave_view(wire.Hello(**fields)).emptied is emptied


async def test_a_slave_of_an_older_version_comes_in_sync(tmp_path: Path) -> None:
    """Its Hello lacks `emptied`; only a master whose own disk was lost asks for that."""
    async with cluster(tmp_path, 1, in_sync=False, dead_after_ms=60_000) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        connection = GrpcTransport().connect(c.master.address)
        stream = await say_hello(connection, c)
        view, end = c.master.master.links[BrokerId("g1-1")], c.master.journal.end
        assert view.emptied, "it may have lost its disk: its journal is empty"
        await send_ack(stream, credit_bytes=1 << 20, epoch=1)
        while not (await stream.receive()).HasField("append"):
            pass
        await send_ack(stream, received_end=end, durable_end=end, credit_bytes=1 << 20, epoch=1)
        await until(lambda: view.caught_up, "it is level")
        assert view.connected
        await connection.close()
