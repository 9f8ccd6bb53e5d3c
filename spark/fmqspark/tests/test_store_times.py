"""Store times never fall within a journal: readers use them to skip what cannot match a time."""

from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Epoch
from fmqcore.journal.segments import NO_TERM
from fmqcore.scan.selection import Range, Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqcore.verify.directory import Verifier
from fmqspark.check.rows import Level
from fmqspark.source.planning import plan
from fmqspark.source.survey import survey
from fmqspark.tests.kit import check, code_rows, flip, write


class Late(JournalWriter):
    """The clock falls just before the third segment."""

    by_ms = 60_000

    def _begin(self, framed_for: Epoch = NO_TERM) -> None:
        if len(self.segments) == 2:
            self.now_ms -= self.by_ms
        super()._begin(framed_for)


def filled(writer: JournalWriter, batches: int) -> JournalWriter:
    for _ in range(batches):
        writer.data(7, 0, [b"x" * 900])
    return writer


def verified(writer: JournalWriter) -> list[tuple[str, int | None]]:
    """Read as `fmq journal verify` does, from end to end."""
    files = writer.files()
    verifier = Verifier([(n, len(d)) for n, d in files.items()], None, payloads=False)
    for file in verifier.segments:
        verifier.segment(file, files[file.name], None)
    return [(f.code.name, f.position) for f in verifier.findings if f.code.name[0] == "J"]


@pytest.mark.parametrize("level", Level)
def test_j003_falling_store_time_is_reported_once(tmp_path: Path, level: Level) -> None:
    writer = filled(JournalWriter(), 9)
    writer.now_ms -= 5_000
    bad = writer.data(7, 0, [b"x"])
    filled(writer, 150)
    outcome = check(write(tmp_path / "a", writer), level=level)
    assert code_rows(outcome) == [("J003", "error", bad.position)]
    before = bad.store_ms + 4_000
    assert f"store time {bad.store_ms} after {before} " in outcome.findings[0].sentence
    assert verified(writer) == [("J003", bad.position)]


@pytest.mark.parametrize("level", Level)
def test_j003_where_the_next_segment_begins(tmp_path: Path, level: Level) -> None:
    writer = filled(Late(), 220)
    third = sorted(writer.segments)[2]
    outcome = check(write(tmp_path / "a", writer), level=level)
    assert code_rows(outcome) == [("J003", "error", third)]
    assert verified(writer) == [("J003", third)]


@pytest.mark.parametrize("level", Level)
def test_store_times_are_not_compared_across_damage(tmp_path: Path, level: Level) -> None:
    writer = filled(JournalWriter(), 9)
    writer.now_ms -= 1_000
    damaged = writer.data(7, 0, [b"x"])
    writer.now_ms -= 5_000
    filled(writer, 150)
    a = write(tmp_path / "a", writer)
    flip(a, damaged.position + 20)
    assert code_rows(check(a, level=level)) == [("J001", "error", damaged.position)]


class Corrected(JournalWriter):
    """The third segment lowers the store times, and names the time before (ADR 0070)."""

    off_ms = 0

    def _begin(self, framed_for: Epoch = NO_TERM) -> None:
        if len(self.segments) == 2:
            self.corrected_from_ms = self.now_ms + self.off_ms
            self.now_ms -= 600_000
        super()._begin(framed_for)


class TooLow(Corrected):
    """It names a time that does not reach the one before it."""

    off_ms = -2_000


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("kind", [Corrected, TooLow])
def test_a_named_correction_is_no_finding(
    tmp_path: Path, level: Level, kind: type[Corrected]
) -> None:
    writer = filled(kind(), 220)
    third = sorted(writer.segments)[2]
    bad = kind is TooLow
    outcome = check(write(tmp_path / "a", writer), level=level)
    assert code_rows(outcome) == ([("J003", "error", third)] if bad else [])
    assert verified(writer) == ([("J003", third)] if bad else [])


def test_segments_with_times_above_a_correction_are_read(tmp_path: Path) -> None:
    writer = filled(Corrected(), 220)
    found = survey([str(write(tmp_path / "a", writer))])
    newest = max(writer.headers, key=lambda h: (h.type == BatchType.DATA, h.store_ms))
    [split] = plan(found, Wanted(store_ms=Range(newest.store_ms, newest.store_ms + 1)))
    assert newest.position in range(split.begin, split.end)


def test_a_fall_between_segments_is_refused(tmp_path: Path) -> None:
    late = Late()
    late.by_ms = 600_000
    with pytest.raises(CorruptJournal, match="was stored before it"):
        survey([str(write(tmp_path / "a", filled(late, 220)))])
