"""Failover scenarios with real processes: ZooKeeper, brokers, clients, cut links.

Every test ends with the stage's verdict: on the clients' view (all acknowledged messages are
consumed and still stored, in order, and nothing else) and on the watch's (never two brokers of a
group with one permission, never reads with offsets older than those acknowledged).
"""

from pathlib import Path

import pytest

from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.scenario_harness import (
    FULL,
    MASTER,
    NONE,
    READ,
    SLAVE,
    WRITE,
    scenario,
    switched,
)
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import Mode
from fmqdev.demo.replica_comparison import compare_journals

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
ALONE = AckPolicy(how_many=HowMany.NONE)
LOOKS = 30
"""As many looks of the watch, 50 ms apart or more, as the effects of a loss take."""


async def test_master_killed(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """Reads continue from the slave, writes in the other group; then the return; equal journals."""
    async with scenario(tmp_path, zookeeper_server, groups=2) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        await stage.kill(MASTER)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        await stage.flow(group="g2")
        state = await stage.state()
        assert (state.mode, state.reader) == (Mode.SLAVE_CONSUME, SLAVE)
        stage.cluster.start_broker(MASTER)
        await switched(stage, epoch)
        await stage.flow()
        await stage.verdict()
        assert (await stage.state("g2")).epoch == 1, "the other group is untouched"
        await stage.cluster.stop()
        for group in ("g1", "g2"):
            master, slave = stage.cluster.group(group)
            compared = compare_journals(group, master.data, slave.data)
            assert compared.finding is None, compared.finding


@pytest.mark.parametrize("linked", [False, True])
async def test_slave_starts_after_the_master_fenced_itself(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper, linked: bool
) -> None:
    """Without its master it takes over; with it, it grants, and the master serves on."""
    # It must find its master before it may claim, which takes as long as the machine needs.
    long = {"grant_ms": 3000, "dead_after_ms": 3000, "claim_checks": 100} if linked else {}
    async with scenario(tmp_path, zookeeper_server, proxied=True, settings=long) as stage:
        epoch = (await stage.state()).epoch
        stage.cut_from_zookeeper(MASTER)
        await stage.kill(SLAVE)  # too late for its removal from the in-sync set
        await stage.serves(MASTER, NONE)
        assert SLAVE in (await stage.state()).isr
        await stage.gone_from_zookeeper(MASTER)
        if not linked:
            stage.cut_from_master(SLAVE)
        stage.cluster.start_broker(SLAVE)
        if linked:
            await stage.serves(MASTER, FULL)
            await stage.flow()
            await stage.serves(SLAVE, NONE, "it may serve on")
            assert (await stage.state()).epoch == epoch
            stage.heal()
        else:
            await stage.serves(SLAVE, READ)
            assert stage.watch.latest[MASTER].permission is NONE
            stage.heal()
            await switched(stage, epoch)
        await stage.flow()
        await stage.verdict()
        assert linked or stage.watch.served[MASTER, epoch, NONE]


async def test_no_slave_configured(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """No slave can take over: the master serves on without ZooKeeper, and again after a kill."""
    async with scenario(tmp_path, zookeeper_server, slaves=0, policy=ALONE, proxied=True) as stage:
        epoch = (await stage.state()).epoch
        stage.cut_from_zookeeper(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        await stage.flow(400)
        assert stage.watch.latest[MASTER].permission is FULL
        stage.heal()
        await stage.flow()
        assert (await stage.state()).epoch == epoch
        await stage.kill(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, FULL)
        assert (await stage.state()).epoch == epoch + 1
        await stage.flow()
        await stage.verdict()


async def test_slave_configured_that_never_came(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """The master does not wait for it, and it may not take over without the data."""
    async with scenario(
        tmp_path, zookeeper_server, policy=ALONE, proxied=True, late=frozenset([SLAVE])
    ) as stage:
        epoch = (await stage.state()).epoch
        stage.cut_from_zookeeper(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        await stage.flow(400)
        stage.heal()
        await stage.kill(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        stage.cluster.start_broker(SLAVE)
        await stage.serves(SLAVE, NONE, "was not in sync")
        await stage.looked(LOOKS)
        state = await stage.state()
        assert (state.mode, state.epoch) == (Mode.MASTER, epoch)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, FULL)
        await stage.cluster.wait_healthy()
        await stage.flow()
        await stage.verdict()
        assert not any(READ in p for (b, _, p) in stage.watch.served if b == SLAVE)


@pytest.mark.parametrize("strict", [False, True])
async def test_slave_gone_for_good_in_slave_consume(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper, strict: bool
) -> None:
    """The master returns with the offsets in ZooKeeper, degraded; `strict` waits for a person."""
    async with scenario(tmp_path, zookeeper_server, strict_takeover=strict) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        # Else the slave may show, and note as consumed, what only it had been sent: with it gone
        # for good, the master takes that back, and the progress with it (ADR 0025).
        await stage.stop_producer()
        await stage.kill(MASTER)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        await stage.stop_consumer()
        await stage.checkpointed()
        await stage.kill(SLAVE)
        await stage.gone_from_zookeeper(SLAVE)
        stage.cluster.start_broker(MASTER)
        if strict:
            await stage.serves(MASTER, NONE, "strict_takeover")
            await stage.looked(LOOKS)
            await stage.serves(MASTER, NONE, "strict_takeover")
            stage.cluster.start_broker(SLAVE)
        state = await stage.until_state(lambda s: s.mode is Mode.MASTER, "the master returns")
        assert (state.degraded, state.max_delivered_position) == (not strict, 0), state.reason
        await stage.until(lambda: READ in stage.watch.latest[MASTER].permission, "it reads")
        await stage.until(lambda: stage.watch.floors_seen[MASTER] > 0, "with its offsets")
        assert state.epoch > epoch + 1
        if not strict:
            stage.cluster.start_broker(SLAVE)  # it turns up after all
        await stage.cluster.wait_healthy()
        stage.start_producer()
        stage.start_consumer()
        await stage.flow()
        await stage.verdict()


async def test_read_is_not_given_back_before_the_offsets(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """The record is held up twice on its way: its arrival is never assumed."""
    async with scenario(tmp_path, zookeeper_server, proxied=True) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        await stage.kill(MASTER)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        await stage.stop_consumer()  # it would repeat its acks and so repair the loss
        refused = stage.only_one_connection(SLAVE)
        stage.cut_from_master(SLAVE)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, NONE, "waits for reader g1-1 to hand over")
        await stage.looked(LOOKS)
        await stage.serves(SLAVE, READ)
        assert (await stage.state()).mode is Mode.SLAVE_CONSUME

        stage.let_stream_through(SLAVE)  # but not the call that brings the offsets
        await stage.until_state(lambda s: s.mode is Mode.HANDOVER, "the slave has stopped")
        before = len(refused)
        await stage.until(lambda: len(refused) > before + 3, "it tries to hand over")
        await stage.looked(LOOKS)
        assert stage.watch.latest[MASTER].permission is NONE
        assert stage.watch.latest[SLAVE].permission is NONE
        assert (await stage.state()).epoch == epoch + 2
        for later in (epoch + 1, epoch + 2):
            assert not stage.watch.served[MASTER, later, FULL]
            assert not stage.watch.served[MASTER, later, READ]

        stage.heal()
        await stage.serves(MASTER, FULL)
        await stage.until(lambda: stage.watch.floors_seen[MASTER] > 0, "with its offsets")
        await switched(stage, epoch)
        stage.start_consumer()
        await stage.flow()
        await stage.verdict()


async def test_master_cut_from_zookeeper_but_not_from_its_slave(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """No switch: the slave's grants support the master."""
    async with scenario(tmp_path, zookeeper_server, proxied=True) as stage:
        epoch = (await stage.state()).epoch
        stage.cut_from_zookeeper(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        await stage.serves(SLAVE, NONE, "it may serve on")
        await stage.looked(LOOKS)
        await stage.flow()
        assert stage.watch.latest[MASTER].permission is FULL
        stage.heal()
        await stage.cluster.wait_healthy()
        await stage.looked(LOOKS)
        state = await stage.state()
        assert (state.mode, state.epoch) == (Mode.MASTER, epoch)
        await stage.flow()
        await stage.verdict()


async def test_master_cut_from_both(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    """The master fences itself before the slave serves, and returns when the links do."""
    async with scenario(tmp_path, zookeeper_server, proxied=True) as stage:
        epoch = (await stage.state()).epoch
        await stage.gather_backlog()
        stage.cut_from_zookeeper(MASTER)
        stage.cut_from_master(SLAVE)
        await stage.serves(MASTER, NONE)
        await stage.serves(SLAVE, READ)
        await stage.consume_backlog()
        await stage.looked()
        assert stage.watch.latest[MASTER].permission is NONE
        stage.heal()
        await switched(stage, epoch)
        await stage.flow()
        await stage.verdict()


async def test_administrator_disables_reads(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    """No switch: reads disabled at the master are not taken over."""
    async with scenario(tmp_path, zookeeper_server) as stage:
        epoch = (await stage.state()).epoch
        await stage.permit(MASTER, WRITE)
        await stage.serves(MASTER, WRITE)
        await stage.kill(MASTER)
        await stage.gone_from_zookeeper(MASTER)
        await stage.serves(SLAVE, NONE, "administrator")
        await stage.looked(LOOKS)
        state = await stage.state()
        assert (state.mode, state.epoch) == (Mode.MASTER, epoch)
        stage.cluster.start_broker(MASTER)
        await stage.serves(MASTER, WRITE)
        await stage.permit(MASTER, FULL)
        await stage.serves(MASTER, FULL)
        assert not stage.watch.served[SLAVE, epoch + 1, READ]
        await stage.flow()
        await stage.verdict()
