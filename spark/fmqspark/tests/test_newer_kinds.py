"""A next version's batches: jobs read past those to skip, and stop at the others by name."""

from pathlib import Path

import pytest

from fmqcore.batch.header import BatchHeader
from fmqcore.errors import NewerJournal
from fmqcore.ids import Position
from fmqcore.journal.segments import MIN_SEGMENT, index_name
from fmqcore.tests.journal.writer import UNKNOWN, JournalWriter, newer
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.rebuild.job import Done, rebuild
from fmqspark.tests.kit import check, codes, write
from fmqspark.tests.test_archive import archive, everything
from fmqspark.tests.test_source import read, truth


def stopped() -> tuple[JournalWriter, BatchHeader]:
    """Return a journal whose newest batch is of a kind not to skip, and that batch."""
    writer = newer(UNKNOWN)
    return writer, writer.headers[-1]


@pytest.mark.parametrize("level", list(Level))
def test_check_finds_nothing_wrong_with_skipped_kinds(tmp_path: Path, level: Level) -> None:
    a, b = write(tmp_path / "a", newer()), write(tmp_path / "b", newer())
    assert codes(check(a, b, level=level)) == []


@pytest.mark.parametrize("level", list(Level))
def test_check_names_an_unknown_kind(tmp_path: Path, level: Level) -> None:
    writer, last = stopped()
    outcome = check(write(tmp_path / "a", writer), level=level)
    assert codes(outcome) == [("J006", "a", last.position)]
    (found,) = outcome.findings
    assert "kind 9" in found.sentence
    assert "upgrade" in found.remedy


def test_records_are_read_past_skipped_kinds(tmp_path: Path) -> None:
    writer = newer()
    assert read([write(tmp_path / "a", writer)]) == truth(writer)[0]


def test_reader_stops_at_an_unknown_kind(tmp_path: Path) -> None:
    writer, last = stopped()
    directory = write(tmp_path / "a", writer)
    with pytest.raises(NewerJournal, match=rf"{last.position} .*kind 9 .*upgrade this broker or"):
        read([directory])


@pytest.mark.spark
def test_archive_holds_all_records_beside_skipped_kinds(tmp_path: Path) -> None:
    writer = newer()
    outcome = archive(tmp_path / "out", write(tmp_path / "a", writer), group="g1")
    assert outcome.exit_code == 0
    values = sorted(row[-1] for row in everything(tmp_path / "out"))
    assert values == sorted(row[-1] for row in truth(writer)[0])


def test_indexes_are_rebuilt_past_skipped_kinds(tmp_path: Path) -> None:
    a = write(tmp_path / "a", newer())
    before = {p.name: p.read_bytes() for p in a.glob("*.index")}
    for path in a.glob("*.index"):
        path.unlink()
    assert {r.done for r in rebuild([a], LocalEngine())} == {Done.REBUILT, Done.OPEN}
    assert {p.name: p.read_bytes() for p in a.glob("*.index")} == before


def test_unknown_kind_keeps_its_segments_index(tmp_path: Path) -> None:
    writer, last = stopped()
    a = write(tmp_path / "a", writer)
    base = Position(last.position // MIN_SEGMENT * MIN_SEGMENT)
    (a / index_name(base)).write_bytes(b"as it was")
    found = next(r for r in rebuild([a], LocalEngine()) if r.base == base)
    assert found.done is Done.NEWER
    assert f"position {last.position}: FMQ" in found.why
    assert (a / index_name(base)).read_bytes() == b"as it was"
