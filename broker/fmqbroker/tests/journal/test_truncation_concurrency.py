"""Other tasks at every wait while the journal is truncated, reset or retired."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fmqbroker.journal import segment_scan
from fmqbroker.journal import store as store_module
from fmqbroker.journal.catalog import Catalog
from fmqbroker.journal.store import SegmentStore
from fmqbroker.tests import fault_disk
from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    TOPIC,
    Life,
    epoch,
    everything,
    fill,
    headers,
    running,
    until,
)
from fmqcore.errors import CorruptJournal, NotFound
from fmqcore.ids import Offset, Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.damage_note import SUSPECT
from fmqcore.journal.segments import CHECKPOINT, index_name, segment_name
from fmqport.disk import DiskFailed, DiskFile, DiskFull


class HeldDisk(FaultDisk):
    """A disk whose `slow` calls wait while it is held; `looks` counts calls of `free_bytes`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = asyncio.Event()
        self.go.set()
        self.waits = self.looks = 0
        self.slow = ("remove", ".journal")

    async def _wait(self, kind: str, name: str) -> None:
        if self.slow[0] == kind and name.endswith(self.slow[1]):
            self.waits += 1
            await self.go.wait()
            self.waits -= 1

    async def remove(self, name: str) -> None:
        await self._wait("remove", name)
        await super().remove(name)

    async def replace_file(self, name: str, data: bytes) -> None:
        await self._wait("replace", name)
        await super().replace_file(name, data)

    async def open(self, name: str) -> DiskFile:
        file = await super().open(name)
        await self._wait("open", name)
        return file

    async def read_file(self, name: str) -> bytes | None:
        found = await super().read_file(name)
        await self._wait("read", name)
        return found

    async def free_bytes(self) -> int:
        free = await super().free_bytes()
        self.looks += 1
        return free


@contextmanager
def held(disk: HeldDisk) -> Iterator[None]:
    disk.go.clear()
    try:
        yield
    finally:
        disk.go.set()


def _says(path: Path) -> Checkpoint:
    return decode_checkpoint((path / CHECKPOINT).read_bytes())


@pytest.mark.parametrize("way", ["truncate", "reset"])
async def test_no_checkpoint_of_old_journal_during_truncation(tmp_path: Path, way: str) -> None:
    """D5: it would undo the note of the running truncation, and a start would refuse."""
    disk = HeldDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
        cut = journal.truncate(ends[20]) if way == "truncate" else journal.reset(Position(1 << 30))
        with held(disk):
            cutting = asyncio.ensure_future(cut)
            await until(lambda: disk.waits > 0)
            looks = disk.looks
            journal.note_commit_end(Position(ends[10]))
            await until(lambda: disk.looks > looks)
            await disk.list()  # behind what was written meanwhile
            says = _says(tmp_path)
        await cutting
        now = _says(tmp_path)
        assert (now.drop_from, now.journal_start, now.durable_end, now.last_header_crc) == (
            None,
            journal.journal_start,
            journal.end,
            journal.last_header_crc,
        )
        stored = await everything(journal)
    assert says.drop_from == (ends[20] if way == "truncate" else 0)
    async with running(tmp_path) as journal:
        assert await everything(journal) == stored


@pytest.mark.parametrize("way", ["truncate", "reset", "retire"])
async def test_disk_failure_ends_process_though_caller_is_cancelled(
    tmp_path: Path, way: str
) -> None:
    """D3: otherwise the journal stays half truncated, and its last checkpoint calls it clean."""
    disk, life = HeldDisk(tmp_path), Life()

    def fails(step: Step) -> None:
        if step.kind == "remove" and step.name.endswith(".journal"):
            raise DiskFailed("EIO")

    async with running(
        tmp_path, disk=disk, life=life, crash=True, retention_ms=1, retention_bytes=0
    ) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
        disk.fault = fails
        ways: dict[str, Callable[[], Coroutine[None, None, object]]] = {
            "truncate": lambda: journal.truncate(ends[20]),
            "reset": lambda: journal.reset(Position(1 << 30)),
            "retire": lambda: journal.retire(journal.end, 10**15),
        }
        with held(disk):
            work = asyncio.ensure_future(ways[way]())
            await until(lambda: disk.waits > 0)
            work.cancel()
            await asyncio.sleep(0)
        await asyncio.wait((work,))
        assert life.reasons


@pytest.mark.parametrize("way", ["truncate", "reset"])
async def test_reads_during_truncation_are_consistent(tmp_path: Path, way: str) -> None:
    """Otherwise a consumer that joins then at the latest message starts at offset 0."""
    disk = HeldDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
        journal.note_commit_end(ends[110])

        async def seen() -> list[object]:
            found = await journal.find(TOPIC, 0, Offset(0), 10)
            committed = journal.committed_offset(TOPIC, 0, ends[110])
            offsets = [committed, journal.next_offset(TOPIC, 0), journal.begin_offset(TOPIC, 0)]
            ends_ = [journal.end, journal.durable_end, journal.written_end]
            return [*ends_, *offsets, journal.journal_start, journal.epoch, found]

        cut = journal.truncate(ends[120]) if way == "truncate" else journal.reset(Position(1 << 30))
        with held(disk):
            cutting = asyncio.ensure_future(cut)
            await until(lambda: disk.waits > 0)
            during = await seen()
        await cutting
        assert during == await seen()
        if way == "truncate":
            assert during[:-1] == [ends[120]] * 3 + [37, 41, 0, 0, 1]
        else:
            assert during[:-1] == [1 << 30] * 3 + [0, 0, 0, 1 << 30, 0]


@pytest.mark.parametrize(("whole", "writes"), [(1, 0), (2, 0), (1, 1), (1, 2)])
async def test_no_stale_index_remains_after_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int, writes: int
) -> None:
    """The keeper is writing indexes: the truncated segment's index is not among them.

    After a crash it would be taken for the new one: same segment, same length.
    """

    async def later(*_: object) -> None:
        return None

    disk = HeldDisk(tmp_path)
    disk.slow = ("replace", index_name(Position(writes * SEGMENT)))
    async with running(tmp_path, disk=disk) as journal:
        with monkeypatch.context() as keeper:
            keeper.setattr(Catalog, "save", later)
            keeper.setattr(Catalog, "needs_save", lambda *_: False)
            journal.append(epoch(1))
            ends = fill(journal, 200)
            await journal.wait_durable(journal.end)
        with held(disk):
            journal._parts.store.needs_care.notify()
            await until(lambda: disk.waits > 0)  # it writes that one
            cut_at = ends[whole * 60 + 10]  # in the one behind those that stay whole
            cutting = asyncio.ensure_future(journal.truncate(cut_at))
            await until(lambda: _says(tmp_path).drop_from is not None)
            for _ in range(50):
                await disk.list()  # the truncation is about to remove files
        await cutting
        await until(lambda: disk.waits == 0)
        await until(lambda: not journal._parts.catalog.needs_save(journal.durable_end))
        await disk.list()
        names = sorted(name for name in os.listdir(tmp_path) if name.endswith(".index"))
        assert names == [index_name(Position(i * SEGMENT)) for i in range(whole)]


async def _old_segments(path: Path) -> list[Position]:
    """Stop a journal of several segments and lose its indexes; return the bases."""
    async with running(path) as journal:
        journal.append(epoch(1))
        fill(journal, 300)
        journal.note_commit_end(journal.end)
        await journal.wait_durable(journal.end)
    for name in os.listdir(path):
        if name.endswith(".index"):
            (path / name).unlink()
    return [Position(i * SEGMENT) for i in range(5)]


@pytest.mark.parametrize("way", ["others are read", "it is retired"])
async def test_lookup_continues_when_its_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Between two reads the file may be the longest unused, or be deleted by retention."""
    bases = await _old_segments(tmp_path)
    monkeypatch.setattr(store_module, "MAX_OPEN", 2)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 4096)
    read, busy = fault_disk._FaultFile.read, False

    async def beside(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        nonlocal busy
        found = await read(self, at, length)
        if self.name == segment_name(bases[1]) and not busy:
            busy = True
            if way == "it is retired":
                await journal.retire(bases[3], 10**15)
            else:
                for base in (bases[0], bases[2], bases[3]):
                    await journal.raw.read(base, 0, 8)
                busy = False
        return found

    async with running(
        tmp_path, disk=FaultDisk(tmp_path), retention_ms=1, retention_bytes=0
    ) as journal:
        wanted = Offset(journal.next_offset(TOPIC, 0) // 3)
        monkeypatch.setattr(fault_disk._FaultFile, "read", beside)
        (found,) = await journal.find(TOPIC, 0, wanted, 1)
        if way == "it is retired":
            assert found.base_offset == journal.begin_offset(TOPIC, 0) > wanted
        else:
            assert bases[1] < found.position < bases[2]
            assert found.base_offset == wanted


async def test_bytes_truncated_during_a_read_are_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be noted for the next start, and the broker would stop itself."""
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 50)
    read, busy = fault_disk._FaultFile.read, False

    async def beside(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        nonlocal busy
        if not busy:
            busy = True
            await journal.truncate(ends[30])
        return await read(self, at, length)

    async with running(tmp_path, disk=FaultDisk(tmp_path)) as journal:
        monkeypatch.setattr(fault_disk._FaultFile, "read", beside)
        stored = await journal.read_sound(ends[20], SEGMENT)
        assert headers(stored)[-1].end == journal.end == ends[30]
        assert journal.damage is None
        assert not (tmp_path / SUSPECT).exists()


async def test_read_during_truncation_still_reports_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 150)
    with (tmp_path / segment_name(Position(0))).open("r+b") as file:
        file.seek(ends[20] + 200)
        file.write(b"damaged")
    read, reads = fault_disk._FaultFile.read, 0

    async def beside(self: fault_disk._FaultFile, at: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 100, "it reads and reads"
        if reads == 1:
            await journal.truncate(ends[140])
        return await read(self, at, length)

    async with running(tmp_path, disk=FaultDisk(tmp_path)) as journal:
        monkeypatch.setattr(fault_disk._FaultFile, "read", beside)
        with pytest.raises(CorruptJournal):
            await journal.read_sound(ends[20], SEGMENT)
        assert journal.damage is not None
        assert journal.end == ends[140]


async def test_no_room_to_finish_truncation_ends_the_process(tmp_path: Path) -> None:
    """The void bytes are noted as void and still there: the next start finishes it."""
    disk, life, checkpoints = FaultDisk(tmp_path), Life(), 0

    def full(step: Step) -> None:
        nonlocal checkpoints
        checkpoints += (step.kind, step.name) == ("replace", CHECKPOINT)
        if checkpoints == 2:
            raise DiskFull("no space left")

    hour_ms = 3_600_000  # no other task writes one
    async with running(
        tmp_path, disk=disk, life=life, crash=True, checkpoint_interval_ms=hour_ms
    ) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 100)
        await journal.wait_durable(journal.end)
        disk.fault = full
        await asyncio.wait((asyncio.ensure_future(journal.truncate(ends[20])),))
        assert life.reasons
    async with running(tmp_path) as journal:
        assert journal.end == ends[20]


async def test_file_opened_while_its_segment_retires_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its room on the disk is not freed, though retention needs it now."""
    bases = await _old_segments(tmp_path)
    disk = HeldDisk(tmp_path)
    disk.slow = ("open", segment_name(bases[0]))
    async with running(tmp_path, disk=disk, retention_ms=1, retention_bytes=0) as journal:
        await journal._parts.store._open.pop(bases[0]).close()  # long unused
        close, closed = fault_disk._FaultFile.close, list[str]()

        async def noted(self: fault_disk._FaultFile) -> None:
            closed.append(self.name)
            await close(self)

        monkeypatch.setattr(fault_disk._FaultFile, "close", noted)
        with held(disk):
            reading = asyncio.ensure_future(journal.raw.read(bases[0], 0, 8))
            await until(lambda: disk.waits > 0)
            await journal.retire(bases[3], 10**15)
        with pytest.raises(NotFound):
            await reading
        assert bases[0] not in journal._parts.store._open
        assert closed.count(segment_name(bases[0])) == 1


async def test_the_file_that_is_written_is_not_closed_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold unsynced bytes; newer segments may exist in memory only."""
    monkeypatch.setattr(store_module, "MAX_OPEN", 3)
    disk = FaultDisk(tmp_path)
    await disk.lock("a test")
    store = SegmentStore(disk, SEGMENT, 0)
    segments = [
        store.add(Position(i), Position(i + SEGMENT)) for i in range(0, 6 * SEGMENT, SEGMENT)
    ]
    for segment in segments[:5]:
        written = await store.writable(segment)
    for segment in (*segments[:4], *segments[:4]):
        if file := store._open.pop(segment.base, None):
            await file.close()
        await store.readable(segment)
    assert await store.readable(segments[4]) is written
    await store.close()
    await disk.close()
