"""The source in Spark itself: one session for all tests, streams killed in their own processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.control import encode_topic
from fmqcore.batch.header import BatchType
from fmqcore.ids import TopicId
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT
from fmqcore.scan.selection import Range, Wanted
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.source.survey import Survey
from fmqspark.tests.kit import data_batch, flip, journal, snap_crc, write

pytestmark = pytest.mark.spark
Row = tuple[int, int, bytes]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    with open_session(2) as session:
        register(session)
        yield session


def truth() -> list[Row]:
    from fmqspark.tests.test_source import records_of

    return sorted(
        (header.queue_id, header.base_offset + i, value)
        for header in journal().headers
        if header.type == BatchType.DATA
        for i, value in enumerate(records_of(journal(), header).values)
    )


def rows(frame: Any) -> list[Row]:
    found = frame.select("queue", "offset", "value").collect()
    return sorted((r.queue, r.offset, bytes(r.value)) for r in found)


def test_all_records_and_all_columns(spark: Any, tmp_path: Path) -> None:
    from fmqspark.spark.source import _TYPES

    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    flip(a, data_batch(100).position + 100)
    frame = spark.read.format("fmq").option("splitBytes", "64k").load([str(a), str(b)])
    assert rows(frame) == truth()
    assert frame.columns == list(_TYPES)
    one = frame.where("queue = 2 and offset = 4").collect()[0]
    assert (one.topic, one.producer, one.epoch, one.headers) == ("orders", 11, 1, None)


def test_one_dataframe_serves_many_queries(spark: Any, tmp_path: Path) -> None:
    """Records that one query's filter leaves out are there for the next query, and for its
    neighbour.
    """
    a, there = write(tmp_path / "a"), Counter(row[0] for row in truth())
    frame = spark.read.format("fmq").option("columns", "queue,offset").load(str(a))
    one, two = (frame.where(f"queue = {queue}") for queue in sorted(there)[:2])
    counts = [frame.count(), one.count(), frame.count(), two.count(), one.union(two).count()]
    first, second = (there[queue] for queue in sorted(there)[:2])
    assert counts == [there.total(), first, there.total(), second, first + second]
    frame.createOrReplaceTempView("orders")
    (both,) = spark.sql(
        f"select (select count(*) from orders where queue = {min(there)}) some, "
        "(select count(*) from orders) every"
    ).collect()
    assert (both.some, both.every) == (first, there.total())


def test_filters_decide_what_is_read(spark: Any, tmp_path: Path) -> None:
    """With push-down the damaged batch is never read; without, it is."""
    a = write(tmp_path / "a")
    victim = data_batch(100)
    flip(a, victim.position + 100)

    def found() -> list[Row]:
        frame = spark.read.format("fmq").option("filters", "once").load(str(a))
        frame = frame.where(f"queue = {victim.queue_id} and offset >= {victim.end_offset}")
        return rows(
            frame.where(f"store_time > timestamp_millis({victim.store_ms}) and topic = 'orders'")
        )

    good = [r for r in truth() if r[0] == victim.queue_id and r[1] >= victim.end_offset]
    assert found() == good
    spark.conf.set(PUSHDOWN, "false")
    try:
        with pytest.raises(Exception, match="damaged at position"):
            found()
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_a_filter_never_leaves_out_what_passes_it() -> None:
    from datetime import UTC, datetime

    from pyspark.sql import datasource as ds

    from fmqspark.spark.source import narrowed

    found = Survey(names={TopicId(7): "orders", TopicId(8): "orders", TopicId(9): "bills"})
    t = datetime.fromtimestamp(5, UTC)
    part = t.replace(microsecond=500)
    cases = [
        (ds.EqualTo(("queue",), 3), Wanted(queues=frozenset({3}))),
        (ds.In(("queue",), (1, None)), Wanted(queues=frozenset({1}))),
        (ds.EqualTo(("topic",), "orders"), Wanted(topics=frozenset({TopicId(7), TopicId(8)}))),
        (ds.EqualTo(("topic",), "short"), Wanted()),
        (ds.EqualTo(("offset",), 5), Wanted(offsets=Range(5, 6))),
        (ds.In(("offset",), (5, 9)), Wanted(offsets=Range(5, 10))),
        (ds.GreaterThan(("offset",), 5), Wanted(offsets=Range(6))),
        (ds.GreaterThanOrEqual(("offset",), 5), Wanted(offsets=Range(5))),
        (ds.LessThan(("position",), 5), Wanted(positions=Range(end=5))),
        (ds.LessThanOrEqual(("position",), 5), Wanted(positions=Range(end=6))),
        (ds.GreaterThan(("store_time",), t), Wanted(store_ms=Range(5001))),
        (ds.GreaterThan(("store_time",), part), Wanted(store_ms=Range(5001))),
        (ds.GreaterThanOrEqual(("store_time",), t), Wanted(store_ms=Range(5000))),
        (ds.LessThan(("store_time",), t), Wanted(store_ms=Range(end=5000))),
        (ds.LessThan(("store_time",), part), Wanted(store_ms=Range(end=5001))),
        (ds.LessThanOrEqual(("store_time",), part), Wanted(store_ms=Range(end=5001))),
        (ds.LessThanOrEqual(("store_time",), t), Wanted(store_ms=Range(end=5001))),
        (ds.Not(ds.EqualTo(("queue",), 3)), Wanted()),
        (ds.GreaterThan(("queue",), 3), Wanted()),
        (ds.IsNotNull(("queue",)), Wanted()),
        (ds.EqualTo(("epoch",), 3), Wanted()),
        (ds.In(("topic",), ("bills", "short")), Wanted()),
        (ds.In(("topic",), ("bills",)), Wanted(topics=frozenset({TopicId(9)}))),
    ]
    for one, wanted in cases:
        assert narrowed(Wanted(), one, found) == wanted, one
    both = narrowed(Wanted(offsets=Range(7, 9), queues=frozenset({1})), cases[4][0], found)
    assert both.nothing


def test_only_the_columns_that_are_asked_for(spark: Any, tmp_path: Path) -> None:
    """Payloads are not read at all where no column needs them: their damage is not seen."""
    a = write(tmp_path / "a")
    flip(a, data_batch(100).position + 100)
    frame = spark.read.format("fmq").schema("offset long, queue int").load(str(a))
    assert frame.columns == ["offset", "queue"]
    assert frame.count() == len(truth())
    with pytest.raises(Exception, match="column offset is bigint, not string"):
        spark.read.format("fmq").schema("offset string").load(str(a)).count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "order"}, "no topic 'order' in this journal; its topics: orders"),
        ({"columns": "body"}, "unknown column 'body'"),
        ({"queue": "1"}, "unknown option queue"),
        ({"path": "/nowhere"}, "/nowhere is not a directory: name a broker's data directory"),
    ],
)
def test_invalid_options_are_refused(
    spark: Any, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    path = options.pop("path", str(write(tmp_path / "a")))
    with pytest.raises(Exception, match=message):
        spark.read.format("fmq").options(**options).load(path).count()


def test_fields_of_messages_are_columns(spark: Any, tmp_path: Path) -> None:
    """As Spark's own from_json gives them; bad messages are counted, none fails the query."""
    values = [b'{"n":%d,"offset":"o%d","d":%d.5}' % (i, i, i) for i in range(500)]
    values[7], values[8], values[9] = b"no json", b'{"n":"8","offset":8}', b"{}"
    writer = JournalWriter()
    writer.append(BatchType.CONFIG, encode_topic(TopicId(7), "orders", 1), topic_id=7)
    for at in range(0, 500, 50):
        writer.data(7, 0, values[at : at + 50])
    frame = spark.read.format("fmq").option("jsonPrefix", "m_")
    frame = frame.option("json", "n LONG, offset STRING, d DOUBLE, _corrupt_record STRING")
    frame = frame.load(str(write(tmp_path / "a", writer)))
    assert frame.columns[-5:] == ["position", "m_n", "m_offset", "m_d", "_corrupt_record"]
    ddl = "n LONG, offset STRING, d DOUBLE, _corrupt_record STRING"
    theirs = frame.selectExpr(f"from_json(cast(value as string), '{ddl}') as t", "*")
    fields = [("m_n", "n"), ("m_offset", "offset"), ("m_d", "d")]
    fields += [("_corrupt_record", "_corrupt_record")]
    same = " and ".join(f"{ours} <=> t.{name}" for ours, name in fields)
    assert theirs.where(same).count() == 500
    bad = frame.where("_corrupt_record is not null").orderBy("offset").collect()
    assert [(row.offset, row.m_offset, bytes(row.value)) for row in bad] == [
        (7, None, values[7]),
        (8, "8", values[8]),
    ]
    few = spark.read.format("fmq").option("json", "n LONG, d DOUBLE").schema("d double")
    few = few.load(str(tmp_path / "a"))
    assert few.selectExpr("sum(d)").collect()[0][0] == sum(i + 0.5 for i in range(500)) - 25.5
    other = spark.read.format("fmq").option("json", "d DOUBLE").schema("d int")
    with pytest.raises(Exception, match="column d is double, not int"):
        other.load(str(tmp_path / "a")).count()


STREAM = """
import sys
from pathlib import Path
from fmqspark.spark.session import open_session
from fmqspark.tests.test_spark_source import run_stream
with open_session(1) as spark:
    run_stream(spark, Path(sys.argv[1]), Path(sys.argv[2]))
"""


def run_stream(spark: Any, data: Path, out: Path) -> None:
    """Read everything, in micro-batches, into files."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    frame = spark.readStream.format("fmq").option("maxBytesPerTrigger", "150k").load(str(data))
    writer = frame.writeStream.format("parquet").option("path", str(out / "rows"))
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.timeout(900)
def test_stream_killed_in_mid_batch_writes_each_record_once(spark: Any, tmp_path: Path) -> None:
    """The journal grows meanwhile: its checkpoint advances."""
    data, out = tmp_path / "data", tmp_path / "out"
    ends = [h.end for h in journal().headers if h.type == BatchType.DATA]
    write(data, commit_end=ends[200])
    script = tmp_path / "stream.py"
    script.write_text(STREAM)
    planned, committed = out / "checkpoint" / "offsets", out / "checkpoint" / "commits"
    child = subprocess.Popen(
        [sys.executable, script, data, out],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | _here(tmp_path),
    )
    try:
        while child.poll() is None and _newest(planned) < 1:
            time.sleep(0.01)
        assert child.poll() is None, "it was to be killed in mid-stream"
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    assert _newest(committed) < 2 < journal().end // (150 * 1024)
    (data / CHECKPOINT).write_bytes(encode_checkpoint(journal().checkpoint()))
    for _ in range(2):
        run_stream(spark, data, out)
        assert rows(spark.read.parquet(str(out / "rows"))) == truth()
    stored = (planned / str(_newest(planned))).read_text().splitlines()[-1]
    last = max(journal().segments)
    marks = [[last, snap_crc(journal(), last)]]
    assert json.loads(stored) == {
        "position": journal().end,
        "marks": marks,
        "starting": {"option": "earliest", "position": 0},
        "selection": {},
    }


def _here(folder: Path) -> dict[str, str]:
    """The files of a killed Spark are removed with the test."""
    return {"TMPDIR": str(folder), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder}"}


def _newest(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=-1)


def test_stream_that_cannot_continue_reports_why(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from fmqspark.source.options import understand
    from fmqspark.spark.stream import FmqStreamReader

    a = write(tmp_path / "a", journal_start=sorted(journal().segments)[3])
    reader = FmqStreamReader(understand({"path": str(a)}), ("value",))
    end = reader.latestOffset({"position": 0}, ReadAllAvailable())
    assert end["position"] == journal().end
    with pytest.raises(Exception, match="retention has deleted"):
        reader.partitions({"position": 0}, end)
    go_on = FmqStreamReader(understand({"path": str(a), "failOnDataLoss": "false"}), ("value",))
    (part,) = go_on.partitions({"position": 0}, end)
    assert len(part.task) == len(journal().segments) - 3
    with pytest.raises(Exception, match="another journal, or a replica that is behind"):
        reader.latestOffset({"position": 10**9}, ReadAllAvailable())
