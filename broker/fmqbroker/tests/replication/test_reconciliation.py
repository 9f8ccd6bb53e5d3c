"""Every action of reconcile for real: journals on disk, restarts, lost tails, lost disks."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fmqbroker.tests.journal.test_newer_kinds import planted
from fmqbroker.tests.journal_kit import epoch, running
from fmqbroker.tests.replication_harness import Cluster, cluster, turns, until
from fmqcore.batch.header import _NAMES as NAMES
from fmqcore.ids import Epoch, Position
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.tests.journal.writer import SKIPPED, UNKNOWN
from fmqcore.zk.group_state import Mode
from fmqproto.v1 import replication_pb2 as wire

CACHED = AckPolicy(Flush.OS_CACHE, 20, SlaveCounts.RECEIVED, HowMany.ONE)
NO_ACKS = AckPolicy(how_many=HowMany.NONE)


def actions(c: Cluster, slave: int = 0) -> list[wire.Action]:
    """Record the actions that the slave is sent from now on."""
    reported: list[wire.Action] = []

    def note(message: wire.MasterMessage) -> list[wire.MasterMessage]:
        if message.HasField("welcome"):
            reported.append(message.welcome.action)
        return [message]

    c.slaves[slave].tap.change = note
    return reported


async def test_restarted_slave_resumes_at_its_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.master.produce()
        await c.equal()
        reported = actions(c)
        await c.slaves[0].stop(crash=True)
        c.master.produce(300)
        await c.slaves[0].start()
        await c.in_sync()
        await c.equal()
        assert reported == [wire.APPEND_FROM]


async def shorter_master(c: Cluster, *, lose: str = "tail") -> tuple[int, int]:
    """Kill both, and lose what the master had not flushed; return (its end, the slave's)."""
    c.master.produce()
    await c.equal()
    await c.master.journal.wait_durable(c.master.journal.end)
    saved = c.master.save() if lose == "tail" else None
    kept = c.master.journal.end if lose == "tail" else 0
    end = c.master.produce(400)
    await c.equal()
    await c.committed()
    await until(lambda: c.slaves[0].commit.commit_end == end)
    await c.slaves[0].stop()
    await c.master.stop(crash=True)
    c.master.put_back(saved)
    return kept, end


async def slave_ahead(c: Cluster) -> int:
    """Stop the slave with a tail that the running master has lost; return its end."""
    slave = c.slaves[0]
    c.master.produce()
    await c.committed()
    await c.equal()
    saved = c.master.save()
    slave.tap.open.clear()
    end = c.master.produce()
    await slave.reaches(end)
    await slave.stop()
    await c.master.stop(crash=True)
    c.master.put_back(saved)
    await c.master.start()
    return end


async def test_unfinished_term_of_earlier_incarnation_yields_to_suffix(tmp_path: Path) -> None:
    """The number of the term went to a slave's claim; the master ended before taking it back."""
    async with cluster(tmp_path, 1, CACHED) as c:
        kept, end = await shorter_master(c)
        slave, state = c.slaves[0], c.zoo.history[-1]
        async with running(c.master.path, crash=True, segment_bytes=256 * 1024) as journal:
            assert journal.end == kept
            tried = journal.append(epoch(state.epoch + 1)).end
            await journal.wait_durable(tried)
        taken = replace(state, mode=Mode.SLAVE_CONSUME, epoch=Epoch(state.epoch + 1))
        c.zoo.set_state(replace(taken, reader=slave.name))
        await c.master.start()
        await slave.start()
        await until(lambda: c.master.master.links.get(slave.name))
        await until(lambda: c.master.master.links[slave.name].heard)
        assert c.master.journal.durable_end == end
        await c.master.open_term()
        await c.equal()


async def test_a_slave_ahead_gives_its_suffix_before_a_term_is_opened(tmp_path: Path) -> None:
    """The master acked from its page cache and lost it: the slave's bytes are the journal."""
    async with cluster(tmp_path, 1, CACHED) as c:
        kept, end = await shorter_master(c)
        slave = c.slaves[0]
        reported = actions(c)
        await c.master.start()
        assert c.master.journal.end == kept < end
        await slave.start()
        await until(lambda: c.master.master.links.get(slave.name))
        await until(lambda: c.master.master.links[slave.name].heard)
        assert c.master.journal.durable_end == end
        await until(lambda: slave.slave.upstream.caught_up)
        assert reported == [wire.SEND_SUFFIX, wire.APPEND_FROM]
        await c.master.open_term()
        c.master.produce()
        await c.committed()
        await c.equal()


@pytest.mark.parametrize("deleted", [False, True])
async def test_master_with_a_lost_disk_gets_everything_back(tmp_path: Path, deleted: bool) -> None:
    async with cluster(tmp_path, 1, CACHED, retention_bytes=100_000) as c:
        slave = c.slaves[0]
        if deleted:
            c.master.produce(600)
            await c.equal()
            await slave.journal.wait_durable(slave.journal.end)
            await slave.journal.retire(slave.journal.end, c.master.clock.wall_ms())
            assert slave.journal.journal_start > 0
        _, end = await shorter_master(c, lose="all")
        await c.master.start()
        assert c.master.journal.end == 0
        await slave.start()
        await until(lambda: c.master.journal.durable_end == end)
        assert c.master.journal.journal_start == slave.journal.journal_start
        await until(lambda: slave.slave.upstream.caught_up)
        await c.master.open_term()
        c.master.produce()
        await c.committed()
        await c.equal()


async def test_two_slaves_ahead_each_by_its_own_length(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, CACHED) as c:
        one, two = c.slaves
        c.master.produce()
        await c.equal()
        await c.master.journal.wait_durable(c.master.journal.end)
        saved = c.master.save()
        c.master.produce()
        await c.equal()
        await one.stop()
        end = c.master.produce(300)
        await c.equal(two)
        await two.stop()
        await c.master.stop(crash=True)
        c.master.put_back(saved)
        await c.master.start()
        for slave in (two, one):
            await slave.start()
        await until(lambda: c.master.journal.durable_end == end)
        links = c.master.master.links
        await until(lambda: all(s.name in links and links[s.name].heard for s in c.slaves))
        await c.equal()  # the shorter one gets the longer one's suffix, still without a term
        await c.master.open_term()
        c.master.produce()
        await c.in_sync()
        await c.equal()


async def test_slave_that_was_not_heard_is_truncated(tmp_path: Path) -> None:
    """The master fsynced all it acknowledged, opened its term at once, and wrote on."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.committed()
        await c.equal()
        saved, kept = c.master.save(), c.master.journal.end
        slave.tap.open.clear()  # its acks do not arrive: no more commits
        end = c.master.produce(300)
        await slave.reaches(end)
        await slave.stop()
        await c.master.stop(crash=True)
        c.master.put_back(saved)
        await c.master.start()
        await c.master.open_term()
        slave.tap.open.set()
        reported = actions(c)
        await slave.start()
        await c.in_sync()
        c.master.produce()
        await c.equal()
        assert reported == [wire.TRUNCATE_TO]
        assert dict(slave.journal.state.epochs)[Epoch(2)] == kept


async def test_committed_bytes_are_never_truncated(tmp_path: Path) -> None:
    """R5: the same, but committed: refused loudly, and the slave keeps its bytes."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        _, end = await shorter_master(c)
        await c.master.start()
        await c.master.open_term()
        reported = actions(c)
        await slave.start()
        await until(lambda: len(reported) > 1)
        assert set(reported) == {wire.REJECT}
        assert slave.journal.end == end
        refused = c.master.master.links[slave.name].refused
        assert "would lose committed bytes" in refused
        assert not c.master.master.links[slave.name].heard


async def test_slave_refuses_a_master_that_truncates_committed_bytes(tmp_path: Path) -> None:
    """R5 again, on the slave's side."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        end = c.master.produce()
        await c.committed()
        await until(lambda: slave.commit.commit_end == end)
        for action in (wire.TRUNCATE_TO, wire.RESET_TO):
            lie = _Lie(action)
            slave.tap.change = lie
            slave.tap.cut()
            await until(lie.read_twice)
            assert slave.journal.end == end
        slave.tap.change = lambda m: [m]
        await c.in_sync()
        await c.equal()


class _Lie:
    """A master that sends another decision than it made."""

    def __init__(self, action: wire.Action) -> None:
        self._action = action
        self._reads = 0

    def __call__(self, message: Any) -> list[Any]:
        if message.HasField("welcome"):
            self._reads += 1
            message.welcome.action, message.welcome.position = self._action, 0
        return [message]

    def read_twice(self) -> bool:
        return self._reads > 1


@pytest.mark.parametrize("empty", [True, False])
async def test_slave_below_the_log_start_starts_at_a_segment(tmp_path: Path, empty: bool) -> None:
    async with cluster(tmp_path, 1, NO_ACKS, retention_bytes=100_000) as c:
        slave = c.slaves[0]
        if not empty:
            c.master.produce(20)
            await c.equal()
        await slave.stop()
        if empty:
            shutil.rmtree(slave.path)
        c.master.produce(1500)
        await until(lambda: c.master.journal.durable_end == c.master.journal.end)
        await c.master.journal.retire(c.master.journal.end, c.master.clock.wall_ms())
        start = c.master.journal.journal_start
        assert start > 0
        reported = actions(c)
        await slave.start()
        await c.in_sync()
        await c.equal()
        assert reported == [wire.RESET_TO]
        assert slave.journal.journal_start == start
        for _ in range(3):  # one more message or many: it follows as usual
            c.master.produce(20)
            await c.equal()
        assert reported == [wire.RESET_TO], "it was never sent away again"
        assert slave.journal.state.next_offsets == c.master.journal.state.next_offsets
        assert slave.journal.state.epochs == c.master.journal.state.epochs


async def test_the_same_epoch_opened_twice_at_one_place(tmp_path: Path) -> None:
    """A master lost its unacknowledged EPOCH batch and opened that term again: row 7."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.committed()
        await c.equal()
        saved, state = c.master.save(), c.zoo.history[-1]
        slave.tap.open.clear()
        await c.master.open_term()
        await slave.reaches(c.master.journal.end)
        await slave.stop()
        await c.master.stop(crash=True)
        c.master.put_back(saved)
        await c.master.start()
        c.zoo.set_state(state)
        await c.master.open_term()  # epoch 2 again, at the same position, with other bytes
        c.master.produce()
        slave.tap.open.set()
        reported = actions(c)
        await slave.start()
        await c.in_sync()
        await c.equal()
        assert reported[0] == wire.TRUNCATE_TO


async def test_a_suffix_that_does_not_chain_is_not_taken(tmp_path: Path) -> None:
    """Row 10: as before, but the returning master is the shorter one."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.committed()
        await c.equal()
        saved, state = c.master.save(), c.zoo.history[-1]
        slave.tap.open.clear()
        await c.master.open_term()
        c.master.produce()
        await slave.reaches(c.master.journal.end)
        await slave.stop()
        await c.master.stop(crash=True)
        c.master.put_back(saved)
        await c.master.start()
        c.zoo.set_state(state)
        await c.master.open_term()
        c.master.master.close_writes()
        slave.tap.open.set()
        reported = actions(c)
        await slave.start()
        await until(lambda: slave.slave.upstream.caught_up)
        assert reported[:2] == [wire.SEND_SUFFIX, wire.TRUNCATE_TO]
        await c.master.open_term()
        await c.in_sync()
        await c.equal()


@pytest.mark.parametrize("settled", [True, False], ids=["lost the race", "in doubt"])
async def test_failed_term_yields_to_a_suffix(tmp_path: Path, settled: bool) -> None:
    """The master's journal has its EPOCH batch, but a slave that is ahead won the state."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        end = await slave_ahead(c)
        c.master.journal.append(epoch(2))
        await c.master.journal.wait_durable(c.master.journal.end)
        taken = replace(c.zoo.history[-1], mode=Mode.SLAVE_CONSUME, epoch=Epoch(2))
        c.zoo.set_state(replace(taken, reader=slave.name))
        c.master.group.unsettled = not settled
        slave.tap.open.set()
        reported = actions(c)
        await slave.start()
        if not settled:
            await until(lambda: reported)
            assert reported[0] == wire.REJECT
            c.master.group.unsettled = False
        await until(lambda: slave.slave.upstream.caught_up)
        assert reported[-2:] == [wire.SEND_SUFFIX, wire.APPEND_FROM]
        assert c.master.journal.end == end
        await c.master.open_term()
        c.master.produce()
        await c.in_sync()
        await c.equal()


async def test_a_slave_behind_a_deleted_log_while_linked(tmp_path: Path) -> None:
    """Retention passed a learner: its stream ends, and the next Hello resets it."""
    policy = replace(NO_ACKS, flush=Flush.OS_CACHE)
    async with cluster(tmp_path, 1, policy, in_sync=False, retention_bytes=100_000) as c:
        slave = c.slaves[0]
        await until(lambda: slave.slave.upstream.connected)
        slave.tap.open.clear()
        await turns()
        await c.master.open_term()
        c.master.produce(1500)
        await c.master.journal.wait_durable(c.master.journal.end)
        await c.master.journal.retire(c.master.journal.end, c.master.clock.wall_ms())
        c.master.journal._parts.tail.evict(c.master.journal.written_end)
        reported = actions(c)
        slave.tap.open.set()
        await slave.reaches(c.master.journal.end)
        await c.equal()
        if reported:
            assert reported == [wire.RESET_TO]
        assert Position(slave.journal.journal_start) in (0, c.master.journal.journal_start)


async def test_suffix_of_a_newer_version_is_neither_taken_nor_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave may have acknowledged it: it keeps it until the master is upgraded."""
    monkeypatch.setitem(NAMES, UNKNOWN, "NEXT")  # all brokers are of the next version
    async with cluster(tmp_path, 1, CACHED) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.equal()
        await c.master.journal.wait_durable(c.master.journal.end)
        saved, kept = c.master.save(), c.master.journal.end
        at = c.master.journal.append(planted(UNKNOWN)).position
        end = c.master.produce()
        await c.equal()
        await c.master.stop(crash=True)
        c.master.put_back(saved)
        monkeypatch.delitem(NAMES, UNKNOWN)  # the master comes back as this version
        reported = actions(c)
        await c.master.start()
        await until(lambda: c.master.master.links.get(slave.name))
        links = c.master.master.links
        await until(lambda: links[slave.name].refused, "it refuses")
        assert f"at position {at}: FMQ" in links[slave.name].refused
        assert "kind 9 and must not skip them: upgrade" in links[slave.name].refused
        assert (c.master.journal.end, slave.journal.end) == (kept, end)
        assert set(reported) == {wire.SEND_SUFFIX, wire.REJECT}
        monkeypatch.setitem(NAMES, UNKNOWN, "NEXT")  # and is upgraded
        await until(lambda: slave.slave.upstream.caught_up)
        await c.master.open_term()
        await c.equal()


async def test_slave_behind_a_newer_master_reports_the_kind(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, NO_ACKS) as c:
        slave = c.slaves[0]
        c.master.journal.append(planted(SKIPPED))
        await c.equal()
        with capture_logs() as lines:
            at = c.master.journal.append(planted(UNKNOWN)).position
            c.master.produce()
            await until(lambda: not c.isr, "it falls out")
            await until(lambda: any("kind 9" in str(line.get("reason")) for line in lines))
        assert slave.journal.end == at
        (reason,) = {line["reason"] for line in lines if line["event"] == "master_not_followed"}
        assert reason.startswith(f"at position {at}: FMQ ")
        assert "upgrade this broker" in reason
