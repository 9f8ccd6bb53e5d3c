"""Diverged histories (R002): at its own position for each replica, whatever lies around it."""

import itertools
from pathlib import Path

import pytest

from fmqcore.batch.columns import encode
from fmqcore.batch.header import batch_len
from fmqcore.ids import Position
from fmqcore.journal.segments import MIN_SEGMENT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check import compare
from fmqspark.check.job import Outcome
from fmqspark.tests.kit import check, flip, write

BATCHES = 600


def parting(at: int | None = None, epoch: int = 2) -> JournalWriter:
    """The same batches each time, but from one on those of another epoch and length."""
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(BATCHES):
        if n == at:
            writer.open_epoch(epoch)
        parted = at is not None and n >= at
        writer.data(7, n % 4, [b"%d" % (epoch if parted else 1) + b"x" * (990 if parted else 900)])
    return writer


def fork(one: JournalWriter, two: JournalWriter) -> int:
    return next(x for x, y in zip(one.headers, two.headers, strict=False) if x != y).position


def parts(outcome: Outcome) -> list[tuple[str, str, str, int | None]]:
    rows = [(Path(f.replica).name, f.code, f.severity, f.begin) for f in outcome.findings]
    return sorted(row for row in rows if row[1] in ("R001", "R002"))


@pytest.mark.parametrize("most", [1, 2, 64])
def test_each_replica_parts_at_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also within another replica's long difference."""
    monkeypatch.setattr(compare, "MAX_DRILLS", most)
    a, b, c = parting(), parting(20), parting(500, 3)
    early, late = fork(a, b), fork(a, c)
    paths = [
        write(tmp_path / name, writer, commit_end=early)
        for name, writer in (("a", a), ("b", b), ("c", c))
    ]
    reported = [("b", "R002", "warning", early), ("c", "R002", "warning", late)]
    for order in itertools.permutations(paths[1:]):
        outcome = check(paths[0], *order)
        assert (parts(outcome), outcome.exit_code) == (reported, 1)


@pytest.mark.parametrize("most", [1, 64])
@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("kind", ["hole", "damage"])
def test_diverged_histories_behind_damage_are_not_r001(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, victim: str, most: int
) -> None:
    monkeypatch.setattr(compare, "MAX_DRILLS", most)
    writers = {"a": parting(), "b": parting(20)}
    place = fork(*writers.values())
    paths = {n: write(tmp_path / n, w, commit_end=place) for n, w in writers.items()}
    mid = next(h for h in writers[victim].headers if h.position > 5 * MIN_SEGMENT + 9000)
    if kind == "hole":
        (paths[victim] / segment_name(Position(5 * MIN_SEGMENT))).unlink()
    else:
        flip(paths[victim], mid.position + 64)
    reported = parts(check(*paths.values()))
    assert [row[:3] for row in reported] == [("b", "R002", "warning")] * 2
    assert reported[0][3] == place


def full_but_for(left: int) -> JournalWriter:
    """Return a journal whose first segment has room for that many bytes more."""
    writer = JournalWriter()
    writer.open_epoch(1)
    end = MIN_SEGMENT - left
    while end - writer.end > 3000:
        writer.data(7, 0, [b"x" * 900])
    values = (b"x" * length for length in range(3000))
    room = end - writer.end
    fitting = (v for v in values if batch_len(len(encode([v], keys=[b"k1"])[1])) == room)
    writer.data(7, 0, [next(fitting)])
    assert writer.end == end
    return writer


@pytest.mark.parametrize("left", [0, 96, 120, 192])
def test_a_term_begins_with_the_frames_that_were_written_for_it(tmp_path: Path, left: int) -> None:
    """Its EPOCH batch found no room; the old master continues in the old epoch."""
    one, two = full_but_for(left), full_but_for(left)
    place = one.end
    assert one.open_epoch(2).position > MIN_SEGMENT
    for writer in (one, two):
        for _ in range(9):
            writer.data(7, 0, [b""])
    for order in ((one, two), (two, one)):
        paths = [
            write(tmp_path / name, writer, commit_end=place)
            for name, writer in zip(("a", "b"), order, strict=True)
        ]
        outcome = check(*paths)
        assert (parts(outcome), outcome.exit_code) == ([("b", "R002", "warning", place)], 1)
        theirs, own = (1, 2) if order[0] is two else (2, 1)
        assert f"epoch {own}, the others have {theirs}: " in outcome.findings[0].sentence
