"""A full disk: permitted appends, a restart on it, and DATA accepted again by itself.

Through the disk port with a budget, and on a small real file system where the machine allows one.
"""

import os
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqbroker.tests.journal_kit import (
    SEGMENT,
    TOPIC,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    until,
)
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import HEADER_LEN, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import StorageFull
from fmqcore.ids import Offset, Position
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT
from fmqport.disk import DiskFull

KEPT = 4 * SEGMENT
LARGE = 8 * 1024 * 1024


class SmallDisk(FaultDisk):
    """A disk of that many bytes, 0 = as many as are in use; files count with their length."""

    def __init__(self, path: Path, total: int) -> None:
        super().__init__(path)
        self.total = total or self._used()
        self.fault = self._take

    @property
    def left(self) -> int:
        return max(0, self.total - self._used())

    def _used(self) -> int:
        used = 0
        for path in Path(self.path).iterdir():
            if path.suffix == ".tmp":  # half a step: it replaces a file that counts
                continue
            with suppress(FileNotFoundError):  # renamed, or removed, meanwhile
                used += path.stat().st_size
        return used

    async def free_bytes(self) -> int:
        return self.left

    def _take(self, step: Step) -> None:
        needed = step.length if step.kind == "create" else len(step.data)
        if step.kind in ("create", "replace") and needed > self.left:
            raise DiskFull(f"{step.kind} {step.name}: no space left")


def offsets(version: int, floor: int = 1) -> BatchDraft:
    entries = {OffsetKey("g", TOPIC, 0): OffsetEntry(version, Offset(floor))}
    payload = encode_offsets(entries)
    return BatchDraft(BatchType.OFFSETS, payload, crc32c(payload))


async def fill_up(journal: Journal, size: int = 5000) -> None:
    """Append DATA until the journal has noticed that there is no room."""
    while not journal.full:
        journal.append(data(bytes(size)))
        await journal.wait_durable(journal.end)
    refused(journal, [data(bytes(size))] * (3 * LARGE // size))
    await journal.wait_durable(journal.end)


def refused(journal: Journal, drafts: Iterable[BatchDraft]) -> None:
    """Append until the journal refuses."""
    with pytest.raises(StorageFull):
        deque(map(journal.append, drafts), maxlen=0)


def fill_file(path: Path) -> None:
    """Write until the file system refuses."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


async def test_full_journal_takes_control_batches_then_data_once_room(
    tmp_path: Path,
) -> None:
    disk = SmallDisk(tmp_path, 16 * SEGMENT)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        journal.append(epoch(1))
        await fill_up(journal)
        for version in range(1, 400):
            journal.append(offsets(version))
        journal.append(epoch(2))
        await journal.wait_durable(journal.end)
        assert journal.state.progress(OffsetKey("g", TOPIC, 0)) == OffsetEntry(399, Offset(1))
        assert len(await journal.find(TOPIC, 0, Offset(0), 1)) == 1
        disk.total *= 2
        await until(lambda: not journal.full)
        journal.append(data(bytes(60_000)))  # fits no existing segment
        await journal.wait_durable(journal.end)
        whole = await everything(journal)
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole


async def test_data_appended_before_full_disk_blocks_no_control_batch(
    tmp_path: Path,
) -> None:
    """Its segments exist in memory only: without files no ack and no term could be stored."""
    disk = SmallDisk(tmp_path, 16 * SEGMENT)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        journal.append(epoch(1))
        await until(lambda: (tmp_path / "reserve").exists())
        rest = disk.left - KEPT
        deque(map(journal.append, [data(bytes(20_000))] * (rest // 20_000 + 3)), maxlen=0)
        await journal.wait_durable(journal.end)
        assert journal.full
        assert 0 < disk.left < KEPT
        journal.append(offsets(1))
        journal.append(epoch(2))
        await journal.wait_durable(journal.end)
        refused(journal, [data(bytes(20_000))] * 3)


@pytest.mark.parametrize("crash", [True, False])
async def test_a_master_that_starts_on_a_full_disk_opens_its_term(
    tmp_path: Path, crash: bool
) -> None:
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(
        tmp_path, disk=disk, min_free_bytes=3 << 20, segment_bytes=1 << 20, crash=crash
    ) as journal:
        journal.append(epoch(1))
        await until(lambda: (tmp_path / "reserve").exists())
        await fill_up(journal, 50_000)
        refused(journal, map(offsets, range(1, 100_000)))  # the rest of the segment is used up
        await journal.wait_durable(journal.end)
        end = journal.end
    for number in range(2, 72, 14):
        disk = SmallDisk(tmp_path, 0)  # others took all that was left
        async with running(
            tmp_path, disk=disk, min_free_bytes=3 << 20, segment_bytes=1 << 20, crash=crash
        ) as journal:
            assert journal.end >= end
            for more in range(14):
                end = journal.append(epoch(number + more)).end
            await journal.wait_durable(end)
            with pytest.raises(StorageFull):
                journal.append(data(b"x"))
            assert await journal.find(TOPIC, 0, Offset(0), 1)
    disk = SmallDisk(tmp_path, 4 * LARGE)
    async with running(tmp_path, disk=disk, segment_bytes=1 << 20) as journal:
        journal.append(data(bytes(900_000)))
        await journal.wait_durable(journal.end)
        assert journal.epoch == 71


async def test_slave_with_little_room_takes_its_masters_bytes(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "slave", 16 * SEGMENT)
    async with (
        running(tmp_path / "master") as master,
        running(tmp_path / "slave", disk=disk, min_free_bytes=2 * KEPT) as slave,
    ):
        master.append(epoch(1))
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        await slave.wait_durable(slave.end)
        disk.total = SEGMENT + 2 * KEPT - 1  # too little for a master, enough for a slave
        await slave._parts.store.space.check()
        master.append(data(b"taken"))
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        disk.total = SEGMENT + KEPT - 1
        await slave._parts.store.space.check()
        master.append(offsets(1))
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        master.append(data(b"refused"))
        with pytest.raises(StorageFull):
            slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        await slave.wait_durable(slave.end)
        assert slave.state.offsets == master.state.offsets


async def test_messages_go_into_the_open_segment_without_a_next_one(tmp_path: Path) -> None:
    """Its last 4 KiB are kept for terms, which then need no room on the disk."""
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        journal._parts.store.space.roll_blocked = "no further segment"
        refused(journal, [data(bytes(1000))] * 100)
        assert SEGMENT - 2 * 4096 < journal.end <= SEGMENT - 4096
        journal.append(epoch(2))
        assert journal.end < SEGMENT


async def test_slave_without_room_for_messages_takes_a_new_segment(tmp_path: Path) -> None:
    """Its SNAP is a control batch; what follows may be progress that consumers acknowledged."""
    async with running(tmp_path / "master") as master, running(tmp_path / "slave") as slave:
        master.append(epoch(1))
        master.append(data(bytes(SEGMENT - master.end - 2 * HEADER_LEN)))
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        master.append(offsets(1))
        space = slave._parts.store.space
        space.note_full("no room")
        eof, snap = await master.read(slave.end, 1), await master.read(Position(SEGMENT), 1)
        slave.append_replica(slave.end, eof)
        free, space._free = space._free, 2 * SEGMENT - 1
        with pytest.raises(StorageFull, match="no room"):
            slave.append_replica(slave.end, snap)
        space._free = free
        slave.append_replica(slave.end, snap)
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))
        assert (slave.end, slave.state) == (master.end, master.state)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    made = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(path)], stderr=subprocess.DEVNULL
    )
    if not made:
        pytest.skip("needs the right to mount a file system")
    yield path
    subprocess.check_call(["umount", "-l", str(path)])


async def test_on_a_real_file_system_that_others_have_filled(tmpfs: Path) -> None:
    ballast = tmpfs / "of-others"
    path = tmpfs / "data"
    ballast.write_bytes(bytes(1 << 20))
    async with running(path, min_free_bytes=KEPT, crash=True) as journal:
        journal.append(epoch(1))
        await until(lambda: (path / "reserve").exists())
        await fill_up(journal, 20_000)
        journal.append(offsets(1))
        await journal.wait_durable(journal.end)
        before = await everything(journal)
    fill_file(ballast)
    async with running(path, min_free_bytes=KEPT) as journal:
        journal.append(epoch(2))
        journal.append(offsets(2))
        await journal.wait_durable(journal.end)
        with pytest.raises(StorageFull):
            journal.append(data(b"x"))
        assert (await everything(journal)).startswith(before)
        ballast.unlink()
        await until(lambda: not journal.full)
        journal.append(data(b"y"))
        await journal.wait_durable(journal.end)
        kinds = [h.type for h in headers(await everything(journal))]
        assert kinds[-1] == BatchType.DATA


@pytest.mark.parametrize("reserve", [True, False])
async def test_retention_works_on_a_full_disk(tmp_path: Path, reserve: bool) -> None:
    """Before it makes room it needs a little: for the checkpoint that names the deletion."""
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(
        tmp_path, disk=disk, retention_bytes=2 * SEGMENT, min_free_bytes=KEPT * reserve
    ) as journal:
        journal.append(epoch(1))
        fill(journal, 300)
        await journal.wait_durable(journal.end)
        await until(lambda: journal._parts.store.space.reserved)
        disk.total -= disk.left  # others took all that was left
        if not reserve:
            disk.total = 1  # and all that a step in flight may give back
            with pytest.raises(StorageFull):
                await journal.retire(journal.end, 0)
            assert journal.journal_start == 0, "nothing went"
            disk.total = 2 * LARGE
        freed = await journal.retire(journal.end, 0)
        assert freed == journal.journal_start > 0
    async with running(tmp_path) as journal:
        assert journal.journal_start == freed


@pytest.mark.parametrize("whole", [True, False])
async def test_a_journal_gets_shorter_on_a_full_disk(tmp_path: Path, whole: bool) -> None:
    """A slave that is to reset or truncate must free its disk by that."""
    disk = SmallDisk(tmp_path, 2 * LARGE)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT) as journal:
        to = journal.append(epoch(1)).end
        fill(journal, 300)
        await journal.wait_durable(journal.end)
        await until(lambda: journal._parts.store.space.reserved)
        disk.total -= disk.left  # others took all that was left
        if whole:
            to = Position(journal.end + 64 * SEGMENT)
            await journal.reset(to)
        else:
            await journal.truncate(to)
        assert journal.end == to
        await until(lambda: (tmp_path / "reserve").exists())
        await until(lambda: not journal.full)
    async with running(tmp_path) as journal:
        assert journal.end == to


async def test_a_checkpoint_that_finds_no_room_stops_the_messages(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    room = False

    def no_room(step: Step) -> None:
        if not room and (step.kind, step.name) == ("replace", CHECKPOINT):
            raise DiskFull("no space left")

    async with running(tmp_path, disk=disk) as journal:
        disk.fault = no_room
        journal.append(epoch(1))
        await until(lambda: bool(journal.full))
        with pytest.raises(StorageFull):
            journal.append(data(b"x"))
        room = True
        await until(lambda: not journal.full)
        journal.append(data(b"x"))


class NoCheckpoint(FaultDisk):
    """It refuses that many checkpoints whatever it reports as free: a quota, say."""

    def __init__(self, path: Path, refused: int) -> None:
        super().__init__(path)
        self.refused = refused
        self.fault = self._take

    def _take(self, step: Step) -> None:
        if self.refused and (step.kind, step.name) == ("replace", CHECKPOINT):
            self.refused -= 1
            raise DiskFull("no space left")


async def test_retention_that_used_the_reserve_stops_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = NoCheckpoint(tmp_path, 0)
    async with running(
        tmp_path,
        disk=disk,
        retention_bytes=2 * SEGMENT,
        min_free_bytes=KEPT,
        checkpoint_interval_ms=3_600_000,
    ) as journal:
        journal.append(epoch(1))
        fill(journal, 300)
        await journal.wait_durable(journal.end)
        await until(lambda: journal._parts.store.space.reserved)
        disk.refused = 1
        reported: list[str] = []
        monkeypatch.setattr(journal._parts.store.space, "note_full", reported.append)
        assert await journal.retire(journal.end, 0) > 0
        assert reported == ["no space left"]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_without_room_for_its_checkpoint(tmp_path: Path, clean: bool) -> None:
    """A checkpoint that says "clean" must not stay: the next start would keep a torn tail."""
    async with running(tmp_path, min_free_bytes=KEPT, crash=not clean) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        await until(lambda: journal._parts.store.space.reserved)
    disk = NoCheckpoint(tmp_path, 1)
    async with running(
        tmp_path, disk=disk, min_free_bytes=KEPT, checkpoint_interval_ms=3_600_000
    ) as journal:
        assert journal.full
        assert not disk.refused
        assert not decode_checkpoint((tmp_path / CHECKPOINT).read_bytes()).clean
        assert (tmp_path / "reserve").exists() is not clean, "it is used where it must be"


async def get_stuck(journal: Journal, disk: FaultDisk) -> None:
    """Append more than the files hold: the writer needs a file, and there is no room."""

    def no_files(step: Step) -> None:
        if step.kind == "create":
            raise DiskFull("no space left")

    journal.append(epoch(1))
    await until(lambda: journal._parts.store.space.reserved)
    disk.fault = no_files
    deque(map(journal.append, [data(bytes(20_000))] * 8), maxlen=0)
    await until(lambda: bool(journal.stuck))


async def test_the_reserve_is_for_terms_alone(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk, min_free_bytes=KEPT, crash=True) as journal:
        await get_stuck(journal, disk)
        assert (tmp_path / "reserve").exists()
