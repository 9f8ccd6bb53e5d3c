"""Only what no replica can give is left out of an archive: batches around damage are archived."""

import itertools
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.header import Attrs, BatchHeader, BatchType
from fmqcore.ids import Position
from fmqcore.journal.segments import MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.archive import ledger
from fmqspark.archive.ledger import Hole, Unit
from fmqspark.engines.engines import open_engine
from fmqspark.tests.kit import flip, lose, write
from fmqspark.tests.test_archive import Row, archive, everything, killed, small, truth
from fmqspark.tests.test_archive_absent_replica import BASES, full
from fmqspark.tests.test_archive_gaps import UNITS, _ends, holes, replayed_all

pytestmark = pytest.mark.spark


def batches(base: int = BASES[1]) -> list[BatchHeader]:
    """Return the batches with records in one segment."""
    end = base + MIN_SEGMENT
    return [h for h in small().headers if base < h.position < end and h.type == BatchType.DATA]


def without(*units: tuple[int, int]) -> list[Row]:
    rows = truth(small())
    for begin, end in units:
        before = truth(small(), begin)
        for row in truth(small(), end):
            if row not in before and row in rows:
                rows.remove(row)
    return rows


def unit(header: BatchHeader) -> Unit:
    return Unit(header.position, header.end)


def payload(directory: Path, header: BatchHeader) -> None:
    flip(directory, header.position + 200)


def failed(outcome: Any) -> list[Unit]:
    return [result.unit for result in outcome.failed]


@pytest.mark.parametrize("number", [0, 2, -1])
def test_one_damaged_batch_is_left_out_alone(tmp_path: Path, number: int) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches()[number]
    payload(a, bad)
    for _ in range(2):
        outcome = archive(out, a)
        assert (outcome.exit_code, failed(outcome)) == (2, [unit(bad)])
        assert f"damaged at position {bad.position}" in str(outcome.failed[0].failed)
        assert everything(out) == without(unit(bad))
        assert holes(out) == [Hole(*unit(bad), lost=False)]
    outcome = archive(out, a, full(tmp_path / "b"))
    assert (outcome.exit_code, outcome.units, holes(out)) == (0, 1, [])
    assert everything(out) == truth(small())
    assert archive(out, a).units == 0


@pytest.mark.parametrize("engine", ["local", "pool"])
def test_damage_where_only_the_damaged_replica_has_data(tmp_path: Path, engine: str) -> None:
    before, split, bad, *_ = batches()
    a, b = full(tmp_path / "a", split.end), full(tmp_path / "b")
    payload(b, before)
    payload(b, bad)
    with open_engine(engine, 2) as running:
        outcome = archive(tmp_path / "out", a, b, engine=running)
    assert failed(outcome) == [unit(bad)]
    assert everything(tmp_path / "out") == without(unit(bad))


def test_only_ranges_damaged_on_every_replica_are_left_out(tmp_path: Path) -> None:
    a, b, out = full(tmp_path / "a"), full(tmp_path / "b"), tmp_path / "out"
    first, second, third, fourth, *_ = batches()
    for directory, header in [(a, first), (a, third), (a, fourth), (b, second), (b, third)]:
        payload(directory, header)
    flip(b, fourth.position + 20)
    outcome = archive(out, a, b)
    assert failed(outcome) == [Unit(third.position, fourth.end)]
    assert everything(out) == without(unit(third), unit(fourth))


@pytest.mark.parametrize("indexed", [True, False])
def test_behind_a_damaged_header_an_index_leads_on(tmp_path: Path, *, indexed: bool) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad, behind, last = batches()[1], batches()[2], batches()[-1]
    flip(a, bad.position + 20)
    payload(a, last)
    if not indexed:
        (a / index_name(Position(BASES[1]))).unlink()
    outcome = archive(out, a)
    left = [unit(bad), unit(last)] if indexed else [Unit(bad.position, BASES[2])]
    assert behind.position == bad.end
    assert failed(outcome) == left
    assert everything(out) == without(*left)
    assert archive(out, a).exit_code == 2
    assert everything(out) == without(*left)
    assert archive(out, full(a)).exit_code == 0
    assert everything(out) == truth(small())


def test_in_the_newest_segment(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches(BASES[3])[0]
    payload(a, bad)
    assert failed(archive(out, a)) == [unit(bad)]
    assert everything(out) == without(unit(bad))


def test_unreadable_disk_range_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches()[1]
    at = bad.position - BASES[1] + 300
    with monkeypatch.context() as patched:
        lose(patched, a / segment_name(Position(BASES[1])), (at, at + 512))
        outcome = archive(out, a)
    assert (outcome.exit_code, failed(outcome)) == (3, [unit(bad)])
    assert everything(out) == without(unit(bad))
    assert archive(out, a).exit_code == 0
    assert everything(out) == truth(small())


def test_a_full_disk_of_the_archive_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    a, out = full(tmp_path / "a"), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "write_table", full_disk)
        assert failed(archive(out, a)) == UNITS
    found = ledger.load(out, "journal")
    assert found is not None
    assert found.planned == UNITS


def test_columns_that_do_not_decode_under_a_right_crc(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(7, "orders", 1)
    good = [b"good", b"values"]
    writer.data(7, 0, good)
    columns = struct.pack("<3I4x", 0, 9, 3) + b"values"
    shape = {"attrs": Attrs(0), "topic_id": 7, "record_count": 2, "base_offset": 2}
    bad = writer.append(BatchType.DATA, columns, **shape)
    writer.data(7, 0, good)
    writer.roll()
    out = tmp_path / "out"
    outcome = archive(out, write(tmp_path / "a", writer))
    assert failed(outcome) == [unit(bad)]
    assert [(row[3], row[-1]) for row in everything(out)] == [
        (0, b"good"), (1, b"values"), (4, b"good"), (5, b"values"),
    ]  # fmt: skip


def test_very_many_damaged_places_are_left_for_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fmqspark.archive import skip_damage as around  # needs pyarrow, like everything here

    monkeypatch.setattr(around, "MOST", 1)
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches()[1::2]
    assert len(bad) == 3
    for header in bad:
        payload(a, header)
    outcome = archive(out, a)
    assert failed(outcome) == [unit(bad[0]), Unit(bad[1].position, BASES[2])]
    assert "so the next run goes on" in str(outcome.failed[1].failed)
    assert len(failed(archive(out, a))) == 3
    assert failed(archive(out, a)) == [unit(header) for header in bad]
    assert everything(out) == without(*map(unit, bad))


def plan_of_an_earlier_version(out: Path, a: Path) -> None:
    """All segments are planned, the first is done; a killed run has left files of the second."""
    archive(out, a)
    path = ledger.ledger_path(out, "journal")
    lines = path.read_text().splitlines()
    done = [line for line in lines if "done" in json.loads(line)]
    path.write_text("".join(f"{line}\n" for line in lines if line not in done[1:]))
    for each in UNITS[2:]:
        for file in out.glob(f"topic=*/date=*/{ledger.file_name('journal', each)}"):
            file.unlink()


def test_archive_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    plan_of_an_earlier_version(out, a)
    bad = batches()[1]
    payload(a, bad)
    assert failed(archive(out, a)) == [unit(bad)]
    assert everything(out) == without(unit(bad))
    assert archive(out, full(a)).exit_code == 0
    assert everything(out) == truth(small())


def test_killed_at_every_stage_nothing_comes_twice(tmp_path: Path) -> None:
    a, b, plain = full(tmp_path / "a"), full(tmp_path / "b"), tmp_path / "plain"
    plan_of_an_earlier_version(plain, a)
    bad = batches()[1]
    payload(a, bad)
    for step in itertools.count(0, 3):
        out = tmp_path / f"out-{step}"
        shutil.copytree(plain, out)
        if not _ends(step, out, a):
            break
        _ends(step // 2, out, a)
        assert archive(out, a).exit_code == 2
        assert everything(out) == without(unit(bad)), step
        killed(step // 2, out, a, b)
        assert archive(out, a, b).exit_code == 0
        assert everything(out) == truth(small()), step
        shutil.rmtree(out)
    assert step > 20


def test_split_unit_deleted_by_retention_is_lost(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches(BASES[0])[1]
    payload(a, bad)
    archive(out, a)
    write(a, small(), journal_start=BASES[1], bases=tuple(BASES[1:]))
    (a / segment_name(Position(BASES[0]))).unlink()
    outcome = archive(out, a)
    assert (outcome.exit_code, outcome.lost) == (3, [unit(bad)])
    assert holes(out) == [Hole(*unit(bad), lost=True)]
    assert everything(out) == without(unit(bad))
    assert archive(out, a).exit_code == 0


def test_replay_stops_before_damage_and_continues_later(tmp_path: Path) -> None:
    a, out = full(tmp_path / "a"), tmp_path / "out"
    bad = batches()[1]
    payload(a, bad)
    archive(out, a)
    first = replayed_all(out)
    orders = sorted((row[3], row[-1]) for row in truth(small(), bad.position) if row[0] == "orders")
    assert first == orders
    archive(out, full(a))
    everywhere = sorted((row[3], row[-1]) for row in truth(small()) if row[0] == "orders")
    assert sorted(first + replayed_all(out)) == everywhere
