"""Switchovers between real processes (ADR 0022): requested, interrupted, after a loss."""

import asyncio
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.chaos.watch import now_ms
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.scenario_harness import FULL, MASTER, NONE, READ, SLAVE, Scenario, scenario
from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import GroupState, Mode
from fmqdev.demo.verdict import outages

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


async def _fmq_failover(stage: Scenario, to: str) -> str:
    """Run the command as a person would; return its output."""
    command = (sys.executable, "-m", "fmqcli.main", "failover", "g1", "--to", to)
    where = ("-z", stage.cluster.zookeeper_address, "-c", stage.cluster.options.cluster)
    process = await asyncio.create_subprocess_exec(
        *command, *where, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def _want(stage: Scenario, to: str, lost: str = "") -> None:
    groups, lost_one = stage.cluster.groups, BrokerId(lost)
    config = await groups.config("g1")
    await groups.put_config(replace(config, master=BrokerId(to), declared_lost=lost_one))


async def _master(stage: Scenario, broker: str) -> GroupState:
    def opened(state: GroupState) -> bool:
        return (state.mode, state.master, state.required_epoch) == (Mode.MASTER, broker, 0)

    return await stage.until_state(opened, f"{broker} is master")


async def test_switchover_there_and_back_under_traffic(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """Nothing is lost, order holds, and the old master follows without any restart."""
    async with scenario(tmp_path, zookeeper_server) as stage:
        before = await stage.state()
        from_ms = now_ms()
        for to, other in ((SLAVE, MASTER), (MASTER, SLAVE)):
            assert f"{to} is master of g1" in await _fmq_failover(stage, to)
            await stage.serves(to, FULL)
            await stage.serves(other, NONE)
            await stage.cluster.wait_healthy()
            await stage.flow()
        outage = outages(stage.watch.seen, from_ms, now_ms())[0]
        state = await stage.state()
        assert state.epoch >= before.epoch + 6  # yield, take over, open: twice
        assert not state.degraded
        await stage.verdict()
        seen = [(p, o, r) for p, some in stage.traffic.history.consumed.items() for o, r in some]
        rows = {r for _, _, r in seen}
        assert len(set(seen)) == len(rows), "nothing is stored twice"
        print(f"switchover: {len(seen) - len(rows)} of {len(seen)} messages were delivered again")
        for kind, ms in (("reads", outage.reads_ms), ("writes", outage.writes_ms)):
            print(f"switchover: no broker served {kind} for {ms:.0f} ms at most")


async def test_old_master_killed_during_a_switchover(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """After any step, the wanted broker becomes master and the old one follows."""
    async with scenario(tmp_path, zookeeper_server) as stage:
        await _want(stage, SLAVE)
        await stage.kill(MASTER)
        stage.cluster.start_broker(MASTER)
        await _master(stage, SLAVE)
        await stage.serves(SLAVE, FULL)
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()


async def test_promotion_after_the_masters_disk_is_gone(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """The reader becomes master; an empty broker comes under the old name, and follows."""
    async with scenario(tmp_path, zookeeper_server) as stage:
        await stage.gather_backlog()
        await stage.kill(MASTER)
        shutil.rmtree(stage.cluster.brokers[BrokerId(MASTER)].data)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        await _want(stage, SLAVE, lost=MASTER)
        state = await _master(stage, SLAVE)
        assert not state.degraded
        await stage.serves(SLAVE, FULL)
        stage.cluster.start_broker(MASTER)
        await stage.cluster.wait_healthy()
        assert (await stage.state()).master == SLAVE
        await stage.flow()
        await stage.verdict()
