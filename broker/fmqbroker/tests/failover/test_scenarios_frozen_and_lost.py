"""Scenarios with real processes: a frozen master, a lost slave, brokers that die together."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.scenario_harness import (
    FULL,
    MASTER,
    NONE,
    READ,
    SLAVE,
    scenario,
    switched,
)
from fmqbroker.tests.scenario_traffic import BOUND_S
from fmqbroker.tests.scenario_watch import READERS, TOPIC
from fmqcore.errors import ErrorCode
from fmqcore.zk.group_state import Mode
from fmqdev.broker_process import broker_command, tail
from fmqdev.cluster import ZOOKEEPER
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import OFFSETS, STATUS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
SOON = {"session_timeout_ms": 1200, "grant_ms": 800, "dead_after_ms": 1200}
"""Must be noticed before gRPC notices, which would close what waits in the sockets."""
LEVELS = (client_pb2.REPLICATED, client_pb2.PERSISTED, client_pb2.RECEIVED)


async def test_master_frozen_and_woken(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """Requests in its sockets find it without a lease: nothing is served, nothing is OK."""
    soon = scenario(tmp_path, zookeeper_server, settings=SOON)
    async with soon as stage, stage.raw(MASTER) as raw:
        epoch = (await stage.state()).epoch
        ask = raw.connection.call
        await stage.serves(MASTER, FULL)
        await stage.gather_backlog()
        stage.cluster.pause(MASTER)
        await stage.serves(SLAVE, READ)
        for level in LEVELS:
            await raw.send(level)
        async with asyncio.TaskGroup() as tasks:
            offsets = admin_pb2.OffsetsRequest(topic=TOPIC, group=READERS)
            status = tasks.create_task(ask(STATUS, admin_pb2.StatusRequest(), 30))
            reading = tasks.create_task(ask(OFFSETS, offsets, 30))
            await stage.consume_backlog()
            stage.cluster.resume(MASTER)
            codes = await raw.answers()
        assert status.result().permission == NONE, "its first answer after it woke"
        assert reading.result().error.code == client_pb2.NO_PERMISSION
        assert codes == [ErrorCode.NO_PERMISSION] * len(LEVELS)
        await switched(stage, epoch)
        await stage.flow()
        await stage.verdict()


WEDGEABLE = """
import signal, sys, time
from fmqcli.main import main

wedged = False

def wedge(*_):  # in the thread of the event loop, which is at a standstill then; others go on
    global wedged
    wedged = True
    while wedged:
        time.sleep(0.01)

def go_on(*_):
    global wedged
    wedged = False

signal.signal(signal.SIGUSR1, wedge)
signal.signal(signal.SIGUSR2, go_on)
sys.exit(main())
"""


async def test_master_wedged(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event loop stands still while all its threads live: the slave still takes over."""

    def wedgeable(*arguments: Any) -> list[str]:
        python, *_, broker, run = (command := broker_command(*arguments))[:5]
        return [python, "-c", WEDGEABLE, broker, run, *command[5:]]

    monkeypatch.setattr("fmqdev.cluster.broker_command", wedgeable)
    async with scenario(tmp_path, zookeeper_server) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        stage.cluster.kill(MASTER, signal.SIGUSR1)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        assert stage.cluster.alive(MASTER)
        stage.cluster.kill(MASTER, signal.SIGUSR2)
        await switched(stage, epoch)
        await stage.flow()
        await stage.verdict()


async def test_slave_killed(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """Writes are refused and go to the other group; they resume by themselves."""
    async with scenario(tmp_path, zookeeper_server, groups=2) as stage:
        await stage.kill(SLAVE)
        state = await stage.until_state(lambda s: not s.isr, "it is out of the in-sync set")
        await stage.refuses()
        assert await stage.answer(client_pb2.ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
        acked = stage.traffic.acked()
        await stage.flow(400, group="g2", stored=False)  # one member: it waits for g1
        assert stage.traffic.acked() == acked, "without its slave it acknowledges nothing"
        await stage.serves(MASTER, FULL)
        stage.cluster.start_broker(SLAVE)
        await stage.flow()
        await stage.cluster.wait_healthy()
        after = await stage.state()
        assert (after.mode, after.epoch) == (Mode.MASTER, state.epoch), "no term ended"
        await stage.verdict()


@pytest.mark.parametrize("first", [MASTER, SLAVE])
async def test_both_brokers_killed(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper, first: str
) -> None:
    """Whichever returns first, nothing acknowledged is lost."""
    async with scenario(tmp_path, zookeeper_server) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        await stage.kill(MASTER, SLAVE)
        await stage.gone_from_zookeeper(MASTER)
        stage.cluster.start_broker(first)
        if first == MASTER:
            await stage.serves(MASTER, FULL)
            stage.cluster.start_broker(SLAVE)
            await stage.consume_backlog()
        else:
            await stage.serves(SLAVE, READ)
            await stage.consume_backlog()
            stage.cluster.start_broker(MASTER)
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()
        assert (await stage.state()).epoch == epoch + (1 if first == MASTER else 3)


async def test_master_comes_back_alone_with_a_damaged_tail(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """It truncates what it cannot read and waits for the slave that has it (ADR 0018).

    No checkpoint names that tail as durable: damage in a named one ends the broker (J001).
    """
    late = {"checkpoint_interval_ms": 600_000}
    async with scenario(tmp_path, zookeeper_server, settings=late) as stage:
        await stage.gather_backlog()
        await stage.kill(MASTER, SLAVE)
        await stage.gone_from_zookeeper(MASTER)
        [journal] = stage.cluster.brokers[MASTER].data.glob("*.journal")
        raw = bytearray(journal.read_bytes())
        raw[len(raw.rstrip(b"\0")) - 2000] ^= 1  # some bytes were acknowledged
        journal.write_bytes(raw)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, NONE, "it waits to hear its in-sync slaves (g1-1)")
        await stage.looked()
        await stage.serves(MASTER, NONE, "it waits to hear its in-sync slaves (g1-1)")
        stage.cluster.start_broker(SLAVE)
        await stage.consume_backlog()
        await stage.serves(MASTER, FULL)
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()


async def test_reader_with_damaged_segment_hands_reads_to_whole_slave(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """A start reads only the newest segment, so a read finds it: no consumer waits for it."""
    small = {"segment_bytes": 1 << 20, "tail_cache_bytes": 1 << 20}
    async with scenario(tmp_path, zookeeper_server, settings=small) as stage:
        client, plan, count = stage.traffic.client, stage.cluster.brokers[MASTER], 64
        await client.admin().create_topic("old", queues=1)
        async with client.producer() as producer:
            for number in range(count):
                await producer.send("old", b"%d " % number + bytes(1 << 16))
        second = sorted(f for f in plan.data.glob("*.journal") if f.stem[0].isdigit())[1]
        raw = bytearray(second.read_bytes())
        raw[300_000] ^= 1
        second.write_bytes(raw)
        seen: dict[int, None] = {}
        async with client.consumer("old", group="newcomer") as sub, asyncio.timeout(BOUND_S):
            while len(seen) < count:
                for message in await sub.fetch(10, 1.0):
                    seen[int(message.value.split()[0])] = None  # again, after the takeover
                    message.ack_now()
        assert list(seen) == list(range(count))
        await stage.serves(SLAVE, READ)
        for _ in range(2):  # its supervisor restarts it, in vain until a person helps
            assert await stage.cluster.ended(MASTER)
            assert f"{second.name}" in tail(plan.log)
            stage.cluster.start_broker(MASTER)
        assert await stage.cluster.ended(MASTER)
        shutil.rmtree(plan.data)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, FULL)
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()


async def test_all_five_killed_at_once(tmp_path: Path) -> None:
    """ZooKeeper too. Clients see only a long pause; everything acknowledged is there."""
    async with scenario(tmp_path, None, groups=2) as stage:
        await stage.flow(group="g2")
        await stage.kill(ZOOKEEPER, *stage.cluster.brokers)
        await stage.start_again()
        assert {b for b, s in stage.watch.latest.items() if s.permission is FULL} == {
            "g1-0", "g2-0"
        }  # fmt: skip
        await stage.flow()
        await stage.flow(group="g2")
        await stage.verdict()
