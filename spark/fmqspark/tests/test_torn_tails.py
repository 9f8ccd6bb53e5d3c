"""An apparently torn end of one replica that another one knows as committed."""

from pathlib import Path

import pytest

from fmqcore.batch.header import BatchHeader
from fmqcore.journal.segments import MIN_SEGMENT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check.rows import Level
from fmqspark.tests.kit import alike, check, code_rows, flip, put, rows, write


@pytest.fixture(scope="module")
def writer() -> JournalWriter:
    return alike(100)


@pytest.fixture
def bad(writer: JournalWriter) -> BatchHeader:
    """With good batches behind it, in the newest segment."""
    return writer.headers[-9]


def damaged(path: Path, writer: JournalWriter, bad: BatchHeader, **changes: int | None) -> Path:
    known = {"durable_end": bad.position, "commit_end": bad.position} | changes
    made = write(path, writer, **known)
    flip(made, bad.position + 20)
    return made


@pytest.mark.parametrize("level", Level)
def test_batch_another_replica_has_committed_is_no_torn_write(
    tmp_path: Path, writer: JournalWriter, bad: BatchHeader, level: Level
) -> None:
    a = write(tmp_path / "a", writer, commit_end=writer.end)
    b = damaged(tmp_path / "b", writer, bad)
    outcome = check(a, b, level=level)
    assert code_rows(outcome) == [
        ("J001", "error", bad.position),
        ("R003", "warning", bad.position),
    ]
    found = outcome.findings[0]
    assert found.end == writer.end
    assert "torn write above" not in found.sentence
    assert f"all below {writer.end} is committed, as {a} knows" in found.sentence
    assert "keep the replica that has it" in found.remedy
    assert rows(outcome, "unread") == [("b", bad.position, writer.end)]
    assert rows(outcome, "void") == [("b", writer.end, writer.last_base + MIN_SEGMENT)]
    assert outcome.exit_code == 2


def test_zeros_in_a_committed_batch_are_no_torn_write(
    tmp_path: Path, writer: JournalWriter, bad: BatchHeader
) -> None:
    a = write(tmp_path / "a", writer, commit_end=bad.end)
    b = write(tmp_path / "b", writer, durable_end=bad.position, commit_end=bad.position)
    put(b, bad.position, bytes(96))
    outcome = check(b, a)
    assert code_rows(outcome)[0] == ("J001", "error", bad.position)
    assert outcome.findings[0].end == bad.end
    assert rows(outcome, "unread") == [("b", bad.position, bad.end)]


@pytest.mark.parametrize("known", [True, False])
def test_batch_no_other_replica_has_committed_is_torn(
    tmp_path: Path, writer: JournalWriter, bad: BatchHeader, known: bool
) -> None:
    """Even if its own checkpoint has it: a power cut takes the data, and the others have it."""
    a = write(tmp_path / "a", writer, commit_end=bad.position)
    b = damaged(tmp_path / "b", writer, bad, commit_end=bad.end if known else bad.position)
    outcome = check(a, b)
    assert code_rows(outcome)[0] == ("J001", "warning", bad.position)
    assert rows(outcome, "void") == [("b", bad.position, writer.last_base + MIN_SEGMENT)]
    assert outcome.exit_code == 1


def test_range_of_an_unfinished_truncation_is_void(
    tmp_path: Path, writer: JournalWriter, bad: BatchHeader
) -> None:
    a = write(tmp_path / "a", writer, commit_end=writer.end)
    b = damaged(tmp_path / "b", writer, bad, drop_from=bad.position)
    assert code_rows(check(a, b))[0] == ("J001", "warning", bad.position)


@pytest.mark.parametrize("size", [0, 5000])
def test_short_newest_file_ends_at_its_last_batch(
    tmp_path: Path, writer: JournalWriter, size: int
) -> None:
    half = writer.headers[-9].end
    a = write(tmp_path / "a", writer, commit_end=writer.end)
    b = write(tmp_path / "b", writer, durable_end=half, commit_end=half)
    with (b / segment_name(writer.last_base)).open("r+b") as file:
        file.truncate(size)
    end = max(h.end for h in writer.headers if h.end <= writer.last_base + size)
    [behind] = [found for found in check(a, b).findings if found.code == "R003"]
    assert (behind.begin, behind.end) == (half, writer.end)  # what is before is reported as damage
    assert behind.sentence.startswith(f"it ends at {end}, and all below {half} was there; ")
