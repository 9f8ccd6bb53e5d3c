"""A replay of an incomplete archive: it skips no hole unasked, and sends nothing twice."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from fmqcli.commands import replay as cli
from fmqspark.archive.ledger import ArchivedFile, Book, Hole, Unit, open_book
from fmqspark.archive.replay import CHUNK, Place, Replay

A, B, C, D = (Unit(n * 100, n * 100 + 100) for n in range(4))
ROWS = 7


def parquet(folder: Path, unit: Unit, group: str = "g") -> ArchivedFile:
    """Write a file of the archive; each record names its unit."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    path = f"topic=t/date=2026-01-31/{group}-{unit.begin}-{unit.end}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    nothing = [None] * ROWS
    table = pa.table(
        {
            "queue": pa.array([0] * ROWS, pa.int32()),
            "offset": pa.array(range(unit.begin, unit.begin + ROWS), pa.int64()),
            "key": pa.array(nothing, pa.binary()),
            "value": pa.array([b"%d" % unit.begin] * ROWS, pa.binary()),
            "tag": pa.array(nothing, pa.binary()),
            "headers": pa.array(nothing, pa.map_(pa.string(), pa.binary())),
        }
    )
    pq.write_table(table, folder / path)
    return ArchivedFile(path, "t", "2026-01-31", ROWS, 70)


def archive(folder: Path, *done: Unit, planned: tuple[Unit, ...] = (A, B, C, D)) -> None:
    """Write a ledger in which an archive job has done these planned units."""
    with open_book(folder, "g") as book:
        if not book.ledger.planned:
            book.begin(None)
            book.plan(list(planned), {0: 5})
        finish(book, folder, *done)


def finish(book: Book, folder: Path, *done: Unit) -> None:
    for unit in done:
        book.finish(unit, [parquet(folder, unit)])


def lose(folder: Path, *units: Unit) -> None:
    with open_book(folder, "g") as book:
        for unit in units:
            book.lose(unit)


def sent(folder: Path, most: int = 99, **options: bool) -> tuple[list[int], Replay]:
    """Return the units whose records a run sends, once per record; until it is killed."""
    replay, units = Replay(folder, "t", None, "x", **options), list[int]()
    with replay.at_work():
        replay.note(replay.place, {"producer": 1})
        for rows, place in replay.chunks():
            if most == 0:
                break
            most -= 1
            units += [row.offset for row in rows]
            replay.note(place, {"producer": 1})
    return units, replay


def of(*units: Unit) -> list[int]:
    return [unit.begin + n for unit in units for n in range(ROWS)]


@pytest.mark.spark
def test_replay_stops_before_a_hole_and_continues_once_filled(tmp_path: Path) -> None:
    archive(tmp_path, D, A)
    units, replay = sent(tmp_path)
    assert units == of(A)
    assert (replay.stop, replay.whole) == (Hole(100, 300, lost=False), False)
    (notice,) = replay.notices()
    assert notice.startswith("stopped at position 100: positions 100 to 300 of g are not archived")
    assert "--skip-missing" in notice
    assert sent(tmp_path)[0] == []
    archive(tmp_path, C)
    assert sent(tmp_path)[0] == []
    archive(tmp_path, B)
    units, replay = sent(tmp_path)
    assert units == of(B, C, D)
    assert (replay.whole, replay.notices()) == (True, [])
    assert sent(tmp_path)[0] == []


@pytest.mark.spark
def test_lost_range_is_skipped_only_on_request(tmp_path: Path) -> None:
    archive(tmp_path, A, D)
    lose(tmp_path, C, B)
    units, replay = sent(tmp_path, skip_missing=True)
    assert (units, replay.stop) == (of(A), Hole(100, 300, lost=True))
    assert "no replica has them; --skip-lost goes on" in replay.notices()[0]
    units, replay = sent(tmp_path, skip_lost=True)
    assert (units, replay.whole) == (of(D), True)
    (notice,) = replay.notices()
    assert notice.startswith("positions 100 to 300 of g were deleted before")
    assert notice.endswith(": left out")


@pytest.mark.spark
def test_skipping_lost_ranges_does_not_skip_missing_ones(tmp_path: Path) -> None:
    archive(tmp_path, A, D)
    lose(tmp_path, B)
    units, replay = sent(tmp_path, skip_lost=True)
    assert (units, replay.stop) == (of(A), Hole(200, 300, lost=False))
    assert [line.split(":")[0] for line in replay.notices()][1] == "stopped at position 200"


@pytest.mark.spark
def test_skipped_range_archived_later_is_sent_once_at_the_end(tmp_path: Path) -> None:
    archive(tmp_path, A, C)
    units, replay = sent(tmp_path, skip_missing=True)
    assert (units, replay.whole) == (of(A, C), False)
    archive(tmp_path, B)
    units, replay = sent(tmp_path)
    assert units == of(B)
    assert replay.notices()[0].startswith("positions 100 to 200 of g come behind later ones")
    archive(tmp_path, D)
    units, replay = sent(tmp_path)
    assert (units, replay.notices()) == (of(D), [])


@pytest.mark.spark
@pytest.mark.parametrize("killed", range(4))
def test_killed_replay_finishes_its_started_unit_first(
    tmp_path: Path, killed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first records of C may be stored and not noted: no other unit has their numbers."""
    monkeypatch.setattr("fmqspark.archive.replay.CHUNK", 4)
    assert CHUNK > ROWS
    archive(tmp_path, A, C)
    before, _ = sent(tmp_path, most=killed, skip_missing=True)
    stopped, _ = sent(tmp_path)
    archive(tmp_path, B, D)
    units, replay = sent(tmp_path)
    everything = before + stopped + units
    assert sorted(everything) == of(A, B, C, D)
    started = killed >= 2  # all of A is noted
    assert everything == (of(A, C, B, D) if started else of(A, B, C, D))
    assert bool(replay.notices()) == started


def old_progress(folder: Path, files: int, rows: int, *units: Unit) -> None:
    """Write progress as the version before did: over all files that there were, holes or not."""
    paths = [f"topic=t/date=2026-01-31/g-{u.begin}-{u.end}.parquet" for u in units]
    noted = {"files": files, "rows": rows, "of": paths, "sender": {"producer": 9}}
    (folder / "_fmq" / "replay-x.json").write_text(json.dumps(noted))


@pytest.mark.spark
def test_progress_of_an_older_version_that_skipped_a_hole(tmp_path: Path) -> None:
    archive(tmp_path, A, C)
    old_progress(tmp_path, 1, ROWS, A, C)
    units, replay = sent(tmp_path)
    assert (units, replay.stop) == ([], Hole(100, 200, lost=False))
    assert replay.done_before == 2 * ROWS
    archive(tmp_path, B, D)
    units, replay = sent(tmp_path)
    assert units == of(B, D)
    assert replay.notices()[0].startswith("positions 100 to 200 of g come behind later ones")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place(0, 0), of(A, B, C, D)),
        (Place(0, 3), of(A, B, C, D)[3:]),
        (Place(0, ROWS), of(C, B, D)),  # C may have been in progress
        (Place(1, 2), [*of(C)[2:], *of(B, D)]),
    ],
)
def test_progress_of_the_version_before(tmp_path: Path, place: Place, expected: list[int]) -> None:
    archive(tmp_path, A, C)
    old_progress(tmp_path, *place, A, C)
    first, replay = sent(tmp_path)
    assert first == (of(A)[place.rows :] if place.files == 0 else [])
    assert replay.state == {"producer": 9}
    archive(tmp_path, B, D)
    if place.files == 0 and place.rows < ROWS:  # it stopped at the hole before C was started
        assert first + sent(tmp_path)[0] == expected
    else:
        assert sent(tmp_path)[0] == expected


@pytest.mark.spark
def test_replay_created_earlier_sees_progress_of_a_later_run(tmp_path: Path) -> None:
    archive(tmp_path, A)
    early = Replay(tmp_path, "t", None, "x")
    archive(tmp_path, B, C)
    assert sent(tmp_path)[0] == of(A, B, C)
    with early.at_work():
        assert (early.done_before, list(early.chunks())) == (3 * ROWS, [])


@pytest.mark.spark
def test_each_of_several_groups_has_its_own_holes(tmp_path: Path) -> None:
    archive(tmp_path, A, C)
    with open_book(tmp_path, "h") as book:
        book.begin(None)
        book.plan([A, B], {0: 5})
        for unit in (A, B):
            book.finish(unit, [parquet(tmp_path, unit, "h")])
    whole = {group: Replay(tmp_path, "t", group, f"to-{group}").whole for group in "gh"}
    assert whole == {"g": False, "h": True}


# ---- on the command line
def replayed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, topic: str = "t", **options: Any
) -> tuple[int, list[int]]:
    """Return the exit code, and what was stored."""
    stored: list[int] = []

    @asynccontextmanager
    async def no_client(*_: object) -> AsyncIterator[None]:
        yield

    async def send(job: Any, *_: object) -> None:
        for rows, place in job._records.chunks():
            job.stored += len(rows)
            stored.extend(row.offset for row in rows)
            job._records.note(place)

    monkeypatch.setattr(cli, "client", no_client)
    monkeypatch.setattr(cli._Job, "send", send)
    try:
        cli.replay(folder, topic, **options)
    except typer.Exit as ended:
        return ended.exit_code, stored
    return 0, stored


@pytest.mark.spark
def test_exit_code_shows_that_records_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path, A, C, planned=(A, B, C))
    assert replayed(tmp_path, monkeypatch) == (3, of(A))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "fmq: 7 records stored in t; 0 were before"
    assert second.startswith("fmq: stopped at position 100: ")
    assert replayed(tmp_path, monkeypatch, skip_lost=True) == (3, [])
    assert replayed(tmp_path, monkeypatch, skip_missing=True) == (3, of(C))
    assert (
        "fmq: positions 100 to 200 of g are not archived yet: left out" in capsys.readouterr().err
    )
    lose(tmp_path, B)
    assert replayed(tmp_path, monkeypatch) == (3, [])
    assert replayed(tmp_path, monkeypatch, skip_lost=True) == (0, [])


@pytest.mark.spark
@pytest.mark.parametrize("first", [{}, {"group": "g"}])
def test_replay_continues_once_a_second_group_is_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, str]
) -> None:
    """Another group archives there, too."""
    archive(tmp_path, A, planned=(A, B))
    assert replayed(tmp_path, monkeypatch, **first) == (3, of(A))
    archive(tmp_path, B)
    if first:  # or need not be named, and is not any more
        assert replayed(tmp_path, monkeypatch) == (0, of(B))
    with open_book(tmp_path, "h") as book:
        book.begin(None)
        book.plan([A], {0: 5})
        book.finish(A, [parquet(tmp_path, A, "h")])
    assert replayed(tmp_path, monkeypatch)[0] == 64
    assert replayed(tmp_path, monkeypatch, group="g") == (0, [] if first else of(B))
    assert replayed(tmp_path, monkeypatch, group="h") == (0, of(A))
    assert replayed(tmp_path, monkeypatch, group="h") == (0, [])
