"""A stream with an uncommitted first micro-batch, or changed options: no row is skipped without an
error, or a logged sentence where failOnDataLoss is false.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source.files import Throttle
from fmqspark.source.options import understand
from fmqspark.source.splits import SplitReader
from fmqspark.source.stream_offsets import widened
from fmqspark.tests.kit import write
from fmqspark.tests.test_source import ALL, rows_of

pytestmark = pytest.mark.spark
Offset = dict[str, Any]


def orders() -> JournalWriter:
    """200 rows in four segments, 50 in each."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 2)
    for number in range(200):
        if number and number % 50 == 0:
            writer.roll()
        writer.data(7, number % 2, [b"%d" % number])
    return writer


JOURNAL = orders()
BASES = sorted(JOURNAL.segments)
DATA = [h for h in JOURNAL.headers if h.type == BatchType.DATA]


def stream(path: Path, **options: str) -> Any:
    from fmqspark.spark.stream import FmqStreamReader

    return FmqStreamReader(understand({"path": str(path), **options}), ALL)


def next_end(reader: Any, start: Offset) -> Offset:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    found: Offset = reader.latestOffset(start, ReadAllAvailable())
    return stored(found)


def stored(offset: Offset) -> Offset:
    """Return the offset as Spark stores it."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def values(reader: Any, start: Offset, end: Offset) -> list[int]:
    parts = reader.partitions(start, end)
    readers = [SplitReader(split, ALL, Throttle(0)) for part in parts for split in part.task]
    return [int(row[-1]) for one in readers for slab in one for row in rows_of(slab, one.names)]


def grow(path: Path, writer: JournalWriter, **changes: Any) -> None:
    (path / CHECKPOINT).write_bytes(encode_checkpoint(writer.checkpoint(**changes)))


def delete_two_segments(path: Path) -> None:
    grow(path, JOURNAL, journal_start=BASES[2], bases=tuple(BASES[2:]))
    for base in BASES[:2]:
        (path / segment_name(base)).unlink()


# ---- the first micro-batch is planned, and not committed
@pytest.mark.parametrize("option", ["latest", str(DATA[100].position)])
def test_changed_start_before_first_commit_is_refused(tmp_path: Path, option: str) -> None:
    a = write(tmp_path / "a", JOURNAL)
    first = stream(a)
    end = next_end(first, first.initialOffset())
    again = stream(a, startingPosition=option)
    with pytest.raises(InvalidArgument) as caught:
        again.partitions(stored(again.initialOffset()), end)
    for part in ("was 'earliest' (position 0)", f"is now '{option}'", "set startingPosition back"):
        assert part in str(caught.value)
    same = stream(a)
    assert values(same, stored(same.initialOffset()), end) == list(range(200))


def test_latest_keeps_its_start_until_the_first_commit(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL, commit_end=DATA[50].position)
    first = stream(a, startingPosition="latest")
    start = stored(first.initialOffset())
    grow(a, JOURNAL, commit_end=DATA[150].position)
    end = next_end(first, start)
    grow(a, JOURNAL)
    again = stream(a, startingPosition="latest")
    start = stored(again.initialOffset())
    assert start["position"] == JOURNAL.end
    assert values(again, start, end) == list(range(50, 150))
    assert values(again, end, next_end(again, end)) == list(range(150, 200))


def test_retention_before_first_commit_is_data_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", JOURNAL)
    first = stream(a)
    end = next_end(first, first.initialOffset())
    delete_two_segments(a)
    again = stream(a)
    start = stored(again.initialOffset())
    with pytest.raises(CorruptJournal, match=r"continue at position 0, but retention has deleted"):
        again.partitions(start, end)
    assert capsys.readouterr().err == ""
    go_on = stream(a, failOnDataLoss="false")
    for _ in range(2):
        assert values(go_on, start, end) == list(range(100, 200))
    output = capsys.readouterr().err
    assert (output.count("\n"), f"positions 0 to {BASES[2]} are deleted" in output) == (1, True)


def test_topic_of_which_retention_left_nothing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", JOURNAL)
    for base in BASES:
        (a / segment_name(base)).unlink()
    (a / segment_name(JOURNAL.end)).touch()
    grow(a, JOURNAL, journal_start=JOURNAL.end, bases=(JOURNAL.end,))
    reader = stream(a, topic="orders", failOnDataLoss="false")
    assert values(reader, {"position": 0}, {"position": JOURNAL.end}) == []
    assert (
        f"no topic 'orders' in this journal from position {JOURNAL.end}" in capsys.readouterr().err
    )


def test_same_start_by_another_option_is_accepted(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    first = stream(a)
    end = next_end(first, first.initialOffset())
    again = stream(a, startingPosition="0")
    assert values(again, stored(again.initialOffset()), end) == list(range(200))


def test_offset_of_an_earlier_version_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", JOURNAL)
    reader, end = stream(a), {"position": JOURNAL.end}
    assert values(reader, stored(reader.initialOffset()), end) == list(range(200))
    assert "did not store where it begins" in capsys.readouterr().err
    at = {"position": DATA[100].position}
    assert values(reader, at, next_end(reader, at)) == list(range(100, 200))
    assert capsys.readouterr().err == ""


def test_changed_start_after_first_commit_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write(tmp_path / "a", JOURNAL, commit_end=DATA[100].position)
    first = stream(a)
    end = next_end(first, first.initialOffset())
    grow(a, JOURNAL)
    again = stream(a, startingPosition="latest")
    for _ in range(2):
        assert values(again, end, next_end(again, end)) == list(range(100, 200))
    output = capsys.readouterr().err
    assert output.count("startingPosition is 'latest' and was 'earliest'") == 1
    assert f"goes on at position {end['position']}" in output


def test_nothing_new_leaves_the_offset_as_it_is(tmp_path: Path) -> None:
    a = write(tmp_path / "a", JOURNAL)
    reader = stream(a, startingPosition="latest")
    start = stored(reader.initialOffset())
    assert next_end(reader, start) == start
    later = stream(a, startingPosition="earliest", queues="0")
    assert next_end(later, start) == start


# ---- options that select records
def two_topics() -> JournalWriter:
    """`late` starts behind half of `orders`, within the same segment."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 2)
    for number in range(10):
        writer.data(7, number % 2, [b"%d" % number])
    writer.topic(8, "late", 1)
    for number in range(10, 20):
        writer.data(8, 0, [b"%d" % number])
        writer.data(7, number % 2, [b"%d" % (number + 100)])
    for _ in range(2):
        writer.roll()
        writer.data(7, 0, [b"7"])
    return writer


TWO = two_topics()
LATE = [h for h in TWO.headers if h.type == BatchType.DATA and h.topic_id == 8]


def stopped_at(path: Path, position: int, **options: str) -> Offset:
    """Return the end of the only micro-batch of a stream, which is committed."""
    grow(path, TWO, commit_end=position)
    reader = stream(path, **options)
    end = next_end(reader, reader.initialOffset())
    assert end["position"] == position
    grow(path, TWO)
    return end


@pytest.mark.parametrize("topic", [{"topic": "late,orders"}, {"topic": "late"}, {}])
def test_added_topic_with_earlier_records_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: dict[str, str]
) -> None:
    a = write(tmp_path / "a", TWO)
    start = stopped_at(a, LATE[5].position, topic="orders")
    reader = stream(a, **topic)
    with pytest.raises(InvalidArgument, match=r"changed options \(topic\) select records below"):
        reader.partitions(start, next_end(reader, start))
    go_on = stream(a, failOnDataLoss="false", **topic)
    end = next_end(go_on, start)
    assert 15 in values(go_on, start, end)
    assert "changed options (topic) select records below" in capsys.readouterr().err
    reader.partitions(end, end)


@pytest.mark.parametrize("topic", [{"topic": "late,orders"}, {}])
def test_added_topic_that_is_new_is_read(tmp_path: Path, topic: dict[str, str]) -> None:
    a = write(tmp_path / "a", TWO)
    start = stopped_at(a, LATE[0].position, topic="orders")
    reader = stream(a, **topic)
    assert set(range(10, 20)) < set(values(reader, start, next_end(reader, start)))


def test_added_queue_and_wider_range_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a", TWO)
    for before, now, option in (
        ({"queues": "0"}, {"queues": "0-1"}, "queues"),
        ({"queues": "0"}, {}, "queues"),
        ({"toOffset": "3"}, {"toOffset": "30"}, "offset"),
        ({"toTime": "1700000009000"}, {}, "time"),
    ):
        start = stopped_at(a, LATE[5].position, **before)
        reader = stream(a, **now)
        with pytest.raises(InvalidArgument, match=rf"changed options \({option}\) select records"):
            reader.partitions(start, next_end(reader, start))


def test_fewer_records_are_no_loss(tmp_path: Path) -> None:
    a = write(tmp_path / "a", TWO)
    start = stopped_at(a, LATE[5].position)
    reader = stream(a, topic="late")
    assert values(reader, start, next_end(reader, start)) == list(range(15, 20))


def test_unreadable_earlier_records_are_not_taken_for_none(tmp_path: Path) -> None:
    a = write(tmp_path / "a", TWO)
    start = stopped_at(a, TWO.headers[-1].position, topic="orders")
    (a / segment_name(sorted(TWO.segments)[0])).unlink()
    reader = stream(a, topic="orders,late")
    with pytest.raises(InvalidArgument, match="records that cannot be looked for"):
        reader.partitions(start, next_end(reader, start))


@pytest.mark.parametrize(("before", "now"), [("orders,late", "orders"), ("orders", "late,orders")])
@pytest.mark.parametrize("committed", [False, True])
def test_planned_batch_is_not_read_with_other_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, now: str, committed: bool
) -> None:
    """A later batch, or the first one, which Spark stored and did not commit."""
    a = write(tmp_path / "a", TWO, commit_end=LATE[0].position)
    planned = stream(a, topic=before)
    start = stored(planned.initialOffset())
    if committed:
        start = next_end(planned, start)
    grow(a, TWO)
    end = next_end(planned, start)
    again = stream(a, topic=now)
    start = start if committed else stored(again.initialOffset())
    with pytest.raises(InvalidArgument, match=r"planned with other options \(topic\) and is not"):
        again.partitions(start, end)
    back = stream(a, topic=",".join(reversed(before.split(","))))
    assert values(back, start, end)
    assert "planned with" not in capsys.readouterr().err
    go_on = stream(a, topic=now, failOnDataLoss="false")
    assert (15 in values(go_on, start, end)) == ("late" in now)
    assert "it is read with the new ones (failOnDataLoss is false)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "now", "wider"),
    [
        ({}, {"topic": ["a"], "queues": [1], "offset": [1, 2]}, ()),
        ({"topic": ["a"]}, {"topic": ["a"]}, ()),
        ({"topic": ["a", "b"]}, {"topic": ["b"]}, ()),
        ({"topic": ["a"]}, {"topic": ["b"]}, ("topic",)),
        ({"topic": ["a"]}, {}, ("topic",)),
        ({"queues": [0]}, {"queues": [0, 1]}, ("queues",)),
        ({"offset": [5, 9]}, {"offset": [6, 8]}, ()),
        ({"offset": [5, 9]}, {"offset": [5, 10]}, ("offset",)),
        ({"time": [5, 9]}, {"time": [4, 9]}, ("time",)),
        ({"time": [5, 9], "topic": ["a"]}, {}, ("topic", "time")),
    ],
)
def test_options_that_select_more(before: Offset, now: Offset, wider: tuple[str, ...]) -> None:
    assert widened(before, now) == wider


# ---- Spark itself
def test_spark_restarts_a_first_batch_at_its_start(tmp_path: Path) -> None:
    """The sink fails in the first micro-batch, so Spark has stored its end and not its start."""
    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    a = write(tmp_path / "a", JOURNAL, commit_end=DATA[20].position)
    with open_session(1) as spark:
        register(spark)

        def run(name: str, sink: Any, **options: str) -> None:
            frame = spark.readStream.format("fmq").options(**options).load(str(a))
            writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()

        def fail(_: Any, __: int) -> None:
            raise RuntimeError("the sink is away")

        for name, option, other, first in (
            ("one", "earliest", "latest", 0),
            ("two", str(DATA[5].position), "earliest", 5),
        ):
            with pytest.raises(Exception, match="the sink is away"):
                run(name, fail, startingPosition=option)
            grow(a, JOURNAL)
            with pytest.raises(Exception, match="startingPosition was"):
                run(name, fail, startingPosition=other)
            rows: list[int] = []

            def keep(frame: Any, _: int, rows: list[int] = rows) -> None:
                rows += [int(row.value) for row in frame.select("value").collect()]

            run(name, keep, startingPosition=option)
            assert sorted(rows) == list(range(first, 200))
            run(name, keep, startingPosition=other)
            assert len(rows) == 200 - first
