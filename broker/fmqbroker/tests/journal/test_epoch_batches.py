"""A term whose EPOCH batch finds no room in its segment: the frames around it are its own."""

import shutil
from pathlib import Path

import pytest

from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import SEGMENT, Clock, data, epoch, fill, running
from fmqcore.ids import Position
from fmqcore.replication.epoch_history import common_end


def _fill_up_to(journal: Journal, rest: int) -> Position:
    """Open epoch 1 and leave that much of the segment free."""
    journal.append(epoch(1))
    fill(journal, 30)
    return journal.append(data(bytes(SEGMENT - journal.end - 96 - rest))).end


async def _follow(slave: Journal, master: Journal) -> None:
    while slave.end < master.end:
        slave.append_replica(slave.end, await master.read(slave.end, 1 << 20))


@pytest.mark.parametrize("rest", [0, 104], ids=["exactly full", "room for an EOF"])
async def test_frames_of_a_new_term_do_not_match_the_previous_epoch(
    tmp_path: Path, rest: int
) -> None:
    """A master lost later bytes that its slave has: their journals must not seem to agree.

    Both frames carry epoch 1, as do those the slave holds at the same positions.
    """
    one, lost, two = tmp_path / "master", tmp_path / "lost", tmp_path / "slave"
    for path in (one, two):
        path.mkdir()
    async with running(one) as master:
        end = _fill_up_to(master, rest)
    shutil.copytree(one, lost)
    async with running(lost) as before, running(two) as slave:
        fill(before, 3)
        await _follow(slave, before)
        later = Clock()
        later.now_ms += 5000
        async with running(one, clock=later) as master:
            master.append(epoch(2))
            common = common_end(master.state.epochs, master.end, slave.state.epochs, slave.end)
            assert common is not None
            assert common.end == end
            assert master.state.epochs[-1] == (2, end)
            await slave.truncate(common.end)
            await _follow(slave, master)
            assert slave.state == master.state
            state = master.state
        async with running(one) as again:
            assert again.state == state, "the journal alone holds it"


async def test_frames_of_an_exactly_full_segment_keep_their_epoch(tmp_path: Path) -> None:
    async with running(tmp_path) as journal:
        _fill_up_to(journal, 0)
        fill(journal, 1)
        end = journal.end
        journal.append(epoch(2))
        assert journal.state.epochs[-1] == (2, end)


async def test_term_with_only_its_frames_is_opened_again(tmp_path: Path) -> None:
    """Power failed between EOF and EPOCH batch; another number may have been given since."""
    async with running(tmp_path) as journal:
        end = _fill_up_to(journal, 104)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path, whole, ignore=shutil.ignore_patterns("whole"))
    async with running(whole) as journal:
        journal.append(epoch(2))
    segment = whole / f"{SEGMENT:020d}.journal"
    segment.write_bytes(bytes(len(segment.read_bytes())))
    for name in ("checkpoint", "resume", "lock"):
        (whole / name).unlink(missing_ok=True)
    async with running(whole) as journal:
        assert (journal.end, journal.epoch) == (SEGMENT, 1)
        assert journal.state.epochs[-1] == (2, end)
        journal.append(epoch(3))
        assert journal.epoch == 3
        assert journal.state.epochs[-2:] == [(2, end), (3, SEGMENT)]
        state = journal.state
    async with running(whole) as journal:
        assert journal.state == state
