"""What all members hold: known from this term's reports only, and never lower than an ack."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fmqbroker.replication.view import LinkView
from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.ordered_bench import (
    CHANGES,
    ME,
    OPEN,
    SLAVE,
    OrderedBench,
    ordered,
    ordered_bench,
)
from fmqcore.errors import CorruptJournal
from fmqcore.ids import BrokerId, Epoch, Offset, Permission, Position, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.zk.group_config import Removal
from fmqcore.zk.group_state import GroupState, Mode


async def fall_behind(bench: OrderedBench) -> None:
    """Have the slave report a position whose index has left memory, with two records below it."""
    journal, line = bench.journal, bench.line()
    journal_kit.fill(journal, 200)
    await line.take([ordered(11, 2)])
    behind = journal.end
    await line.take([ordered(13)])
    journal_kit.fill(journal, 300)
    await journal.wait_durable(journal.end)
    journal.note_commit_end(journal.end)
    journal_kit.fill(journal, 100)
    await until(lambda: journal.index_start > behind, "the old index has left memory")
    bench.reports(behind)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[OrderedBench]:
    async with ordered_bench(tmp_path, segment_bytes=8 << 20) as made:
        yield made


async def test_ends_are_not_known_before_each_member_has_reported(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.journal.wait_durable(bench.journal.end)
    assert bench.holdings.held(OPEN) is None
    bench.reports(bench.journal.end)
    assert bench.holdings.held(OPEN) == (1, 0)
    assert bench.holdings.held_end(CHANGES.id, 0) == 1


async def test_member_that_is_behind_the_term_is_not_counted(bench: OrderedBench) -> None:
    """What an earlier term acknowledged lies above it: as an end it would lose that."""
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    behind = bench.journal.end - 1
    bench.open_term(2)
    await bench.journal.wait_durable(bench.journal.end)
    assert bench.holdings.held(OPEN) is None, "the reports of term 1 are over"
    bench.reports(behind)
    assert bench.holdings.held(OPEN) is None
    bench.reports(bench.journal.end)
    assert bench.holdings.held(OPEN) == (1, 0)


@pytest.mark.parametrize("fired", ["committed", "reported"])
async def test_ends_known_for_the_first_time_have_a_signal(bench: OrderedBench, fired: str) -> None:
    following = asyncio.create_task(bench.ends.run())
    await bench.journal.wait_durable(bench.journal.end)
    await asyncio.sleep(0)  # it waits
    bench.reports(bench.journal.end)
    replication = bench.replication
    signal = bench.commit.changed if fired == "committed" else replication.reported
    signal.notify()
    await until(lambda: bench.ends.known.count == 1)
    signal.notify()
    bench.open_term(2)
    await bench.journal.wait_durable(bench.journal.end)
    replication.changed.notify()  # a term begins
    bench.reports(bench.journal.end)
    signal.notify()
    await until(lambda: bench.ends.known.count == 2)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_least_member_counts(bench: OrderedBench) -> None:
    line = bench.line()
    await line.take([ordered(11)])
    middle = bench.journal.end
    await line.take([ordered(12), ordered(21, queue=1)])
    await bench.journal.wait_durable(bench.journal.end)
    bench.reports(middle)
    assert bench.holdings.held(OPEN) == (1, 0)
    bench.reports(middle + 8)
    assert bench.holdings.held(OPEN) == (1, 0), "half a batch is none"


async def test_report_counts_after_the_stream_broke_and_came_again(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    assert bench.holdings.held(OPEN) == (1, 0)
    bench.replication.links[SLAVE] = LinkView()  # the same slave dialled again
    assert bench.holdings.held(OPEN) == (1, 0)


async def test_ends_do_not_fall_when_a_member_is_added(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    assert bench.holdings.held(OPEN) == (1, 0), "it may be acknowledged"
    bench.group.configure(ME, SLAVE, BrokerId("g1-2"))
    assert bench.holdings.held(OPEN) == (1, 0)
    bench.become_master(2)
    assert bench.holdings.held(OPEN) is None, "another term asks all members again"


async def test_removed_slave_counts_while_it_may_claim(bench: OrderedBench) -> None:
    """As a takeover reader it would give an end below what was acknowledged without it."""
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    end = bench.journal.end
    bench.group.configure(ME, BrokerId("g1-2"))
    await bench.line().take([ordered(12)])
    await bench.all_durable(BrokerId("g1-2"))
    assert SLAVE in bench.ends.members
    assert bench.ends.all_end() == end
    bench.replication.successors = frozenset()  # the in-sync set is without it
    assert bench.ends.all_end() == bench.journal.end


async def test_promised_end_is_what_may_have_been_acknowledged(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    end = bench.journal.end
    await bench.line().take([ordered(12)])
    assert bench.ends.promised_end() == end
    bench.open_term(2)
    start = dict(bench.journal.state.epochs)[Epoch(2)]
    assert bench.ends.promised_end() == start > end, "before its own reports: all terms before"


async def test_new_member_has_to_report_first(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    bench.group.configure(ME, SLAVE, BrokerId("g1-2"))
    assert bench.holdings.held(OPEN) is None


async def test_ends_of_a_member_far_behind_come_from_disk(tmp_path: Path) -> None:
    """The index of what is committed leaves memory; the members' position may lie below."""
    async with ordered_bench(tmp_path) as bench:
        await fall_behind(bench)
        assert bench.holdings.held(OPEN) is None
        assert bench.holdings.held_end(CHANGES.id, 0) is None
        finding = asyncio.create_task(bench.holdings.run())
        await until(lambda: bench.holdings.known.count)
        assert bench.holdings.held(OPEN) == (2, 0)
        finding.cancel()
        await asyncio.gather(finding, return_exceptions=True)


async def test_damaged_old_segment_leaves_the_ends_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged segment must not end a duty of the broker: all groups would be without it."""
    async with ordered_bench(tmp_path) as bench:
        await fall_behind(bench)
        tries: list[TopicId] = []

        async def offset_at(topic: TopicId, *_: object) -> Offset:
            tries.append(topic)
            raise CorruptJournal("its index has to be made again, and the segment is damaged")

        with monkeypatch.context() as damage:
            damage.setattr(bench.journal, "offset_at", offset_at)
            finding = asyncio.create_task(bench.holdings.run())
            assert bench.holdings.held(OPEN) is None
            await until(lambda: tries or finding.done())
            assert bench.holdings.held(OPEN) is None
            await until(lambda: len(tries) > 1 or finding.done())
            await asyncio.sleep(0.01)
            assert len(tries) == 2, "it is read again only when it is asked for"
            assert not finding.done()
        assert bench.holdings.held(OPEN) is None
        await until(lambda: bench.holdings.known.count)
        assert bench.holdings.held(OPEN) == (2, 0)
        finding.cancel()
        await asyncio.gather(finding, return_exceptions=True)


async def test_ends_of_a_takeover_reader_are_durable_here(bench: OrderedBench) -> None:
    bench.journal.set_flush(sync=False, interval_ms=0)
    await bench.line().take([ordered(11)])
    await bench.journal.wait_durable(bench.journal.end)
    assert bench.holdings.durable_ends(OPEN) == (1, 0)
    bench.journal.append(journal_kit.records(b"x")._replace(topic_id=CHANGES.id, queue_id=1))
    assert bench.holdings.durable_ends(OPEN) == (1, 0)


async def test_view_of_a_whole_group(bench: OrderedBench) -> None:
    await bench.line().take([ordered(11)])
    await bench.all_durable()
    whole = GroupView(reachable=True, takes_writes=True, members=2, ends=(1, 0))
    assert bench.holdings.own_view(OPEN) == whole
    await bench.line().take([ordered(12)])
    assert bench.holdings.own_view(OPEN).ends is None, "a record lies above"


async def test_view_reports_what_keeps_a_group_out(bench: OrderedBench) -> None:
    await bench.all_durable()
    bench.replication.links[SLAVE].connected = False
    assert bench.holdings.own_view(OPEN).missing == (SLAVE,)
    bench.replication.links[SLAVE].connected = True
    alone = replace(bench.group.state.value, isr=frozenset())
    bench.group.state = replace(bench.group.state, value=alone)
    assert bench.holdings.own_view(OPEN).missing == (SLAVE,)
    bench.group.config = replace(bench.group.config, removal=Removal.DRAINING)
    assert "removed" in bench.holdings.own_view(OPEN).avoid
    bench.gate.grant(Permission.READ, "drained")
    assert not bench.holdings.own_view(OPEN).takes_writes
    reads = GroupState(Mode.SLAVE_CONSUME, Epoch(2), master=SLAVE, reader=ME)
    bench.gate.adopt(reads)
    view = bench.holdings.own_view(OPEN)
    assert (view.read_only, view.takes_writes, view.ends) == (True, False, None)
    assert Position(0) < bench.journal.end
