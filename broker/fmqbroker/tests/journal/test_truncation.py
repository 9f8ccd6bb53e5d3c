"""Truncate, reset, retire: also with a crash at every step."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.fault_disk import FaultDisk, Loss, image
from fmqbroker.tests.journal_kit import (
    TOPIC,
    Clock,
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
from fmqcore.errors import DeliveryUnknown, InvalidArgument, NotFound
from fmqcore.ids import Offset, Position


async def test_truncate_to_every_boundary(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        fill(journal, 150)
        journal.append(epoch(2))
        fill(journal, 30)
        whole = await everything(journal)
        found = headers(whole)
        stored = len(whole)
        for header in reversed(found):
            stored -= header.stored_len
            if header.position % 7 and header.type == BatchType.DATA:
                continue  # not all of them
            await journal.truncate(header.position)
            assert journal.end == journal.durable_end == header.position
            assert await everything(journal) == whole[:stored]
            ends = [h.end_offset for h in headers(whole[:stored]) if h.queue_id == 1]
            assert journal.next_offset(TOPIC, 1) == max(ends, default=0)
            assert len(await journal.find(TOPIC, 1, Offset(0), 999)) <= len(ends)
        assert journal.end == 0
        journal.append(epoch(5))
        assert headers(await everything(journal))[0].type == BatchType.SNAP


async def test_journal_appends_after_truncation_and_stays_truncated(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        fill(journal, 1, size=40)
        await journal.truncate(ends[99])
        assert journal.read_tail(ends[99], 100) == b""
        fill(journal, 3, size=77)
        await journal.wait_durable(journal.end)
        whole, state = await everything(journal), journal.state
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole
        assert journal.state == state


@pytest.mark.parametrize("whole_of_it", [False, True])
async def test_bytes_written_after_truncation_are_not_truncated_again(
    tmp_path: Path, whole_of_it: bool
) -> None:
    """D5: at its end the checkpoint no longer names the void bytes; the next may be long after."""
    async with running(tmp_path, crash=True, checkpoint_interval_ms=3_600_000) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 50)
        if whole_of_it:
            await journal.reset(Position(0))
            journal.append(epoch(1))
        else:
            await journal.truncate(ends[19])
        fill(journal, 30, size=77)
        await journal.wait_durable(journal.end)
        whole, state = await everything(journal), journal.state
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole
        assert journal.state == state


async def test_truncation_accepts_only_batch_boundaries(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 10)
        for bad in (ends[3] + 8, journal.end + 8):
            with pytest.raises(NotFound):
                await journal.truncate(Position(bad))
        journal.note_commit_end(ends[5])
        with pytest.raises(InvalidArgument, match="committed"):  # R5
            await journal.truncate(ends[4])
        await journal.truncate(ends[5])
        assert journal.end == ends[5]


async def test_no_append_during_truncation(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    async with running(tmp_path, disk=disk) as journal:
        journal.append(epoch(1))
        end = fill(journal, 10)[4]
        await journal.wait_durable(journal.end)
        cut = asyncio.ensure_future(journal.truncate(end))
        # Not by the disk's steps: a due checkpoint may be the next one. And without a pause: it
        # lasts a few turns of the loop.
        while not journal.being_cut:
            assert not cut.done()
            await asyncio.sleep(0)
        with pytest.raises(AssertionError):  # D10
            journal.append(data(b"x"))
        with pytest.raises(AssertionError):
            journal.append_replica(journal.end, b"")
        await cut
        assert journal.end == end


async def test_waiters_for_truncated_bytes_are_notified(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        end = journal.end
        with pytest.raises(DeliveryUnknown):
            await journal.wait_durable(Position(end + 100))
    disk = FileDisk(str(tmp_path))
    journal = await Journal.open(disk, settings(tmp_path), Clock(), Life())  # no flush
    journal.append(data(b"x"))
    waiter = asyncio.ensure_future(journal.wait_durable(journal.end))
    await asyncio.sleep(0)
    await journal.reset(Position(1 << 30))  # a durable end past it, and yet it is gone
    with pytest.raises(DeliveryUnknown):
        await waiter
    await journal.close()
    await disk.close()


async def test_retire_by_size_and_time(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock, retention_ms=10_000, retention_bytes=0) as journal:
        journal.append(epoch(1))
        fill(journal, 200)
        clock.now_ms += 6000
        middle = journal.end
        fill(journal, 200)
        await journal.wait_durable(journal.end)
        assert await journal.retire(journal.end, clock.now_ms) == 0
        freed = await journal.retire(journal.end, clock.now_ms + 5000)
        assert 0 < freed == journal.journal_start <= middle
        assert await journal.retire(journal.end, clock.now_ms + 5000) == 0
        with pytest.raises(NotFound):
            await journal.read(Position(0), 1000)
        (first,) = await journal.find(TOPIC, 0, Offset(0), 1)
        assert first.base_offset == journal.begin_offset(TOPIC, 0) > 0
        whole, start = await everything(journal), journal.journal_start
        assert headers(whole)[0].position == start
        # Never a segment that is still needed, never the newest.
        assert await journal.retire(start, clock.now_ms + 10**9) == 0
        await journal.retire(journal.end, clock.now_ms + 10**9)
        last = journal.journal_start
        assert last < journal.end
    async with running(tmp_path, clock=clock) as journal:
        assert journal.journal_start == last
        names = [name for name in os.listdir(tmp_path) if name.endswith(".index")]
        assert not names  # they went with their segments


async def test_retire_by_size(tmp_path: Path) -> None:
    async with running(tmp_path, retention_ms=0, retention_bytes=150_000) as journal:
        journal.append(epoch(1))
        fill(journal, 400)
        await journal.wait_durable(journal.end)
        await journal.retire(journal.end, 0)
        held = journal.end - journal.journal_start
        assert 150_000 - 65536 < held <= 150_000


async def _truncate(journal: Journal) -> None:
    await journal.truncate(headers(await everything(journal))[95].position)


async def _reset(journal: Journal) -> None:
    await journal.reset(Position(1 << 30))


async def _retire(journal: Journal) -> None:
    await journal.retire(journal.end, 10**15)


def _at_rest(disk: FaultDisk) -> bool:
    """Wait until the work after a flush is done: three indexes, the spare."""
    kinds = [(s.kind, s.name) for s in disk.steps]
    spares = kinds.count(("create", "spare")) - kinds.count(("rename", "spare"))
    indexes = sum(name.endswith(".index") for _, name in kinds)
    return spares == 1 and indexes == 3


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE])
@pytest.mark.parametrize("work", [_truncate, _reset, _retire])
async def test_interrupted_truncation_finishes_at_next_start(
    tmp_path: Path, work: Callable[[Journal], Awaitable[None]], loss: Loss
) -> None:
    disk, claims = FaultDisk(tmp_path / "first"), list[int]()
    async with running(tmp_path, disk=disk, checkpoint_interval_ms=600_000) as journal:
        journal.append(epoch(1))
        fill(journal, 250, size=900)
        await journal.wait_durable(journal.end)
        await until(lambda: _at_rest(disk))
        await journal._parts.checkpoints.write()  # it knows what is durable
        before, first = await everything(journal), len(disk.steps)
        old_start = journal.journal_start
        await work(journal)
        last, start, cut = len(disk.steps), journal.journal_start, await everything(journal)
        # Later bytes must survive too: no earlier step may be finished on top of them.
        disk.done = lambda: claims.append(journal.durable_end)
        if work is not _reset:
            fill(journal, 3)
            await journal.wait_durable(journal.end)
        after = await everything(journal)
    claims.append(journal.durable_end)
    assert last - first >= 4
    for count in range(first, len(disk.steps) + 1):
        path = tmp_path / f"crash-{count}"
        image(disk.steps[:count], loss, path)
        async with running(path) as journal:
            stored = await everything(journal)
            if count <= last:
                done = count > first  # the first step states the intent
                assert stored == (cut if done else before)
                assert journal.journal_start == (start if done else old_start)
            else:
                assert after.startswith(stored)
                assert journal.end >= claims[count - last]
            if work is not _reset:
                journal.append(data(b"goes on"))
                await journal.wait_durable(journal.end)
            position = journal.end
        async with running(path) as journal:
            assert journal.end == position
        shutil.rmtree(path)


async def test_started_truncation_finishes_after_cancellation(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        for turns in range(25):
            end = ends[150 - turns]
            task = asyncio.ensure_future(journal.truncate(end))
            for _ in range(turns):
                await asyncio.sleep(0.0002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            whole = await everything(journal)
            assert journal.end in (end, headers(whole)[-1].end)
            fill(journal, 2)
            await journal.wait_durable(journal.end)
            await journal.truncate(end)
            assert journal.next_offset(TOPIC, 0) == (150 - turns) // 3 + 1
        whole = await everything(journal)
    async with running(tmp_path) as journal:
        assert await everything(journal) == whole
