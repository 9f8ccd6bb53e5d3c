"""Append, group commit, roll, read, find: on a master."""

from pathlib import Path

from fmqbroker.tests.journal_kit import (
    TOPIC,
    Clock,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
)
from fmqcore.batch.header import BatchType


async def test_first_batches_follow_snap_and_survive_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        assert (journal.end, journal.epoch, journal.clean) == (0, 0, False)
        journal.append(epoch(1))
        first = journal.append(data(b"hello", count=2))
        second = journal.append(data(b"world"))
        assert (first.base_offset, second.base_offset, second.position) == (0, 2, first.end)
        await journal.wait_durable(journal.end)
        assert journal.durable_end == journal.end == second.end
        stored = await everything(journal)
        assert [h.type for h in headers(stored)] == [
            BatchType.SNAP, BatchType.EPOCH, BatchType.DATA, BatchType.DATA,
        ]  # fmt: skip
        (found,) = await journal.find(TOPIC, 0, first.base_offset, 1)
        header, raw = await journal.read_batch(found)
        assert (header.base_offset, raw[96:101]) == (0, b"hello")
    async with running(tmp_path) as journal:
        assert journal.clean
        assert await everything(journal) == stored
        assert (journal.epoch, journal.next_offset(TOPIC, 0)) == (1, 3)


async def test_full_segment_rolls_to_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        fill(journal, 500)
        await journal.wait_durable(journal.end)
        stored = await everything(journal)
        kinds = [h.type for h in headers(stored)]
        assert kinds.count(BatchType.SNAP) == kinds.count(BatchType.EOF) + 1 > 5
    async with running(tmp_path) as journal:
        assert await everything(journal) == stored
        assert await everything(journal, step=3000) == stored


async def test_store_times_never_fall_though_the_clock_does(tmp_path: Path) -> None:
    """Over a restart and after following another master: the search by time relies on it."""
    ahead, behind = Clock(), Clock()
    ahead.now_ms = behind.now_ms + 60_000
    async with running(tmp_path / "a", clock=ahead) as journal:
        journal.append(epoch(1))
        assert journal.append(data(b"x")).store_ms == ahead.now_ms
        await journal.wait_durable(journal.end)
        stored = await everything(journal)
    async with running(tmp_path / "a", clock=behind) as journal:
        assert journal.append(data(b"y")).store_ms == ahead.now_ms
    async with running(tmp_path / "b", clock=behind) as follower:
        follower.append_replica(follower.end, stored)
        assert follower.append(data(b"y")).store_ms == ahead.now_ms
