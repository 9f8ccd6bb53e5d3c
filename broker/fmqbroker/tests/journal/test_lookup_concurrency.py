"""Lookups of old records in files while the journal is truncated, reset or retired."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fmqbroker.journal import catalog, segment_scan
from fmqbroker.journal.journal import Journal
from fmqbroker.tests import fault_disk
from fmqbroker.tests.fault_disk import FaultDisk
from fmqbroker.tests.journal.test_truncation_concurrency import HeldDisk, held
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    TOPIC,
    Clock,
    epoch,
    fill,
    running,
    until,
)
from fmqcore.errors import NotFound
from fmqcore.ids import Epoch, Offset, Position
from fmqcore.journal.segments import index_name, segment_name

FIRST, SECOND, FOURTH = Position(0), Position(SEGMENT), Position(3 * SEGMENT)


async def old_segments(path: Path, *, indexes: bool = False, committed: bool = True) -> None:
    """Stop a journal of several segments, in the second of which epoch 3 starts."""
    async with running(path) as journal:
        journal.append(epoch(1))
        fill(journal, 80)
        journal.append(epoch(3))
        fill(journal, 220)
        await journal.wait_durable(journal.end)
        if committed:
            journal.note_commit_end(journal.end)
        await until(lambda: not journal._parts.catalog.needs_save(journal.durable_end))
    for name in os.listdir(path):
        if name.endswith(".index") and not indexes:
            (path / name).unlink()


def cold(journal: Journal) -> bool:
    """Keep all indexes but the newest on the disk only."""
    return len(journal._parts.catalog._hot) == 1


async def finds_what_is_there(journal: Journal) -> None:
    """Check that every message of a queue is where the lookup finds it."""
    for offset in range(journal.begin_offset(TOPIC, 0), journal.next_offset(TOPIC, 0)):
        (found,) = await journal.find(TOPIC, 0, Offset(offset), 1)
        header, _ = await journal.read_batch(found)
        assert (header.base_offset, header.queue_id) == (offset, 0)


async def by_offset(journal: Journal) -> Offset:
    (found,) = await journal.find(TOPIC, 0, Offset(30), 1)
    return found.base_offset


async def by_time(journal: Journal) -> Offset | None:
    return await journal.find_time(TOPIC, 0, Clock().now_ms)


async def by_epoch(journal: Journal) -> Offset:
    return await journal.epoch_end(TOPIC, 0, Epoch(1))


Look = Callable[[Journal], Awaitable[Offset | None]]


def at_the_end_of(
    monkeypatch: pytest.MonkeyPatch,
    segment: Position,
    work: Callable[[], Awaitable[object]],
    *,
    last: bool = False,
) -> None:
    """Run `work` once that segment's file has been read from (`last`: to its end)."""
    read, done = fault_disk._FaultFile.read, False

    async def beside(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        nonlocal done
        found = await read(self, at, length)
        here = self.name == segment_name(segment) and not (last and at + length < SEGMENT)
        if here and not done:
            done = True
            await work()
        return found

    monkeypatch.setattr(fault_disk._FaultFile, "read", beside)


@pytest.mark.parametrize(
    ("look", "segment"), [(by_offset, SECOND), (by_time, FIRST), (by_epoch, SECOND)]
)
async def test_lookup_restarts_when_its_segment_is_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look, segment: Position
) -> None:
    await old_segments(tmp_path)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 4096)
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk, retention_ms=1, retention_bytes=0) as journal:
        at_the_end_of(monkeypatch, segment, lambda: journal.retire(FOURTH, 10**15))
        assert await look(journal) == journal.begin_offset(TOPIC, 0) > 30


@pytest.mark.parametrize("last", [False, True], ids=["is being read", "was read"])
@pytest.mark.parametrize(("look", "found"), [(by_offset, 30), (by_epoch, 27)])
async def test_lookup_restarts_when_its_segment_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look, found: int, last: bool
) -> None:
    """The rest of the segment is zeros by then, not damage; no old index is left there."""
    await old_segments(tmp_path, committed=False)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(catalog, "MAX_HOT_BYTES", 0)  # uncommitted segments may be cold, too
    async with running(tmp_path, disk=FaultDisk(tmp_path)) as journal:
        (kept,) = await journal.find(TOPIC, 0, Offset(34), 1)
        (tmp_path / index_name(SECOND)).unlink()
        journal._parts.catalog._cold.clear()
        position = Position(kept.position + kept.total_len)
        at_the_end_of(monkeypatch, SECOND, lambda: journal.truncate(position), last=last)
        assert await look(journal) == found
        assert journal.end == position
        assert not (tmp_path / index_name(SECOND)).exists()
        fill(journal, 200, size=700)
        await finds_what_is_there(journal)


async def test_index_read_before_a_reset_is_not_cached(tmp_path: Path) -> None:
    """A segment of the same base follows, and its index is the one requested."""
    await old_segments(tmp_path, indexes=True)
    disk = HeldDisk(tmp_path)
    disk.slow = ("read", index_name(SECOND))
    async with running(tmp_path, disk=disk) as journal:
        with held(disk):
            looking = asyncio.ensure_future(by_offset(journal))
            await until(lambda: disk.waits > 0)
            await journal.reset(FIRST)
        await asyncio.wait((looking,))
        await grow_again(journal)


async def grow_again(journal: Journal) -> None:
    """Grow the journal again at other positions; lookups then use its files."""
    journal.append(epoch(journal.epoch + 1))
    fill(journal, 300, size=700)
    await journal.wait_durable(journal.end)
    journal.note_commit_end(journal.end)
    journal._parts.store.needs_care.notify()
    await until(lambda: cold(journal))
    await finds_what_is_there(journal)


@pytest.mark.parametrize("retired", [False, True])
async def test_nothing_from_before_a_reset_is_found_afterwards(
    tmp_path: Path, retired: bool
) -> None:
    await old_segments(tmp_path)
    async with running(tmp_path, retention_ms=1, retention_bytes=0) as journal:
        await finds_what_is_there(journal)
        if retired:
            await journal.retire(FOURTH, 10**15)
            await finds_what_is_there(journal)
        await journal.reset(FIRST)
        assert not await journal.find(TOPIC, 0, Offset(0), 1)
        assert journal.committed_offset(TOPIC, 0, Position(1 << 40)) == 0
        assert journal.begin_offset(TOPIC, 0) == 0
        await grow_again(journal)


async def test_rest_of_a_cold_segment_is_found_after_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MAX_HOT_BYTES", 0)
    await old_segments(tmp_path, committed=False)
    async with running(tmp_path) as journal:
        await finds_what_is_there(journal)
        (kept,) = await journal.find(TOPIC, 0, Offset(34), 1)
        await journal.truncate(Position(kept.position + kept.total_len))
        held_ = journal._parts.catalog
        assert held_._cold_bytes == sum(part.held_bytes for part in held_._cold.values())
        await finds_what_is_there(journal)
        assert journal.next_offset(TOPIC, 0) == 35
        await grow_again(journal)


async def test_reads_of_an_old_segment_are_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_segments(tmp_path, indexes=True)
    disk = FaultDisk(tmp_path)
    read, read_file, reads = fault_disk._FaultFile.read, disk.read_file, list[str]()

    async def of_file(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        reads.append(self.name)
        return await read(self, at, length)

    async def of_index(name: str) -> bytes | None:
        reads.append(name)
        return await read_file(name)

    monkeypatch.setattr(fault_disk._FaultFile, "read", of_file)
    monkeypatch.setattr(disk, "read_file", of_index)
    async with running(tmp_path, disk=disk) as journal:
        reads.clear()
        assert await by_offset(journal) == 30
        assert {index_name(SECOND), segment_name(SECOND)} <= set(reads)
        reads.clear()
        assert await by_offset(journal) == 30
        assert not reads


@pytest.mark.parametrize("way", ["truncate", "reset", "truncate meanwhile"])
async def test_read_ahead_bytes_do_not_hide_later_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Batches are read with their surroundings, which are cached."""
    await old_segments(tmp_path, committed=False)
    async with running(tmp_path, disk=FaultDisk(tmp_path)) as journal:
        (found,) = await journal.find(TOPIC, 0, Offset(30), 1)
        end = Position(found.position + found.total_len)
        if way == "truncate meanwhile":
            at_the_end_of(monkeypatch, SECOND, lambda: journal.truncate(end))
            await journal.read_batch(found)
        else:
            await finds_what_is_there(journal)
            await journal.truncate(end) if way == "truncate" else await journal.reset(FIRST)
        assert journal.end == (end if "truncate" in way else 0)
        journal.append(epoch(journal.epoch + 1))
        fill(journal, 1600, size=700)  # more than the cache holds
        await journal.wait_durable(journal.end)
        await finds_what_is_there(journal)


@pytest.mark.parametrize("committed", [True, False], ids=["cold", "hot"])
async def test_cache_keeps_nothing_of_retired_segments(tmp_path: Path, committed: bool) -> None:
    await old_segments(tmp_path, committed=committed)
    async with running(tmp_path, retention_ms=1, retention_bytes=0) as journal:
        await finds_what_is_there(journal)
        await journal.retire(FOURTH, 10**15)
        await finds_what_is_there(journal)
        known, bases = journal._parts.catalog, {s.base for s in journal._parts.store.segments}
        assert {*(base for _, base in known._cold), *known._starts} <= bases
        assert {hot.segment.base for hot in known._hot} <= bases
        assert known._cold_bytes == sum(part.held_bytes for part in known._cold.values())


async def test_lookup_restarts_while_its_segment_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is being deleted: it cannot be read any more, though it exists."""
    await old_segments(tmp_path, indexes=True)
    (tmp_path / index_name(FIRST)).unlink()  # rebuilt: many reads
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 4096)
    disk = HeldDisk(tmp_path)
    retiring: list[asyncio.Future[int]] = []

    async def retires() -> None:
        retiring.append(asyncio.ensure_future(journal.retire(FOURTH, 10**15)))
        await until(lambda: disk.waits > 0)

    async with running(tmp_path, disk=disk, retention_ms=1, retention_bytes=0) as journal:
        at_the_end_of(monkeypatch, FIRST, retires)
        with held(disk):
            (found,) = await journal.find(TOPIC, 0, Offset(5), 1)
        assert found.base_offset == journal.begin_offset(TOPIC, 0) > 30
        assert await retiring[0] > 0


async def test_file_opened_by_two_readers_is_open_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_segments(tmp_path)
    disk = HeldDisk(tmp_path)
    disk.slow = ("open", segment_name(SECOND))
    close, closed = fault_disk._FaultFile.close, list[str]()

    async def noted(self: fault_disk._FaultFile) -> None:
        closed.append(self.name)
        await close(self)

    monkeypatch.setattr(fault_disk._FaultFile, "close", noted)
    async with running(tmp_path, disk=disk) as journal:
        assert SECOND not in journal._parts.store._open
        with held(disk):
            reading = [asyncio.ensure_future(journal.raw.read(SECOND, 0, 8)) for _ in range(2)]
            await until(lambda: disk.waits == 2)
        first, second = [await each for each in reading]
        assert first == second
        assert closed.count(segment_name(SECOND)) == 1


async def test_file_opened_during_its_truncation_is_missing(
    tmp_path: Path,
) -> None:
    await old_segments(tmp_path, committed=False)
    disk = HeldDisk(tmp_path)
    disk.slow = ("open", segment_name(FOURTH))
    async with running(tmp_path, disk=disk) as journal:
        (kept,) = await journal.find(TOPIC, 0, Offset(5), 1)
        if file := journal._parts.store._open.pop(FOURTH, None):
            await file.close()
        with held(disk):
            reading = asyncio.ensure_future(journal.raw.read(FOURTH, 0, 8))
            await until(lambda: disk.waits > 0)
            await journal.truncate(Position(kept.position + kept.total_len))
        with pytest.raises(NotFound):
            await reading
        assert FOURTH not in journal._parts.store._open
