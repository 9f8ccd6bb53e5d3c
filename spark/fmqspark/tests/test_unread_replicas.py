"""An unreadable part of one replica is reported for that one, and the others are checked."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqclient.tests.journal_directory import verify
from fmqcore.ids import Position
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqspark.check.job import Outcome
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.rebuild.job import Done, rebuild
from fmqspark.source.files import Throttle, inspect_directory, open_segment
from fmqspark.tests.kit import check, data_batch, flip, journal, write

SECOND, NEWEST = segment_name(Position(MIN_SEGMENT)), segment_name(journal().last_base)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


WAYS = [a_directory, a_loop, a_pipe]
Spoil = Callable[[Path], None]


def unread(outcome: Outcome) -> list[tuple[str, str, int]]:
    """(replica, file, bytes)."""
    return [
        (Path(c.replica).name, c.file, c.bytes) for c in outcome.coverage if c.state == "unread"
    ]


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "good"), write(tmp_path / "bad")


@pytest.mark.parametrize("spoil", WAYS)
@pytest.mark.parametrize("level", Level)
def test_a_checkpoint_that_cannot_be_read(
    both: tuple[Path, Path], spoil: Spoil, level: Level
) -> None:
    good, bad = both
    spoil(bad / CHECKPOINT)
    for order in ((good, bad), (bad, good)):
        outcome = check(*order, level=level)
        assert [(f.replica, f.code, f.severity) for f in outcome.findings] == [
            (str(bad), "M001", "warning")
        ]
        assert "cannot be read" in outcome.findings[0].sentence
        assert unread(outcome) == [("bad", CHECKPOINT, 0)]
        assert outcome.exit_code == 3
        assert not [c for c in outcome.coverage if c.state == "not compared"]
    code, report = verify(bad)
    assert (code, [f["code"] for f in report["findings"]]) == (3, ["M001"])
    assert [line.split(":")[0] for line in report["coverage"]["unreadable"]] == [CHECKPOINT]
    assert report["coverage"]["batches"] == len(journal().headers)
    flip(bad, data_batch(50).position + 64)
    assert check(good, bad, level=level).exit_code == verify(bad)[0] == 2


@pytest.mark.parametrize("name", [SECOND, NEWEST])
def test_a_segment_that_leads_to_itself(both: tuple[Path, Path], name: str) -> None:
    good, bad = both
    a_loop(bad / name)
    for order in ((good, bad), (bad, good)):
        outcome = check(*order)
        assert {where for where, _, _ in unread(outcome)} == {"bad"}
        assert ("bad", name) in {(where, file) for where, file, _ in unread(outcome)}
        assert {found.replica for found in outcome.findings} <= {str(bad)}
        assert outcome.exit_code in (2, 3)
    if name == SECOND:
        assert unread(outcome) == [("bad", SECOND, MIN_SEGMENT)]
        assert "symbolic links" in next(c.why for c in outcome.coverage if c.state == "unread")
    assert verify(bad)[0] == check(bad).exit_code == outcome.exit_code


def test_segment_that_is_a_pipe_does_not_block(both: tuple[Path, Path]) -> None:
    _, bad = both
    a_pipe(bad / SECOND)
    with open_segment(str(bad), SECOND, Throttle(0)) as data, pytest.raises(OSError, match="seek"):
        data.read(1, 0)
    assert check(bad).exit_code == verify(bad)[0] == 2, "the segment is missing"


@pytest.fixture
def shut(both: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk of one replica is broken: not even names can be read there."""
    real = os.scandir

    def broken(path: Any) -> Any:
        if Path(path) == both[1]:
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "scandir", broken)
    return both[1]


def test_a_directory_that_cannot_be_read(both: tuple[Path, Path], shut: Path) -> None:
    good, bad = both
    for order in ((good, bad), (bad, good)):
        outcome = check(*order)
        assert (outcome.exit_code, outcome.findings) == (3, [])
        assert unread(outcome) == [("bad", "", 0)]
        alone = [(Path(c.replica).name, c.begin, c.end) for c in outcome.coverage]
        assert ("good", 0, journal().end) in alone, "not compared"
    flip(good, data_batch(50).position + 64)
    assert check(bad, good).exit_code == 2
    with pytest.raises(OSError, match="Input/output"):
        check(bad)
    with pytest.raises(OSError, match="Input/output"):
        inspect_directory(bad)


@pytest.mark.parametrize("spoil", WAYS)
def test_the_indexes_of_the_others_are_rebuilt(both: tuple[Path, Path], spoil: Spoil) -> None:
    good, bad = both
    spoil(bad / CHECKPOINT)
    for path in both:
        (path / index_name(Position(MIN_SEGMENT))).unlink()
    found = rebuild([bad, good], LocalEngine())
    done = [(r.path, r.done) for r in found if r.done not in (Done.SAME, Done.OPEN)]
    assert done == [(str(bad), Done.UNREAD), (str(good), Done.REBUILT)]
    assert found[0].why.startswith(CHECKPOINT)


def test_unreadable_directory_then_other_indexes_are_rebuilt(
    both: tuple[Path, Path], shut: Path
) -> None:
    (both[0] / index_name(Position(MIN_SEGMENT))).unlink()
    found = rebuild(both, LocalEngine())
    done = [(r.path, r.done) for r in found if r.done not in (Done.SAME, Done.OPEN)]
    assert done == [(str(shut), Done.UNREAD), (str(both[0]), Done.REBUILT)]
