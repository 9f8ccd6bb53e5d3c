"""Archive: all committed records, once, whatever dies when; and reading the archive back."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.columns import decode, encode_headers
from fmqcore.batch.header import BatchType
from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqcore.ids import Position, TopicId
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.archive import ledger
from fmqspark.engines.engines import LocalEngine, open_engine
from fmqspark.tests.kit import flip, write

pytestmark = pytest.mark.spark
DAY_MS = 86_400_000
Row = tuple[str, str, int, int, bytes]


def small(batches: int = 24, master: str = "g1-0") -> JournalWriter:
    """Return a journal of two topics over two days in four segments."""
    writer = JournalWriter()
    writer.open_epoch(1, master)
    writer.topic(7, "orders", 2)
    writer.topic(8, "bills", 1)
    for n in range(batches):
        if n == batches // 2:
            writer.now_ms += DAY_MS
        writer.data(7 + n % 2, 0, [b"%d-%d" % (n, i) + b"x" * 3000 for i in range(3)])
    return writer


def other_journal(path: Path) -> Path:
    """Write the same records as another group's journal: its broker has another name."""
    return write(path, small(master="g2-0"))


def truth(writer: JournalWriter, until: int = 2**62) -> list[Row]:
    names = {7: "orders", 8: "bills"}
    rows = []
    for header in writer.headers:
        if header.type == BatchType.DATA and header.end <= until:
            base = Position(header.position // MIN_SEGMENT * MIN_SEGMENT)
            at = header.position - base + 96
            payload = bytes(writer.segments[base][at : at + header.payload_len])
            day = "2023-11-14" if header.store_ms < 1_700_006_400_000 else "2023-11-15"
            values = decode(header.attrs, header.record_count, payload).values
            rows += [
                (names[header.topic_id], day, header.queue_id, header.base_offset + i, value)
                for i, value in enumerate(values)
            ]
    return sorted(rows)


def archive(out: Path, *directories: Path, **options: Any) -> Any:
    from fmqspark.archive.job import ArchiveOptions, run_archive

    engine = options.pop("engine", LocalEngine())
    paths = tuple(str(directory) for directory in directories)
    return run_archive(ArchiveOptions(paths, out, **options), engine)


def everything(out: Path) -> list[Row]:
    """Read with another reader: every file there is, not only those in the ledger."""
    import pyarrow.dataset as ds

    columns = ["topic", "date", "queue", "offset", "value"]
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=columns)
    return sorted(
        (str(r["topic"]), str(r["date"]), r["queue"], r["offset"], r["value"])
        for r in table.to_pylist()
    )


def test_topics_become_parquet_by_topic_and_date(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    outcome = archive(out, a, group="g1")
    assert (outcome.exit_code, outcome.rows, outcome.units) == (0, 72, 4)
    assert everything(out) == truth(small())
    places = {str(p.parent.relative_to(out)) for p in out.glob("topic=*/date=*/*")}
    assert places == {f"topic={t}/date=2023-11-{d}" for t in ("orders", "bills") for d in (14, 15)}
    again = archive(out, a, group="g1")
    assert (again.exit_code, again.rows, again.units) == (0, 0, 0)
    assert everything(out) == truth(small())


@pytest.mark.parametrize("engine", ["pool", "spark"])
def test_other_engines_make_the_same_files(tmp_path: Path, engine: str) -> None:
    a = write(tmp_path / "a", small())
    archive(tmp_path / "here", a)
    with open_engine(engine, 2) as running:
        archive(tmp_path / "there", a, engine=running)
    files = [sorted((tmp_path / w).glob("topic=*/date=*/*")) for w in ("here", "there")]
    here, there = ([(p.name, p.read_bytes()) for p in each] for each in files)
    assert here == there


def test_later_records_are_added_to_the_archive(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    ends = [h.end for h in small().headers if h.type == BatchType.DATA]
    for end in (ends[2], ends[3], ends[15], ends[-1]):
        write(a, small(), commit_end=end)
        assert archive(out, a).exit_code == 0
        assert everything(out) == truth(small(), end)


class Steps:
    """Ends the process, as a kill would, at the disk operation of that number."""

    def __init__(self, at: int) -> None:
        self._left = at

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self._tick()
            answer = real(*arguments, **named)
            self._tick()
            return answer

        return step

    def _tick(self) -> None:
        if self._left == 0:
            os._exit(9)
        self._left -= 1


def killed(step: int, out: Path, *directories: Path) -> bool:
    """Archive in a process that dies at a step; False: it finished."""
    from pyarrow import parquet as pq

    from fmqspark.archive import write as writing

    child = os.fork()
    if child == 0:
        code = 1
        try:
            steps = Steps(step)
            ledger.append = steps.wrap(ledger.append)
            writing.put = steps.wrap(writing.put)
            pq.ParquetWriter = steps.wrap(pq.ParquetWriter)
            vars(shutil)["rmtree"] = steps.wrap(shutil.rmtree)
            code = archive(out, *directories).exit_code
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 9


def test_killed_at_every_stage_nothing_is_lost_or_comes_twice(tmp_path: Path) -> None:
    a = tmp_path / "a"
    ends = [h.end for h in small().headers if h.type == BatchType.DATA]
    for step in itertools.count():
        out = tmp_path / f"out-{step}"
        write(a, small(), commit_end=ends[13])
        if not killed(step, out, a):
            break
        write(a, small())  # it has grown
        killed(step // 2, out, a)
        assert archive(out, a).exit_code == 0
        assert everything(out) == truth(small()), step
        assert not list((out / ledger.FOLDER).glob("tmp-*"))
        named = {f.path for f in ledger.load(out, "journal").files()}  # type: ignore[union-attr]
        assert named == {str(p.relative_to(out)) for p in out.glob("topic=*/date=*/*")}
        shutil.rmtree(out)
    assert step > 30


def test_range_lost_to_retention_is_reported_and_not_half_kept(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    assert killed(9, out, a)
    kept = sorted(small().segments)[2]
    for base in small().segments:
        if base < kept:
            (a / segment_name(base)).unlink()
    (a / CHECKPOINT).write_bytes(encode_checkpoint(small().checkpoint(journal_start=kept)))
    done = {unit.end for unit in ledger.load(out, "journal").done}  # type: ignore[union-attr]
    outcome = archive(out, a)
    assert outcome.exit_code == 3
    assert outcome.lost
    archived = {row for row in truth(small()) if row not in truth(small(), kept)}
    archived |= {row for end in done for row in truth(small(), end)}
    assert everything(out) == sorted(archived)
    assert archive(out, a).exit_code == 0


def test_damage_is_left_out_until_a_replica_has_it(tmp_path: Path) -> None:
    a, b, out = write(tmp_path / "a", small()), write(tmp_path / "b", small()), tmp_path / "out"
    victim = next(h for h in small().headers if h.position > MIN_SEGMENT and h.type == 1)
    flip(a, victim.position + 100)
    outcome = archive(out, a)
    assert outcome.exit_code == 2
    assert f"damaged at position {victim.position}" in str(outcome.failed[0].failed)
    before = truth(small(), victim.position)
    behind = [row for row in truth(small()) if row not in truth(small(), victim.end)]
    assert everything(out) == sorted(before + behind)
    assert archive(out, a, b).exit_code == 0
    assert everything(out) == truth(small())


def test_only_some_topics(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a, topics=("bills",))
    assert everything(out) == [row for row in truth(small()) if row[0] == "bills"]
    with pytest.raises(InvalidArgument, match="holds bills of 'journal'"):
        archive(out, a)
    with pytest.raises(InvalidArgument, match="no topic 'nope'"):
        archive(tmp_path / "other", a, topics=("nope",))
    assert not (tmp_path / "other").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidArgument, match="no topic 'nope'"):
        archive(tmp_path / "other", a, topics=("nope",))
    with pytest.raises(InvalidArgument, match="no topic 'nope'"):
        archive(out, a, topics=("nope",), group="g2")


def test_another_journal_is_not_mixed_in(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    archive(out, a)
    other = JournalWriter()
    other.now_ms += 5
    other._begin()
    b = write(tmp_path / "b", small(30))
    raw = bytearray((b / segment_name(Position(0))).read_bytes())
    fresh = JournalWriter()
    fresh.segments.clear()
    fresh.headers.clear()
    fresh.end = Position(0)
    fresh.now_ms += 77
    fresh._begin()
    raw[: len(fresh.segments[Position(0)])] = fresh.segments[Position(0)]
    (b / segment_name(Position(0))).write_bytes(raw)
    with pytest.raises(InvalidArgument, match="holds another journal as 'journal'"):
        archive(out, b)


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", small()), tmp_path / "out"
    with ledger.open_book(out, "journal"), pytest.raises(DirectoryLocked, match="is in use by"):
        archive(out, a)


# ---- back
def replayed(out: Path, name: str = "x", stop: int = 10**9, **options: Any) -> list[Any]:
    from fmqspark.archive.replay import Replay

    found: list[Any] = []
    replay = Replay(out, options.get("topic", "orders"), options.get("group"), name)
    for number, (rows, place) in enumerate(replay.chunks()):
        if number == stop:
            break
        found += rows
        replay.note(place)
    return found


def test_replay_sends_in_order_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fmqspark.archive import replay

    monkeypatch.setattr(replay, "CHUNK", 2)
    a, out = tmp_path / "a", tmp_path / "out"
    ends = [h.end for h in small().headers if h.type == BatchType.DATA]
    write(a, small(), commit_end=ends[11])
    archive(out, a)
    expected = [(o, v) for t, _, _, o, v in truth(small()) if t == "orders"]
    parts = [replayed(out, stop=n) for n in (0, 1, 3, 2)]
    write(a, small())
    archive(out, a)
    parts += [replayed(out), replayed(out)]
    rows = list(itertools.chain(*parts))
    assert [(r.offset, r.value) for r in rows] == expected
    assert rows[0].key == b"k3003"
    assert [len(p) for p in parts[:4]] == [0, 2, 6, 4]
    assert len(replayed(out, name="y")) == len(expected)


def test_two_replays_of_one_name_are_refused(tmp_path: Path) -> None:
    from fmqspark.archive.replay import Replay

    out = tmp_path / "out"
    archive(out, write(tmp_path / "a", small()))
    first, second, other = (Replay(out, "orders", None, name) for name in "xxy")
    with first.at_work():
        with pytest.raises(DirectoryLocked, match="another replay of this name"), second.at_work():
            pass
        with other.at_work():
            first.note(first.place, {"producer": 7})
    with second.at_work():
        assert Replay(out, "orders", None, "x").state == {"producer": 7}


def test_headers_and_tags_come_back(tmp_path: Path) -> None:
    from fmqcore.batch.columns import encode

    writer = JournalWriter()
    writer.topic(7, "orders", 1)
    raw = encode_headers({"a": "1", "b": b"\xff"})
    attrs, payload = encode([b"v", b""], [b"k", b""], [b"t", b""], [raw, b""])
    writer.append(
        BatchType.DATA, payload, attrs=attrs, record_count=2, base_offset=0, topic_id=TopicId(7)
    )
    out = tmp_path / "out"
    archive(out, write(tmp_path / "a", writer))
    first, second = replayed(out)
    assert first[2:] == (b"k", b"v", b"t", {"a": b"1", "b": b"\xff"})
    assert second[2:] == (None, b"", None, None)


def test_replay_of_no_archive_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InvalidArgument, match="is not an archive"):
        replayed(out)
    a = write(tmp_path / "a", small())
    archive(out, a, group="g1")
    with pytest.raises(InvalidArgument, match=r"has no topic 'x'; its topics: bills, orders"):
        replayed(out, topic="x")
    with pytest.raises(InvalidArgument, match=r"no group 'g2': choose one of g1"):
        replayed(out, group="g2")
    archive(out, other_journal(tmp_path / "b"), group="g2")
    with pytest.raises(InvalidArgument, match=r"--group g1 \| g2"):
        replayed(out)
    replayed(out, group="g1")
    path = out / ledger.FOLDER / "replay-x.json"
    noted = json.loads(path.read_text())
    path.write_text(json.dumps(noted | {"of": ["other"]}))
    with pytest.raises(InvalidArgument, match="another --name"):
        replayed(out, group="g1")
