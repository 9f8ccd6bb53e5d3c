"""Append, group commit, roll, read, find: on a master."""

from pathlib import Path

from fmqbroker.tests.journal_kit import TOPIC, data, epoch, everything, fill, headers, running
from fmqcore.batch import BatchType


async def test_first_words(tmp_path: Path) -> None:
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


async def test_rolls(tmp_path: Path) -> None:
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
