"""Retention during reads: everything reported as stored can be read."""

import asyncio
from pathlib import Path

import pytest

from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.tests.journal_kit import SEGMENT, TOPIC, epoch, fill, running
from fmqcore.ids import Offset, Position


async def test_first_offset_is_readable_while_segments_retire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: a reader between the end of the files and the new start saw a hole."""
    async with running(tmp_path, retention_bytes=2 * SEGMENT) as journal:
        journal.append(epoch(1))
        fill(journal, 200)
        await journal.wait_durable(journal.end)
        really, looked = SegmentStore.drop_first, list[Offset]()

        async def drop_first(store: SegmentStore) -> StoredSegment:
            gone = await really(store)
            begin = journal.begin_offset(TOPIC, 0)
            found = await journal.find(TOPIC, 0, begin, 1)
            assert found[0].base_offset == begin
            looked.append(begin)
            return gone

        monkeypatch.setattr(SegmentStore, "drop_first", drop_first)
        assert await journal.retire(journal.end, 0) > 0
        assert len(looked) > 1
        assert looked[0] == looked[-1] == journal.begin_offset(TOPIC, 0) > 0


async def test_a_reset_waits_until_retention_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next removals are counted among the segments of another journal."""
    async with running(tmp_path, retention_bytes=2 * SEGMENT) as journal:
        journal.append(epoch(1))
        fill(journal, 200)
        await journal.wait_durable(journal.end)
        really, started, go_on = SegmentStore.drop_first, asyncio.Event(), asyncio.Event()

        async def drop_first(store: SegmentStore) -> StoredSegment:
            started.set()
            await go_on.wait()
            return await really(store)

        monkeypatch.setattr(SegmentStore, "drop_first", drop_first)
        new_start = Position(1 << 30)
        retiring = asyncio.create_task(journal.retire(journal.end, 0))
        await started.wait()
        resetting = asyncio.create_task(journal.reset(new_start))
        for _ in range(20):
            await journal.raw.read(journal._parts.store.segments[-1].base, 0, 8)
        assert journal.journal_start < new_start
        go_on.set()
        assert await retiring > 0
        await resetting
        assert journal.journal_start == journal.end == new_start
