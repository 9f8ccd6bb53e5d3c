"""The in-sync set with full disks, doubtful changes and strangers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.fault_disk import FaultDisk
from fmqbroker.tests.journal.test_full_disk import KEPT, SmallDisk, fill_up, get_stuck
from fmqbroker.tests.journal_kit import SEGMENT, epoch, running
from fmqbroker.tests.replication.test_reconciliation import CACHED, shorter_master
from fmqbroker.tests.replication.test_suffix_room import Says
from fmqbroker.tests.replication_harness import Cluster, cluster, turns, until
from fmqcore.ids import Position
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqport.coordination import ConnectionLost
from fmqport.tests.call_context import CALL
from fmqproto.v1 import replication_pb2 as wire

MIB = 1 << 20


async def soon(true: Any, within_s: float = 6.0) -> bool:
    for _ in range(int(within_s / 0.01)):
        if true():
            return True
        await asyncio.sleep(0.01)
    return False


async def with_its_disk(c: Cluster) -> FaultDisk:
    """Put the slave on a `FaultDisk` and wait until it is in sync."""
    slave = c.slaves[0]
    await slave.stop()
    disk = FaultDisk(slave.path)
    slave.make_disk = lambda: disk
    await slave.start()
    await c.master.open_term()
    await c.in_sync()
    return disk


async def test_a_second_change_of_the_set_does_not_forget_one_in_doubt(tmp_path: Path) -> None:
    policy = AckPolicy(Flush.FSYNC, 0, SlaveCounts.DURABLE, HowMany.ONE)
    async with cluster(tmp_path, 3, policy, dead_after_ms=10_000) as c:
        first, second, learner = c.slaves
        await learner.stop(crash=True)
        await c.in_sync(2)
        group = c.master.group
        asked: list[Any] = []

        async def no_answer(edit: Any, version: int | None = None) -> None:
            await asyncio.sleep(0.001)
            if not asked:  # it stands in ZooKeeper, and the connection is lost; later: away
                c.zoo.history.append(edit(c.zoo.history[-1]))
            asked.append(c.master.master._isr._pending)
            group.unsettled = True
            raise ConnectionLost("no answer")

        group.change = no_answer  # type: ignore[method-assign]
        group.blind = True
        await first.stop(crash=True)
        await until(lambda: asked)
        assert c.isr == {second.name}, "that is what a claim, and a promotion, go by"
        await first.start()
        await until(lambda: c.master.master.links[first.name].connected)
        await learner.start()
        await soon(lambda: len(set(asked)) > 1, 3)
        for slave in (second, learner):
            slave.tap.open.clear()
        end = c.master.produce()
        await c.acked(first, end)
        await turns()
        assert c.master.commit.commit_end < end, "acknowledged by who is not in sync"


async def test_reset_makes_room_for_new_bytes(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 16 * SEGMENT)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        journal.append(epoch(1))
        await fill_up(journal)
        await until(lambda: journal._parts.store.space.roll_blocked, "the keeper has tried it")
        await journal.reset(Position(1 << 30))
        assert disk.left > 12 * SEGMENT
        await until(lambda: not journal.full)


async def test_slave_left_behind_on_full_disk_refills_itself(tmp_path: Path) -> None:
    policy = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.RECEIVED, HowMany.NONE)
    more = {"segment_bytes": 16 * MIB, "retention_bytes": 16 * MIB, "dead_after_ms": 2000}
    async with cluster(tmp_path, 1, policy, in_sync=False, **more) as c:
        slave, disk = c.slaves[0], await with_its_disk(c)
        disk.free = 10 * MIB  # no room for the next segment
        # The eighth passes the middle of the segment: the slave is full from then on, and whether a
        # ninth still gets there depends on whether its ack or the master is quicker.
        for _ in range(8):
            await slave.reaches(c.master.produce(1, MIB))
        await until(lambda: slave.journal.full)
        assert f"{10 * MIB} bytes are free" in slave.journal.full
        for _ in range(40):
            c.master.produce(1, MIB)
            await c.master.journal.wait_durable(c.master.journal.end)
        await until(lambda: c.isr == set())
        assert await c.master.journal.retire(c.master.journal.end, 0) > 0
        slave.tap.cut()
        await until(lambda: slave.journal.journal_start == c.master.journal.journal_start)
        disk.free = None  # room enough: its own segments went, and more
        await until(lambda: slave.journal.end == c.master.journal.end)


async def test_reset_frees_a_stuck_writer(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT, crash=True) as journal:
        await get_stuck(journal, disk)
        await journal.reset(Position(1 << 30))
        disk.fault = lambda step: None
        await until(lambda: not journal.stuck)


async def test_a_suffix_is_pulled_no_faster_than_the_disk_takes_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, CACHED, dead_after_ms=60_000, credit_bytes=2 * MIB) as c:
        for _ in range(40):
            c.master.produce(4, 200_000)
            await c.equal()
        await shorter_master(c, lose="all")
        await c.master.start()
        journal = c.master.journal
        async with journal._flusher.turn:  # one slow write
            await c.slaves[0].start()
            await soon(lambda: journal.end - journal.written_end > 30 * MIB, 10)
            held = journal.end - journal.written_end
        assert held < 8 * MIB


async def test_learner_enters_only_with_everything_acked_by_all(
    tmp_path: Path,
) -> None:
    policy = AckPolicy(Flush.FSYNC, 0, SlaveCounts.DURABLE, HowMany.ALL, strict=True)
    async with cluster(tmp_path, 2, policy, dead_after_ms=60_000) as c:
        one, other = c.slaves
        other.tap.change = lambda m: [] if m.HasField("append") else [m]
        end = c.master.produce()
        await c.acked(one, end)
        assert c.master.commit.all_end < end
        await other.stop(crash=True)
        await c.in_sync(1)
        await until(lambda: c.master.commit.all_end >= end)
        await other.start()
        entered = await soon(lambda: len(c.isr) == 2, 3)
        assert not entered, "in sync, may be promoted, and lacks what was acknowledged"


@pytest.mark.parametrize("restarted", [False, True])
async def test_slave_with_half_the_room_takes_its_masters_bytes(
    tmp_path: Path, restarted: bool
) -> None:
    policy = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.RECEIVED, HowMany.NONE)
    async with cluster(tmp_path, 1, policy, in_sync=False, min_free_bytes=4 * MIB) as c:
        slave, disk = c.slaves[0], await with_its_disk(c)
        c.master.produce()
        await c.equal()
        if restarted:
            await slave.stop()
            disk = FaultDisk(slave.path)
            slave.make_disk = lambda: disk
        disk.free = 3 * MIB
        end = c.master.produce()
        if restarted:
            await slave.start()
        await until(lambda: slave.journal.end == end)


async def test_broker_that_is_not_a_member_leaves_no_trace(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        for number in range(50):
            hello = wire.Hello(
                cluster="c", group="g1", broker=f"x{number}", incarnation="x", connection_number=1
            )
            await c.master.master.serve(CALL, Says(hello))
        assert len(c.master.master._streams._dials) < 5


async def test_a_slave_of_another_group_cuts_no_stream(tmp_path: Path) -> None:
    """It has the same name and a wrong master address; the slave is silent just then."""
    async with cluster(tmp_path, dead_after_ms=10_000) as c:
        slave = c.slaves[0]
        link = c.master.master._streams.of(slave.name)
        slave.tap.open.clear()
        await asyncio.sleep(0.3)
        hello = wire.Hello(
            cluster="c", group="other", broker=slave.name, incarnation="x", connection_number=1
        )
        await c.master.master.serve(CALL, Says(hello))
        slave.tap.open.set()
        await turns()
        assert c.master.master._streams.of(slave.name) is link
