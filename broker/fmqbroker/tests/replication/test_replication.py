"""Replication end to end: equal bytes, every policy, terms, grants, hand-over."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests.replication_harness import Cluster, Node, cluster, turns, until
from fmqcore.ids import BrokerId, Epoch
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_config import Member
from fmqcore.zk.group_state import Mode
from fmqport.transport import Stream
from fmqproto.v1 import replication_pb2 as wire

ONE_ENOUGH = (HowMany.NONE, HowMany.ONE, HowMany.MAJORITY)
CACHED = AckPolicy(Flush.OS_CACHE, 20, SlaveCounts.RECEIVED, HowMany.ALL)


async def test_a_slave_gets_every_byte(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.master.produce(500, 2000)  # several segments
        await c.committed()
        await c.equal()
        assert c.slaves[0].journal.durable_end == c.master.commit.commit_end
        assert c.master.commit.all_end == c.master.journal.end
        await until(lambda: c.slaves[0].commit.commit_end == c.master.journal.end)
        for node in c.nodes:  # R5: after a restart, as another's slave, it names what may not go
            assert node.journal.known_commit_end == c.master.journal.end


async def test_slave_that_becomes_master_ships_its_whole_journal(tmp_path: Path) -> None:
    """Its earlier settled bytes are out of date: nothing in its journal is unfinished."""
    async with cluster(tmp_path) as c:
        slave, settled = c.slaves[0], c.slaves[0].journal.end
        c.master.produce(20, 100)
        await c.committed()
        await c.equal()
        assert slave.journal.end > settled
        slave.group.acts_as_master(slave.name)
        assert slave.master.ship_end() == slave.journal.end
        assert not slave.master.links
        assert not slave.slave.upstream.connected, "the stream of the old master counts no more"


@pytest.mark.parametrize("flush", list(Flush))
async def test_every_policy_holds_back_until_enough_slaves_count(
    tmp_path: Path, flush: Flush
) -> None:
    """With no acks, with those of the slave in the master's zone, with both."""
    async with cluster(tmp_path, 2, dead_after_ms=60_000) as c:
        local, remote = c.slaves
        for counts, how_many in product(SlaveCounts, HowMany):
            c.zoo.set_policy(AckPolicy(flush, 10, counts, how_many))
            master, before = c.master, c.master.journal.end
            await c.committed()
            for slave in c.slaves:
                slave.tap.open.clear()
            end = master.produce(5)
            for slave in c.slaves:
                await slave.reaches(end)
            alone = how_many is HowMany.NONE or counts is SlaveCounts.SENT
            if alone:
                await c.committed(end)
            else:
                await turns(20)
                assert master.commit.commit_end == before, (counts, how_many, "no slave")
            local.tap.open.set()
            await c.acked(local, end)
            if alone or how_many in ONE_ENOUGH:
                await c.committed(end)
            else:
                await turns(20)
                assert master.commit.commit_end == before, (counts, how_many, "one")
            remote.tap.open.set()
            await c.committed(end)
        await c.equal()


async def test_durable_means_after_the_slaves_own_fsync(tmp_path: Path) -> None:
    """R3, seen from outside: a slave that cannot fsync acknowledges nothing as durable."""
    async with cluster(tmp_path, dead_after_ms=60_000) as c:
        await c.committed()
        slave, before = c.slaves[0], c.master.commit.commit_end
        async with slave.journal._flusher.turn:  # its disk hangs
            end = c.master.produce()
            await slave.reaches(end)
            await until(lambda: c.master.journal.durable_end == end)
            await turns()
            assert slave.journal.durable_end == before == c.master.commit.commit_end
        await c.committed(end)


async def test_slave_learns_that_it_is_in_sync(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        seen: list[bool] = []
        c.slaves[0].tap.change = lambda m: seen.append(m.in_sync) or [m]  # type: ignore[func-returns-value]
        await until(lambda: seen and seen[-1])


async def test_only_the_master_of_the_term_changes_the_set(tmp_path: Path) -> None:
    """In another mode the state is left alone, whatever happens to links."""
    async with cluster(tmp_path) as c:
        failed = c.master.commit.failed_below
        c.master.group.blind = True  # it does not know the change
        taken = replace(
            c.zoo.history[-1],
            mode=Mode.SLAVE_CONSUME,
            epoch=Epoch(2),
            reader=c.slaves[0].name,
        )
        c.zoo.set_state(taken)
        end = c.master.produce()
        await c.slaves[0].stop(crash=True)
        await until(lambda: not c.master.master.links[c.slaves[0].name].connected)
        await turns()
        assert c.zoo.history[-1] == taken
        assert c.master.commit.commit_end < end
        assert c.master.commit.failed_below == failed


async def test_a_slave_of_a_newer_term_does_not_follow_an_old_master(tmp_path: Path) -> None:
    """Fence: appends from a master of an older term are not accepted."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.group.blind = True
        state = replace(c.zoo.history[-1], mode=Mode.SLAVE_CONSUME, epoch=Epoch(2))
        c.zoo.set_state(replace(state, reader=slave.name))
        reported = len(slave.tap.sent)
        await until(lambda: len(slave.tap.sent) > reported + 2)
        before, lease = slave.journal.end, await grants(c)  # everything in flight has arrived
        reported = len(slave.tap.sent)
        await until(lambda: len(slave.tap.sent) > reported + 2)
        assert await grants(c) == lease, "it grants to an old master"
        end = c.master.produce()
        await until(lambda: not slave.slave.upstream.connected)
        await turns()
        assert slave.journal.end == before
        assert c.master.commit.commit_end < end


async def test_returning_master_ships_only_settled_bytes(
    tmp_path: Path,
) -> None:
    """Bytes appended for a term leave the broker only once the compare-and-set succeeded."""
    async with cluster(tmp_path) as c:
        slave, held = c.slaves[0], c.master.journal.end
        c.master.master.close_writes()
        c.master.produce()
        await until(lambda: slave.slave.upstream.caught_up)
        await turns()
        assert slave.journal.end == held
        await c.master.open_term()
        await c.equal()


async def test_lagging_slave_gets_only_settled_bytes(tmp_path: Path) -> None:
    """F9: one chunk would hold both."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        await slave.stop()
        settled = c.master.produce()
        c.master.master.close_writes()
        assert c.master.produce() > settled
        await slave.start()
        await slave.reaches(settled)
        await turns()
        assert slave.journal.end == settled


async def test_broker_that_ended_its_term_ships_all_its_bytes(tmp_path: Path) -> None:
    """They may have left before, so they are not an unfinished term to truncate for a suffix."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        slave.tap.reading.clear()
        end = c.master.produce(300)
        c.master.master.close_writes()
        assert c.master.master.ship_end() == end
        slave.tap.reading.set()
        await slave.reaches(end)


async def test_broker_without_a_term_commits_and_removes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave, commit = c.slaves[0], c.master.commit
        slave.tap.open.clear()
        end = c.master.produce()
        await slave.reaches(end)
        c.master.master.close_writes()
        committed = commit.commit_end
        slave.tap.open.set()
        await c.acked(slave, end)
        await slave.stop()
        await until(lambda: not c.master.master.links[slave.name].connected)
        await turns()
        assert commit.commit_end == committed < end
        assert c.isr == {slave.name}, "its stream broke outside of any term"


async def test_acks_of_an_older_term_do_not_count(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        slave.tap.reading.clear()
        await turns()
        await c.master.open_term()
        await turns()
        start = dict(c.master.journal.state.epochs)[Epoch(2)]
        assert c.master.commit.commit_end <= start
        slave.tap.reading.set()
        await c.committed()
        assert c.master.master.links[slave.name].epoch == 2


async def test_hand_over_asks_the_master(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        slave = c.slaves[0].slave
        assert await slave.hand_over(Epoch(4), b"offsets", 5.0) == ""
        (request,) = c.master.handed
        assert (request.epoch, request.offsets, request.reader) == (4, b"offsets", "g1-1")
        c.master.why_not = "not now"
        assert await slave.hand_over(Epoch(4), b"", 5.0) == "not now"


async def test_retention_waits_for_the_slowest_in_sync_slave(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as c:
        slow = c.slaves[0]
        slow.tap.open.clear()
        await turns()
        before = c.master.master.links[slow.name].durable_end
        c.master.produce()
        await c.committed()
        assert c.master.master.keep_from() == before
        slow.tap.open.set()
        await until(lambda: c.master.master.keep_from() == c.master.journal.end)


async def test_retention_waits_for_an_in_sync_slave_whose_stream_broke(tmp_path: Path) -> None:
    """It may be back in a moment or claim the reads: it is in sync until its removal is known."""
    async with cluster(tmp_path) as c:
        (slave,) = c.slaves
        await c.committed()
        c.zoo.away = True
        await slave.stop()
        link = c.master.master.links[slave.name]
        await until(lambda: not link.connected)
        before = link.durable_end
        await c.master.journal.wait_durable(c.master.produce())
        assert c.isr == {slave.name}
        assert c.master.master.keep_from() == before < c.master.journal.durable_end


async def test_the_flush_of_each_half_follows_the_policy(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        modes: dict[str, tuple[bool, int]] = {}

        def noting(node: Node) -> None:
            def note(*, sync: bool, interval_ms: int) -> None:
                modes[node.name] = (sync, interval_ms)

            node.journal.set_flush = note  # type: ignore[method-assign]

        for node in c.nodes:
            noting(node)
        c.zoo.set_policy(AckPolicy(Flush.FSYNC, 33, SlaveCounts.RECEIVED))
        await until(lambda: modes == {"g1-0": (True, 33), "g1-1": (False, 33)})
        c.zoo.set_policy(AckPolicy(Flush.OS_CACHE, 33, SlaveCounts.DURABLE))
        await until(lambda: modes == {"g1-0": (False, 0), "g1-1": (True, 33)})


async def test_ack_by_all_waits_for_no_segment_end(tmp_path: Path) -> None:
    """The policy makes no broker fsync: the master is asked to, a slave does in the background."""
    policy = AckPolicy(Flush.OS_CACHE, 20, SlaveCounts.RECEIVED, HowMany.ONE)
    async with cluster(tmp_path, 1, policy) as c:
        end = c.master.produce()
        await c.master.journal.wait_durable(end)
        await until(lambda: c.master.commit.all_end >= end)


async def test_member_dialing_before_master_knows_it_becomes_in_sync(
    tmp_path: Path,
) -> None:
    """The configuration is read but not followed yet: the member's stream still counts."""
    async with cluster(tmp_path) as c:
        late = Node(c.zoo, BrokerId("g1-2"), tmp_path / "g1-2")
        members = (*c.zoo.config.members, Member(late.name, "127.0.0.1:1"))
        c.master.group.blind = True
        c.zoo.config = replace(c.zoo.config, members=members)
        c.zoo.notify()
        hello = c.master.master._hello

        async def read_by_then(stream: Stream) -> wire.Hello:
            first_hello = await hello(stream)
            c.master.group.config = c.zoo.config
            return first_hello

        c.master.master._hello = read_by_then  # type: ignore[method-assign]
        try:
            await late.start()
            await until(lambda: late.slave.upstream.connected)
            c.master.group.blind = False
            c.zoo.notify()
            await c.in_sync(2)
        finally:
            await late.stop()


async def grants(c: Cluster) -> int:
    return c.master.master.links[c.slaves[0].name].lease_until_ms


async def test_grant_is_recorded_as_it_is_sent(tmp_path: Path) -> None:
    """F3: otherwise the slave might claim while its master serves by the grant."""
    async with cluster(tmp_path, heartbeat_ms=20, grant_ms=500) as c:
        slave = c.slaves[0]
        upstream = slave.slave.upstream
        kept: list[bool] = []

        class Sent(list[Any]):
            def append(self, message: Any) -> None:
                grant_ms = message.ack.grant_ms
                if grant_ms:
                    now_ms = slave.clock.monotonic_ms()
                    # It was made a moment ago: at least half must be recorded by now.
                    kept.append(upstream.promised_until_ms - now_ms >= grant_ms // 2)
                super().append(message)

        slave.tap.sent = Sent()
        upstream.promised_until_ms = 0
        await until(lambda: len(kept) > 3)
        assert all(kept)


async def test_grant_promise_is_stored_before_it_is_sent(tmp_path: Path) -> None:
    async with cluster(tmp_path, heartbeat_ms=20, grant_ms=500) as c:
        slave = c.slaves[0]
        upstream, sent = slave.slave.upstream, slave.tap.sent
        first = await grants(c)
        await until(lambda: c.master.master.links[slave.name].lease_until_ms > first + 100)
        lease = await grants(c)
        # One clock in this process: the promise outlasts the grant.
        assert upstream.promised_until_ms >= lease > c.master.clock.monotonic_ms()
        upstream.claiming = True
        promised, reported = upstream.promised_until_ms, len(sent)
        await until(lambda: len(sent) > reported + 3)
        assert all(not m.ack.grant_ms for m in sent[reported + 1 :])
        assert upstream.promised_until_ms == promised
        upstream.claiming = False
        await until(lambda: upstream.promised_until_ms > promised)
        state = c.zoo.history[-1]
        another = replace(state, master=BrokerId("g1-9"))

        async def promises_nothing() -> None:
            promised, reported = upstream.promised_until_ms, len(sent)
            await until(lambda: len(sent) > reported + 3)
            assert upstream.promised_until_ms == promised, "it serves no slave as master"

        for taken in (replace(state, mode=Mode.SLAVE_CONSUME), another):
            c.zoo.set_state(taken)
            await turns()
            await promises_nothing()
