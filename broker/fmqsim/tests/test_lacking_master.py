"""Brokers that may lack what they acknowledged, and proofs that no broker has more (F17, F18)."""

import asyncio
from dataclasses import replace

import pytest

from e2e.history.client_events import Acked
from e2e.history.cluster_events import Fault
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode
from fmqsim.tests.directed import MASTER, QUICK, SLAVE, THIRD, Stage, play

CACHED = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.DURABLE, HowMany.ONE)
ALL = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.DURABLE, HowMany.ALL)


def test_emptied_master_waits_for_the_only_acknowledging_slave() -> None:
    """FSYNC, one durable (the default): `fsync` proves nothing about a lost disk (I2)."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        stage.cut(MASTER, SLAVE)
        await stage.stored(30)  # THIRD alone acknowledges
        assert stage.in_sync(SLAVE), "it is a little behind, as it may be"
        third = stage.down(THIRD)
        master = stage.empty(MASTER)
        stage.heal(MASTER, SLAVE)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        assert stage.now_state.isr == {SLAVE, THIRD}
        master.let_go()
        await stage.until(lambda: stage.now_state.mode is Mode.MASTER, 10)
        third.let_go()

    play(trouble, slaves=2, policy=AckPolicy(), settings={"dead_after_ms": 60_000})


def test_emptied_master_does_not_open_on_a_stale_slaves_bytes() -> None:
    """No slave is in sync; the first to come has the newest term, and few batches (I1)."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        third = stage.down(THIRD)
        await stage.comes(lambda: not stage.in_sync(THIRD), "one has left")
        await stage.stored(40)
        slave = stage.down(SLAVE)
        await stage.comes(lambda: not stage.in_sync(SLAVE), "the other, too")
        master = stage.empty(MASTER)
        third.let_go()
        master.let_go()
        assert not await stage.until(lambda: stage.now_state.epoch > 1, 20)
        slave.let_go()
        await stage.comes(lambda: stage.now_state.epoch > 1, "with all of them it opens")

    play(trouble, slaves=2, policy=AckPolicy())


@pytest.mark.parametrize(
    "policy", [AckPolicy(), AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.RECEIVED, HowMany.ONE)]
)
def test_new_master_with_a_new_disk_waits_for_no_third_broker(
    policy: AckPolicy,
) -> None:
    """It has all that its master had (F16), on its disk: the third may be away for long."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        await stage.stored(10)
        third = stage.down(THIRD)
        await stage.comes(lambda: not stage.in_sync(THIRD), "one has left")
        await stage.stored(10)
        stage.operator.request_master("g1", SLAVE)
        await stage.comes(
            lambda: stage.now_state.master == SLAVE and stage.now_state.required_epoch == 0,
            "it serves",
        )
        third.let_go()

    play(trouble, slaves=2, policy=policy)


async def _given_by_a_stale_one_first(stage: Stage) -> None:
    """SLAVE is in sync and comes a little later than THIRD, which is stale and is pulled from."""
    third = stage.brokers[THIRD]
    master = stage.empty(MASTER)
    await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
    stage.cut(MASTER, SLAVE)
    third.let_go()
    master.let_go()
    await stage.until(lambda: stage.now_state.mode is Mode.MASTER, 3)
    assert stage.journal(MASTER).end > 0, "it was given what the stale one has"
    stage.heal(MASTER, SLAVE)
    await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "a term is opened")


def test_stale_bytes_yield_to_a_journal_that_starts_later() -> None:
    """Retention removed the stale slave's end from the in-sync one: no broker has the rest."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        ends = stage.journal(THIRD).end
        stage.down(THIRD)
        await stage.comes(lambda: not stage.in_sync(THIRD), "one has left")
        while stage.journal(SLAVE).journal_start <= ends + (1 << 17):
            await stage.stored(20)
        await _given_by_a_stale_one_first(stage)

    sending = (replace(QUICK, burst=(4, 8), size=(2000, 8000)),)
    settings = {"retention_bytes": 300_000}
    play(trouble, slaves=2, policy=AckPolicy(), sending=sending, settings=settings)


def test_stale_bytes_yield_to_another_history() -> None:
    """The stale slave ends with bytes its master lost in a power cut, unacknowledged."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        stage.cut(MASTER, SLAVE)
        master = stage.brokers[MASTER]
        master.storage.speed.stalled_until_s = stage.loop.now + 60
        lacks = stage.journal(MASTER).durable_end
        await stage.comes(lambda: stage.journal(THIRD).durable_end > lacks + 500, "one is ahead")
        stage.down(THIRD)
        master.hold()
        master.cut_power()
        master.storage.speed.stalled_until_s = 0
        stage.heal(MASTER, SLAVE)
        master.power_on()
        master.let_go()
        await stage.comes(
            lambda: stage.now_state.mode is Mode.MASTER and stage.now_state.epoch > 1, "is back"
        )
        await stage.comes(lambda: stage.in_sync(SLAVE) and not stage.in_sync(THIRD), "one of two")
        await stage.stored(30)
        await _given_by_a_stale_one_first(stage)

    play(trouble, slaves=2, policy=AckPolicy(), settings={"dead_after_ms": 3000})


@pytest.mark.parametrize("count", range(10, 40, 3))
@pytest.mark.parametrize("changed", [False, True])
def test_stricter_policy_during_an_outage_loses_nothing(changed: bool, count: int) -> None:
    """The master lost power, and is to fsync from now on: it lacks what it acknowledged before."""

    async def trouble(stage: Stage) -> None:
        stage.operator.permit("g1", SLAVE, Permission.WRITE)  # no broker reads there
        host = stage.brokers[MASTER]
        await stage.stored(count)
        host.hold()
        assert stage.journal(MASTER).durable_end < stage.commit(MASTER).commit_end
        host.cut_power()
        if changed:
            stage.operator.put(replace(stage.configs["g1"], policy=AckPolicy()))
        stage.cut(MASTER, SLAVE)  # it comes a moment after its master
        host.power_on()
        host.let_go()
        await stage.until(lambda: stage.now_state.epoch > 1, 5)
        stage.heal(MASTER, SLAVE)
        await stage.comes(stage.whole, "the master is back")

    play(trouble, policy=CACHED)


@pytest.mark.parametrize("count", [50, 70, 80])
def test_emptied_slave_is_no_proof_of_durable_acks(count: int) -> None:
    """The third has it on its disk, and comes a little later (I2)."""

    async def trouble(stage: Stage) -> None:
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        await stage.stored(count)
        master = stage.brokers[MASTER]
        master.hold()
        assert stage.journal(MASTER).durable_end < stage.commit(MASTER).commit_end
        master.cut_power()
        third, slave = stage.down(THIRD), stage.empty(SLAVE)
        master.power_on()
        slave.let_go()
        master.let_go()
        await stage.until(lambda: stage.now_state.epoch > 1, 10)
        third.let_go()
        await stage.comes(stage.whole, "all are back")

    play(trouble, slaves=2, policy=ALL)


@pytest.mark.parametrize("count", [28, 44, 48, 52])
def test_acks_of_a_dead_master_outlive_the_reader_that_has_them(count: int) -> None:
    """They are only in the reader's journal, above the commit end, not in the record (I5)."""

    async def trouble(stage: Stage) -> None:
        while len(stage.events(Acked)) < count:
            await asyncio.sleep(0.001)  # they are in flight
        master = stage.brokers[MASTER]
        master.storage.speed.stalled_until_s = stage.loop.now + 60
        lacks = stage.journal(MASTER).durable_end
        await stage.until(lambda: False, 0.3)
        assert stage.journal(SLAVE).durable_end > lacks, "the acks"
        master.hold()
        master.cut_power()
        master.storage.speed.stalled_until_s = 0
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        await stage.until(lambda: False, 6)  # confirmed acks are in the state by then
        reader = stage.down(SLAVE)
        master.power_on()
        master.let_go()
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "goes on without it")
        await stage.until(lambda: False, 2)
        reader.let_go()

    play(trouble, sending=(replace(QUICK, burst=(4, 4), pause_s=(0.6, 0.6)),))


def test_claim_from_an_unopened_master_keeps_delivered_records() -> None:
    """One takeover until a term opens: delivered records that are lost are taken back (I11).

    Otherwise their acks would count for the next messages at those offsets.
    """

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        stage.cut(MASTER, THIRD)
        await stage.stored(30)  # SLAVE alone acknowledges
        master = stage.empty(MASTER)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        assert stage.now_state.reader == SLAVE
        await stage.until(lambda: False, 4)  # everything is read, acked and checkpointed
        stage.cut(SLAVE, THIRD)
        shown = stage.now_state.max_delivered_position
        stage.operator.request_master("g1", SLAVE, lost=MASTER)
        await stage.comes(lambda: stage.now_state.required_epoch, "the mastership is taken")
        slave = stage.empty(SLAVE)
        stage.heal(SLAVE, THIRD)
        await stage.comes(lambda: stage.now_state.reader == THIRD, "the third reads")
        assert stage.now_state.max_delivered_position == shown
        await stage.until(lambda: False, 2)
        slave.let_go()
        master.let_go()  # both that acknowledged lost their disks: a person decides (ADR 0058)
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "open")

    play(trouble, slaves=2, policy=AckPolicy(), settings={"dead_after_ms": 60_000})


def test_bytes_only_sent_by_a_lost_master_stay_there() -> None:
    """SENT: acknowledged, and no slave has it. Its offsets are reused and read (I11)."""
    sent = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.SENT, HowMany.ONE)

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
        stage.cut(MASTER, SLAVE)
        await stage.stored(10)
        master = stage.down(MASTER)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        stage.operator.request_master("g1", SLAVE, lost=MASTER)
        await stage.comes(lambda: stage.now_state.master == SLAVE, "it is master")
        stage.heal(MASTER, SLAVE)
        master.let_go()
        await stage.comes(lambda: stage.in_sync(MASTER), "the old one is a slave, emptied")
        assert [f.detail for f in stage.events(Fault) if f.on == MASTER] == ["by a person"]

    play(trouble, policy=sent)
