"""Acks that count towards the commit end, and its reports, from one half alone."""

from pathlib import Path

from fmqbroker.replication.view import LinkView
from fmqbroker.tests.replication_harness import cluster, until
from fmqcore.policy import AckPolicy


async def test_a_slave_whose_stream_broke_counts_with_nothing(tmp_path: Path) -> None:
    """R6: it may return without what it had received; it is asked again then."""
    async with cluster(tmp_path) as c:
        await c.committed()
        (slave,) = c.slaves
        slave.tap.open.clear()
        committed, end = c.master.commit.commit_end, c.master.produce()
        await c.master.journal.wait_durable(end)
        link = LinkView(False, True, end, end, end, c.master.journal.epoch)
        compute = c.master.master._ends.compute
        compute(AckPolicy(), {slave.name: link}, [frozenset({slave.name})])
        assert c.master.commit.commit_end == committed
        link.connected = True
        compute(AckPolicy(), {slave.name: link}, [frozenset({slave.name})])
        assert c.master.commit.commit_end == end


async def test_a_term_commits_nothing_before_its_own_first_batch(tmp_path: Path) -> None:
    """R6: what an earlier term left uncommitted is committed with this term or not at all."""
    async with cluster(tmp_path, in_sync=False) as c:
        (slave,) = c.slaves
        slave.tap.open.clear()
        await c.master.open_term()
        epoch = c.master.journal.epoch
        start = dict(c.master.journal.state.epochs)[epoch]
        link = LinkView(True, True, start, start, start, epoch)
        compute = c.master.master._ends.compute
        compute(AckPolicy(), {slave.name: link}, [frozenset({slave.name})])
        assert c.master.commit.commit_end == 0 < start


async def test_promise_of_earlier_incarnation_is_not_shortened(
    tmp_path: Path,
) -> None:
    """F3: the earlier incarnation promised for longer, and its master may still count on that."""
    async with cluster(tmp_path) as c:
        (slave,) = c.slaves
        promised = slave.slave.upstream.promised_until_ms = slave.clock.monotonic_ms() + 10**9
        before = len(slave.tap.sent)
        c.master.produce()
        await until(lambda: any(m.ack.grant_ms for m in slave.tap.sent[before:]), "a grant")
        assert slave.slave.upstream.promised_until_ms == promised
