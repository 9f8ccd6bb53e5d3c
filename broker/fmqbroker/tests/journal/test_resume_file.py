"""A start from the resume file equals one from the segment's start, but is shorter."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.journal import recovery as broker_recovery
from fmqbroker.journal import resume_file
from fmqbroker.journal.checkpoints import Checkpoints
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.fault_disk import Loss
from fmqbroker.tests.journal.test_full_disk import offsets
from fmqbroker.tests.journal.test_recovery import refused
from fmqbroker.tests.journal.test_recovery import (
    test_a_crash_at_every_step_loses_nothing_durable as crash_at_every_step,
)
from fmqbroker.tests.journal_kit import (
    TOPIC,
    Clock,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    segment_files,
    until,
)
from fmqcore.ids import Offset, Position
from fmqcore.journal import recovery
from fmqcore.journal.resume_file import RESUME, Resume, decode_resume

LARGE = 1 << 20


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_file, "EVERY_BYTES", 32 * 1024)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of batches in each window of a scan."""
    counts: list[int] = []
    real = recovery.replaying

    def replaying(scan, state, index):  # type: ignore[no-untyped-def]
        before = len(index)
        stop = yield from real(scan, state, index)
        counts.append(len(index) - before)
        return stop

    monkeypatch.setattr(broker_recovery, "replaying", replaying)
    return counts


async def crashed(path: Path) -> None:
    """Make a journal of one large segment that crashed; its resume file covers most bytes."""
    async with running(path, segment_bytes=LARGE, crash=True) as journal:
        journal.append(epoch(1))
        for number in range(30):
            journal.append(offsets(number + 1))
            journal.append(data(b"p", producer_id=1 + number % 3, base_sequence=number // 3))
            fill(journal, 15)
            await journal.wait_durable(journal.end)
        await until(lambda: (path / RESUME).exists())
        await until(lambda: resume_of(path).position > journal.end - 80_000)


def resume_of(path: Path) -> Resume:
    return decode_resume((path / RESUME).read_bytes())


async def look(journal: Journal) -> tuple[object, ...]:
    found = [tuple(await journal.find(TOPIC, q, Offset(0), 10_000)) for q in range(3)]
    state = journal.state.to_snap(0, 1 << 40)
    return state, journal.end, journal.last_header_crc, found, await everything(journal)


async def test_start_scans_only_after_the_resume_position(
    tmp_path: Path, scanned: list[int]
) -> None:
    await crashed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / RESUME).unlink()
    async with running(tmp_path / "a", segment_bytes=LARGE) as journal:
        assert sum(scanned) < 120
        short = await look(journal)
        fill(journal, 20)
        await journal.wait_durable(journal.end)
        again = await look(journal)
    scanned.clear()
    async with running(tmp_path / "b", segment_bytes=LARGE) as journal:
        assert sum(scanned) == 480
        assert await look(journal) == short
    scanned.clear()
    async with running(tmp_path / "a", segment_bytes=LARGE) as journal:
        assert sum(scanned) == 0  # an orderly stop writes it too
        assert await look(journal) == again


async def test_truncation_above_resume_position_scans_only_after_it(
    tmp_path: Path, scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that returns to truncate a few bytes keeps its group from writes meanwhile."""
    await crashed(tmp_path / "a")
    monkeypatch.setattr(resume_file, "EVERY_BYTES", LARGE)  # no other one at once
    behind = resume_of(tmp_path / "a").position
    async with running(tmp_path / "a", segment_bytes=LARGE, crash=True) as journal:
        fill(journal, 5)  # the file may cover everything, and the truncation must be above it
        await journal.wait_durable(journal.end)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = []
    for way in ("a", "b"):
        async with running(tmp_path / way, segment_bytes=LARGE, crash=True) as journal:
            if way == "b":
                (tmp_path / "b" / RESUME).unlink()
            ends = [batch.end for batch in headers(await everything(journal))]
            scanned.clear()
            assert ends[-3] > behind
            await journal.truncate(ends[-3])
            assert sum(scanned) == 483 if way == "b" else sum(scanned) < 120
            fill(journal, 20)
            await journal.wait_durable(journal.end)
            found.append(await look(journal))
    assert found[0] == found[1]
    async with running(tmp_path / "a", segment_bytes=LARGE) as journal:
        assert await look(journal) == found[0]


async def test_damage_below_resume_position_is_still_refused(tmp_path: Path) -> None:
    await crashed(tmp_path)
    (name,) = segment_files(tmp_path)
    segment = tmp_path / name
    raw = bytearray(segment.read_bytes())
    raw[40_000] ^= 1
    segment.write_bytes(raw)
    await refused(tmp_path, segment.name, "position")


async def test_foreign_or_unreadable_resume_file_is_ignored(
    tmp_path: Path, scanned: list[int]
) -> None:
    await crashed(tmp_path / "a")
    async with running(tmp_path / "b", segment_bytes=LARGE, crash=True) as journal:
        journal.append(epoch(3))
        fill(journal, 500, size=900)
        await journal.wait_durable(journal.end)
        stored, state = await everything(journal), journal.state
    raw = bytearray((tmp_path / "a" / RESUME).read_bytes())
    for flipped in (0, 50):
        raw[50] ^= flipped
        (tmp_path / "b" / RESUME).write_bytes(raw)
        scanned.clear()
        async with running(tmp_path / "b", segment_bytes=LARGE, crash=True) as journal:
            assert sum(scanned) == 500
            assert await everything(journal) == stored
            assert journal.state == state


async def test_resume_file_is_right_after_truncation(tmp_path: Path) -> None:
    async with running(tmp_path, segment_bytes=LARGE, crash=True) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 100)
        await until(lambda: (tmp_path / RESUME).exists())
        await journal.truncate(ends[20])
        for number in range(90):
            journal.append(data(b"%d other" % number * 100, queue=number % 2))
            await journal.wait_durable(journal.end)
        before = await look(journal)
    async with running(tmp_path, segment_bytes=LARGE) as journal:
        assert await look(journal) == before
        await journal.reset(Position(0))
        journal.append(epoch(2))
        fill(journal, 100, size=1234)
        await journal.wait_durable(journal.end)
        before = await look(journal)
    async with running(tmp_path, segment_bytes=LARGE) as journal:
        assert await look(journal) == before


async def test_resume_file_does_not_undo_a_started_truncation(tmp_path: Path) -> None:
    """After a crash between the note of the truncation and the zeros, all bytes are there."""
    async with running(tmp_path, segment_bytes=LARGE, crash=True) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 100)
        await journal.wait_durable(journal.end)
        await until(lambda: (tmp_path / RESUME).exists())
        journal._head.being_cut = True  # or the keeper may write the next checkpoint at once
        await journal._parts.checkpoints.write(drop_from=ends[20])
    assert resume_of(tmp_path).position > ends[20]
    async with running(tmp_path, segment_bytes=LARGE, crash=True) as journal:
        assert journal.end == ends[20]
        assert not (tmp_path / RESUME).exists(), "each start would report that it does not fit"


@pytest.mark.parametrize("way", ["truncate", "reset"])
async def test_resume_file_above_a_truncation_is_removed(tmp_path: Path, way: str) -> None:
    """Otherwise each start until the next write reports it (M001) and scans everything."""
    async with running(tmp_path, segment_bytes=LARGE) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 100)
        await until(lambda: (tmp_path / RESUME).exists())
        behind = resume_of(tmp_path).position
        await journal.truncate(journal.end)
        assert resume_of(tmp_path).position == behind, "what is below the cut is as it was"
        if way == "truncate":
            await journal.truncate(ends[20])
        else:
            await journal.reset(Position(0))
        assert not (tmp_path / RESUME).exists()


@pytest.mark.parametrize("way", ["reset", "truncate"])
async def test_no_resume_capture_during_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The keeper wakes when the flusher is at the new end and the appender still at the old."""
    looks = 0
    due, write = resume_file.Resumes.due, Checkpoints.write

    def counted(self: resume_file.Resumes) -> bool:
        nonlocal looks
        looks += 1
        return due(self) and looks < 1000

    async def slow(self: Checkpoints, **more: Any) -> None:
        if way == "truncate":  # due, and not checked yet
            resumes._captured, journal._flusher.care_at = None, Position(0)
        store.needs_care.notify()
        for _ in range(10):
            await asyncio.sleep(0)
        await write(self, **more)

    async with running(tmp_path, segment_bytes=LARGE, crash=True) as journal:
        store, resumes = journal._parts.store, journal._resumes
        ends = fill(journal, 20) if way == "truncate" else []
        await journal.wait_durable(journal.end)
        monkeypatch.setattr(resume_file.Resumes, "due", counted)
        monkeypatch.setattr(Checkpoints, "write", slow)
        if way == "truncate":
            await journal.truncate(ends[10])
        else:
            await journal.reset(Position(LARGE))
        assert looks < 1000, "the keeper turns in a circle, and no other task has a turn"
        assert resumes._captured is None or resumes._captured.position == journal.end
        monkeypatch.undo()
        monkeypatch.setattr(resume_file, "EVERY_BYTES", 32 * 1024)
        if way == "reset":
            journal.append(epoch(2))
        fill(journal, 100)
        await journal.wait_durable(journal.end)
        if way == "reset":  # else the checksum of the segment's bytes is unknown
            await until(lambda: (tmp_path / RESUME).exists())
        before = await look(journal)
    async with running(tmp_path, segment_bytes=LARGE) as journal:
        assert await look(journal) == before


@pytest.mark.parametrize("loss", list(Loss))
async def test_crash_at_every_step_with_resume_file(
    tmp_path: Path, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_file, "EVERY_BYTES", 6000)
    await crash_at_every_step(tmp_path, loss)


@pytest.mark.parametrize("resumed", [True, False])
async def test_old_producer_sequences_are_known_after_restart(
    tmp_path: Path, resumed: bool
) -> None:
    """The SNAP at the newest segment's start knows them: a retry is answered, not stored again."""
    sent = data(b"once", producer_id=9, producer_epoch=1, base_sequence=5)
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        journal.append(sent)
        fill(journal, 200)
        known = journal.state.check_sequence(9, 1, (TOPIC, 0), 5, 1)
        assert known is not None
    if not resumed:
        (tmp_path / RESUME).unlink()
    async with running(tmp_path) as journal:
        assert journal.state.check_sequence(9, 1, (TOPIC, 0), 5, 1) == known


async def test_start_from_resume_file_keeps_newest_store_time(tmp_path: Path) -> None:
    """Nothing follows the resume file, so only it has that time; the clock was set back."""
    clock = Clock()
    async with running(tmp_path, clock=clock, segment_bytes=LARGE) as journal:
        journal.append(epoch(1))
        fill(journal, 400)
        clock.now_ms += 1000
        newest = journal.append(data(b"the newest"))
    assert resume_of(tmp_path).position == newest.end
    earlier = Clock()
    async with running(tmp_path, clock=earlier, segment_bytes=LARGE) as journal:
        assert journal.append(data(b"after")).store_ms == newest.store_ms > earlier.now_ms
