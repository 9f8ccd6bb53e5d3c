"""Retention in a group keeps what a slave needs, until the disk is full."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.data.retention import Retention
from fmqbroker.replication.view import Held
from fmqbroker.tests.replication_harness import Cluster, Node, cluster, until
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import GroupState, Mode

NO_ACKS = AckPolicy(how_many=HowMany.NONE)


def retention(node: Node) -> Retention:
    return Retention(
        node.name, node.journal, node.commit, node.group, node.master, node.slave, node.clock
    )


async def test_in_sync_slave_holds_retention_until_disk_is_full(
    tmp_path: Path,
) -> None:
    async with cluster(
        tmp_path,
        2,
        NO_ACKS,
        segment_bytes=64 * 1024,
        retention_bytes=100_000,
        dead_after_ms=60_000,
        credit_bytes=2 << 20,
    ) as c:
        slow, quick = c.slaves
        await c.equal()
        slow.tap.reading.clear()
        before = slow.journal.end
        while c.master.journal.end < before + (6 << 20):  # more than may be in flight to it
            c.master.produce(20, size=30_000)
            await quick.reaches(c.master.journal.end)
            await c.acked(quick, c.master.journal.end)
        keeping = retention(c.master)
        await keeping.check_once()
        held = c.master.journal.journal_start
        assert held <= c.master.master.links[slow.name].received_end
        assert await keeping.check_once() == 0
        assert c.isr == {slow.name, quick.name}

        space = c.master.journal._parts.store.space
        space._min_free = 1 << 62
        await space.check()
        assert await keeping.check_once() > 0
        assert keeping.left_behind == {slow.name: 1}
        assert c.master.journal.journal_start > c.master.master.links[slow.name].received_end
        space._min_free = 0
        await until(lambda: not c.master.journal.full)

        slow.tap.reading.set()
        c.master.produce(5)
        await c.equal()
        assert slow.journal.journal_start > held
        await c.in_sync(2)
        await until(lambda: c.isr == {slow.name, quick.name})


async def test_master_keeps_uncommitted_segments(tmp_path: Path) -> None:
    """No in-sync slave holds retention; deleted uncommitted records could never be read."""
    async with cluster(
        tmp_path, 1, AckPolicy(), segment_bytes=64 * 1024, retention_bytes=100_000
    ) as c:
        await c.slaves[0].stop()
        await c.in_sync(0)
        committed = c.master.commit.commit_end
        end = c.master.produce(20, size=30_000)  # as for producers that ask for its own disk only
        await c.master.journal.wait_durable(end)
        await retention(c.master).check_once()
        assert c.master.journal.journal_start <= committed == c.master.commit.commit_end


async def test_slave_out_of_sync_does_not_hold_retention(tmp_path: Path) -> None:
    """It may never return, and the disk would fill for it."""
    async with cluster(tmp_path, 2, NO_ACKS, segment_bytes=64 * 1024, retention_bytes=100_000) as c:
        lost, other = c.slaves
        await lost.stop()
        await c.in_sync(1)
        end = c.master.produce(20, size=30_000)
        await c.committed(end)
        await c.acked(other, end)
        assert await retention(c.master).check_once() > 0


async def full_slave(c: Cluster) -> Node:
    """Return a slave with more than retention keeps, all committed and on its master's disk."""
    slave, state = c.slaves[0], c.zoo.history[-1]
    c.zoo.set_state(replace(state, last_opened_epoch=state.epoch))
    end = c.master.produce(20, size=30_000)
    await c.committed(end)
    await c.acked(slave, end)
    await until(lambda: slave.slave.upstream.held.keep_from == end)
    return slave


async def test_slave_deletes_only_segments_its_master_surely_has(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, segment_bytes=64 * 1024, retention_bytes=100_000) as c:
        slave = await full_slave(c)
        assert slave.slave.upstream.held == Held(c.master.name, Epoch(1), slave.journal.end)
        assert await retention(slave).check_once() > 0


def taken_over(state: GroupState) -> GroupState:
    return replace(
        state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(state.epoch + 1), reader=BrokerId("b1")
    )


@pytest.mark.parametrize(
    ("change", "all_of_it"),
    [
        pytest.param(lambda s: s, False, id="its master serves"),
        pytest.param(taken_over, False, id="it took over the reads"),
        pytest.param(
            lambda s: replace(s, epoch=Epoch(s.epoch + 2), last_opened_epoch=Epoch(s.epoch + 2)),
            True,
            id="the master opened a newer term, and may have lost its memory before",
        ),
        pytest.param(
            lambda s: replace(s, last_opened_epoch=Epoch(0)), True, id="that is not known"
        ),
        pytest.param(
            lambda s: replace(s, master=BrokerId("elsewhere")), True, id="another is master now"
        ),
    ],
)
async def test_slave_keeps_segments_the_master_may_lack(
    tmp_path: Path, change: Callable[[GroupState], GroupState], all_of_it: bool
) -> None:
    """R8: after a power cut the master lacks it, and no other broker has it."""
    async with cluster(tmp_path, 1, segment_bytes=64 * 1024, retention_bytes=100_000) as c:
        slave = await full_slave(c)
        begins, behind = slave.journal.journal_start, Position(slave.journal.end - 300_000)
        await c.master.stop(crash=True)
        slave.commit.advance(slave.journal.durable_end, Position(0))  # as a takeover reader does
        slave.slave.upstream.held = slave.slave.upstream.held._replace(keep_from=behind)
        c.zoo.set_state(change(c.zoo.history[-1]))
        await retention(slave).check_once()
        assert begins <= slave.journal.journal_start <= (begins if all_of_it else behind)
        assert all_of_it or slave.journal.journal_start > begins


async def test_slave_keeps_segments_another_in_sync_slave_lacks(tmp_path: Path) -> None:
    """R8: the only holder may have to give it back, or be promoted."""
    async with cluster(
        tmp_path,
        2,
        NO_ACKS,
        segment_bytes=64 * 1024,
        retention_bytes=100_000,
        dead_after_ms=60_000,
        credit_bytes=2 << 20,
    ) as c:
        slow, quick = c.slaves
        await c.equal()
        c.zoo.set_state(replace(c.zoo.history[-1], last_opened_epoch=c.zoo.history[-1].epoch))
        slow.tap.reading.clear()
        before = slow.journal.end
        while c.master.journal.end < before + (6 << 20):  # more than may be in flight to it
            c.master.produce(20, size=30_000)
            await quick.reaches(c.master.journal.end)
        end = c.master.journal.end
        await c.master.journal.wait_durable(end)
        await c.acked(quick, end)
        c.master.produce()
        await until(lambda: quick.commit.commit_end > end)
        lacks = c.master.master.links[slow.name].received_end
        assert quick.slave.upstream.held.keep_from <= lacks
        await retention(quick).check_once()
        assert quick.journal.journal_start <= lacks
        slow.tap.reading.set()
        await c.equal()
        end = c.master.journal.end
        await until(lambda: quick.slave.upstream.held.keep_from == end)
        assert await retention(quick).check_once() > 0


async def test_unsynced_bytes_of_in_sync_slave_hold_retention(
    tmp_path: Path,
) -> None:
    """R8: even if the policy counts received or sent bytes."""
    policy = AckPolicy(Flush.OS_CACHE, 0, SlaveCounts.RECEIVED, HowMany.ONE)
    async with cluster(tmp_path, 2, policy) as c:
        master, (first, second) = c.master.master, (slave.name for slave in c.slaves)
        end = c.master.produce()
        await c.equal()
        await c.master.journal.wait_durable(end)
        await until(lambda: master.keep_from() == end)
        for slave in c.slaves:
            slave.tap.open.clear()
        master.links[first].durable_end = Position(8)
        master.links[second].durable_end = end
        assert (master.keep_from(), master.held_by_all()) == (end, 8)
        master.links.pop(first)
        assert (master.keep_from(), master.held_by_all()) == (0, 0), (
            "nothing is known of that slave"
        )
        c.zoo.set_state(replace(c.zoo.history[-1], isr=frozenset({second})))
        assert (master.keep_from(), master.held_by_all()) == (end, end)
        c.master.group._maybe_isr = frozenset({first, second})
        assert (master.keep_from(), master.held_by_all()) == (0, 0), "it may be in the set"
