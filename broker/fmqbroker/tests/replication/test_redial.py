"""A slave redials at once if its master has come, else after a growing pause."""

import asyncio
from pathlib import Path

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqbroker.tests.replication_harness import MASTER, Cluster, cluster, turns, until
from fmqcore.ids import Epoch, Position
from fmqcore.zk.live_broker import LiveBroker
from fmqport.transport import CallContext, Stream
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import REPLICATE

HOUR_MS = 3_600_000


def announced(c: Cluster, incarnation: str) -> None:
    """Show the slave that live node of the master; none without an incarnation."""
    node = LiveBroker(c.master.name, incarnation, "", Epoch(1), Position(0))
    c.slaves[0].group.live = {c.master.name: node} if incarnation else {}
    c.slaves[0].group.changed.notify()


async def test_a_master_that_comes_is_dialed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the pause between two tries is over, and only once."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        patient = {"redial_min_ms": HOUR_MS, "redial_max_ms": HOUR_MS}
        slave.slave._settings = slave.settings.model_copy(update=patient)
        slave.slave._delay_ms = HOUR_MS
        monkeypatch.setattr(slave.clock, "uniform", lambda low, high: low)  # half an hour, or none
        announced(c, "one")
        await c.master.stop(crash=True)
        await until(lambda: not slave.slave.upstream.connected)
        announced(c, "")
        await turns()
        dials = slave.tap.dials
        await c.master.start()
        await c.master.open_term()
        announced(c, "two")
        await until(lambda: slave.slave.upstream.connected)
        slave.tap.cut()
        await until(lambda: not slave.slave.upstream.connected)
        for _ in range(10):
            announced(c, "two")  # something else changed: it was dialed since it came
            await turns()
        assert slave.tap.dials == dials + 1


async def test_slave_leaves_a_master_that_takes_no_suffix(tmp_path: Path) -> None:
    """It requests one and hangs: the sent bytes fill the wire, and no task waits for ever."""

    async def hang(_: CallContext, stream: Stream) -> None:
        await stream.receive()
        welcome = wire.Welcome(action=wire.SEND_SUFFIX, position=0, master=MASTER)
        await stream.send(wire.MasterMessage(welcome=welcome))
        await asyncio.Event().wait()

    async with cluster(tmp_path, dead_after_ms=300) as c:
        slave = c.slaves[0]
        await c.committed(c.master.produce(count=120, size=200_000))
        await c.master.stop(crash=True)
        server = await GrpcTransport().serve(c.master.address, {REPLICATE: hang})
        dials = slave.tap.dials
        await until(lambda: slave.tap.dials > dials + 1, "it dials again")
        reported = slave.slave._complained
        assert "master g1-0 does not take what is sent" in reported
        await server.close(0)


async def test_promise_lasts_its_full_time_after_a_restart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        await until(lambda: slave.slave.upstream.promised_until_ms > slave.clock.monotonic_ms())
        await slave.stop(crash=True)
        now_ms, grant_ms = slave.clock.monotonic_ms(), slave.settings.grant_ms
        c.master.master.close_writes()
        slave.tap.reading.clear()
        await slave.start()
        assert slave.slave.upstream.promised_until_ms >= now_ms + grant_ms + grant_ms // 16
        slave.tap.reading.set()
