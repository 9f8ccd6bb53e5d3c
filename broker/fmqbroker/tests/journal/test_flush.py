"""Group commit, flush policies, broken and full disks, cancelled work."""

import asyncio
import random
from itertools import pairwise
from pathlib import Path

import pytest

from fmqbroker.journal.journal import Journal
from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqbroker.tests.journal_kit import (
    TOPIC,
    Clock,
    Died,
    Life,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    settings,
    until,
)
from fmqcore.batch.header import BatchType
from fmqcore.errors import StorageFull, TooLarge
from fmqcore.ids import Offset, Position
from fmqport.disk import DiskFailed, DiskFull


def writes(disk: FaultDisk) -> list[Step]:
    return [s for s in disk.steps if s.kind in ("write", "sync")]


async def test_appends_of_one_turn_are_one_write(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        fill(journal, 20, size=100)
        await journal.wait_durable(journal.end)
        assert [s.kind for s in writes(disk)] == ["write", "sync"]


async def test_appends_during_a_write_are_gathered(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        before = len(writes(disk))
        journal.append(data(b"first"))
        await until(lambda: len(writes(disk)) > before)  # it is being written now
        fill(journal, 30, size=50)
        assert journal.written_end < journal.end
        await journal.wait_durable(journal.end)
        assert [s.kind for s in writes(disk)[before:]] == ["write", "sync", "write", "sync"]


async def test_durable_end_moves_after_sync_then_waiters_wake(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        seen: list[tuple[str, int, int]] = []

        def look(step: Step) -> None:
            if step.kind in ("write", "sync"):
                seen.append((step.kind, journal.written_end, journal.durable_end))

        disk.fault = look
        journal.append(epoch(1))
        reported = asyncio.create_task(journal.flushed.wait())
        await journal.wait_durable(journal.end)
        await reported
        assert seen == [("write", 0, 0), ("sync", 0, 0)]


async def test_os_cache_writes_at_once_and_syncs_when_due_or_asked(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(epoch(1))
        await until(lambda: journal.written_end == journal.end)
        assert journal.durable_end == 0
        await journal.wait_durable(journal.end)  # asked
        journal.set_flush(sync=False, interval_ms=20)
        journal.append(data(b"x"))
        await until(lambda: journal.durable_end == journal.end)  # due
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(data(b"y"))
        await until(lambda: journal.written_end == journal.end)
        assert journal.durable_end < journal.end
        journal.set_flush(sync=True, interval_ms=0)  # a stricter policy covers existing bytes
        await until(lambda: journal.durable_end == journal.end)


async def test_stricter_flush_interval_covers_existing_bytes(tmp_path: Path) -> None:
    """No more appends come: bytes the previous policy left in memory would stay there for ever."""
    async with running(tmp_path) as journal:
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(epoch(1))
        await until(lambda: journal.written_end == journal.end)
        assert journal.durable_end < journal.end
        journal.set_flush(sync=False, interval_ms=20)
        await until(lambda: journal.durable_end == journal.end)


async def test_segment_is_synced_before_the_next_starts(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.set_flush(sync=False, interval_ms=0)
        journal.append(epoch(1))
        fill(journal, 300)
        await until(lambda: journal.written_end == journal.end)
        order = [(s.name, s.kind) for s in writes(disk)]
        names = sorted({name for name, _ in order})
        assert len(names) > 4
        for name, following in pairwise(names):
            started = order.index((following, "write"))
            assert order[started - 1] == (name, "sync")
            assert (name, "write") not in order[started:]


async def test_at_rest_the_disk_rests(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        await until(lambda: disk.steps[-1].kind == "replace")  # the checkpoint that follows
        count = len(disk.steps)
        await asyncio.sleep(0.1)  # ten checkpoint intervals
        assert len(disk.steps) == count


@pytest.mark.parametrize("kind", ["write", "sync", "create", "rename"])
async def test_failing_disk_ends_the_process_without_retry(tmp_path: Path, kind: str) -> None:
    disk, life, failed = FaultDisk(tmp_path), Life(), list[Step]()
    journal = await Journal.open(disk, settings(tmp_path), Clock(), life)

    def fail(step: Step) -> None:
        if failed:
            raise AssertionError(f"{step.kind} after a failure")
        if step.kind == kind:
            failed.append(step)
            raise DiskFailed("I/O error")

    journal.append(epoch(1))
    fill(journal, 40)
    disk.fault = fail
    run = asyncio.ensure_future(journal.run())
    while not run.done():
        fill(journal, 1)
        await asyncio.wait([run], timeout=0.001)
    with pytest.raises(BaseExceptionGroup) as caught:
        await run
    assert caught.group_contains(Died)
    assert life.reasons[0].endswith("I/O error")
    assert journal.durable_end < journal.end
    assert len(failed) == 1
    await disk.close()


def fills_up(journal: Journal) -> bool:
    """Append once more, unless the journal has noticed meanwhile that there is no room."""
    if not journal.full:
        journal.append(data(bytes(5000)))
    return bool(journal.full)


async def test_a_full_disk_refuses_appends_keeps_reads_and_recovers(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    full = True

    def no_room(step: Step) -> None:
        if full and step.kind == "create":
            raise DiskFull("no space left")

    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        disk.fault = no_room
        await until(lambda: fills_up(journal))
        with pytest.raises(StorageFull, match="no space left"):
            fill(journal, 20, size=5000)
        end = journal.end
        stored = await everything(journal)
        (found,) = await journal.find(TOPIC, 0, Offset(0), 1)
        await journal.read_batch(found)
        for _ in range(3):
            with pytest.raises(StorageFull):
                journal.append(data(bytes(50_000)))
        assert journal.end == end
        full = False
        await until(lambda: not journal.full)
        journal.append(data(bytes(50_000)))
        await journal.wait_durable(journal.end)
        assert (await everything(journal)).startswith(stored)
        whole = await everything(journal)
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole


async def test_a_write_without_room_is_counted_only_when_it_is_there(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    full = False

    def no_room(step: Step) -> None:
        if full and step.kind in ("write", "replace"):
            raise DiskFull("no space left")

    async with running(tmp_path, disk=disk) as journal:
        disk.fault = no_room
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        full, durable = True, journal.end
        journal.append(data(b"accepted"))
        await until(lambda: bool(journal.full))
        with pytest.raises(StorageFull):
            journal.append(data(b"refused"))
        assert journal.durable_end == journal.written_end == durable
        assert headers(await journal.read(durable, 1000))[0].type == BatchType.DATA
        full = False
        await journal.wait_durable(journal.end)
        await until(lambda: not journal.full)
        journal.append(data(b"again"))


async def test_little_room_refuses_in_time(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk, min_free_bytes=1_000_000) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        disk.free = 999_999
        journal.append(data(b"x"))
        await until(lambda: bool(journal.full))
        with pytest.raises(StorageFull, match="min_free_bytes"):
            journal.append(data(b"x"))
        disk.free = 100_000_000
        await until(lambda: not journal.full)
        journal.append(data(b"x"))


async def test_batch_larger_than_a_segment_is_too_large(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        with pytest.raises(TooLarge, match="larger segments"):
            journal.append(data(bytes(65_536)))
        end = journal.end
        journal.append(data(bytes(60_000)))
        assert journal.end > end
        await journal.wait_durable(journal.end)


async def test_an_exactly_full_segment_needs_no_eof(tmp_path: Path) -> None:
    async with running(tmp_path) as journal, running(tmp_path / "s") as slave:
        journal.append(epoch(1))
        journal.append(data(bytes(65_536 - journal.end - 96)))
        assert journal.end == 65_536
        journal.append(data(b"next"))
        await journal.wait_durable(journal.end)
        stored = await everything(journal)
        kinds = [h.type for h in headers(stored)]
        assert (kinds.count(BatchType.EOF), kinds.count(BatchType.SNAP)) == (0, 2)
        while slave.end < journal.end:
            slave.append_replica(slave.end, await journal.read(slave.end, 1 << 20))
        assert slave.state == journal.state
    async with running(tmp_path) as journal:
        assert await everything(journal) == stored
        await journal.truncate(Position(65_536))
        journal.append(data(b"goes on"))


async def test_cancelled_at_any_moment_nothing_is_lost(tmp_path: Path) -> None:
    chance = random.Random(3)
    disk = FaultDisk(tmp_path)
    journal = await Journal.open(disk, settings(tmp_path), Clock(), Life())
    journal.append(epoch(1))
    for _ in range(60):
        run = asyncio.ensure_future(journal.run())
        fill(journal, chance.randrange(60))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(chance.choice((0, 0, 0.0005)))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    whole, state = await everything(journal), journal.state
    await journal.close()
    await disk.close()
    async with running(tmp_path) as journal:
        assert journal.clean
        assert await everything(journal) == whole
        assert journal.state == state
