"""A stream's progress in another journal is refused: it would skip records there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.journal.segments import MIN_SEGMENT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source.options import understand
from fmqspark.tests.kit import alike, snap_crc, write

pytestmark = pytest.mark.spark
JOURNAL = alike()
BASES = sorted(JOURNAL.segments)
ENDS = [header.end for header in JOURNAL.headers]


def other(segment_bytes: int = MIN_SEGMENT) -> JournalWriter:
    """Return another group's journal, which holds more."""
    writer = JournalWriter(segment_bytes)
    writer.open_epoch(1, "g2-0")
    for n in range(400):
        writer.data(7, n % 4, [b"other" + b"x" * 900])
    return writer


def stream(*directories: Path, **options: str) -> Any:
    from fmqspark.spark.stream import FmqStreamReader

    paths = ",".join(map(str, directories))
    return FmqStreamReader(understand({"path": paths, **options}), ("value",))


def progress(reader: Any, start: dict[str, int] | None = None) -> dict[str, int]:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    begin = reader.initialOffset() if start is None else start
    found: dict[str, int] = reader.latestOffset(begin, ReadAllAvailable())
    return found


def goes_on(reader: Any, start: dict[str, int]) -> None:
    assert reader.partitions(start, progress(reader, start))


STANDS = [ENDS[3], ENDS[100], BASES[1], BASES[2]]
"""Within a segment, and where one ends and the next has not started."""


@pytest.mark.parametrize("at", STANDS)
@pytest.mark.parametrize("journal", [other, lambda: other(2 * MIN_SEGMENT)])
def test_another_journal_is_refused(
    tmp_path: Path, at: int, journal: Callable[[], JournalWriter]
) -> None:
    start = progress(stream(write(tmp_path / "a", JOURNAL, commit_end=at)))
    assert start["position"] == at
    reader = stream(write(tmp_path / "b", journal()))
    with pytest.raises(
        InvalidArgument, match=r"checkpoint belongs to another journal than that of .*b "
    ):
        progress(reader, start)
    with pytest.raises(InvalidArgument, match="checkpoint belongs to another journal"):
        reader.partitions(start, {"position": other().end})
    with pytest.raises(InvalidArgument, match="checkpoint belongs to another journal"):
        reader.partitions({"position": 0}, start)


@pytest.mark.parametrize("at", STANDS)
def test_stream_continues_from_any_replica_of_its_journal(tmp_path: Path, at: int) -> None:
    a, b = write(tmp_path / "a", JOURNAL, commit_end=at), write(tmp_path / "b", JOURNAL)
    start = progress(stream(a))
    assert progress(stream(a), start) == start, "nothing new is no micro-batch"
    goes_on(stream(b), start)
    goes_on(stream(a, b), start)


def test_progress_of_an_earlier_version_has_no_mark(tmp_path: Path) -> None:
    reader = stream(write(tmp_path / "a", JOURNAL))
    goes_on(reader, {"position": ENDS[100]})
    assert progress(reader, {"position": JOURNAL.end}) == {"position": JOURNAL.end}


def test_mark_of_a_deleted_segment_is_ignored(tmp_path: Path) -> None:
    start = progress(stream(write(tmp_path / "a", JOURNAL, commit_end=BASES[1])))
    b = write(tmp_path / "b", JOURNAL, journal_start=BASES[1], bases=tuple(BASES[1:]))
    (b / segment_name(BASES[0])).unlink()
    goes_on(stream(b), start)


def plain(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset without the stream's start and options."""
    return {name: offset[name] for name in ("position", "marks") if name in offset}


def test_uncommitted_segment_has_no_mark(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    assert plain(progress(stream(a, uncommitted="true"))) == {"position": JOURNAL.end}
    mark = {"marks": [[BASES[-1], snap_crc(JOURNAL, BASES[-1])]]}
    assert plain(progress(stream(a))) == {"position": JOURNAL.end} | mark
    latest = stream(a, startingPosition="latest").initialOffset()
    assert plain(latest) == {"position": JOURNAL.end} | mark
    assert plain(stream(a).initialOffset()) == {"position": 0}


def test_a_schema_without_columns_counts_nothing(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    from fmqspark.spark.source import FmqDataSource

    source = FmqDataSource({"path": str(write(tmp_path / "a"))})
    for reader in (source.reader, source.streamReader):
        with pytest.raises(InvalidArgument, match="the schema has no columns: name one"):
            reader(StructType())


def test_column_named_twice_is_reported(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    from fmqspark.spark.source import FmqDataSource

    source = FmqDataSource({"path": str(write(tmp_path / "a"))})
    twice = StructType().add("offset", "long").add("value", "binary").add("offset", "long")
    for reader in (source.reader, source.streamReader):
        with pytest.raises(InvalidArgument, match="column offset is named more than once"):
            reader(twice)
