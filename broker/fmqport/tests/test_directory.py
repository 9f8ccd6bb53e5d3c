"""A data directory looked at from outside: what is there and cannot be read is told, not raised."""

import os
from pathlib import Path

import pytest

from fmqcore.journal.segments import CHECKPOINT, index_name, segment_name
from fmqcore.words import Position
from fmqport.directory import LOCK, is_locked, read_small, see

BASES = [Position(base) for base in (0, 1000, 5000)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    for base in BASES:
        (tmp_path / segment_name(base)).write_bytes(bytes(600))
    (tmp_path / CHECKPOINT).write_bytes(b"as it is")
    return tmp_path


def test_what_is_there(journal: Path) -> None:
    listing = [(CHECKPOINT, 8), *((segment_name(base), 600) for base in BASES)]
    assert see(journal) == (sorted(listing), b"as it is", "")


def test_names_that_lead_nowhere_or_to_themselves(journal: Path) -> None:
    """A file whose size nobody can tell reaches to the next segment."""
    for name in (*map(segment_name, BASES[1:]), index_name(BASES[0])):
        (journal / name).unlink(missing_ok=True)
        (journal / name).symlink_to(journal / name)
    (journal / segment_name(Position(9000))).symlink_to(journal / "nowhere")
    sizes = dict(see(journal).listing)
    assert [sizes[segment_name(base)] for base in BASES] == [600, 4000, 0]
    assert sizes[index_name(BASES[0])] == 0
    assert segment_name(Position(9000)) not in sizes
    with pytest.raises(OSError, match="symbolic links"):
        read_small(journal, index_name(BASES[0]))


def test_a_checkpoint_that_cannot_be_read(journal: Path) -> None:
    (journal / CHECKPOINT).unlink()
    assert see(journal)[1:] == (None, "")
    (journal / CHECKPOINT).mkdir()
    assert see(journal)[1:] == (None, "Is a directory")
    (journal / CHECKPOINT).rmdir()
    os.mkfifo(journal / CHECKPOINT)
    assert see(journal)[1:] == (None, "it is a pipe or a device, not a file")


def test_a_lock_that_is_a_pipe_keeps_nobody_waiting(journal: Path) -> None:
    assert not is_locked(journal)
    os.mkfifo(journal / LOCK)
    with pytest.raises(OSError, match="pipe or a device"):
        is_locked(journal)
