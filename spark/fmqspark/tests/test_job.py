"""The check as a whole: engines, resume, levels, live directories, unreadable files."""

import fcntl
import io
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.check.job import Options, Outcome, run_check
from fmqspark.check.page import page
from fmqspark.check.progress import NAME
from fmqspark.check.rows import Level, SegmentResult
from fmqspark.engines.engines import LocalEngine, open_engine
from fmqspark.rebuild.job import rebuild
from fmqspark.source.files import LOCK, Throttle
from fmqspark.tests.kit import Misfit, check, codes, data_batch, flip, journal, write

T = TypeVar("T")
R = TypeVar("R")


def damaged(tmp_path: Path) -> tuple[Path, Path]:
    """Two replicas with a bit of everything."""
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    flip(b, data_batch(50).position + 64)
    flip(b, data_batch(120).position + 100)
    flip(a, data_batch(90).position + 20)
    (a / index_name(Position(MIN_SEGMENT))).unlink()
    return a, b


def everything(outcome: Outcome) -> dict[str, Any]:
    summary = outcome.summary()
    del summary["took_s"]
    return summary | {
        "findings": [tuple(f) for f in outcome.findings],
        "coverage": [tuple(c) for c in outcome.coverage],
    }


def test_a_pool_finds_what_one_process_finds(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    here = check(a, b)
    assert {f.code for f in here.findings} == {"J001", "J002", "I001"}
    with open_engine("pool", 2) as pool:
        assert everything(check(a, b, engine=pool)) == everything(here)


@pytest.mark.spark
def test_spark_finds_what_one_process_finds(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    with open_engine("spark", 2) as spark:
        for level in Level:
            there = check(a, b, level=level, engine=spark)
            assert everything(there) == everything(check(a, b, level=level))


class Dying(LocalEngine):
    """Dies after that many results; counts its tasks."""

    def __init__(self, after: int) -> None:
        self.asked: list[int] = []
        self._after = after

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        self.asked.append(len(tasks))
        for i, task in enumerate(tasks):
            if i == self._after:
                raise KeyboardInterrupt
            yield work(task)


def test_killed_check_resumes(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    whole, out = check(a, b), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        check(a, b, engine=Dying(7), folder=out)
    with (out / NAME).open("a") as file:
        file.write('{"version": 1, "key": "cut in the mid')
    engine = Dying(1000)
    outcome = check(a, b, engine=engine, folder=out)
    assert engine.asked[0] == whole.summary()["segments"] - 7
    assert outcome.reused == 7
    assert [tuple(f) for f in outcome.findings] == [tuple(f) for f in whole.findings]
    assert sorted(outcome.coverage) == sorted(whole.coverage)
    assert not (out / NAME).exists()


def test_changed_segments_are_checked_again(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a"), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        check(a, engine=Dying(5), folder=out)
    victim = data_batch(10)
    flip(a, victim.position + 64)
    engine = Dying(1000)
    assert codes(check(a, engine=engine, folder=out)) == [("J001", "a", victim.position)]
    with pytest.raises(KeyboardInterrupt):
        check(a, engine=Dying(5), folder=out)
    assert check(a, level=Level.QUICK, folder=out).reused == 0


def test_segment_is_checked_again_if_its_successor_changed(tmp_path: Path) -> None:
    """Whether the next one follows from it is its own verdict."""
    whole, misfit = (kind() for kind in (JournalWriter, Misfit))
    for writer in (whole, misfit):
        writer.open_epoch(1)
        for n in range(250):
            writer.data(7, n % 4, [b"x" * 900])
    a, out = write(tmp_path / "a", whole), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        check(a, engine=Dying(3), folder=out)
    for name, data in misfit.files(misfit.checkpoint()).items():
        if (a / name).read_bytes() != data:
            (a / name).write_bytes(data)
    place = sorted(misfit.segments)[2]
    outcome = check(a, folder=out)
    assert (outcome.reused, codes(outcome)) == (1, [("J003", "a", place)])


@pytest.mark.parametrize(("before", "now"), [(0, 8), (8, 0), (None, 8)])
def test_segment_is_checked_again_if_the_checkpoint_changed(
    tmp_path: Path, before: int | None, now: int
) -> None:
    """Only the segment's own task can see whether a batch ends where the checkpoint has it."""
    a, out, batch = write(tmp_path / "a"), tmp_path / "out", data_batch(2)

    def claim(off: int | None) -> None:
        """Write the claim; None: an unreadable one."""
        if off is None:
            (a / CHECKPOINT).unlink()
            (a / CHECKPOINT).mkdir()
        else:
            shutil.rmtree(a / CHECKPOINT, ignore_errors=True)
            claimed = journal().checkpoint(commit_end=batch.end - off)
            (a / CHECKPOINT).write_bytes(encode_checkpoint(claimed))

    claim(before)
    with pytest.raises(KeyboardInterrupt):
        check(a, engine=Dying(5), folder=out)
    claim(now)
    expected = [("M001", "a", batch.end - now)] if now else []
    outcome = check(a, folder=out)
    assert (codes(outcome), outcome.reused) == (expected, 4)


def test_findings_tolerated_beside_a_broker_are_checked_again(tmp_path: Path) -> None:
    """A running broker may not have written the index of the newest full segment yet."""
    a, out = write(tmp_path / "a"), tmp_path / "out"
    index = index_name(Position(journal().last_base - MIN_SEGMENT))
    (a / index).unlink()
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(KeyboardInterrupt):
            check(a, engine=Dying(len(journal().segments) - 1), folder=out)
    outcome = check(a, folder=out)
    assert [(f.code, f.file) for f in outcome.findings] == [("I001", index)]
    assert outcome.exit_code == 1


def test_segment_changing_during_its_check_is_checked_again(tmp_path: Path) -> None:
    a, out, victim = write(tmp_path / "a"), tmp_path / "out", data_batch(2)

    class Changing(Dying):
        def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
            for found in super().run(work, tasks):
                flip(a, victim.position + 64)
                yield found

    with pytest.raises(KeyboardInterrupt):
        check(a, engine=Changing(1), folder=out)
    assert codes(check(a, folder=out)) == [("J001", "a", victim.position)]


def test_folder_is_locked_by_one_check_and_progress_goes_last(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a"), tmp_path / "out"
    options = Options((a,), folder=out)

    def report(_: Outcome) -> bool:
        with pytest.raises(DirectoryLocked, match="another check"):
            run_check(options, LocalEngine())
        return False  # the reports could not be written

    first = run_check(options, LocalEngine(), report=report)
    assert (first.reused, first.exit_code) == (0, 0)
    again = run_check(options, LocalEngine())
    assert again.reused == len(journal().segments) - 1
    assert not (out / NAME).exists()


def test_a_full_disk_ends_the_progress_not_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(io, "FileIO", Full)
    a, b = damaged(tmp_path)
    assert everything(check(a, b, folder=tmp_path / "out")) == everything(check(a, b))


def test_index_files_count_for_the_throttle_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(Throttle, "read", lambda _, count: counted.append(count))
    a = write(tmp_path / "a")
    bytes_read = check(a, level=Level.QUICK).summary()["bytes_read"]
    sizes = [path.stat().st_size for path in a.glob("*.index")]
    assert set(sizes) <= set(counted)
    assert sum(counted) >= bytes_read >= sum(sizes) + 96 * len(journal().headers)


def test_result_survives_json(tmp_path: Path) -> None:
    for segment in check(*damaged(tmp_path)).segments:
        assert SegmentResult.from_data(json.loads(json.dumps(segment.as_data()))) == segment


@pytest.mark.parametrize("cut", [0, 40, 96, 1000, MIN_SEGMENT // 2, MIN_SEGMENT - 8])
@pytest.mark.parametrize("number", [0, 4, -1])
def test_segment_truncated_anywhere_is_never_clean(tmp_path: Path, cut: int, number: int) -> None:
    a = write(tmp_path / "a")
    base = sorted(journal().segments)[number]
    os.truncate(a / segment_name(base), cut)
    outcome = check(a)
    assert outcome.exit_code in (1, 2)
    assert outcome.findings


def test_no_byte_is_left_out_or_counted_twice(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    outcome = check(a, b)
    for name in (str(a), str(b)):
        rows = sorted(c for c in outcome.coverage if c.replica == name and "not" not in c.state)
        edges = [(c.begin, c.end) for c in sorted(rows, key=lambda c: c.begin)]
        assert edges[0][0] == 0
        assert edges[-1][1] == len(journal().segments) * MIN_SEGMENT
        assert all(one[1] == two[0] for one, two in itertools.pairwise(edges))


def test_running_broker_is_reported_and_its_end_is_no_damage(tmp_path: Path) -> None:
    a = write(tmp_path / "a", durable_end=journal().headers[-3].position)
    last = journal().headers[-1]
    flip(a, last.position + 100)
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = check(a)
    assert outcome.live == [str(a)]
    assert (outcome.exit_code, codes(outcome)) == (3, [])
    assert sum(c.bytes for c in outcome.coverage if c.state == "moving") > 0


def holding(**files: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        for name, data in files.items():
            (path / name.replace("segment", segment_name(Position(0)))).write_bytes(data)

    return make


@pytest.mark.parametrize(
    "make",
    [
        lambda p: None,
        Path.mkdir,
        lambda p: p.write_text("x"),
        holding(checkpoint=b""),
        holding(checkpoint=b"nonsense"),
        holding(segment=b""),
        holding(segment=bytes(MIN_SEGMENT)),
        holding(checkpoint=b"nonsense", segment=bytes(MIN_SEGMENT)),
    ],
)
def test_directory_without_a_journal_is_wrong_usage(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    """Nothing was read: it is never clean."""
    make(tmp_path / "x")
    with pytest.raises(InvalidArgument, match="name a broker's data directory"):
        check(tmp_path / "x")
    with pytest.raises(InvalidArgument, match="name a broker's data directory"):
        rebuild([tmp_path / "x"], LocalEngine())


def test_a_data_directory_is_no_place_for_reports(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    with pytest.raises(InvalidArgument, match="is a data directory"):
        check(a, folder=tmp_path / "x" / ".." / "a")


def test_one_directory_twice_is_wrong_usage(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    with pytest.raises(InvalidArgument, match="twice"):
        check(a, tmp_path / "x" / ".." / "a")


def test_the_check_changes_nothing(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    paths = [*a.iterdir(), *b.iterdir()]
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in paths}
    check(a, b)
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in paths}
    assert {*a.iterdir(), *b.iterdir()} == set(paths)


def test_the_throttle_waits_for_as_long_as_it_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    throttle = Throttle(1000)
    for _ in range(10):
        throttle.read(500)
        now[0] += 0.1
    assert now[0] - 100 == pytest.approx(5.1)
    assert all(s > 0 for s in slept)
    Throttle(0).read(10**12)
    assert now[0] - 100 == pytest.approx(5.1)


def test_the_page_shows_each_segment_and_each_finding(tmp_path: Path) -> None:
    a, b = damaged(tmp_path)
    outcome = check(a, b)
    html = page(outcome.summary(), outcome.findings, outcome.coverage, outcome.segments)
    assert html.count("<span style='background:") == len(outcome.segments) + 5
    assert "inconsistent" in html
    (b / segment_name(Position(0))).unlink()
    outcome = check(a, b)
    html = page(outcome.summary(), outcome.findings, outcome.coverage, outcome.segments)
    assert html.count("<span style='background:") == len(outcome.segments) + 1 + 5
    assert f"title='[0, {MIN_SEGMENT}) an error: J005'>" in html
    for found in outcome.findings:
        assert f"<td>{found.code}" in html
    assert "<script" not in html
    assert "http" not in html.replace("https", "http").split("</style>")[1]


NOT_FILES = ["checkpoint", "lock", "resume", "suspect", "takeover.journal", "65536.index"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", NOT_FILES)
def test_pipes_and_devices_are_not_read(tmp_path: Path, name: str) -> None:
    a = write(tmp_path / "a")
    file = a / (index_name(Position(MIN_SEGMENT)) if name == "65536.index" else name)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        file.unlink(missing_ok=True)
        make(file)
        if name == "lock":
            with pytest.raises(OSError, match="it is a pipe or a device, not a file") as failed:
                check(a)
            assert failed.value.filename == str(file)
        else:
            outcome = check(a)
            assert outcome.exit_code == 3
            unread = [(c.file, c.why) for c in outcome.coverage if c.state == "unread"]
            assert unread == [(file.name, "it is a pipe or a device, not a file")]
