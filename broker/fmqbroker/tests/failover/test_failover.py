"""Failover on a real ZooKeeper: what each broker serves when brokers and networks fail."""

import asyncio
from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.identity import begin
from fmqbroker.tests.failover_harness import (
    CLUSTER,
    GENEROUS_S,
    GROUP,
    KEY,
    SESSION_MS,
    M,
    Node,
    S,
    T,
    group_of,
    until,
    whole,
)
from fmqcore.errors import InvalidArgument, NameTaken, NoPermission
from fmqcore.ids import Permission
from fmqcore.journal.journal_identity import INCARNATIONS
from fmqcore.zk.group_state import Mode

pytestmark = pytest.mark.processes

FULL, READ, NONE = Permission.FULL, Permission.READ, Permission.NONE
ONE_FAILOVER = [Mode.MASTER, Mode.SLAVE_CONSUME, Mode.HANDOVER, Mode.MASTER]
LONG_S = SESSION_MS * 2.5 / 1000  # longer than a session and all that depends on it


async def test_open_kill_claim_return(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        slave = await Node(net, S).start()
        await asyncio.sleep(0.05)
        assert slave.serves is NONE
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        assert (master.state.mode, master.state.epoch) == (Mode.MASTER, 1)
        assert "opened the group" in master.state.reason
        await until(lambda: S in slave.state.isr, "the slave gets in sync")
        master.produce(b"one")
        await master.ack(1, 1)
        await until(lambda: slave.journal.durable_end == master.journal.end)

        assert not slave.slave.upstream.claiming  # it may grant
        await master.kill()
        await until(lambda: slave.serves is READ)
        assert slave.slave.upstream.claiming  # and may not, while it serves reads itself
        assert (slave.state.mode, slave.state.epoch, slave.state.reader) == (
            Mode.SLAVE_CONSUME, 2, S,
        )  # fmt: skip
        assert slave.commit.commit_end == slave.journal.durable_end
        await slave.ack(5, 2)

        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        # the offsets were there before the permission
        assert master.journal.state.offsets[KEY].floor == 5
        assert master.state.epoch == 4
        await until(lambda: slave.gate.mode is Mode.MASTER)
        assert slave.serves is NONE
        assert not slave.state.degraded
        await until(lambda: net.terms[-1] == (Mode.MASTER, 4))
        assert net.terms == list(zip([Mode.NEW, *ONE_FAILOVER], range(5), strict=True))
        await until(lambda: S in master.state.isr, "the slave is in sync again")
        await until(lambda: not slave.slave.upstream.claiming)


async def test_master_cut_from_zookeeper_but_not_from_its_slave(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        lost = []
        await master.proxy.cut()
        await until(lambda: M not in slave.group.live, "its session has run out")
        async with asyncio.timeout(GENEROUS_S):
            for _ in range(int(LONG_S * 100)):
                lost.append(master.serves is not FULL)
                await asyncio.sleep(0.01)
        assert not any(lost), "it served on, by its slave's grants"
        assert slave.state.epoch == 1
        assert "may serve on" in slave.gate.reason

        await master.proxy.mend()
        await until(lambda: M in slave.group.live, "it is back in ZooKeeper")
        await asyncio.sleep(LONG_S)
        assert master.serves is FULL
        assert slave.state.epoch == 1  # the term went on: every slave was bound all the time


async def test_master_cut_from_both_fences_itself_and_returns(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        net.unlinked.add(S)
        await master.proxy.cut()
        await until(lambda: master.serves is NONE)
        with pytest.raises(NoPermission, match="lease"):
            master.gate.require(READ)
        await until(lambda: slave.serves is READ, "the slave takes over")
        await slave.ack(7, 3)

        await master.proxy.mend()
        await until(lambda: master.gate.mode is Mode.SLAVE_CONSUME, "it learns what happened")
        assert master.serves is NONE
        net.unlinked.clear()
        await until(lambda: master.serves is FULL)
        assert master.journal.state.offsets[KEY].floor == 7
        assert slave.serves is NONE
        await until(lambda: net.terms[-1] == (Mode.MASTER, 4))
        assert [m for m, _ in net.terms] == [Mode.NEW, *ONE_FAILOVER]


async def test_fenced_master_returns_in_new_term_without_a_claim(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        await net.permit(S, Permission.WRITE)
        master, slave = await whole(net, S)
        net.keeps_isr = False  # with none in sync no broker can claim: the term may go on
        net.unlinked.add(S)
        await master.proxy.cut()
        await until(lambda: master.serves is NONE)
        await until(lambda: M not in slave.group.live, "its session has run out")
        await master.proxy.mend()
        await until(lambda: master.serves is FULL)
        assert master.state.epoch == 2  # others might have looked while its node was gone
        assert master.state.isr == set()


async def test_short_zookeeper_cut_starts_no_new_term(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.proxy.cut()
        await until(lambda: not master.group.connected)
        await master.proxy.mend()
        await until(lambda: master.group.connected)
        await asyncio.sleep(LONG_S)
        assert master.serves is FULL
        assert slave.state.epoch == 1


async def test_reads_disabled_by_the_administrator_no_switch(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await net.permit(M, Permission.WRITE)
        await until(lambda: master.serves is Permission.WRITE)
        assert "configured WRITE for g1-0" in master.gate.reason
        await master.kill()
        await until(lambda: M not in slave.group.live)
        await asyncio.sleep(LONG_S)
        assert slave.serves is NONE
        assert (slave.state.mode, slave.state.epoch) == (Mode.MASTER, 1)
        assert "administrator" in slave.gate.reason
        await net.permit(M, FULL)  # and back on: the slave takes over now
        await until(lambda: slave.serves is READ)


async def test_reads_disabled_while_a_takeover_reader_serves(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.kill()
        await until(lambda: slave.serves is READ)
        await slave.ack(3, 1)
        await net.permit(S, Permission.WRITE)
        await until(lambda: slave.serves is NONE)
        assert "configured WRITE for g1-1" in slave.gate.reason
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)  # it hands over nevertheless
        assert master.journal.state.offsets[KEY].floor == 3


async def test_no_slave_configured(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M) as net:
        (master,) = await whole(net)
        await master.proxy.cut()
        await asyncio.sleep(LONG_S)
        assert master.serves is FULL  # no broker could take over
        await master.proxy.mend()
        await until(lambda: master.group.standing)
        assert master.state.epoch == 1
        await master.kill()
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        assert master.state.epoch == 2


async def test_a_slave_that_never_came(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        (master,) = await whole(net)
        await master.proxy.cut()
        await asyncio.sleep(LONG_S)
        assert master.serves is FULL  # the slave is not in sync: it could not claim
        await master.kill()
        slave = await Node(net, S).start()
        await asyncio.sleep(LONG_S)
        assert slave.serves is NONE
        assert "was not in sync" in slave.gate.reason
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)


async def test_a_slave_that_starts_after_the_master_fenced_itself(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        net.unlinked.add(S)
        await asyncio.gather(master.proxy.cut(), slave.kill())
        await until(lambda: master.serves is NONE)
        slave = await Node(net, S).start()
        await until(lambda: slave.serves is READ)
        assert master.serves is NONE


@pytest.mark.parametrize("strict", [False, True])
async def test_a_slave_gone_for_good_in_slave_consume(
    zookeeper: str, tmp_path: Path, strict: bool
) -> None:
    async with group_of(zookeeper, tmp_path, M, S, strict_takeover=strict) as net:
        master, slave = await whole(net, S)
        await master.kill()
        await until(lambda: slave.serves is READ)
        await slave.ack(9, 5)
        await until(lambda: slave.state.offsets, "the checkpoint is in the state")
        await slave.kill()
        master = await Node(net, M).start()
        if strict:
            await until(lambda: "strict_takeover" in master.gate.reason)
            await asyncio.sleep(LONG_S)
            assert master.serves is NONE
            slave = await Node(net, S).start()  # a person brought it back
            await until(lambda: master.serves is FULL)
            assert not master.state.degraded
        else:
            await until(lambda: master.serves is FULL)
            assert master.state.degraded
            assert "g1-1, which is gone" in master.state.reason
        assert master.journal.state.offsets[KEY].floor == 9


async def test_another_slave_takes_over_from_the_first(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S, T) as net:
        master, first, second = await whole(net, S, T)
        await master.kill()
        await until(lambda: READ in (first.serves, second.serves))
        assert first.serves is READ  # of two equal slaves, the one with the smaller name
        await first.ack(4, 2)
        await until(lambda: second.state.offsets, "the checkpoint is in the state")
        await first.kill()
        await until(lambda: second.serves is READ)
        assert second.state.reader == T
        await second.ack(6, 3)
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        assert master.journal.state.offsets[KEY].floor == 6
        assert not master.state.degraded


async def test_reader_cut_from_zookeeper_hands_over_by_the_stream(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.kill()
        await until(lambda: slave.serves is READ)
        await slave.ack(8, 2)
        await slave.proxy.cut()
        await until(lambda: slave.serves is NONE)
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        assert master.journal.state.offsets[KEY].floor == 8
        assert not master.state.degraded
        await slave.proxy.mend()
        await until(lambda: slave.gate.mode is Mode.MASTER)
        assert slave.serves is NONE


async def test_a_reader_that_restarts_serves_on_and_hands_over(
    zookeeper: str, tmp_path: Path
) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.kill()
        await until(lambda: slave.serves is READ)
        await slave.ack(8, 2)
        await slave.kill()
        slave = await Node(net, S).start()  # its old live node still stands
        await until(lambda: slave.serves is READ)
        assert slave.state.epoch == 3  # its own term: it had lost the previous one
        entry = slave.offsets.get(KEY)
        assert entry is not None
        assert entry.floor == 8
        master = await Node(net, M).start()
        await until(lambda: master.serves is FULL)
        assert master.journal.state.offsets[KEY].floor == 8


async def test_a_master_that_restarts_at_once(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S)
        await master.kill()
        master = await Node(net, M).start()  # its old live node still stands
        await until(lambda: master.serves is FULL)
        assert (master.state.mode, master.state.epoch) == (Mode.MASTER, 2)
        await asyncio.sleep(LONG_S)
        assert slave.state.epoch == 2  # no broker claimed


async def test_no_term_opens_while_a_suffix_is_pulled(zookeeper: str, tmp_path: Path) -> None:
    """A slave's suffix comes before the new term's first batch, or never."""
    async with group_of(zookeeper, tmp_path, M) as net:
        master = Node(net, M)
        pulling = master.master.reconciling
        async with pulling:
            await master.start()
            await until(lambda: pulling._waiters, "it wants to open its term")
            assert master.journal.end == 0, "nothing of a term is appended yet"
            assert master.serves is NONE
        await until(lambda: master.serves is FULL)


async def test_an_orderly_stop_of_the_master_is_quick(zookeeper: str, tmp_path: Path) -> None:
    async with group_of(zookeeper, tmp_path, M, S) as net:
        master, slave = await whole(net, S, claim_interval_ms=5_000)  # or it claims first
        await master.stop()
        await until(lambda: slave.serves is READ)
        assert (slave.state.mode, slave.state.epoch) == (Mode.SLAVE_CONSUME, 3)
        master = await Node(net, M).start()
        assert master.journal.clean
        await until(lambda: master.serves is FULL)
        await slave.stop()
        await until(lambda: master.serves is FULL and S not in master.group.live)


async def test_a_second_process_of_the_same_name(zookeeper: str, tmp_path: Path) -> None:
    """It has another directory and does not start; the first process serves on undisturbed."""
    async with group_of(zookeeper, tmp_path, M) as net:
        (master,) = await whole(net)
        epoch = master.state.epoch
        twin = Node(net, M, data_dir=str(tmp_path / "twin"))
        with pytest.raises(NameTaken, match=f"broker id g1-0 is in use: .*{master.incarnation}"):
            await twin.start()
        net.nodes[M] = master
        assert (master.serves, master.state.epoch) == (FULL, epoch)
        assert not master.group.superseded


async def test_a_new_directory_waits_for_the_old_session(zookeeper: str, tmp_path: Path) -> None:
    """Its disk was lost: it cannot know that the live node is its own, but the node expires."""
    async with group_of(zookeeper, tmp_path, M) as net:
        (master,) = await whole(net)
        await master.kill()
        fresh = await Node(net, M, data_dir=str(tmp_path / "fresh")).start()
        assert fresh.incarnation != master.incarnation
        await until(lambda: fresh.group.standing)


async def test_aborted_start_remembers_previous_live_node(zookeeper: str, tmp_path: Path) -> None:
    """It ends before it is announced, repeatedly: the live node is still that of the last life."""
    async with group_of(zookeeper, tmp_path, M) as net:
        (master,) = await whole(net)
        await master.kill()
        disk = FileDisk(master.settings.data_dir)
        group = GroupStore(net.admin, net.clock, CLUSTER, GROUP, M)
        await group.load()
        for _ in range(3):
            assert master.incarnation in (await begin(M, group, disk, net.clock, 1500)).earlier
        kept = await disk.read_file(INCARNATIONS) or b""
        assert len(kept.split()) == 4
        for other in ("another", GROUP), (CLUSTER, "g9"):
            with pytest.raises(InvalidArgument, match=rf"is of group {CLUSTER}/{GROUP}"):
                await begin(M, GroupStore(net.admin, net.clock, *other, M), disk, net.clock, 1500)
        assert await disk.read_file(INCARNATIONS) == kept
        await disk.close()
