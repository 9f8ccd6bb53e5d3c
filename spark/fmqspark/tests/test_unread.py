"""An unreadable range hides no finding, and no more than itself."""

import fcntl
import itertools
import os
import tracemalloc
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchHeader
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.ids import Position
from fmqcore.journal.resume_file import RESUME, encode_resume
from fmqcore.journal.segments import MIN_SEGMENT, index_name, segment_name
from fmqspark.check import tolerant_reader as patchy
from fmqspark.check.job import Options, Outcome, run_check
from fmqspark.check.page import page
from fmqspark.check.rows import Level
from fmqspark.engines.engines import LocalEngine
from fmqspark.source.files import LOCK
from fmqspark.tests.kit import alike, check, codes, flip, journal, lose, rows, write
from fmqspark.tests.test_cli import run
from fmqspark.tests.test_code_limits import resume

BASES = sorted(journal().segments)
SEALED = [h for h in journal().headers if BASES[1] <= h.position < BASES[2]]
LAST = [h for h in journal().headers if h.position >= BASES[-1]]


@pytest.mark.parametrize("level", [Level.STANDARD, Level.DEEP])
@pytest.mark.parametrize(
    ("name", "victim"),
    [
        (index_name(Position(MIN_SEGMENT)), SEALED[5]),
        (RESUME, LAST[1]),
        (SIDE_JOURNAL, LAST[1]),
    ],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_unreadable_small_file_is_the_only_unread_part(
    a: Path, name: str, victim: BatchHeader, level: Level, damaged: bool
) -> None:
    (a / name).unlink(missing_ok=True)
    (a / name).mkdir()
    if damaged:
        flip(a, victim.position + 64)
    outcome = check(a, level=level)
    assert codes(outcome) == ([("J001", "a", victim.position)] if damaged else [])
    assert outcome.exit_code == (2 if damaged else 3)
    unread = [(c.file, c.bytes, c.why) for c in outcome.coverage if c.state == "unread"]
    assert (name, 0, "Is a directory") in unread
    assert sum(c.bytes for c in outcome.coverage) == len(BASES) * MIN_SEGMENT


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("lost", [False, True])
def test_resume_file_is_read_in_pieces(
    a: Path, level: Level, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small batches it is a third of the segment."""
    (a / RESUME).write_bytes(encode_resume(resume()._replace(entries=bytes(16 * MIB))))
    if lost:
        lose(monkeypatch, a / RESUME, (9 * MIB, 9 * MIB + BLOCK))
    tracemalloc.start()
    try:
        outcome = check(a, level=level)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    unread = [(c.file, c.why) for c in outcome.coverage if c.state == "unread"]
    assert unread == ([(RESUME, "Input/output error")] if lost else [])
    wrong = level is Level.DEEP and not lost
    assert codes(outcome) == ([("M001", "a", journal().end)] if wrong else [])


BLOCK = 4096
MIB = 1024 * 1024
SECOND = segment_name(BASES[1])


def covered_once(outcome: Outcome, replica: str) -> bool:
    of_replica = [row for state in SEEN for row in rows(outcome, state) if row[0] == replica]
    places = sorted((begin, end) for _, begin, end in of_replica if begin < end)
    assert (places[0][0], places[-1][1]) == (0, len(BASES) * MIN_SEGMENT)
    return all(one[1] == two[0] for one, two in itertools.pairwise(places))


SEEN = ("checked", "damaged", "unread", "void", "empty")


def of(position: int) -> tuple[int, int]:
    """Return the disk block that holds a byte of the second segment, within its file."""
    begin = (position - BASES[1]) // BLOCK * BLOCK
    return begin, begin + BLOCK


@pytest.mark.parametrize("level", Level)
def test_a_bad_block_hides_only_its_own_batches(
    a: Path, b: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    bad = of(SEALED[len(SEALED) // 2].position)
    lose(monkeypatch, b / SECOND, bad)
    outcome = check(a, b, level=level)
    assert (codes(outcome), outcome.exit_code) == ([], 3)
    unread = [c for c in outcome.coverage if c.state == "unread"]
    assert {c.why for c in unread} == {"Input/output error"}
    touched = [h for h in SEALED if h.position - BASES[1] < bad[1] and h.end - BASES[1] > bad[0]]
    begin, end = min(c.begin for c in unread), max(c.end for c in unread)
    assert min(touched[0].position, BASES[1] + bad[0]) <= begin <= BASES[1] + bad[0]
    assert BASES[1] + bad[1] <= end <= touched[-1].end
    assert rows(outcome, "not compared") == [("a", begin, end)]
    assert covered_once(outcome, "b")


def test_unread_ranges_are_read_again_by_the_next_run(a: Path, tmp_path: Path) -> None:
    """A resumed check does not keep an unread range: the disk may be repaired."""
    options = Options((a,), folder=tmp_path / "out")

    def killed(outcome: Outcome) -> bool:
        assert outcome.exit_code == 3
        return False

    with pytest.MonkeyPatch.context() as patch:
        lose(patch, a / SECOND, of(SEALED[len(SEALED) // 2].position))
        run_check(options, LocalEngine(), report=killed)
    again = run_check(options, LocalEngine())
    assert (again.reused, again.exit_code) == (len(BASES) - 2, 0)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("where", [2, -3])
def test_error_beside_a_bad_block_is_reported(
    a: Path, b: Path, monkeypatch: pytest.MonkeyPatch, where: int, level: Level
) -> None:
    victim = SEALED[where]
    flip(b, victim.position + 64)
    lose(monkeypatch, b / SECOND, of(SEALED[len(SEALED) // 2].position))
    outcome = check(a, b, level=level)
    assert (codes(outcome), outcome.exit_code) == ([("J001", "b", victim.position)], 2)
    assert {"damage", "Input/output error"} == {
        c.why for c in outcome.coverage if c.state == "unread"
    }
    assert covered_once(outcome, "b")


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("file", [1, -1])
@pytest.mark.parametrize("clean", [False, True])
def test_a_bad_block_anywhere_is_no_damage(
    tmp_path: Path, a: Path, clean: bool, file: int, level: Level
) -> None:
    """Also where it holds a segment's SNAP or EOF, or the journal's end."""
    b = write(tmp_path / "b", clean=clean)
    (b / RESUME).write_bytes(encode_resume(resume()))
    for begin in range(0, MIN_SEGMENT, BLOCK):
        with pytest.MonkeyPatch.context() as patch:
            lose(patch, b / segment_name(BASES[file]), (begin, begin + BLOCK))
            for paths in ((a, b), (b, a), (b,)):
                outcome = check(*paths, level=level)
                assert (codes(outcome), outcome.exit_code) == ([], 3), begin
                assert covered_once(outcome, "b")


def test_different_content_beside_a_bad_block_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = alike(), alike(other=(100,))
    a, b = write(tmp_path / "a", one), write(tmp_path / "b", two)
    first = next(x for x, y in zip(one.headers, two.headers, strict=True) if x != y)
    base = first.position // MIN_SEGMENT * MIN_SEGMENT
    at = (first.position - base) // BLOCK * BLOCK - 2 * BLOCK
    lose(monkeypatch, b / segment_name(Position(base)), (at, at + BLOCK))
    outcome = check(a, b)
    assert [(f.code, Path(f.replica).name) for f in outcome.findings] == [("R001", "b")]
    assert outcome.findings[0].begin == first.position


@pytest.mark.parametrize("lost", [(5000, MIN_SEGMENT), (0, MIN_SEGMENT)])
def test_dead_disk_is_not_read_block_by_block(
    a: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[int, int]
) -> None:
    monkeypatch.setattr(patchy, "_MOST", 3)
    lose(monkeypatch, a / SECOND, lost)
    counted, read = [0], os.pread

    def pread(fd: int, length: int, at: int) -> bytes:
        try:
            return read(fd, length, at)
        except OSError:
            counted[0] += 1
            raise

    monkeypatch.setattr(os, "pread", pread)
    outcome = check(a)
    assert (codes(outcome), outcome.exit_code) == ([], 3)
    assert counted[0] < 10
    begin = min(c.begin for c in outcome.coverage if c.state == "unread")
    assert BASES[1] <= begin <= BASES[1] + lost[0]
    assert max(end for _, _, end in rows(outcome, "unread")) == BASES[2]
    assert covered_once(outcome, "a")


def test_unread_ranges_are_reported_with_the_reason(
    a: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the terminal, the termination message and the page; findings are not repeated."""
    index, words = index_name(BASES[2]), a.parent / "words"
    (a / index).unlink()
    (a / index).mkdir()
    begin = of(SEALED[7].position)[0]
    lose(monkeypatch, a / SECOND, (begin, begin + BLOCK))
    monkeypatch.setenv("FMQ_LAST_WORDS", str(words))
    code, out, _ = run(capsys, "check", a)
    outcome = check(a, level=Level.STANDARD)
    (place,) = ((b, e) for _, b, e in rows(outcome, "unread") if b < e)
    lines = [
        f"unread: {a}/{SECOND} at {place[0]}–{place[1]}: Input/output error",
        f"unread: {a}/{index}: Is a directory",
    ]
    assert (code, [line for line in out.splitlines() if line.startswith("unread: ")]) == (3, lines)
    assert all(line in words.read_text() for line in lines)
    html = page(outcome.summary(), outcome.findings, outcome.coverage, outcome.segments)
    assert "<h2>Not read</h2>" in html
    assert "whole file<td>Is a directory" in html
    assert html.count("not read: not OK'></span>") == 2
    monkeypatch.undo()
    flip(a, SEALED[7].position + 64)
    (a / segment_name(BASES[-1])).unlink()
    code, out, _ = run(capsys, "check", a)
    assert (code, [line for line in out.splitlines() if line.startswith("unread: ")]) == (
        2,
        lines[1:],
    )


def test_moving_end_is_reported(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(a, durable_end=LAST[-1].position)
    flip(a, LAST[-1].position + 96)
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, _ = run(capsys, "check", a, "--level", "deep")
    assert code == 3
    name = segment_name(BASES[-1])
    assert f"moving: {a}/{name} at {LAST[-1].position}–{BASES[-1] + MIN_SEGMENT}: its end" in out
