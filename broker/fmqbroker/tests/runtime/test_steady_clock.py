"""A jump of the wall clock changes nothing until it has persisted for a while."""

from pathlib import Path

import pytest

from fmqbroker.data.retention import Retention
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.steady_clock import FAR_MS, HOLD_MS, JUMP_MS, SteadyClock
from fmqbroker.tests.journal_kit import SEGMENT, data, epoch, fill, running
from fmqbroker.tests.journal_kit import Clock as JournalClock
from fmqcore.clocks import APART_MS

DAY_MS = 24 * 3600 * 1000
YEAR_MS = 365 * DAY_MS


class Wall(JournalClock):
    """Wall and monotonic clock, moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.mono_ms = 1000

    def monotonic_ms(self) -> int:
        return self.mono_ms

    def advance(self, ms: int) -> None:
        self.mono_ms += ms
        self.now_ms += ms


@pytest.mark.parametrize("by_ms", [8 * DAY_MS, -8 * DAY_MS])
def test_jump_that_reverts_changes_no_time(by_ms: int) -> None:
    wall = Wall()
    clock, before_ms = SteadyClock(wall), wall.now_ms
    wall.now_ms += by_ms
    wall.advance(14_000)
    assert clock.wall_ms() == before_ms + 14_000
    assert f"jumped by {by_ms // 1000} s 0 s ago" in (clock.doubt or "")
    wall.advance(HOLD_MS - 1)
    assert clock.wall_ms() == before_ms + 14_000 + HOLD_MS - 1
    wall.now_ms -= by_ms
    assert clock.wall_ms() == wall.now_ms
    assert (clock.doubt, clock.jumps) == (None, 1)


def test_a_jump_that_stands_is_accepted() -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    wall.now_ms += DAY_MS
    assert clock.doubt
    wall.advance(HOLD_MS)
    assert clock.wall_ms() == wall.now_ms
    assert clock.doubt is None


def test_another_jump_is_held_from_its_own_moment() -> None:
    wall = Wall()
    clock, before_ms = SteadyClock(wall), wall.now_ms
    for _ in range(4):
        wall.now_ms += DAY_MS
        assert clock.doubt
        wall.advance(HOLD_MS // 2)
    assert clock.wall_ms() == before_ms + 2 * HOLD_MS


def test_a_slow_correction_is_followed() -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    for _ in range(100):
        wall.advance(1000)
        wall.now_ms += JUMP_MS
        assert clock.wall_ms() == wall.now_ms
    assert (clock.doubt, clock.jumps) == (None, 0)


@pytest.mark.parametrize("gap_ms", [FAR_MS + 1, -FAR_MS - 1, FAR_MS, 0])
def test_a_start_far_from_the_newest_message_is_in_doubt(gap_ms: int) -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    clock.note_newest(wall.now_ms - gap_ms if gap_ms else 0)
    assert bool(clock.doubt) is (abs(gap_ms) > FAR_MS)
    wall.advance(HOLD_MS)
    assert clock.doubt is None


class Alone:
    """Stands in for the group and both halves of replication: no other broker exists."""

    master = "g1-0"
    value = state = property(lambda self: self)

    def keep_from(self) -> int:
        return 1 << 62


async def test_a_clock_ahead_for_a_moment_deletes_nothing(tmp_path: Path) -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    async with running(tmp_path, clock=clock, retention_ms=7 * DAY_MS) as journal:  # type: ignore[arg-type]
        journal.append(epoch(1))
        fill(journal, 3 * SEGMENT // 1000)
        await journal.wait_durable(journal.end)
        commit, alone = CommitFrontier(), Alone()
        commit.advance(journal.end, journal.end)
        retention = Retention(
            "g1-0", journal, commit, alone, alone, alone, clock, lambda: clock.doubt  # type: ignore[arg-type]
        )  # fmt: skip
        wall.now_ms += 8 * DAY_MS
        assert await retention.check_once() == 0
        stored = journal.append(data(b"meanwhile"))
        assert stored.store_ms == wall.now_ms - 8 * DAY_MS
        wall.advance(14_000)
        assert await retention.check_once() == 0
        wall.now_ms -= 8 * DAY_MS
        assert await retention.check_once() == 0
        wall.advance(8 * DAY_MS)
        assert await retention.check_once() > 0


async def test_messages_stored_in_the_future_are_retired(tmp_path: Path) -> None:
    """The remedy: their segments are as old as the time since this broker first saw them."""
    ahead = JournalClock()
    ahead.now_ms += YEAR_MS
    async with running(tmp_path, clock=ahead) as journal:
        journal.append(epoch(1))
        fill(journal, 3 * SEGMENT // 1000)
    clock = JournalClock()
    async with running(tmp_path, clock=clock, retention_ms=7 * DAY_MS) as journal:
        end, now_ms = journal.end, clock.now_ms
        assert journal.last_ms - now_ms == YEAR_MS
        assert await journal.retire(end, now_ms) == 0
        assert await journal.retire(end, now_ms + 7 * DAY_MS) == 0
        assert await journal.retire(end, now_ms + 7 * DAY_MS + 1) > 0


@pytest.mark.parametrize("gap_ms", [-DAY_MS, DAY_MS])
def test_zookeeper_ends_doubt_only_of_a_future_journal(gap_ms: int) -> None:
    """A clock that is ahead deletes early, whether ZooKeeper's machine shares it or not."""
    wall = Wall()
    clock = SteadyClock(wall)
    clock.note_newest(wall.now_ms - gap_ms)
    assert clock.doubt
    clock.note_zookeeper(wall.now_ms, wall.mono_ms)
    assert (clock.doubt is None) is (gap_ms < 0)
    assert clock.may_correct is (gap_ms < 0)


def test_zookeepers_answer_counts_up_to_its_delay() -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    clock.note_newest(wall.now_ms + DAY_MS)
    asked_ms = wall.mono_ms
    wall.advance(APART_MS // 2)
    clock.note_zookeeper(wall.now_ms - APART_MS // 2, asked_ms)
    assert clock.may_correct
    clock.note_zookeeper(0, asked_ms)
    assert clock.may_correct, "a server that gives no time proves nothing"
    clock.note_zookeeper(wall.now_ms - DAY_MS, asked_ms)
    assert not clock.may_correct


def test_a_jump_that_nothing_read_yet_blocks_a_correction() -> None:
    wall = Wall()
    clock = SteadyClock(wall)
    wall.now_ms -= DAY_MS
    assert not clock.may_correct
