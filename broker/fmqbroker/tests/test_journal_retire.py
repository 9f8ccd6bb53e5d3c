"""Retention while somebody reads: what is said to be there is there."""

from pathlib import Path

import pytest

from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.tests.journal_kit import SEGMENT, TOPIC, epoch, fill, running
from fmqcore.words import Offset


async def test_while_segments_go_the_first_offset_that_is_told_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7. A reader that looked between the files' end and the new begin saw a hole."""
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
