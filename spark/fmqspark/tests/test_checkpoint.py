"""A checkpoint that is not its journal's: planted, swapped between replicas, from a backup."""

from pathlib import Path
from typing import Any

import pytest

from fmqclient.tests.journal_directory import verify
from fmqcore.ids import Epoch, Position
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT
from fmqspark.check.rows import Level
from fmqspark.tests.kit import alike, check, code_rows, journal, write

BASES = sorted(journal().segments)
OLD = [h for h in journal().headers if h.position >= BASES[-3]][3]
EPOCHS = ((Epoch(1), Position(64)), (Epoch(7), Position(9999)))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"clean": True, "durable_end": OLD.end, "commit_end": OLD.end}, OLD.end),
        ({"last_header_crc": 12345}, journal().end),
        ({"commit_end": Position(journal().end - 8)}, journal().end - 8),
        ({"durable_end": Position(OLD.end - 8), "commit_end": OLD.end}, OLD.end - 8),
    ],
)
def test_m001_checkpoint_that_contradicts_the_journal(
    tmp_path: Path, changes: dict[str, Any], place: int
) -> None:
    a = write(tmp_path / "a", **changes)
    for level in Level:
        assert code_rows(check(a, level=level)) == [("M001", "error", place)]
    code, report = verify(a)
    assert code == 2
    assert [(f["code"], f["position"]) for f in report["findings"]] == [("M001", place)]


def test_m001_terms_that_the_journal_does_not_have(tmp_path: Path) -> None:
    a = write(tmp_path / "a", epochs=EPOCHS)
    for level in (Level.STANDARD, Level.DEEP):  # quick knows terms only from their headers
        assert code_rows(check(a, level=level)) == [("M001", "error", 64)]
    assert [f["position"] for f in verify(a)[1]["findings"]] == [64]


@pytest.mark.parametrize("level", Level)
def test_m001_checkpoints_that_were_swapped(tmp_path: Path, level: Level) -> None:
    """Two journals with different ends, each with the other's checkpoint."""
    a, b = write(tmp_path / "a", alike()), write(tmp_path / "b", alike(other=(219,)))
    own, other = (path / CHECKPOINT for path in (a, b))
    raw = own.read_bytes()
    own.write_bytes(other.read_bytes())
    other.write_bytes(raw)
    for path in (a, b):
        assert code_rows(check(path, level=level)) == [("M001", "error", alike().end)]


@pytest.mark.parametrize("level", Level)
def test_lagging_checkpoint_is_no_finding(tmp_path: Path, level: Level) -> None:
    for number in (2, 40, -2):
        last = journal().headers[number]
        a = write(tmp_path / "a", durable_end=last.end, commit_end=last.end)
        assert check(a, level=level).exit_code == 0
    a = write(tmp_path / "a", durable_end=Position(2 * MIN_SEGMENT), commit_end=OLD.end)
    assert check(a, level=level).exit_code == 0
