"""An archive's files while they are written: few are open at a time, and no reader sees them."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fmqcore.scan import payloads
from fmqcore.tests.journal.writer import JournalWriter
from fmqspark.archive import ledger
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, killed, small

pytestmark = pytest.mark.spark
writing = pytest.importorskip("fmqspark.archive.write")
TOPICS = 60


def many(rounds: int = 3) -> JournalWriter:
    """Return a journal with many topics in each segment."""
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(TOPICS):
        writer.topic(100 + n, f"topic-{n:02d}", 1)
    for turn in range(rounds):
        for n in range(TOPICS):
            writer.data(100 + n, 0, [b"%d-%d-" % (n, turn) + b"x" * 200] * 2)
    return writer


@contextmanager
def files_allowed(more: int) -> Iterator[None]:
    """Allow that many files more than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(soft) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[more], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Counted:
    """Parquet writers that count how many of them are open."""

    def __init__(self, real: Any) -> None:
        self.open, self.most, self.made = 0, 0, 0
        self._real = real

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        writer = self._real(*arguments, **named)
        self.open += 1
        self.made += 1
        self.most = max(self.most, self.open)
        close = writer.close

        def closed() -> None:
            self.open -= 1
            close()

        writer.close = closed
        return writer


@pytest.mark.parametrize("at_once", [1, 4000, 30_000, writing._AT_ONCE])
@pytest.mark.parametrize("most", [1, 7, 100])
def test_few_files_are_open_at_a_time_whatever_is_in_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, at_once: int
) -> None:
    from pyarrow import parquet

    a = write(tmp_path / "a", many())
    archive(tmp_path / "whole", a)
    counted = Counted(parquet.ParquetWriter)
    monkeypatch.setattr(payloads, "_SLAB_RECORDS", 90)  # several slabs a segment
    monkeypatch.setattr(writing, "_OPEN", most)
    monkeypatch.setattr(writing, "_AT_ONCE", at_once)
    monkeypatch.setattr(parquet, "ParquetWriter", counted)
    outcome = archive(tmp_path / "out", a)
    assert (outcome.exit_code, outcome.rows) == (0, TOPICS * 3 * 2)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")
    assert in_order(tmp_path / "out")
    assert names(tmp_path / "out") == names(tmp_path / "whole")
    assert counted.open == 0
    assert counted.most <= most
    joined = counted.made > outcome.files
    assert joined == (most < TOPICS and at_once < 10**6)


def test_full_disk_is_reported_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    def full(*_: object) -> None:
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", full)
    outcome = archive(tmp_path / "out", write(tmp_path / "a", many()))
    assert outcome.exit_code == 3
    reported = {str(result.failed) for result in outcome.failed}
    assert reported == {f"[Errno 28] No space left on device: '{tmp_path / 'out'}'"}


def names(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.glob("**/*.parquet"))


def in_order(out: Path) -> bool:
    from pyarrow import parquet

    found = ledger.load(out, "journal")
    assert found is not None
    for file in found.files():
        with parquet.ParquetFile(out / file.path) as opened:
            table = opened.read(columns=["offset", "group"])
        offsets = table.column("offset").to_pylist()
        if offsets != sorted(offsets) or set(table.column("group").to_pylist()) != {"journal"}:
            return False
        assert len(table) == file.rows
    return True


def test_a_segment_of_more_topics_than_files_may_be_open(tmp_path: Path) -> None:
    a, out = write(tmp_path / "a", many(rounds=1)), tmp_path / "out"
    archive(tmp_path / "warm", a)  # opens what libraries open once
    with files_allowed(30):
        outcome = archive(out, a)
    assert (outcome.exit_code, outcome.rows, outcome.failed) == (0, TOPICS * 2, [])


def test_unfinished_files_are_never_visible_as_parquet(tmp_path: Path) -> None:
    a = write(tmp_path / "a", small())
    left: list[Path] = []
    for step in range(40):
        out = tmp_path / f"out-{step}"
        killed(step, out, a)
        left += (out / ledger.FOLDER).glob("tmp-*/*")
        assert all(name.startswith("topic=") for name in names(out))
    assert left, "no run was killed while it made files"
