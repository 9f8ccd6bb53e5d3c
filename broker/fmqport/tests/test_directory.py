"""A data directory inspected from outside: unreadable parts are reported, not raised."""

import fcntl
import os
from pathlib import Path

import pytest

from fmqcore.ids import Position
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqinspect import directory
from fmqinspect.directory import LOCK, is_locked, read_small, see

BASES = [Position(base) for base in (0, 1000, 5000)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    for base in BASES:
        (tmp_path / segment_name(base)).write_bytes(bytes(600))
    (tmp_path / CHECKPOINT).write_bytes(b"as it is")
    return tmp_path


def test_directory_view_lists_files_and_checkpoint(journal: Path) -> None:
    listing = [(CHECKPOINT, 8), *((segment_name(base), 600) for base in BASES)]
    assert see(journal) == (sorted(listing), b"as it is", "")


def test_dangling_and_circular_links(journal: Path) -> None:
    """A file of unknown size reaches to the next segment."""
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


def test_lock_file_that_is_a_pipe_does_not_block(journal: Path) -> None:
    assert not is_locked(journal)
    os.mkfifo(journal / LOCK)
    with pytest.raises(OSError, match="pipe or a device"):
        is_locked(journal)


@pytest.mark.parametrize("valid", [True, False])
def test_listing_is_consistent_beside_a_deleting_broker(
    journal: Path, monkeypatch: pytest.MonkeyPatch, valid: bool
) -> None:
    """The listing and the checkpoint are from one moment."""
    writer = JournalWriter()
    before = encode_checkpoint(writer.checkpoint(bases=tuple(BASES)))
    after = encode_checkpoint(writer.checkpoint(bases=tuple(BASES[1:])))
    (journal / CHECKPOINT).write_bytes(before if valid else b"one")
    looks: list[Path] = []

    def listing(path: Path) -> list[tuple[str, int]]:
        found = real(path)
        if not looks:
            (path / CHECKPOINT).write_bytes(after if valid else b"two")
            (path / segment_name(BASES[0])).unlink()
        looks.append(path)
        return found

    real = directory._listing
    monkeypatch.setattr(directory, "_listing", listing)
    seen = see(journal)
    assert seen.checkpoint == (after if valid else b"two")
    assert segment_name(BASES[0]) not in dict(seen.listing)


def test_a_lock_that_is_held_and_one_that_is_not(journal: Path) -> None:
    """Two may look at once: the lock is only inspected."""
    (journal / LOCK).write_bytes(b"somebody")
    before = len(os.listdir("/proc/self/fd"))
    with (journal / LOCK).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert not is_locked(journal)
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_locked(journal)
    assert not is_locked(journal)
    assert len(os.listdir("/proc/self/fd")) == before
