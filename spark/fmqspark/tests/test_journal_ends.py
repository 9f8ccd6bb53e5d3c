"""Where a journal ends: the newest file is checked against the rest as at a broker's start."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import CapturingLogger

from fmqadapters.disk.files import FileDisk
from fmqbroker.journal import recovery as recover
from fmqbroker.journal.journal import Journal
from fmqbroker.tests.journal_kit import Clock, Life, settings
from fmqclient.tests.journal_directory import codes as codes_of
from fmqclient.tests.journal_directory import verify
from fmqcore.batch.header import HEADER_LEN
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position
from fmqcore.journal.segments import MIN_SEGMENT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check.rows import Level
from fmqspark.tests.kit import alike, check, journal, put, rows, write

LAST = journal().last_base
NEXT = LAST + MIN_SEGMENT
FRESH = (bytes(MIN_SEGMENT), b"")
"""A file that was just created, or that a crash left."""


def put_file(directory: Path, base: int, raw: bytes) -> None:
    (directory / segment_name(Position(base))).write_bytes(raw)


def sealed(path: Path, behind: bytes | None, **changes: Any) -> tuple[Path, Position]:
    """A journal with a sealed newest segment, and `behind` it another file, if any; and its
    position.
    """
    writer = alike()
    writer.roll()
    end = writer.last_base
    write(path, writer, durable_end=end, commit_end=end, **changes)
    (path / segment_name(end)).unlink()
    if behind is not None:
        put_file(path, end, behind)
    return path, end


def starts(directory: Path) -> str:
    """Return how a broker's start judges it: "" if good, or the code, refused or truncated."""

    async def opened() -> None:
        disk = FileDisk(str(directory))
        try:
            found = await Journal.open(disk, settings(directory), Clock(), Life())
            await found.close()
        finally:
            await disk.close()

    logger = CapturingLogger()  # by hand: the logger of an earlier test may be cached for good
    with patch.object(recover, "log", logger):
        try:
            asyncio.run(opened())
        except CorruptJournal as refused:
            return f"refused {str(refused).split(': ')[1][:4]}"
    findings = [
        call.kwargs["finding"] for call in logger.calls if call.args == ("journal_recovery",)
    ]
    return " ".join(f"cut {finding[:4]}" for finding in findings)


def gap(a: Path, raw: bytes) -> None:
    put_file(write(a), LAST + 10 * MIN_SEGMENT, raw)


def behind_what_is_not_sealed(a: Path, raw: bytes) -> None:
    put_file(write(a), NEXT, raw)


def within(a: Path, raw: bytes) -> None:
    put_file(write(a), LAST + 8, raw)


def before_the_beginning(a: Path, raw: bytes) -> None:
    writer = JournalWriter(base=MIN_SEGMENT)
    put_file(write(a, writer, journal_start=MIN_SEGMENT), 0, raw)


@pytest.mark.parametrize("raw", FRESH)
@pytest.mark.parametrize(
    ("place", "code", "exit_code"),
    [
        (gap, "J005", 2),
        (behind_what_is_not_sealed, "J001", 2),
        (within, "J005", 2),
        (before_the_beginning, "M002", 1),
    ],
)
def test_zeros_where_no_segment_can_begin(
    tmp_path: Path,
    place: Callable[[Path, bytes], None],
    code: str,
    exit_code: int,
    raw: bytes,
) -> None:
    a = tmp_path / "a"
    place(a, raw)
    for level in Level:
        outcome = check(a, level=level)
        assert outcome.exit_code == exit_code
        assert code in {found.code for found in outcome.findings}
    report = verify(a)
    assert (report[0], set(codes_of(report[1]))) == (exit_code, {f.code for f in outcome.findings})
    assert starts(a) == f"{'refused' if exit_code == 2 else 'cut'} {code}"


@pytest.mark.parametrize(("clean", "exit_code"), [(False, 1), (True, 2)])
def test_newest_file_that_starts_with_zeros_and_has_data(
    tmp_path: Path, clean: bool, exit_code: int
) -> None:
    a = write(tmp_path / "a", durable_end=LAST, commit_end=LAST, clean=clean)
    put(a, LAST, bytes(HEADER_LEN))
    for level in Level:
        outcome = check(a, level=level)
        assert [(f.code, f.begin) for f in outcome.findings] == [("J001", LAST)]
        assert outcome.exit_code == exit_code
        assert rows(outcome, "unread" if clean else "void") == [("a", LAST, NEXT)]
        assert rows(outcome, "empty") == []
    assert (verify(a)[0], codes_of(verify(a)[1])) == (exit_code, ["J001"])
    assert starts(a) == ("refused J001" if clean else "cut J001")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("raw", FRESH)
def test_a_file_of_zeros_behind_a_sealed_segment_is_empty(
    tmp_path: Path, raw: bytes, clean: bool
) -> None:
    """As a crash leaves it right after the segment's file was created."""
    a, end = sealed(tmp_path / "a", raw, clean=clean)
    b, _ = sealed(tmp_path / "b", None, clean=clean)
    for level in Level:
        outcome = check(a, level=level)
        assert (outcome.exit_code, outcome.findings) == (0, [])
        assert rows(outcome, "empty") == ([("a", end, end + MIN_SEGMENT)] if raw else [])
        assert check(a, b, level=level).exit_code == check(b, a, level=level).exit_code == 0
    assert verify(a)[0] == 0
    assert starts(a) == ""


def test_preallocated_segment_then_end_is_checked_before_it(
    tmp_path: Path,
) -> None:
    """A file that was created for later batches does not weaken the check."""
    a, _ = sealed(tmp_path / "a", bytes(MIN_SEGMENT), clean=True, last_header_crc=1)
    (a / SIDE_JOURNAL).write_bytes(b"nonsense")
    assert {(f.code, f.file) for f in check(a).findings} == {
        ("M001", "checkpoint"),
        ("O004", SIDE_JOURNAL),
    }
    assert len(check(a).findings) == 2, "each once"
    assert codes_of(verify(a)[1]) == ["M001"]
