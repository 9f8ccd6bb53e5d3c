"""A journal with many queues: a driver holds little of each split, and reads the same."""

import pickle
from pathlib import Path

import pytest

from fmqcore.errors import CorruptJournal
from fmqcore.ids import Offset, TopicId
from fmqcore.journal.segments import index_name, segment_name
from fmqcore.scan.selection import Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source import planning, splits
from fmqspark.source.files import Throttle
from fmqspark.source.planning import plan
from fmqspark.source.snaps import Ends
from fmqspark.source.survey import survey
from fmqspark.tests.kit import journal, write
from fmqspark.tests.test_source import read, truth

QUEUES = 1024
SEGMENT = 1 << 20


def many() -> JournalWriter:
    """A record in each queue, and some more, in three segments; topics created in the second."""
    writer = JournalWriter(SEGMENT)
    writer.open_epoch(1)
    writer.topic(7, "orders", QUEUES)
    for queue in range(QUEUES):
        writer.data(7, queue, [b"%d" % queue])
    writer.roll()
    writer.topic(8, "bills", 1)
    for n in range(4):
        writer.data(7 + n % 2, 0, [b"x" * 90_000])
    writer.roll()
    writer.data(8, 0, [b"last"])
    return writer


JOURNAL = many()
BASES = sorted(JOURNAL.segments)
LARGE = b"x" * 90_000
ROWS = [
    *(("orders", queue, 0, b"%d" % queue) for queue in range(QUEUES)),
    *((name, 0, offset, LARGE) for name, offset in (("orders", 1), ("bills", 0))),
    *((name, 0, offset, LARGE) for name, offset in (("orders", 2), ("bills", 1))),
    ("bills", 0, 2, b"last"),
]


def test_no_split_carries_tables_of_many_queues(tmp_path: Path) -> None:
    found = survey([str(write(tmp_path / "a", JOURNAL))])
    made = plan(found, Wanted(), 64 * 1024)
    assert len(made) > 20
    assert max(len(pickle.dumps(split)) for split in made) < 2000
    few = plan(found, Wanted(queues=frozenset({0, 3})), 64 * 1024)
    assert few[0].tables is not None
    assert {id(split.tables) for split in few if split.segment.base == 0} == {id(few[0].tables)}


@pytest.mark.parametrize("size", [64 * 1024, 2**62])
def test_the_same_is_read(tmp_path: Path, size: int) -> None:
    a = write(tmp_path / "a", JOURNAL)
    assert read([a], Wanted(), size) == ROWS
    (a / index_name(BASES[0])).unlink()
    assert read([a], Wanted(), size) == ROWS


def test_small_journals_are_read_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fmqspark.tests.test_recreated_topic import JOURNAL as RECREATED
    from fmqspark.tests.test_recreated_topic import values

    monkeypatch.setattr(planning, "_MOST", 0)
    a = write(tmp_path / "a")
    assert read([a], Wanted(), 64 * 1024) == truth(journal())[0]
    b = write(tmp_path / "b", RECREATED)
    assert values(b) == [b"one", b"orders", b"brief", b"three"]
    assert values(b, topic="orders") == [b"one", b"orders", b"three"]


def test_a_snap_that_is_damaged_after_the_plan_makes_no_name_up(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL)
    for paths in ([a], [a, b]):
        made = plan(survey([str(path) for path in paths]), Wanted())
        for base in BASES[:2]:
            file = a / segment_name(base)
            raw = bytearray(file.read_bytes())
            raw[100] ^= 1
            file.write_bytes(raw)
        rows, failures = set[str](), 0
        for split in made:
            reader = splits.SplitReader(split, ("value",), Throttle(0))
            try:
                rows |= {
                    reader.names[TopicId(t)] for s in reader for t in s.headers.column("topic_id")
                }
            except CorruptJournal:
                failures += 1
        write(a, JOURNAL)
        assert rows <= {"orders", "bills"}
        assert failures == (2 if paths == [a] else 0)


def test_without_the_next_segment_the_headers_are_read(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    made = plan(survey([str(a)]), Wanted())
    (a / segment_name(BASES[1])).unlink()
    reader = splits.SplitReader(made[0], ("value",), Throttle(0))
    assert sum(slab.records for slab in reader) == QUEUES


def test_packed_ends_are_a_mapping() -> None:
    reported = {(TopicId(t), q): Offset(t * q) for t in (70_000, 1) for q in (0, 65_535, 3)}
    ends = Ends(reported)
    assert (dict(ends), len(ends)) == (reported, 6)
    assert ends.get((TopicId(2), 0)) is None
    assert list(ends) == sorted(reported)
    assert (TopicId(2), 0) not in Ends({})
