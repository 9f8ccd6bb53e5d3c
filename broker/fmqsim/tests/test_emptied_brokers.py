"""Brokers lose their disks while they have a role: none delivers, or opens a term on, less."""

import asyncio
from dataclasses import replace

import pytest

from e2e.history.cluster_events import Fault, FaultKind
from fmqcore.policy import AckPolicy, HowMany
from fmqcore.zk.group_state import Mode
from fmqsim.tests.directed import MASTER, QUICK, SLAVE, THIRD, Stage, play

ONCE = (replace(QUICK, burst=(40, 40), pause_s=(40.0, 40.0)),)


def _floors(stage: Stage, broker: str) -> dict[tuple[str, int], tuple[int, int]]:
    kept = stage.journal(broker).state.offsets
    return {(key.group, key.queue_id): (e.floor, e.version) for key, e in kept.items()}


@pytest.mark.parametrize("slaves", [1, 2])
def test_emptied_reader_delivers_nothing_before_its_refill(slaves: int) -> None:
    """C2: consumers would start at 0 there, and that would outrank their old progress."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(30)
        await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
        await asyncio.sleep(8)
        before = _floors(stage, MASTER)
        assert max(floor for floor, _ in before.values()) > 0
        master = stage.down(MASTER)
        await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        await asyncio.sleep(3)
        reader, epoch = stage.now_state.reader, stage.now_state.epoch
        stage.empty(reader).let_go()
        await asyncio.sleep(15)
        if slaves == 1:
            assert stage.now_state.epoch == epoch, "it claims nothing"
        master.let_go()
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "the master is back")
        await stage.comes(lambda: stage.in_sync(reader), "it is filled again")
        for queue, (floor, _) in _floors(stage, MASTER).items():
            assert floor >= before[queue][0], queue

    play(trouble, slaves=slaves, policy=AckPolicy(), sending=ONCE)


@pytest.mark.parametrize("reads", [True, False])
def test_emptied_master_trusts_no_slave_if_none_had_to_ack(reads: bool) -> None:
    """Even when a slave hands over that has less than another in-sync one (ADR 0043)."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        stage.cut(MASTER, SLAVE)
        await stage.stored(30)
        await asyncio.sleep(1)
        assert stage.journal(SLAVE).end < stage.commit(THIRD).commit_end
        assert stage.in_sync(SLAVE)
        third = stage.down(THIRD)
        master = stage.empty(MASTER)
        stage.heal(MASTER, SLAVE)
        if reads:
            await stage.comes(lambda: stage.now_state.mode is Mode.SLAVE_CONSUME, "is read")
        master.let_go()
        assert not await stage.until(lambda: stage.now_state.mode is Mode.MASTER and reads, 20)
        third.let_go()
        await stage.comes(lambda: stage.now_state.mode is Mode.MASTER, "it opens")
        await stage.comes(lambda: stage.in_sync(THIRD), "who had most is not refused")
        emptied = [e for e in stage.events(Fault) if e.kind is FaultKind.DISK_EMPTY]
        assert {e.on for e in emptied} == {MASTER}

    policy = AckPolicy(how_many=HowMany.NONE)
    play(trouble, slaves=2, policy=policy, settings={"dead_after_ms": 60_000})


def test_two_lost_disks_of_three_wait_for_a_person() -> None:
    """One slave makes an acknowledgement, and it may have been the one that lost its disk, too."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(20)
        await stage.comes(lambda: stage.in_sync(SLAVE) and stage.in_sync(THIRD), "both")
        third = stage.empty(THIRD)
        master = stage.empty(MASTER)
        assert stage.in_sync(THIRD)
        master.let_go()
        third.let_go()
        assert not await stage.until(lambda: stage.now_state.last_opened_epoch > 1, 20)
        await stage.comes(lambda: stage.now_state.last_opened_epoch > 1, "a person has decided")

    play(trouble, slaves=2, policy=AckPolicy(), settings={"dead_after_ms": 60_000})


def test_slave_in_mid_refill_does_not_take_over_the_reads() -> None:
    """F20: a master that is cut from ZooKeeper fills it, and cannot take it out of the set."""

    async def trouble(stage: Stage) -> None:
        await stage.stored(200)
        await stage.comes(lambda: stage.in_sync(SLAVE), "in sync")
        await asyncio.sleep(3)
        stage.ensemble.route(MASTER).cut()
        await asyncio.sleep(0.3)
        before, commit_end = _floors(stage, MASTER), stage.commit(MASTER).commit_end
        stage.empty(SLAVE).let_go()

        def partly_filled() -> bool:
            process = stage.brokers[SLAVE].node.process
            journal = stage.watcher.of(process).journal if process is not None else None
            return journal is not None and bool(journal.epoch) and journal.end > commit_end // 10

        while not partly_filled():
            await asyncio.sleep(0.0005)
        assert stage.journal(SLAVE).end < commit_end // 2
        stage.cut(MASTER, SLAVE)
        assert not await stage.until(lambda: stage.now_state.mode is not Mode.MASTER, 20)
        assert stage.in_sync(SLAVE)
        assert stage.journal(SLAVE).end < commit_end
        stage.ensemble.route(MASTER).heal()
        stage.heal(MASTER, SLAVE)
        await stage.comes(lambda: stage.commit(MASTER).commit_end > commit_end, "sends go on")
        for queue, (floor, _) in _floors(stage, MASTER).items():
            assert floor >= before[queue][0], queue

    sending = (replace(QUICK, burst=(20, 20), pause_s=(0.2, 0.2), size=(2000, 4000)),)
    play(trouble, slaves=1, policy=AckPolicy(), sending=sending)
