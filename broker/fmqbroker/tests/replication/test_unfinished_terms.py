"""A master that ended while opening a term, and the unfinished term in its journal."""

from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.tests.journal_kit import epoch, running
from fmqbroker.tests.replication.test_reconciliation import actions, slave_ahead
from fmqbroker.tests.replication_harness import Cluster, Node, cluster, until
from fmqcore.ids import Epoch, Position
from fmqcore.zk.group_state import GroupState, Mode
from fmqproto.v1 import replication_pb2 as wire

SEGMENT = 256 * 1024


async def try_and_end(c: Cluster) -> tuple[int, bytes]:
    """End the master between EPOCH batch and compare-and-set; return position and batch."""
    await c.master.stop(crash=True)
    async with running(c.master.path, crash=True, segment_bytes=SEGMENT) as journal:
        start = journal.end
        await journal.wait_durable(journal.append(epoch(c.zoo.history[-1].epoch + 1)).end)
        return start, await journal.read(start, SEGMENT)


def claimed(state: GroupState, reader: Node) -> GroupState:
    """Let a slave claim the next term and serve the reads."""
    term = Epoch(state.epoch + 1)
    return replace(state, mode=Mode.SLAVE_CONSUME, epoch=term, reader=reader.name)


async def level(c: Cluster) -> None:
    """Wait until the running master has accepted the slave and sent it everything.

    The master's view counts: a slave may notice late that the previous one has ended.
    """
    master, slave = c.master.master, c.slaves[0].name

    def seen() -> bool:
        link = master.links.get(slave)
        return link is not None and link.connected and link.received_end == master.ship_end()

    await until(seen, "linked, and level")


async def comes_to_serve(c: Cluster) -> None:
    """Wait until the slave is accepted, and open a term as failover does."""
    await level(c)
    async with c.master.master.reconciling:
        await c.master.open_term()
    c.master.produce()
    await c.in_sync()
    await c.committed()
    await c.equal()


async def test_unfinished_term_is_not_shipped_after_restart(tmp_path: Path) -> None:
    """F9: its number may still be given to another's claim, and is."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.equal()
        start, _ = await try_and_end(c)
        reported: list[wire.MasterMessage] = []

        def note(message: wire.MasterMessage) -> list[wire.MasterMessage]:
            reported.append(message)
            return [message]

        slave.tap.change = note
        await c.master.start()
        await level(c)
        assert slave.journal.end == start
        assert c.master.master.kept_end() == start, "what was there before is not longer for it"
        before = c.zoo.history[-1].epoch
        assert {message.epoch for message in reported} == {before}, "its number is not sent either"
        assert {e.epoch for message in reported for e in message.welcome.epochs} == {before}
        slave.tap.change = lambda message: [message]
        await slave.stop()
        c.zoo.set_state(claimed(c.zoo.history[-1], slave))
        await slave.start()
        await comes_to_serve(c)


@pytest.mark.parametrize(
    "taken", [False, True], ids=["no broker claimed", "its number is a claim's"]
)
async def test_term_copied_by_a_slave_is_no_longer_unfinished(tmp_path: Path, taken: bool) -> None:
    """A master of an older version shipped it: it was pulled and truncated again without end."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        c.master.produce()
        await c.equal()
        start, batch = await try_and_end(c)
        await slave.stop()
        async with running(slave.path, segment_bytes=SEGMENT) as journal:
            journal.append_replica(journal.end, batch)
        if taken:
            c.zoo.set_state(claimed(c.zoo.history[-1], slave))
        await c.master.start()
        await slave.start()
        await comes_to_serve(c)
        assert slave.journal.end > start


async def test_term_with_commits_is_not_unfinished_despite_older_state(
    tmp_path: Path,
) -> None:
    """ZooKeeper was restored to the previous term."""
    async with cluster(tmp_path) as c:
        before = c.zoo.history[-1]
        await c.master.open_term()
        end = c.master.produce()
        await c.in_sync()
        await c.committed()
        await c.equal()
        await c.master.stop()
        c.zoo.set_state(before)
        await c.master.start()
        await level(c)
        assert c.master.master.ship_end() == end
        await comes_to_serve(c)


async def test_hello_waiting_over_a_doubtful_open_truncates_no_term(
    tmp_path: Path,
) -> None:
    """The compare-and-set got no answer, and the slave is ahead of where that term starts."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        await slave_ahead(c)
        reported: list[tuple[int, wire.Action]] = []

        def note(message: wire.MasterMessage) -> list[wire.MasterMessage]:
            if message.HasField("welcome"):
                reported.append((slave.tap.dials, message.welcome.action))
            return [message]

        slave.tap.change = note
        slave.tap.open.set()
        async with c.master.master.reconciling:  # a term is being opened
            await slave.start()
            await until(lambda: list(c.master.master._streams), "its Hello waits")
            dials = slave.tap.dials
            c.master.journal.append(epoch(2))
            c.master.group.unsettled = True
        tried = c.master.journal.end
        await until(lambda: reported)
        assert (reported[0], c.master.journal.end) == ((dials, wire.REJECT), tried)
        c.zoo.set_state(replace(c.zoo.history[-1], epoch=Epoch(2), isr=frozenset()))  # it stands
        await comes_to_serve(c)


@pytest.mark.parametrize("over", [False, True], ids=["still open", "over"])
async def test_bytes_of_a_term_that_was_set_are_settled(tmp_path: Path, over: bool) -> None:
    """The master has heard of a claim and its slave has not: both go on as they were."""
    async with cluster(tmp_path) as c:
        slave, reported = c.slaves[0], actions(c)
        c.master.produce()
        await c.equal()
        slave.group.blind = True
        if over:
            c.master.master.close_writes()
        c.zoo.set_state(claimed(c.zoo.history[-1], slave))
        slave.tap.cut()
        await until(lambda: reported)
        assert reported[0] == wire.APPEND_FROM
        assert c.master.master.ship_end() == c.master.journal.end
        if over:
            await comes_to_serve(c)


@pytest.mark.parametrize("claims", [1, 2, 3])
async def test_term_stays_unfinished_after_many_claims(tmp_path: Path, claims: int) -> None:
    """The reader has more and may have delivered it: it is pulled, not refused for ever."""
    async with cluster(tmp_path) as c:
        slave = c.slaves[0]
        end = await slave_ahead(c)
        await c.master.stop(crash=True)
        before = c.zoo.history[-1]
        async with running(c.master.path, crash=True, segment_bytes=256 * 1024) as journal:
            assert journal.end < end
            await journal.wait_durable(journal.append(epoch(before.epoch + 1)).end)
        for _ in range(claims):  # it was cut off from ZooKeeper, or restarted, and claimed again
            state = c.zoo.history[-1]
            term = Epoch(state.epoch + 1)
            c.zoo.set_state(
                replace(
                    state,
                    mode=Mode.SLAVE_CONSUME,
                    epoch=term,
                    reader=slave.name,
                    last_opened_epoch=before.epoch,
                    max_delivered_position=Position(end),
                )
            )
        slave.tap.open.set()
        await c.master.start()
        await slave.start()
        links = c.master.master.links
        await until(
            lambda: slave.name in links and (links[slave.name].heard or links[slave.name].refused)
        )
        assert not links[slave.name].refused
        assert c.master.journal.durable_end == end
