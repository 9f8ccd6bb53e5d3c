"""Split sizes: whole rounds of the concurrent tasks, not too large, not too many."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fmqcore.scan.selection import Wanted
from fmqspark.source import planning
from fmqspark.source.options import understand
from fmqspark.source.planning import LARGE_SPLIT_BYTES, SPLIT_BYTES, even_size, plan, plan_tasks
from fmqspark.source.survey import survey
from fmqspark.spark.source import FmqDataSource, register
from fmqspark.tests.kit import write

MIB = 1024 * 1024
BATCH = 7208
"""The batch size of the open segment, where a task ends with a batch."""


@pytest.mark.parametrize(
    ("total", "most", "at_once", "splits"),
    [
        (320 * MIB, LARGE_SPLIT_BYTES, 2, 2),  # both cores, and neither waits for a third task
        (320 * MIB, SPLIT_BYTES, 2, 6),
        (400 * MIB, LARGE_SPLIT_BYTES, 2, 4),
        (320 * MIB, LARGE_SPLIT_BYTES, 1, 2),
        (320 * MIB, LARGE_SPLIT_BYTES, 1000, 20),  # no idle task for each
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
    """The parts of a session that `register` needs."""

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


def _tasks(source: type[FmqDataSource], path: Path, **options: str) -> int:
    made = source({"path": str(path), **options})
    return len(made.reader(made.schema()).partitions())


def test_registered_session_sets_the_number_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a")
    found = survey([str(path)])
    total = found.end - found.begin
    monkeypatch.setattr(planning, "_LEAST", 1)
    segments = len(plan(found, Wanted()))
    few, many = _Session(1), _Session(64)
    for session in (few, many):
        register(session)  # type: ignore[arg-type]
        assert session.registered.name() == "fmq"
    assert _tasks(few.registered, path) == 1 < segments
    assert 60 <= _tasks(many.registered, path) <= 65
    assert _tasks(many.registered, path, splitBytes=str(2 * total)) == segments  # as set


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 7, 16, 1000])
def test_tasks_are_as_large_as_each_other_wherever_segments_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(planning, "_LEAST", 2000)
    found = survey([str(write(tmp_path / "a"))])
    whole = plan(found, Wanted())
    tasks = plan_tasks(found, Wanted(), LARGE_SPLIT_BYTES, at_once)
    flat = [split for task in tasks for split in task]
    assert [flat[0].begin, flat[-1].end] == [whole[0].begin, whole[-1].end]
    for before, behind in pairwise(flat):  # nothing twice, nothing left out
        assert behind.begin in (before.end, *(each.begin for each in whole))
        assert before.end in (behind.begin, *(each.end for each in whole))
    sizes = [sum(split.end - split.begin for split in task) for task in tasks]
    share = even_size(sum(sizes), LARGE_SPLIT_BYTES, at_once)
    fewer = -(-sum(sizes) // share) - len(sizes)
    assert 0 <= fewer <= 1 + BATCH // share  # a small end goes along with the last
    assert all(abs(size - share) <= share / 4 for size in sizes[:-1])
    assert any(len(task) > 1 for task in tasks) or at_once > len(whole)


def test_an_allocation_that_grows_is_not_taken_for_all_there_is() -> None:
    grows = _Session(2, spark_dynamicAllocation_enabled="true")
    register(grows)  # type: ignore[arg-type]
    assert grows.registered.at_once == 0
    assert understand({"path": "/x"}).split_bytes == 0
