"""The in-sync set: leaving, entering, and what fails when, with and without ZooKeeper."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqbroker.tests.replication_harness import cluster, turns, until
from fmqcore.ids import Epoch
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import GroupState
from fmqport.disk import DiskFull

CACHED = AckPolicy(Flush.OS_CACHE, 20, SlaveCounts.RECEIVED, HowMany.ALL)


async def test_a_policy_that_cannot_be_met_refuses_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        assert c.master.commit.unwritable_reason is None
        await c.slaves[0].stop(crash=True)
        await until(lambda: c.isr == set())
        await until(lambda: c.master.commit.unwritable_reason)
        assert "needs one in-sync slave" in (c.master.commit.unwritable_reason or "")
        await c.slaves[0].start()
        await c.in_sync()
        await until(lambda: c.master.commit.unwritable_reason is None)
        c.master.produce()
        await c.committed()
        await c.equal()


async def test_a_lost_slave_leaves_the_set_before_anything_fails(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave, commit = c.slaves[0], c.master.commit
        slave.tap.open.clear()
        end = c.master.produce()
        failed_with: list[set[str]] = []
        refuse = commit.refuse

        def noting(reason: str, failed_below: int) -> None:
            failed_with.append(c.isr)
            refuse(reason, c.master.journal.end)

        commit.refuse = noting  # type: ignore[method-assign]
        await slave.stop(crash=True)
        await until(lambda: commit.failed_below >= end)
        assert failed_with == [set()]
        assert commit.commit_end < end


@pytest.mark.parametrize("zookeeper_is_away", [False, True])
async def test_master_fsyncs_bytes_of_leaving_slave_before_removal(
    tmp_path: Path, zookeeper_is_away: bool
) -> None:
    """R6: after a crash the master does not wait for it, and only a cache would have held it."""
    policy = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.DURABLE, HowMany.ONE)
    async with cluster(tmp_path, 2, policy) as c:
        master, (lost, _) = c.master, c.slaves
        end = master.produce()
        await c.committed(end)
        assert master.journal.durable_end < end, "as the policy has it"
        held: list[bool] = []
        change = master.group.change

        async def noting(*args: Any) -> GroupState | None:
            held.append(master.commit.commit_end <= master.journal.durable_end)
            return await change(*args)

        master.group.change = noting  # type: ignore[method-assign,assignment]
        c.zoo.away = zookeeper_is_away
        await lost.stop(crash=True)
        await until(lambda: held)
        for _ in range(5):
            end = master.produce()
            await c.committed(end)
            if zookeeper_is_away:
                held.append(master.commit.commit_end <= master.journal.durable_end)
        c.zoo.away = False
        c.zoo.notify()
        await until(lambda: len(c.isr) == 1)
        await c.committed(end)
        assert all(held)
        end = master.produce()
        await c.committed(end)
        await turns()
        assert master.journal.durable_end < end, "as the policy has it, again"


async def test_slave_joins_with_what_was_promised_on_its_disk(tmp_path: Path) -> None:
    """Ordered acks were given without it, on all members' disks: it may give a segment's end."""
    policy = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.RECEIVED, HowMany.ALL)
    async with cluster(tmp_path, 1, policy) as c:
        slave = c.slaves[0]
        await slave.stop(crash=True)
        await until(lambda: c.isr == set())
        end = c.master.produce()
        await c.master.journal.wait_durable(end)
        c.master.master.require_on_disk(lambda: end)
        await slave.start()
        await slave.reaches(end)
        await turns()
        assert slave.journal.durable_end < end
        assert c.isr == set()
        await slave.journal.wait_durable(end)
        await c.in_sync()


async def test_the_others_go_on_when_one_slave_is_lost(tmp_path: Path) -> None:
    """ALL follows the in-sync set: the commit end advances over the remaining; nothing fails."""
    policy = replace(CACHED, flush=Flush.FSYNC)
    async with cluster(tmp_path, 2, policy) as c:
        lost, other = c.slaves
        failed = c.master.commit.failed_below
        lost.tap.open.clear()
        end = c.master.produce()
        await other.reaches(end)
        await turns()
        assert c.master.commit.commit_end < end
        await lost.stop(crash=True)
        await c.committed(end)
        assert c.isr == {other.name}
        assert c.master.commit.failed_below == failed
        assert c.master.commit.unwritable_reason is None


async def test_lost_slave_blocks_acks_while_zookeeper_is_away(tmp_path: Path) -> None:
    """R6: while the compare-and-set is in doubt, the old set counts too."""
    async with cluster(tmp_path, 2, CACHED) as c:
        lost, other = c.slaves
        failed = c.master.commit.failed_below
        c.zoo.away = True
        await lost.stop(crash=True)
        await until(lambda: not c.master.master.links[lost.name].connected)
        end = c.master.produce()
        await other.reaches(end)
        await until(lambda: c.master.group.unsettled)
        await turns()
        assert c.master.commit.commit_end < end
        assert c.master.commit.failed_below == failed
        c.zoo.away = False
        c.zoo.notify()
        await c.committed(end)
        assert c.isr == {other.name}


async def test_a_slave_that_is_back_before_zookeeper_is(tmp_path: Path) -> None:
    """The change that would have removed it never happened: nothing stays in doubt."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.zoo.away = True
        await slave.stop(crash=True)
        await until(lambda: c.master.group.unsettled)
        await slave.start()
        await until(lambda: c.master.master.links[slave.name].connected)
        end = c.master.produce()
        await c.acked(slave, end)
        await turns()
        assert c.master.commit.commit_end < end
        c.zoo.away = False
        c.zoo.notify()
        await c.committed(end)
        assert c.isr == {slave.name}


async def test_a_lagging_slave_leaves_the_set_and_comes_back(tmp_path: Path) -> None:
    """It is alive (its stream is up) but does not catch up with the master."""
    async with cluster(tmp_path, 2, CACHED, dead_after_ms=400) as c:
        slow, other = c.slaves
        slow.tap.change = lambda m: [] if m.HasField("append") else [m]  # takes no append
        end = c.master.produce()
        await until(lambda: c.isr == {other.name})
        await c.committed(end)
        slow.tap.change = lambda m: [m]
        c.master.produce()
        await c.in_sync()
        await c.equal()


async def test_a_slave_that_never_came_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, CACHED, dead_after_ms=300) as c:
        await c.slaves[1].stop()
        await c.in_sync(1)
        await c.master.stop(crash=True)
        c.zoo.set_state(replace(c.zoo.history[-1], isr=frozenset(s.name for s in c.slaves)))
        await c.master.start()
        await c.master.open_term()
        c.master.produce()
        assert len(c.isr) == 2
        await c.committed()
        assert c.isr == {c.slaves[0].name}


async def test_a_learner_counts_only_after_its_compare_and_set(tmp_path: Path) -> None:
    """ALL with one entering learner: the policy holds with and without it meanwhile."""
    async with cluster(tmp_path, 1, CACHED, in_sync=False) as c:
        await c.master.open_term()
        await until(lambda: c.isr)
        c.master.produce()
        await c.committed()
        slave = c.slaves[0]
        await slave.stop(crash=True)
        await until(lambda: not c.isr)
        c.zoo.away = True
        before = c.master.commit.commit_end
        await slave.start()
        await until(lambda: c.master.group.unsettled)
        end = c.master.produce()
        await slave.reaches(end)
        await turns()
        assert c.master.commit.commit_end == before, "it counted before it was in the set"
        c.zoo.away = False
        c.zoo.notify()
        await c.in_sync()
        await c.committed(end)


async def test_a_learner_enters_only_with_all_that_was_committed(tmp_path: Path) -> None:
    """It lacks little, but that is committed: with ALL, hearing it alone must suffice."""
    async with cluster(tmp_path, 2, CACHED, dead_after_ms=60_000) as c:
        learner, other = c.slaves
        await learner.stop(crash=True)
        await c.in_sync(1)
        c.master.produce()
        await c.committed()
        learner.tap.change = lambda m: [] if m.HasField("append") else [m]
        await learner.start()
        await until(lambda: c.master.master.links[learner.name].caught_up)
        reported = len(learner.tap.sent)
        await until(lambda: len(learner.tap.sent) > reported + 3)
        assert c.isr == {other.name}
        committed, end = c.master.commit.commit_end, c.master.produce()
        await c.acked(other, end)
        await turns()
        assert c.master.commit.commit_end == committed, "it is on its way in: it counts, too"
        learner.tap.change = lambda m: [m]
        learner.tap.cut()
        await c.in_sync()
        await c.committed(end)


async def test_a_change_of_the_set_is_of_one_term(tmp_path: Path) -> None:
    """A slave lost in one term may be in sync in the next, which started during the wait."""
    async with cluster(tmp_path) as c:
        slave, group = c.slaves[0], c.master.group
        change, tried = group.change, asyncio.Event()

        async def later(edit: Any, version: int | None = None) -> GroupState | None:
            before = c.zoo.history[-1]
            c.zoo.history.append(replace(before, epoch=Epoch(before.epoch + 1)))
            tried.set()
            return await change(edit, version)

        group.change = later  # type: ignore[method-assign]
        await slave.stop()
        await until(tried.is_set)
        await until(lambda: group.state.value.epoch > 1)
        assert c.isr == {slave.name}


async def test_a_learner_far_behind_is_throttled_and_not_counted(tmp_path: Path) -> None:
    settings = {"learner_bytes_per_s": 400_000, "in_sync_lag_bytes": 10_000}
    policy = AckPolicy(Flush.OS_CACHE, how_many=HowMany.NONE)
    async with cluster(tmp_path, 1, policy, in_sync=False, **settings) as c:
        await c.slaves[0].stop()
        await c.master.open_term()
        c.master.produce(600)
        clock, started_ms = c.master.clock, c.master.clock.monotonic_ms()
        await c.slaves[0].start()
        await until(lambda: c.slaves[0].journal.end > 100_000)
        assert c.isr == set()
        await c.in_sync()
        # Not "it took so long on this machine" but "not sooner than the rate allows".
        assert clock.monotonic_ms() - started_ms > 700
        await c.equal()


async def test_a_slave_without_room_stays_linked_and_out_of_the_set(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, CACHED, dead_after_ms=300) as c:
        slave, other = c.slaves
        await slave.stop()
        disk = FaultDisk(slave.path)
        slave.make_disk = lambda: disk
        await slave.start()
        await c.in_sync()
        disk.fault = no_room
        c.master.produce()
        await until(lambda: slave.journal.full)
        end = c.master.produce()
        await until(lambda: c.isr == {other.name})
        await c.committed(end)
        await until(lambda: slave.slave.upstream.connected)
        dials, states = slave.tap.dials, len(c.zoo.history)
        reported = len(slave.tap.sent)
        await until(lambda: len(slave.tap.sent) > reported + 8)
        assert slave.tap.dials == dials, "its stream flaps"
        assert len(c.zoo.history) == states, "it goes in and out"
        disk.fault = lambda step: None
        await c.in_sync()
        await c.equal()


def no_room(step: Step) -> None:
    if step.kind == "write":
        raise DiskFull(f"{step.name}: no space left on device")


async def test_slave_disconnected_before_a_term_gets_time_to_return(tmp_path: Path) -> None:
    """The master reopened the term after a doubt, which broke all its streams."""
    async with cluster(tmp_path, dead_after_ms=60_000) as c:
        master, (slave,) = c.master, c.slaves
        master.master.close_writes()
        await slave.stop(crash=True)
        await until(lambda: not master.master.links[slave.name].connected)
        await master.open_term()
        await turns(200)
        assert c.isr == {slave.name}
        await slave.start()
        end = master.produce()
        await c.committed(end)
        await slave.stop(crash=True)
        await until(lambda: c.isr == set())
