"""A segment of another journal, or an older one of this, among a directory's own: never rows."""

from pathlib import Path

import pytest

from fmqcore.errors import CorruptJournal
from fmqcore.journal.segments import index_name, segment_name
from fmqcore.scan.select import Wanted
from fmqcore.tests.journal_writer import JournalWriter
from fmqcore.words import Position, TopicId
from fmqspark.tests.kit import alike, write
from fmqspark.tests.test_source import read

OWN = alike()
BASES = sorted(OWN.segments)


def put_in(path: Path, other: JournalWriter, base: int, index: bool = True) -> None:
    """Its segment, whose batches are all good, takes the place of our own."""
    files = other.files()
    names = [segment_name(Position(base)), index_name(Position(base))]
    for name in names[: 1 + index]:
        (path / name).write_bytes(files[name])


def later(ms: int) -> JournalWriter:
    """As much of all, stored at another time."""
    writer = JournalWriter()
    writer.now_ms += ms
    writer.open_epoch(1)
    for n in range(220):
        writer.data(7, n % 4, [b"value" + b"x" * 900])
    return writer


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("split_bytes", [40_000, 2**26])
def test_one_that_counts_just_so(tmp_path: Path, index: bool, split_bytes: int) -> None:
    """Its index and its offsets fit: the batch that the segment behind it follows tells."""
    a = write(tmp_path / "a", OWN)
    put_in(a, alike(other=(100,)), BASES[1])
    if not index:
        for path in a.glob("*.index"):
            path.unlink()
    with pytest.raises(CorruptJournal, match="one of them is not of here"):
        read([a], split_bytes=split_bytes)


@pytest.mark.parametrize("ms", [-60_000, 60_000])
def test_one_of_another_time(tmp_path: Path, ms: int) -> None:
    """Which begins after it ends, by the segments around it: that is not one that holds nothing."""
    a = write(tmp_path / "a", OWN)
    put_in(a, later(ms), BASES[1], index=False)
    with pytest.raises(CorruptJournal, match="not of here"):
        read([a])


def test_one_whose_queues_are_elsewhere(tmp_path: Path) -> None:
    """Also where none of its batches is wanted."""
    other = JournalWriter()
    other.open_epoch(1)
    for n in range(220):
        other.data(7 if n < 40 else 8, n % 4 if n < 40 else 0, [b"value" + b"x" * 900])
    a = write(tmp_path / "a", OWN)
    put_in(a, other, BASES[1])
    for wanted in (Wanted(), Wanted(topics=frozenset({TopicId(7)}))):
        with pytest.raises(CorruptJournal, match="not of here"):
            read([a], wanted)


def test_none_of_another(tmp_path: Path) -> None:
    a = write(tmp_path / "a", OWN)
    put_in(a, alike(), BASES[1])
    assert len(read([a])) == 220
