"""Store times after a clock that was ahead: a segment begins at the right time (ADR 0070)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.steady_clock import HOLD_MS, SteadyClock
from fmqbroker.tests.journal_kit import TOPIC, epoch, everything, fill, headers, records, running
from fmqbroker.tests.runtime.test_steady_clock import YEAR_MS, Wall
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.clocks import APART_MS, FUTURE_MS
from fmqcore.ids import Epoch
from fmqcore.verify.directory import Verifier

AHEAD_MS = YEAR_MS


@asynccontextmanager
async def started(
    path: Path, wall: Wall, **changes: int
) -> AsyncIterator[tuple[Journal, SteadyClock]]:
    """Open a journal as a broker does, with the clock that it uses."""
    clock = SteadyClock(wall)
    async with running(path, clock=clock, **changes) as journal:  # type: ignore[arg-type]
        clock.note_newest(journal.last_ms)
        yield journal, clock


async def stored_ahead(path: Path, wall: Wall, ahead_ms: int = AHEAD_MS) -> None:
    """Store a message with the right time, then one of a broker whose clock is ahead."""
    async with started(path, wall) as (journal, _):
        if not journal.epoch:
            journal.append(epoch(1))
        journal.append(records(b"right"))
    wall.now_ms += ahead_ms
    async with started(path, wall) as (journal, _):
        journal.append(records(b"ahead"))
    wall.now_ms -= ahead_ms


def confirm(wall: Wall, clock: SteadyClock) -> None:
    clock.note_zookeeper(wall.now_ms, wall.mono_ms)


def findings(path: Path) -> list[str]:
    """Verify the directory of a closed journal."""
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    verifier = Verifier([(n, len(d)) for n, d in files.items()], None)
    for file in verifier.segments:
        verifier.segment(file, files[file.name], None, index_lost=True)
    return [f"{f.code.name} {f.sentence}" for f in verifier.findings if f.code.name[0] == "J"]


async def snaps(journal: Journal) -> list[BatchHeader]:
    return [h for h in headers(await everything(journal)) if h.type == BatchType.SNAP]


async def test_times_are_right_once_the_start_is_past(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, _):
        before_ms = wall.now_ms + AHEAD_MS
        assert journal.append(records(b"held")).store_ms == before_ms
        wall.advance(HOLD_MS)
        assert journal.append(records(b"right")).store_ms == wall.now_ms
        last = (await snaps(journal))[-1]
        assert (last.store_ms, last.corrected_from_ms) == (wall.now_ms, before_ms)
        assert journal.append(records(b"right")).position < last.position + 1000
    assert findings(tmp_path) == []


async def test_zookeepers_clock_makes_them_right_at_once(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        assert journal.append(records(b"right")).store_ms == wall.now_ms
        assert clock.doubt is None


@pytest.mark.parametrize("off_ms", [-APART_MS - 1, APART_MS + 1])
async def test_another_time_in_zookeeper_confirms_nothing(tmp_path: Path, off_ms: int) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        clock.note_zookeeper(wall.now_ms + off_ms, wall.mono_ms)
        assert journal.append(records(b"held")).store_ms == wall.now_ms + AHEAD_MS


async def test_a_clock_behind_zookeepers_past_is_held(tmp_path: Path) -> None:
    """Broker and ZooKeeper on one machine, whose clock is behind: the journal is right."""
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        clock.note_past(wall.now_ms + APART_MS + 1)
        confirm(wall, clock)
        assert journal.append(records(b"held")).store_ms == wall.now_ms + AHEAD_MS


async def test_times_stay_while_two_brokers_clocks_differ(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        clock.peers.report_clock("g1-1", -2 * APART_MS)  # type: ignore[arg-type]
        assert journal.append(records(b"held")).store_ms == wall.now_ms + AHEAD_MS


async def test_times_stay_while_a_jump_back_is_held(tmp_path: Path) -> None:
    wall = Wall()
    wall.now_ms += AHEAD_MS
    async with started(tmp_path, wall) as (journal, _):
        journal.append(epoch(1))
        wall.now_ms -= AHEAD_MS
        assert journal.append(records(b"held")).store_ms == wall.now_ms + AHEAD_MS
        wall.advance(HOLD_MS)
        assert journal.append(records(b"right")).store_ms == wall.now_ms


async def test_a_small_difference_is_waited_out(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall, FUTURE_MS)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        assert journal.append(records(b"held")).store_ms == wall.now_ms + FUTURE_MS
        assert len(await snaps(journal)) == 1


async def test_seek_by_time_finds_what_follows_a_correction(tmp_path: Path) -> None:
    wall = Wall()
    start_ms = wall.now_ms
    await stored_ahead(tmp_path, wall)  # offsets 0 and 1
    wall.advance(1000)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        corrected_ms = journal.append(records(b"2")).store_ms
        wall.advance(10_000)
        journal.append(records(b"3"))
        for asked_ms, offset in (
            (start_ms, 0),
            (start_ms + 1, 1),  # the first of those whose time is not known
            (corrected_ms, 1),
            (corrected_ms + 1, 3),
            (wall.now_ms, 3),
            (wall.now_ms + 1, 4),
            (start_ms + AHEAD_MS - 1, 4),
            (start_ms + AHEAD_MS + 1, 4),
        ):
            assert await journal.find_time(TOPIC, 0, asked_ms) == offset, asked_ms - start_ms


async def test_seek_passes_several_corrections(tmp_path: Path) -> None:
    """Segments that begin in the future lie before each of them."""
    wall, places = Wall(), list[tuple[int, int]]()
    async with started(tmp_path, wall) as (journal, _):
        journal.append(epoch(1))
    for _ in range(3):
        wall.now_ms += AHEAD_MS
        async with started(tmp_path, wall) as (journal, clock):
            confirm(wall, clock)
            fill(journal, 150, queues=1)
        wall.now_ms -= AHEAD_MS
        wall.advance(5000)
        async with started(tmp_path, wall) as (journal, clock):
            confirm(wall, clock)
            journal.append(records(b"right"))
            wall.advance(5000)
            stored = journal.append(records(b"later"))
            places.append((stored.store_ms, stored.base_offset))
    async with started(tmp_path, wall) as (journal, _):
        assert len(await journal._parts.catalog.corrections()) == 3
        for at_ms, offset in places:
            assert await journal.find_time(TOPIC, 0, at_ms) == offset
            assert await journal.find_time(TOPIC, 0, at_ms + 1) == offset + 1


async def test_retention_counts_from_the_correction(tmp_path: Path) -> None:
    """Over restarts, too: what the broker saw first is forgotten by then."""
    wall, week_ms = Wall(), 7 * 24 * 3600 * 1000
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        corrected_ms = journal.append(records(b"right")).store_ms
        first = journal.journal_start
    wall.advance(week_ms)
    async with started(tmp_path, wall, retention_ms=week_ms) as (journal, _):
        assert await journal.retire(journal.end, corrected_ms + week_ms) == 0
        assert await journal.retire(journal.end, corrected_ms + week_ms + 1) > 0
        assert journal.journal_start > first


async def test_segments_of_the_future_age_with_the_next_correction(tmp_path: Path) -> None:
    wall, week_ms = Wall(), 7 * 24 * 3600 * 1000
    wall.now_ms += AHEAD_MS
    async with started(tmp_path, wall) as (journal, _):
        journal.append(epoch(1))
        for _ in range(200):
            journal.append(records(b"x" * 1000))
    wall.now_ms -= AHEAD_MS
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        journal.append(records(b"right"))
        corrected = journal.end
    wall.advance(week_ms + 1)
    async with started(tmp_path, wall, retention_ms=week_ms) as (journal, _):
        assert await journal.retire(journal.end, wall.now_ms) > 0
        assert (await snaps(journal))[0].end < corrected < journal.end + 1
        assert len(await snaps(journal)) == 1


async def test_slave_goes_on_with_the_corrected_times(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path / "a", wall)
    async with started(tmp_path / "a", wall) as (journal, clock):
        confirm(wall, clock)
        journal.append(records(b"right"))
        await journal.wait_durable(journal.end)
        async with started(tmp_path / "b", wall) as (slave, _):
            while slave.end < journal.end:
                slave.append_replica(slave.end, await journal.read(slave.end, 1 << 20))
            wall.advance(3000)
            assert slave.append(records(b"right")).store_ms == wall.now_ms
            assert await slave.find_time(TOPIC, 0, wall.now_ms) == 3
            assert len(await snaps(slave)) == 2


async def test_a_truncated_correction_is_made_again(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        end = journal.end
        confirm(wall, clock)
        journal.append(records(b"right"))
        await journal.truncate(end)
        assert journal.last_ms == wall.now_ms + AHEAD_MS
        assert journal.append(records(b"right")).store_ms == wall.now_ms
        assert len(await snaps(journal)) == 2
    assert findings(tmp_path) == []


async def test_times_of_truncated_messages_are_forgotten(tmp_path: Path) -> None:
    wall = Wall()
    async with started(tmp_path, wall) as (journal, _):
        journal.append(epoch(1))
        end = journal.append(records(b"right")).end
    wall.now_ms += AHEAD_MS
    async with started(tmp_path, wall) as (journal, _):
        journal.append(records(b"ahead"))
        await journal.truncate(end)
        assert journal.last_ms == wall.now_ms - AHEAD_MS


async def test_a_term_begins_without_a_correction(tmp_path: Path) -> None:
    wall = Wall()
    await stored_ahead(tmp_path, wall)
    async with started(tmp_path, wall) as (journal, clock):
        confirm(wall, clock)
        assert journal.append(epoch(2)).store_ms == wall.now_ms + AHEAD_MS
        assert journal.epoch == Epoch(2)
        assert journal.append(records(b"right")).store_ms == wall.now_ms
