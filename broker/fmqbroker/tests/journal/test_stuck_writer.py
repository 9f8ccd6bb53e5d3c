"""A writer that finds no room: what does not need it is done all the same."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fmqbroker.journal import flusher
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.fault_disk import FaultDisk, Loss, Step, image
from fmqbroker.tests.journal_kit import Life, data, epoch, everything, fill, running, until
from fmqcore.errors import DeliveryUnknown
from fmqcore.ids import Position
from fmqcore.journal.segments import CHECKPOINT
from fmqport.disk import DiskFailed, DiskFull

HOUR_MS = 3_600_000


class Crammed(FaultDisk):
    """A disk that refuses writes and new files while it is full; of a write it takes a half."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.full = False
        self.fault = self._take

    def _take(self, step: Step) -> None:
        if not self.full or step.kind not in ("write", "create"):
            return
        if step.kind == "write":
            half = step.length // 2
            with Path(self.path, step.name).open("r+b") as file:
                os.pwrite(file.fileno(), step.data[:half], step.at)
            self.steps.append(step._replace(length=half, data=step.data[:half]))
        raise DiskFull("no space left")


@pytest.fixture
def no_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no second try of a write come."""
    monkeypatch.setattr(flusher, "FULL_RETRY_MS", HOUR_MS)


async def get_stuck(journal: Journal, disk: Crammed, interval_ms: int = 0) -> Position:
    """Write something, append more than there is room for; return where the written ends."""
    journal.append(epoch(1))
    await journal.wait_durable(journal.end)
    journal.set_flush(sync=False, interval_ms=interval_ms)
    journal.append(data(b"written, and counted as such"))
    await until(lambda: journal.written_end == journal.end)
    written = journal.end
    disk.full = True
    journal.append(data(b"not written"))
    await until(lambda: bool(journal.stuck))
    return written


def is_synced(journal: Journal, written: Position) -> bool:
    return journal.durable_end == journal.written_end == written < journal.end


@pytest.mark.parametrize("interval_ms", [20, 500])
@pytest.mark.parametrize("retry_ms", [1, HOUR_MS])
async def test_due_sync_is_made_though_the_writer_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_ms: int, retry_ms: int
) -> None:
    """A power cut takes no more than the interval's bytes, whether the disk is full or not."""
    monkeypatch.setattr(flusher, "FULL_RETRY_MS", retry_ms)
    disk = Crammed(tmp_path / "disk")
    async with running(tmp_path / "disk", disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk, interval_ms)
        await until(lambda: is_synced(journal, written))
        stored = (await everything(journal))[:written]
    image(disk.steps, Loss.ALL, tmp_path / "after")
    async with running(tmp_path / "after") as journal:
        assert await everything(journal) == stored


@pytest.mark.parametrize("retry_ms", [1, HOUR_MS])
async def test_stuck_writer_syncs_what_a_waiter_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retry_ms: int
) -> None:
    monkeypatch.setattr(flusher, "FULL_RETRY_MS", retry_ms)
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk)
        await journal.wait_durable(written)
        assert is_synced(journal, written)


@pytest.mark.usefixtures("no_retry")
async def test_stricter_policy_covers_bytes_below_a_stuck_writer(tmp_path: Path) -> None:
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk)
        journal.set_flush(sync=True, interval_ms=0)
        await until(lambda: is_synced(journal, written))


@pytest.mark.usefixtures("no_retry")
async def test_waiter_for_unwritten_bytes_does_not_keep_the_disk_busy(tmp_path: Path) -> None:
    """One sync makes durable what is written; the rest waits for room."""
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk)
        waiter = asyncio.ensure_future(journal.wait_durable(journal.end))
        await until(lambda: is_synced(journal, written))
        before = len([step for step in disk.steps if step.kind in ("write", "sync")])
        for _ in range(100):
            await asyncio.sleep(0)
        journal.set_flush(sync=True, interval_ms=0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert before == len([step for step in disk.steps if step.kind in ("write", "sync")])
        assert not waiter.done()
        waiter.cancel()


async def test_close_of_a_full_disk_syncs_what_is_written(tmp_path: Path) -> None:
    disk = Crammed(tmp_path / "disk")
    async with running(tmp_path / "disk", disk=disk) as journal:
        written = await get_stuck(journal, disk)
        stored = (await everything(journal))[:written]
    assert journal.durable_end == written
    image(disk.steps, Loss.ALL, tmp_path / "after")
    async with running(tmp_path / "after") as journal:
        assert await everything(journal) == stored


async def test_failed_sync_beside_a_full_disk_ends_the_process(tmp_path: Path) -> None:
    disk, life = Crammed(tmp_path), Life()
    async with running(tmp_path, disk=disk, life=life, crash=True) as journal:
        written = await get_stuck(journal, disk)
        take, durable = disk.fault, journal.durable_end

        def fails(step: Step) -> None:
            take(step)
            if step.kind == "sync":
                raise DiskFailed("I/O error")

        disk.fault = fails
        waiter = asyncio.ensure_future(journal.wait_durable(written))
        await until(lambda: bool(life.reasons))
        assert "I/O error" in life.reasons[0]
        assert journal.durable_end == durable < written
        waiter.cancel()


async def test_stuck_writer_goes_on_where_it_was_once_there_is_room(tmp_path: Path) -> None:
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        await get_stuck(journal, disk, 20)
        disk.full = False
        await journal.wait_durable(journal.end)
        await until(lambda: not journal.full)
        journal.append(data(b"goes on"))
        await journal.wait_durable(journal.end)
        stored = await everything(journal)
    async with running(tmp_path) as journal:
        assert await everything(journal) == stored


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("down_to", ["the start", "what is durable", "what is written"])
async def test_truncation_drops_what_found_no_room(
    tmp_path: Path, down_to: str, files: bool
) -> None:
    """Else a slave with a full disk dials for ever, and its master's retention frees nothing."""
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk)
        if files:  # further segments, none of which has a file
            journal._parts.store.space.note_unstuck()
            fill(journal, 150)
        cut_at = {"the start": 0, "what is durable": journal.durable_end}.get(down_to, written)
        stored = (await everything(journal))[:cut_at]
        waiter = asyncio.ensure_future(journal.wait_durable(journal.end))
        await journal.truncate(Position(cut_at))
        assert journal.end == journal.written_end == journal.durable_end == cut_at
        assert not journal.stuck
        assert await everything(journal) == stored
        with pytest.raises(DeliveryUnknown):
            await waiter
        disk.full = False
        journal.append(epoch(2))
        journal.append(data(b"goes on"))
        await journal.wait_durable(journal.end)
        whole = await everything(journal)
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole
        assert whole.startswith(stored)


async def test_truncation_keeps_bytes_that_found_no_room(tmp_path: Path) -> None:
    """They may be acknowledged, so they are not dropped; once there is room, it succeeds."""
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        await get_stuck(journal, disk)
        kept = journal.end
        journal._parts.store.space.note_unstuck()
        journal.append(data(b"to be dropped"))
        end, stored = journal.end, (await everything(journal))[:kept]
        with pytest.raises(DiskFull):
            await journal.truncate(kept)
        assert journal.end == end
        disk.full = False
        await journal.truncate(kept)
        assert journal.end == journal.durable_end == kept
    async with running(tmp_path) as journal:
        assert await everything(journal) == stored


@pytest.mark.usefixtures("no_retry")
async def test_what_follows_a_truncation_is_written_at_once(tmp_path: Path) -> None:
    """What waited for its next try is no more."""
    disk = Crammed(tmp_path)
    async with running(tmp_path, disk=disk, crash=True) as journal:
        written = await get_stuck(journal, disk)
        await journal.truncate(written)
        disk.full = False
        journal.append(data(b"goes on"))
        await journal.wait_durable(journal.end)


@pytest.mark.parametrize("loss", list(Loss))
async def test_truncation_with_a_stuck_writer_survives_a_crash(tmp_path: Path, loss: Loss) -> None:
    """At each step: what it keeps was written and not synced, above it a half batch is."""
    disk = Crammed(tmp_path / "disk")
    async with running(
        tmp_path / "disk", disk=disk, crash=True, checkpoint_interval_ms=HOUR_MS
    ) as journal:
        written = await get_stuck(journal, disk)
        stored, first = (await everything(journal))[:written], len(disk.steps)
        await journal.truncate(written)
        last = len(disk.steps)
        disk.full = False
        journal.append(data(b"new"))
        await journal.wait_durable(journal.end)
        whole = await everything(journal)
    steps = [(step.kind, step.name) for step in disk.steps[first:last]]
    synced = first + 1 + next(n for n, (kind, _) in enumerate(steps) if kind == "sync")
    noted = first + 1 + steps.index(("replace", CHECKPOINT))
    assert synced < noted, "what stays is durable before anything goes"
    for count in range(first, len(disk.steps) + 1):
        path = tmp_path / f"crash-{count}"
        image(disk.steps[:count], loss, path)
        async with running(path) as journal:
            found = await everything(journal)
            assert whole.startswith(found)
            if count >= synced:
                assert found.startswith(stored)
            if count <= last:
                assert stored.startswith(found)
            elif count == len(disk.steps):
                assert found == whole
            end = journal.append(epoch(2)).end
            await journal.wait_durable(end)
        async with running(path) as journal:
            assert journal.end == end
        shutil.rmtree(path)
