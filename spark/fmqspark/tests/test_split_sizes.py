"""How large splits are: whole rounds of the tasks that run at once, not too large, not too many."""

from pathlib import Path
from typing import Any

import pytest

from fmqcore.scan.select import Wanted
from fmqspark.source import splits as splits_module
from fmqspark.source.options import understand
from fmqspark.source.splits import LARGE_SPLIT_BYTES, SPLIT_BYTES, even_size, plan
from fmqspark.source.survey import survey
from fmqspark.spark.source import FmqDataSource, register
from fmqspark.tests.kit import write

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("total", "most", "at_once", "splits"),
    [
        (320 * MIB, LARGE_SPLIT_BYTES, 2, 2),  # both cores, and neither waits for a third
        (320 * MIB, SPLIT_BYTES, 2, 6),
        (400 * MIB, LARGE_SPLIT_BYTES, 2, 4),
        (320 * MIB, LARGE_SPLIT_BYTES, 1, 2),
        (320 * MIB, LARGE_SPLIT_BYTES, 1000, 20),  # not a task for each that would be idle
        (MIB, LARGE_SPLIT_BYTES, 8, 1),
        (1, LARGE_SPLIT_BYTES, 1, 1),
        (0, LARGE_SPLIT_BYTES, 3, 0),
    ],
)
def test_splits_are_read_in_whole_rounds(total: int, most: int, at_once: int, splits: int) -> None:
    size = even_size(total, most, at_once)
    assert -(-total // size) == splits
    assert size <= most


class _Session:
    """As much of a session as `register` needs."""

    def __init__(self, parallelism: int, **conf: str) -> None:
        self.sparkContext = self.dataSource = self.conf = self
        self.defaultParallelism = parallelism
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}
        self.registered: Any = None

    def get(self, name: str, default: str) -> str:
        return self._conf.get(name, default)

    def set(self, name: str, value: str) -> None: ...

    def register(self, source: type[FmqDataSource]) -> None:
        self.registered = source


def _splits(source: type[FmqDataSource], path: Path, **options: str) -> int:
    made = source({"path": str(path), **options})
    return len(made.reader(made.schema()).partitions())


def test_who_registers_tells_how_many_tasks_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a")
    found = survey([str(path)])
    total = found.end - found.begin
    monkeypatch.setattr(splits_module, "_LEAST", 1)
    # Whole segments, of which there are several, are not joined.
    segments = len(plan(found, Wanted()))
    few, many = _Session(1), _Session(64)
    for session in (few, many):
        register(session)  # type: ignore[arg-type]
        assert session.registered.name() == "fmq"
    assert _splits(few.registered, path) == segments
    assert 64 <= _splits(many.registered, path) <= 64 + segments
    assert _splits(many.registered, path, splitBytes=str(2 * total)) == segments  # as it is said


def test_an_allocation_that_grows_is_not_taken_for_all_there_is() -> None:
    grows = _Session(2, spark_dynamicAllocation_enabled="true")
    register(grows)  # type: ignore[arg-type]
    assert grows.registered.at_once == 0
    assert understand({"path": "/x"}).split_bytes == 0
