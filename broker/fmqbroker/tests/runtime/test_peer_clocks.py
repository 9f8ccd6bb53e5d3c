"""Brokers of a group compare clocks; nothing is deleted by age while they disagree."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fmqclient
from fmqadapters.process.clock import SystemClock
from fmqbroker.runtime.peer_clocks import PeerClocks
from fmqbroker.runtime.steady_clock import HOLD_MS, SteadyClock, clock_doubt
from fmqbroker.tests.replication_harness import Cluster, Node, cluster, until
from fmqbroker.tests.runtime.test_steady_clock import DAY_MS, Wall
from fmqcore.ids import BrokerId
from fmqdev.broker_process import broker_command
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import BrokerPlan, ClusterOptions
from fmqproto.v1 import replication_pb2 as wire

A, B = BrokerId("g1-1"), BrokerId("g1-2")


def test_the_last_comparison_counts() -> None:
    wall = Wall()
    peers = PeerClocks(wall)
    peers.heard(A, wall.now_ms + DAY_MS, wall.mono_ms)
    assert "g1-1 is 86400 s ahead of this broker's" in (peers.doubt or "")
    wall.advance(40 * DAY_MS)
    assert peers.ahead_ms(A) == DAY_MS, "a silent broker's clock is not right for that"
    peers.heard(A, wall.now_ms, wall.mono_ms)
    assert (peers.doubt, peers.ahead_ms(A), peers.ahead_ms(B)) == (None, 0, None)


def test_a_late_answer_changes_nothing() -> None:
    wall = Wall()
    peers = PeerClocks(wall)
    peers.heard(A, wall.now_ms - DAY_MS, wall.mono_ms)
    answered_ms, asked_ms = wall.now_ms, wall.mono_ms
    wall.advance(HOLD_MS)  # this process stood still
    peers.heard(A, answered_ms, asked_ms)
    assert "86400 s behind this broker's" in (peers.doubt or "")


def test_a_corrected_clock_agrees_with_a_silent_broker() -> None:
    wall = Wall()
    peers = PeerClocks(wall)
    peers.report_clock(A, ahead_ms=DAY_MS)
    assert "g1-1 is 86400 s behind this broker's" in (peers.doubt or "")
    wall.now_ms -= DAY_MS
    assert peers.doubt is None


def test_a_removed_member_does_not_count() -> None:
    wall = Wall()
    peers = PeerClocks(wall)
    peers.heard(A, wall.now_ms + DAY_MS, wall.mono_ms)
    peers.heard(B, wall.now_ms, wall.mono_ms)
    peers.keep({A})
    assert "g1-1" in (peers.doubt or "")
    peers.keep({B})
    assert (peers.doubt, peers.ahead_ms(B)) == (None, None)


def test_a_removed_broker_that_still_answers_stays_forgotten() -> None:
    clock = Ahead(0)
    peers = PeerClocks(clock)
    peers.keep({B})
    peers.heard(A, clock.wall_ms() + DAY_MS, clock.monotonic_ms())
    peers.report_clock(A, DAY_MS)
    assert (peers.doubt, peers.ahead_ms(A)) == (None, None)
    peers.keep({A, B})
    peers.heard(A, clock.wall_ms() + DAY_MS, clock.monotonic_ms())
    assert peers.doubt


class Ahead(SystemClock):
    """A clock whose wall time is ahead by that much."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


async def with_clocks(c: Cluster, *ahead_ms: int) -> None:
    """Start the brokers with these clocks."""
    for node, ms in zip(c.nodes, ahead_ms, strict=True):
        await node.stop()
        node.clock = SteadyClock(Ahead(ms))  # type: ignore[assignment]
    for node in c.nodes:
        await node.start()
    await c.master.open_term()
    await c.in_sync()


def doubt(node: Node) -> str | None:
    return clock_doubt(node.clock)


async def test_both_ends_of_a_stream_see_the_difference(tmp_path: Path) -> None:
    async with cluster(tmp_path, slaves=2) as c:
        await with_clocks(c, 0, DAY_MS, 0)
        master, wrong, right = c.nodes
        await until(lambda: doubt(master) and doubt(wrong), "both know")
        assert "the clock of g1-1 is 86" in (doubt(master) or "")
        assert " s ahead of this broker's" in (doubt(master) or "")
        assert "the clock of g1-0 is 86" in (doubt(wrong) or "")
        assert " s behind this broker's" in (doubt(wrong) or "")
        assert doubt(right) is None, "it agrees with the master"
        members = [m for m in c.zoo.config.members if m.id != wrong.name]
        c.zoo.config = replace(c.zoo.config, members=tuple(members))
        c.zoo.notify()
        await until(lambda: not doubt(master), "it is no member any more")


def without_times(message: Any) -> list[Any]:
    """Change the message to one of an older version."""
    message.ClearField("clock_ahead_ms")
    return [message]


async def test_an_older_version_is_not_compared(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        slave.tap.change = without_times
        await with_clocks(c, 0, DAY_MS)
        await until(lambda: doubt(c.master), "the slave sends its time")
        await c.acked(slave, c.master.produce())
        assert doubt(slave) is None
        await c.equal()
    assert not wire.MasterMessage.FromString(b"").HasField("clock_ahead_ms")
    peers = PeerClocks(SystemClock())
    peers.heard(A, wire.Ack.FromString(b"").wall_ms, SystemClock().monotonic_ms())
    assert peers.ahead_ms(A) is None


AHEAD = """
import sys
from fmqcli.main import main
from fmqadapters.process.clock import SystemClock

right = SystemClock.wall_ms
SystemClock.wall_ms = lambda clock: right(clock) + 24 * 3600 * 1000
sys.exit(main())
"""


@pytest.mark.processes
@pytest.mark.timeout(180)
async def test_a_slave_a_day_ahead_deletes_nothing(
    tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal is new: neither a jump nor its newest message reveals the wrong clock."""
    ahead = True

    def command(options: ClusterOptions, plan: BrokerPlan) -> list[str]:
        python, *_, broker, run = (right := broker_command(options, plan))[:5]
        wrong = [python, "-c", AHEAD, broker, run, *right[5:]]
        return wrong if ahead and plan.id == "g1-1" else right

    monkeypatch.setattr("fmqdev.cluster.broker_command", command)
    settings = {"segment_bytes": 1 << 20, "retention_ms": 3_600_000}
    options = ClusterOptions(groups=1, settings=settings, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "c", options) as dev:
        async with fmqclient.connect(dev.url) as client, client.producer() as producer:
            await client.admin().create_topic("orders", queues=2)
            for _ in range(40):
                await producer.send("orders", bytes(100_000))

        async def until_log(broker: BrokerId, text: str) -> str:
            async with asyncio.timeout(90):
                while text not in (log := dev.brokers[broker].log.read_text()):
                    await asyncio.sleep(0.1)
            return log

        for broker, where in (("g1-0", "ahead of"), ("g1-1", "behind")):
            log = await until_log(BrokerId(broker), "deletion_by_age_held")
            assert "clocks_differ" in log
            assert "old_segments_deleted" not in log
            status = await dev.broker_status(broker)
            assert status is not None
            assert f" s {where} this broker's: correct the wrong clock" in status.reason
            assert status.journal_start == 0
        ahead = False
        dev.kill("g1-1")
        assert await dev.ended("g1-1")
        dev.start_broker("g1-1")
        for broker in ("g1-0", "g1-1"):
            async with asyncio.timeout(90):
                while (
                    s := await dev.broker_status(broker)
                ) is None or "deleted by age" in s.reason:
                    await asyncio.sleep(0.1)
        await until_log(BrokerId("g1-0"), "clocks_agree")
