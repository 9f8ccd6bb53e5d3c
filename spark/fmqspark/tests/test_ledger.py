"""An archive's ledger: whole lines or none, folders that stay, no change to other groups' files."""

import os
from pathlib import Path

import pytest

from fmqspark.archive import ledger
from fmqspark.archive.ledger import (
    ArchivedFile,
    Unit,
    is_scratch,
    one_plans,
    open_book,
    scratch_name,
)
from fmqspark.archive.replay import Place, Replay

ONE, TWO = Unit(0, 100), Unit(100, 200)
FILE = ArchivedFile("topic=t/date=2026-01-31/g-0-100.parquet", "t", "2026-01-31", 7, 70)


def test_ledger_line_is_whole_after_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    with open_book(tmp_path, "g") as book:
        book.begin(["t"])
        book.plan([ONE, TWO], {0: 5})
        book.finish(ONE, [FILE])
    found = ledger.load(tmp_path, "g")
    assert found is not None
    assert (found.topics, found.done, found.pending) == (["t"], {ONE: [FILE]}, [TWO])


def test_ledger_line_that_did_not_fit_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [20]

    def full(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = real(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    with open_book(tmp_path, "g") as book:
        book.begin(None)
        book.plan([ONE, TWO], {0: 5})
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space"):
                book.finish(ONE, [FILE])
    with open_book(tmp_path, "g") as book:
        assert book.ledger.pending == [ONE, TWO]
        book.finish(TWO, [])
    with open_book(tmp_path, "g") as book:
        assert book.ledger.pending == [ONE]


def test_the_folders_of_an_archive_are_there_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = set[str](), os.fsync

    def sync(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)
    lake = tmp_path / "x" / "y" / "lake"
    with open_book(lake, "g") as book:
        book.begin(None)
    names = (tmp_path, tmp_path / "x", tmp_path / "x" / "y", lake, lake / "_fmq")
    assert {str(path) for path in names} <= synced


def test_files_of_another_group_are_left_alone() -> None:
    mark = "0123456789abcdef" * 2
    assert is_scratch("g1", scratch_name("g1", ONE, mark))
    for other in ("g1-b", "g1-00000000000000000000", "g", "g11"):
        assert not is_scratch("g1", scratch_name(other, ONE, mark))


def test_replay_continues_where_the_previous_one_ended(tmp_path: Path) -> None:
    """It may have been created while the earlier one was still running."""
    with open_book(tmp_path, "g") as book:
        book.begin(None)
        book.plan([ONE], {0: 5})
        book.finish(ONE, [FILE])
    first, second = (Replay(tmp_path, "t", None, "x") for _ in range(2))
    with first.at_work():
        first.note(Place(0, 5), {"producer": 9})
    with second.at_work():
        assert (second.place, second.state) == (Place(0, 5), {"producer": 9})
        assert second.done_before == 5


def test_locks_of_groups_are_no_others(tmp_path: Path) -> None:
    """A group may be called as the planning is, or as a replay."""
    with open_book(tmp_path, "g") as book:
        book.begin(["t"])
    replay = Replay(tmp_path, "t", None, "x")
    with (
        one_plans(tmp_path),
        replay.at_work(),
        open_book(tmp_path, "plan"),
        open_book(tmp_path, "replay-x"),
    ):
        pass
