"""A topic that was deleted and recreated within a segment: all its records come by its name."""

from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.ids import Position
from fmqcore.journal.segments import MIN_SEGMENT, index_name
from fmqcore.scan.selection import Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source.files import Throttle
from fmqspark.source.options import understand
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.source.survey import survey
from fmqspark.tests.kit import file_of, flip, write
from fmqspark.tests.test_source import ALL, rows_of


def recreated() -> JournalWriter:
    """`orders` three times: the second one, and `brief`, are in no SNAP."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(1, "orders", 1)
    writer.data(1, 0, [b"one"])
    writer.roll()
    writer.topic(1, "orders", 0)
    for number, name in ((2, "orders"), (3, "brief")):
        writer.topic(number, name, 1)
        writer.data(number, 0, [name.encode()])
        writer.topic(number, name, 0)
    writer.roll()
    writer.topic(4, "orders", 1)
    writer.data(4, 0, [b"three"])
    return writer


JOURNAL = recreated()
CONFIG = next(h for h in JOURNAL.headers if h.position > MIN_SEGMENT and h.type == BatchType.CONFIG)


def values(*paths: Path, **options: str) -> list[bytes]:
    request = understand({"paths": ",".join(map(str, paths)), **options})
    found = request.survey()
    rows: list[bytes] = []
    for split in plan(found, request.wanted_in(found)):
        reader = SplitReader(split, ALL, Throttle(0))
        rows += [row[-1] for slab in reader for row in rows_of(slab, reader.names)]
    return rows


def test_recreated_topic_is_read_by_each_name(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    assert values(a, topic="orders") == [b"one", b"orders", b"three"]
    assert values(a, topic="brief") == [b"brief"]
    with pytest.raises(InvalidArgument, match=r"no topic 'nope' .* its topics: brief, orders"):
        values(a, topic="nope")


def test_damaged_topic_name_then_no_record_is_left_out(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL)
    flip(a, CONFIG.position + 20)
    assert values(a, b, topic="orders") == [b"one", b"orders", b"three"]
    with pytest.raises(CorruptJournal, match=f"damaged at position .*{a}"):
        values(a, topic="orders")


def test_lagging_replica_supplies_a_damaged_topic_name(tmp_path: Path) -> None:
    """Also for records that only the other replica has."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.roll()
    config = writer.topic(2, "brief", 1)
    one = writer.data(2, 0, [b"one"])
    writer.data(2, 0, [b"two"])
    writer.topic(2, "brief", 0)
    writer.roll()
    a, b = write(tmp_path / "a", writer), write(tmp_path / "b", writer, commit_end=one.end)
    for at in (20, 100):  # its header, or its payload
        flip(a, config.position + at)
        for paths in ((a, b), (b, a)):
            assert values(*paths) == values(*paths, topic="brief") == [b"one", b"two"]
        with pytest.raises(CorruptJournal, match=f"damaged at position {config.position}"):
            values(a)
        flip(a, config.position + at)


def test_damage_hiding_a_topic_name_invents_no_other(tmp_path: Path) -> None:
    """The records themselves are found by the index."""
    a, b = write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL)
    flip(a, CONFIG.position + 20)
    found = survey([str(a), str(b)])
    names: set[str] = set()
    for split in plan(found, Wanted()):
        reader = SplitReader(split, ALL, Throttle(0))
        names |= {row[0] for slab in reader for row in rows_of(slab, reader.names)}
    assert names == {"orders", "brief"}
    with pytest.raises(CorruptJournal, match=f"damaged at position {CONFIG.position} "):
        values(a)


def test_lagging_slave_supplies_the_topic_names_it_has(tmp_path: Path) -> None:
    """Each has what the other lacks: one the first name, the other one the rest."""
    a, b = write(tmp_path / "a", JOURNAL), tmp_path / "b"
    second = [h for h in JOURNAL.headers if MIN_SEGMENT < h.position < 2 * MIN_SEGMENT]
    end = next(h.end for h in second if h.type == BatchType.DATA)
    write(b, JOURNAL, durable_end=end, commit_end=end)
    file, at = file_of(b, end)
    with file.open("r+b") as opened:
        opened.truncate(at)
    for gone in (2 * MIN_SEGMENT, MIN_SEGMENT):
        (b / index_name(Position(gone))).unlink(missing_ok=True)
    file_of(b, 2 * MIN_SEGMENT)[0].unlink()
    flip(a, CONFIG.position + 20)
    found = survey([str(a), str(b)])
    assert found.segments[1].partly == ((str(b), end),)
    assert values(a, b, topic="orders") == [b"one", b"orders", b"three"]
    assert values(a, b, topic="brief") == [b"brief"]


@pytest.mark.spark
def test_filter_keeps_every_life_of_a_recreated_topic(tmp_path: Path) -> None:
    from pyspark.sql import datasource as ds

    from fmqspark.spark.source import FmqReader

    request = understand({"path": str(write(tmp_path / "a", JOURNAL)), "filters": "once"})
    reader = FmqReader(request, ("value",))
    reader.narrow([ds.EqualTo(("topic",), "orders")])
    splits = [split for part in reader.partitions() for split in part.task]
    assert [split.wanted.topics for split in splits] == [frozenset({1, 2, 4})] * 3


@pytest.mark.spark
def test_recreated_topic_is_archived_by_each_name(tmp_path: Path) -> None:
    from fmqspark.tests.test_archive import archive, everything

    a, b, out = write(tmp_path / "a", JOURNAL), write(tmp_path / "b", JOURNAL), tmp_path / "out"
    archive(out, write(tmp_path / "early", JOURNAL, commit_end=MIN_SEGMENT), topics=("orders",))
    flip(a, CONFIG.position + 20)
    (a / index_name(Position(MIN_SEGMENT))).unlink()
    outcome = archive(out, a, topics=("orders",))
    assert (outcome.exit_code, outcome.rows) == (2, 1)
    assert [result.unit for result in outcome.failed] == [(MIN_SEGMENT, 2 * MIN_SEGMENT)]
    assert archive(out, a, b, topics=("orders",)).exit_code == 0
    assert {row[-1] for row in everything(out)} == {b"one", b"orders", b"three"}
