"""The limits of the R codes: which bytes differ, which replica is behind, what damage does not
hide.
"""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fmqcore.ids import Position
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.scan.digests import BLOCK
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check import compare
from fmqspark.check.replicas import read_block
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import LOCK
from fmqspark.tests.kit import alike, check, codes, flip, journal, rows, write

T = TypeVar("T")
R = TypeVar("R")
BASES = sorted(journal().segments)
SEALED = [h for h in journal().headers if MIN_SEGMENT <= h.position < 2 * MIN_SEGMENT]


def test_r001_behind_a_chain_that_breaks_on_both(tmp_path: Path) -> None:
    paths = []
    for name, other in (("a", b"value"), ("b", b"other")):
        writer = JournalWriter()
        writer.open_epoch(1)
        for n in range(40):
            if n == 20:
                broken, writer._prev_crc = writer.end, writer._prev_crc ^ 1
            header = writer.data(7, n % 4, [(other if n == 39 else b"value") + b"x" * 900])
        paths.append(write(tmp_path / name, writer))
    reported = codes(check(*paths))
    assert sorted(reported) == [
        ("J003", "a", broken),
        ("J003", "b", broken),
        ("R001", "b", header.position),
    ]


@pytest.mark.parametrize("level", Level)
def test_r001_in_the_very_last_batch(tmp_path: Path, level: Level) -> None:
    one, two = alike(), alike(other=(219,))
    outcome = check(write(tmp_path / "a", one), write(tmp_path / "b", two), level=level)
    assert codes(outcome) == [("R001", "b", two.headers[-1].position)]
    assert outcome.findings[0].end == two.end


@pytest.mark.parametrize("most", [0, 1, 64])
def test_long_difference_is_one_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(compare, "MAX_DRILLS", most)
    one, two = alike(), alike(other=tuple(range(100, 220)))
    first = next(x for x, y in zip(one.headers, two.headers, strict=True) if x != y)
    outcome = check(write(tmp_path / "a", one), write(tmp_path / "b", two))
    (found,) = outcome.findings
    assert (found.code, found.end) == ("R001", two.end)
    whole = first.position // MIN_SEGMENT * MIN_SEGMENT  # the block's start, which is its segment's
    assert found.begin == (first.position if most else whole)


@pytest.mark.parametrize("number", [5, -1])  # within a block, and the rest of the block
@pytest.mark.parametrize("most", [0, 64])
def test_damage_in_a_long_difference_is_none_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, number: int
) -> None:
    monkeypatch.setattr(compare, "MAX_DRILLS", most)
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    flip(b, SEALED[number].position + 64)
    for paths in ((a, b), (b, a)):
        assert {f.code for f in check(*paths).findings} == {"J001"}


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_damage_of_one_does_not_hide_how_the_others_differ(tmp_path: Path, damaged: int) -> None:
    """Also where the damaged replica was named first."""
    one, two = alike(), alike(other=(219,))
    paths = [write(tmp_path / n, w) for n, w in (("a", one), ("b", one), ("c", two))]
    last = one.headers[-1]
    flip(paths[damaged], last.position + 64)
    outcome = check(*paths)
    reported = {(code, replica) for code, replica, _ in codes(outcome)}
    assert reported == {("J001", "abc"[damaged])} | ({("R001", "c")} if damaged < 2 else set())


def large(tmp_path: Path, name: str, batches: int = 130) -> tuple[Path, JournalWriter]:
    """Return a journal whose segments have more than one block."""
    writer = JournalWriter(3 * BLOCK // 2)
    writer.open_epoch(1)
    for n in range(batches):
        writer.data(7, n % 4, [b"x" * 20_000])
    return write(tmp_path / name, writer), writer


def change(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)


@pytest.mark.parametrize("level", Level)
def test_overlong_segment_file_blames_no_other_replica(tmp_path: Path, level: Level) -> None:
    """Another replica is damaged near the segment's end, so that this range is read."""
    (a, writer), (b, _), (c, _) = (large(tmp_path, name) for name in "abc")
    name = segment_name(Position(0))
    with (a / name).open("ab") as file:
        file.write(bytes(8))
    victim = [h for h in writer.headers if h.end < 3 * BLOCK // 2][-2]
    change(b / name, victim.position + 64)
    for paths in ((a, b, c), (c, b, a), (b, c, a)):
        reported = {(code, replica) for code, replica, _ in codes(check(*paths, level=level))}
        assert reported == {("J005", "a"), ("J001", "b")}


def lost_behind_a_cut(b: Path, how: str) -> int:
    """Remove the newest file and shorten the one before it; return where the rest ends."""
    newest, before = (b / segment_name(base) for base in (BASES[-1], BASES[-2]))
    cut = next(h for h in journal().headers if h.position > BASES[-2] + MIN_SEGMENT // 3)
    size = 0 if how == "emptied" else cut.position - BASES[-2]
    before.write_bytes(before.read_bytes()[:size])
    newest.unlink()
    if how == "zeros":
        newest.write_bytes(bytes(MIN_SEGMENT))
    if how == "emptied":
        (b / segment_name(Position(BASES[-1] + MIN_SEGMENT))).write_bytes(b"")
    return BASES[-2] + size


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("how", ["gone", "zeros", "emptied"])
def test_range_between_a_truncation_and_a_hole_is_unread(
    a: Path, b: Path, how: str, level: Level
) -> None:
    """The replica that has the range is not blamed."""
    end = lost_behind_a_cut(b, how)
    for paths in ((a, b), (b, a)):
        outcome = check(*paths, level=level)
        assert {f.replica for f in outcome.findings} == {str(b)}
        assert {f.code for f in outcome.findings} <= {"J001", "J005"}
        unread = sorted(row for row in rows(outcome, "unread") if row[1] < row[2])
        assert unread[0] == ("b", end, BASES[-1])
        assert unread[1][1] == BASES[-1]
        reported = {
            c.file for c in outcome.coverage if c.begin == end
        }  # zeros: a gap between files
        gap = {segment_name(Position(end))} if how == "zeros" else set()
        assert reported == gap | {segment_name(BASES[-2])}
        assert rows(outcome, "not compared") == [("a", end, journal().end)]


class Counting(LocalEngine):
    """Records how many blocks are read again at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        if work is read_block:
            self.asked.append(len(tasks))
        return super().run(work, tasks)


def test_many_differing_blocks_then_few_are_in_memory(tmp_path: Path) -> None:
    """The memory of their batches does not add up; and no other finding follows from that."""
    right, other = alike(3200), alike(3200, other=(101, 1601, 3101))
    a, b = write(tmp_path / "a", right), write(tmp_path / "b", other)
    firsts = {h.position // MIN_SEGMENT: h.position for h in reversed(right.headers[3:])}
    damaged = sorted(firsts.values())
    for position in damaged:
        flip(b, position + 64)
    engine = Counting()
    reported = codes(check(a, b, level=Level.QUICK, engine=engine))
    assert sum(engine.asked) > 64 >= max(engine.asked)
    assert [begin for code, _, begin in reported if code == "J001"] == damaged
    differ = [x.position for x, y in zip(right.headers, other.headers, strict=True) if x != y]
    assert next(begin for code, _, begin in reported if code == "R001") == differ[0]
    assert {(code, name) for code, name, _ in reported} == {("J001", "b"), ("R001", "b")}


class Vanishing(LocalEngine):
    """A segment's file vanishes after its check, before it is read again to be compared."""

    def __init__(self, victim: Path) -> None:
        self._victim = victim

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        if work is read_block:
            assert tasks
            self._victim.unlink(missing_ok=True)
        return super().run(work, tasks)


@pytest.mark.parametrize(
    ("live", "exit_code", "state"), [(False, 3, "unread"), (True, 0, "retired")]
)
def test_segment_deleted_before_its_comparison_does_not_differ(
    tmp_path: Path, live: bool, exit_code: int, state: str
) -> None:
    one, two = alike(), alike(other=tuple(range(5, 220)))
    a, b = write(tmp_path / "a", one), write(tmp_path / "b", two)
    for base in sorted(two.segments)[1:]:  # one segment alone, so that nothing else differs
        for folder in (a, b):
            (folder / segment_name(base)).unlink()
            (folder / index_name(base)).unlink(missing_ok=True)
    for folder, writer in ((a, one), (b, two)):
        end = writer.headers[20].position
        some: dict[str, Any] = {"durable_end": end, "commit_end": end, "bases": (0,)}
        raw = write(tmp_path / "x", writer, **some).joinpath(CHECKPOINT).read_bytes()
        (folder / CHECKPOINT).write_bytes(raw)
    with (b / LOCK).open("w") as lock:
        if live:
            fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = check(a, b, engine=Vanishing(b / segment_name(Position(0))))
    assert (codes(outcome), outcome.exit_code) == ([], exit_code)
    assert {replica for replica, *_ in rows(outcome, state)} == {"b"}


def test_r003_range_that_no_replica_has(tmp_path: Path) -> None:
    short, long = alike(150), alike()
    paths = [write(tmp_path / n, short, commit_end=long.end) for n in ("a", "b")]
    outcome = check(*paths)
    assert codes(outcome) == [("R003", "a", short.end), ("R003", "b", short.end)]
    assert {f.end for f in outcome.findings} == {long.end}


@pytest.mark.parametrize("level", Level)
def test_r003_of_a_lone_replica_by_its_own_checkpoint(tmp_path: Path, level: Level) -> None:
    """A power cut took what was committed and not yet synced here: the others have it."""
    short, long = alike(150), alike()
    for end in (short.end + 8, long.end):
        outcome = check(write(tmp_path / "a", short, commit_end=end), level=level)
        assert codes(outcome) == [("R003", "a", short.end)]
        assert (outcome.findings[0].end, outcome.findings[0].severity) == (end, "warning")
        assert outcome.exit_code == 1
        assert rows(outcome, "not compared") == []
    a = write(tmp_path / "a", short, commit_end=short.end)
    assert codes(check(a, level=level)) == []
    last = short.headers[-1]
    write(a, short, durable_end=last.position)
    flip(a, last.position)  # torn, and it was committed: the truncation leaves it behind
    assert codes(check(a, level=level)) == [
        ("J001", "a", last.position),
        ("R003", "a", last.position),
    ]


@pytest.mark.parametrize("both", [False, True])
def test_missing_durable_range_is_damage_and_not_r003(tmp_path: Path, both: bool) -> None:
    short, long = alike(150), alike()
    a = write(tmp_path / "a", short, durable_end=long.end, commit_end=long.end + 8)
    others = [write(tmp_path / "b", long)] if both else []
    found = [found for found in codes(check(*others, a)) if found[1] == "a"]
    assert found == [("J001", "a", short.end), ("R003", "a", long.end)]


def test_r003_only_below_what_is_committed(tmp_path: Path) -> None:
    short, long = alike(150), alike()
    b = write(tmp_path / "b", short)
    assert codes(check(write(tmp_path / "a", long, commit_end=short.end), b)) == []
    more = next(header for header in long.headers if header.position == short.end)
    ahead = write(tmp_path / "a", long, commit_end=more.end)
    assert codes(check(ahead, b)) == [("R003", "b", short.end)]


def test_r004_where_one_ends_the_other_begins(tmp_path: Path) -> None:
    whole = journal()
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    cut = BASES[4]
    for base in BASES:
        gone = a if base >= cut else b
        (gone / segment_name(base)).unlink()
        (gone / index_name(base)).unlink(missing_ok=True)
    some: dict[str, Any] = {"durable_end": cut, "commit_end": cut, "bases": BASES[:4]}
    (a / CHECKPOINT).write_bytes(write(tmp_path / "x", **some).joinpath(CHECKPOINT).read_bytes())
    rest: dict[str, Any] = {"journal_start": cut, "bases": BASES[4:]}
    (b / CHECKPOINT).write_bytes(write(tmp_path / "y", **rest).joinpath(CHECKPOINT).read_bytes())
    outcome = check(a, b)
    assert {("R004", "b", cut), ("R003", "a", cut)} == set(codes(outcome))
    assert rows(outcome, "not compared") == [("a", 0, cut), ("b", cut, whole.end)]
