"""Offsets to positions: over segments, after lost index files, below a commit end."""

import os
from pathlib import Path

import pytest

from fmqbroker.journal import catalog
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import (
    TOPIC,
    Clock,
    data,
    epoch,
    everything,
    fill,
    headers,
    running,
    until,
)
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Epoch, Offset, Position, TopicId


def of_queue(stored: bytes, queue: int) -> list[BatchHeader]:
    return [h for h in headers(stored) if h.type == BatchType.DATA and h.queue_id == queue]


async def check_find(journal: Journal, queues: int = 3) -> None:
    stored = await everything(journal)
    for queue in range(queues):
        batches = of_queue(stored, queue)
        for batch in batches[:: max(1, len(batches) // 40)]:
            last = batch.end_offset - 1
            for offset in {batch.base_offset, last}:
                found = (await journal.find(TOPIC, queue, Offset(offset), 1))[0]
                assert (found.position, found.end_offset) == (batch.position, batch.end_offset)
                header, raw = await journal.read_batch(found)
                assert header == batch
                assert len(raw) == batch.total_len
        assert await journal.find(TOPIC, queue, journal.next_offset(TOPIC, queue), 9) == ()


def indexes(path: Path) -> dict[str, bytes]:
    return {n: (path / n).read_bytes() for n in sorted(os.listdir(path)) if n.endswith(".index")}


async def test_find_in_memory_from_files_and_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "MAX_COLD_BYTES", 6000)  # least recently used ones go
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        for number in range(400):
            journal.append(data(b"%d" % number * 200, queue=number % 3, count=1 + number % 4))
        journal.append(data(b"rare", queue=3))
        fill(journal, 200)
        journal.note_commit_end(journal.end)
        await check_find(journal, 4)
        await journal.wait_durable(journal.end)
        await until(lambda: len(indexes(tmp_path)) > 5)
    saved = indexes(tmp_path)
    async with running(tmp_path) as journal:
        await check_find(journal, 4)
    names = sorted(saved)
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).write_bytes(saved[names[2]])
    (tmp_path / names[3]).write_bytes(saved[names[3]][:-1])
    async with running(tmp_path) as journal:
        await check_find(journal, 4)
    assert indexes(tmp_path) == saved  # rebuilt ones are bit for bit equal


async def test_find_by_time(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as journal:
        journal.append(epoch(1))
        begin = clock.now_ms
        for number in range(300):
            clock.now_ms = begin + 1000 * number
            journal.append(data(bytes(900), queue=number % 2))
        clock.now_ms = begin  # the wall clock jumps back; store times do not
        journal.append(data(b"late", queue=5))
        journal.note_commit_end(journal.end)
        await journal.wait_durable(journal.end)
        for number in (0, 1, 2, 77, 78, 150, 297, 298):
            for queue in (0, 1):
                first = number + (number % 2 != queue)
                found = await journal.find_time(TOPIC, queue, begin + 1000 * number)
                assert found == first // 2
        assert await journal.find_time(TOPIC, 0, begin + 10**9) == 150
        assert await journal.find_time(TOPIC, 5, begin) == 0
        assert await journal.find_time(TOPIC, 9, begin) == 0


async def test_committed_offset_at_every_position(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 300)
        await journal.wait_durable(journal.end)
        for commit in (False, True):
            if commit:  # the older half is committed: its indexes may leave memory
                journal.note_commit_end(ends[150])
            for number in range(150 if commit else 0, 300):
                for queue in range(3):
                    count = sum(1 for i in range(number + 1) if i % 3 == queue)
                    assert journal.committed_offset(TOPIC, queue, ends[number]) == count
                    before = Position(ends[number] - 8)  # inside the batch: it does not count
                    count -= number % 3 == queue
                    assert journal.committed_offset(TOPIC, queue, before) == count
    async with running(tmp_path) as journal:
        for number in range(150, 300):
            count = sum(1 for i in range(number + 1) if i % 3 == 1)
            assert journal.committed_offset(TOPIC, 1, ends[number]) == count
        # Far below the offsets held in memory: never too high (R7).
        for number in range(150):
            assert journal.committed_offset(TOPIC, 1, ends[number]) <= number // 3 + 1


async def test_where_the_messages_of_an_epoch_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any number of segments back, and over restarts."""
    monkeypatch.setattr(catalog, "MAX_COLD_BYTES", 6000)
    ends: dict[int, list[int]] = {}
    for term in (1, 2, 4, 5, 8):
        async with running(tmp_path) as journal:
            journal.append(epoch(term))
            if term != 4:
                fill(journal, 60 * term)
            ends[term] = [journal.next_offset(TOPIC, queue) for queue in range(3)]
            journal.note_commit_end(journal.end)
            await journal.wait_durable(journal.end)
            for each, of_queues in ends.items():
                found = [await journal.epoch_end(TOPIC, queue, Epoch(each)) for queue in range(3)]
                assert found == of_queues
            assert await journal.epoch_end(TOPIC, 3, Epoch(1)) == 0, "an empty queue"
            for never_here in (0, 3, 9):
                assert await journal.epoch_end(TOPIC, 0, Epoch(never_here)) == 0
    assert len(indexes(tmp_path)) > 5


async def test_damaged_batch_is_reported_with_its_position(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
    first = tmp_path / sorted(n for n in os.listdir(tmp_path) if n.endswith(".journal"))[0]
    raw = bytearray(first.read_bytes())
    raw[ends[3] + 20] ^= 1
    first.write_bytes(raw)
    async with running(tmp_path) as journal:
        found = (await journal.find(TOPIC, 1, Offset(1), 1))[0]
        assert found.position == ends[3]
        with pytest.raises(CorruptJournal, match=rf"{first.name}, position {ends[3]} .*remedy"):
            await journal.read_batch(found)
        with pytest.raises(CorruptJournal, match="remedy"):
            await journal.read(ends[3], 100)


async def test_an_unknown_queue_is_empty(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        assert await journal.find(TopicId(99), 0, Offset(0), 5) == ()
        assert journal.begin_offset(TopicId(99), 0) == journal.next_offset(TopicId(99), 0) == 0
        assert await journal.find_time(TopicId(99), 0, 0) == 0
        assert journal.committed_offset(TopicId(99), 0, Position(0)) == 0
        assert journal.read_tail(Position(0), 10) == b""
        assert await journal.read(Position(0), 10) == b""


async def test_bytes_read_past_the_end_are_not_cached(tmp_path: Path) -> None:
    async with running(tmp_path, segment_bytes=8 << 20) as journal:
        journal.append(epoch(1))
        fill(journal, 1)
    async with running(tmp_path, segment_bytes=8 << 20) as journal:
        (found,) = await journal.find(TOPIC, 0, Offset(0), 1)
        await journal.read_batch(found)  # the window goes past the end
        for number in range(300):
            journal.append(data(b"%d" % number * 4000, queue=1))
            await journal.wait_durable(journal.end)
        assert journal.read_tail(found.end, 10) is None  # it is on the disk alone
        (found,) = await journal.find(TOPIC, 1, Offset(0), 1)
        header, _ = await journal.read_batch(found)
        assert header.position == found.position
