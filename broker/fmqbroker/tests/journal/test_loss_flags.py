"""Loss flags: what a broker may have lost, and when they end (ADR 0036, 0037, 0043)."""

from pathlib import Path

import pytest

from fmqbroker.journal.loss_flags import Doubts
from fmqbroker.tests.journal_kit import epoch, fill, running
from fmqcore.journal.segments import segment_name
from fmqcore.policy import MIXED


def doubtful(acked_under: int = 0) -> Doubts:
    return Doubts(lacks=True, tail_lost=True, unproven=True, acked_under=acked_under)


def reported(doubts: Doubts) -> int:
    return doubts.changed.count


@pytest.mark.parametrize(
    ("before", "noted", "after"),
    [
        (0, (), 0),
        (0, (7,), 7),
        (0, (7, 7), 7),
        (7, (7,), 7),
        (7, (8,), MIXED),
        (0, (7, 8), MIXED),
        (0, (7, 8, 7), MIXED),
        (0, (7, 8, 8), MIXED),
        (MIXED, (7,), MIXED),
    ],
)
def test_two_policies_leave_the_acknowledgers_unknown(
    before: int, noted: tuple[int, ...], after: int
) -> None:
    """A broker starting after that hears all: some bytes were acknowledged under the other."""
    doubts = doubtful(before)
    for mark in noted:
        doubts.note_policy(mark)
    assert doubts.acked_under == after
    assert bool(reported(doubts)) == (after != before)


@pytest.mark.parametrize("durably", [False, True])
def test_slave_whole_only_in_memory_may_lose_fsynced_bytes(durably: bool) -> None:
    doubts = doubtful(7)
    assert doubts.emptied
    doubts.made_whole(durably=durably)
    assert doubts.all == (False, not durably, not durably, 0)
    assert not doubts.emptied, "this process has all that it acknowledged"
    doubts.made_whole(durably=durably)
    assert reported(doubts) == 1, "there was nothing more to say"
    doubts.made_whole()
    assert doubts.all == (False, False, False, 0)
    doubts.note_policy(8)
    assert doubts.acked_under == 8


@pytest.mark.parametrize("written", [b"", b"torn"])
async def test_empty_new_segment_file_is_not_a_truncated_tail(
    tmp_path: Path, written: bytes
) -> None:
    """A crash between a roll and its first write leaves nothing unreadable.

    Otherwise its master waits for slaves that no acknowledgement needs.
    """
    async with running(tmp_path) as journal:
        journal.append(epoch(1))
        await journal.wait_durable(journal.end)
        journal.doubts.made_whole()
    async with running(tmp_path, crash=True, checkpoint_interval_ms=60_000) as journal:
        store = journal._parts.store
        while len(store.segments) == 1:
            fill(journal, 1)
        await journal.wait_durable(journal.end)
        base, size = store.segments[-1].base, store.segments[-1].size
    (tmp_path / segment_name(base)).write_bytes(written + bytes(size - len(written)))
    async with running(tmp_path) as journal:
        assert journal.end == base
        assert (journal.doubts.lacks, journal.doubts.tail_lost) == (True, bool(written))
