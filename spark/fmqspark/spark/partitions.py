"""A task as a Spark partition, and how an executor reads it into Arrow record batches."""

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from fmqspark.source.fields import Field
from fmqspark.source.files import Throttle
from fmqspark.source.options import ORDERED_COLUMNS
from fmqspark.source.ordered import OrderedTask
from fmqspark.source.planning import Task
from fmqspark.source.splits import SplitReader

_KEPT: Final = 31 * 1024 * 1024
_LARGE: Final = 4
"""Slabs whose values are parsed are this many times as large: DuckDB plans each, in 2 ms."""


class TaskPartition(InputPartition):
    """The splits of one task, as a Spark partition."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task


class OrderedPartition(TaskPartition):
    """A task within one segment of an ordered topic's chain."""

    def __init__(self, task: OrderedTask) -> None:
        super().__init__(task.task)
        self.segment = task.segment
        self.shift = task.shift


def print_notices(sentences: Iterable[str]) -> None:
    """Write sentences to the driver's log; they do not fail the query."""
    for each in sentences:
        sys.stderr.write(f"fmq: {each}\n")


def partitions(tasks: Sequence[Task]) -> list[TaskPartition]:
    """Return the tasks as Spark partitions."""
    return [TaskPartition(task) for task in tasks]


def ordered_partitions(tasks: Sequence[OrderedTask]) -> list[TaskPartition]:
    """Return the tasks as Spark partitions, in the topic's order."""
    return [OrderedPartition(task) for task in tasks]


def read(
    partition: InputPartition, columns: tuple[str, ...], fields: tuple[Field, ...] = ()
) -> Iterator[Any]:
    """Yield the Arrow record batches of a task; an empty plan is one partition without a task."""
    if not isinstance(partition, OrderedPartition):
        yield from _read(partition, columns, fields)
        return
    from fmqspark.source.arrow import with_order

    own = tuple(name for name in columns if name not in ORDERED_COLUMNS)
    inner = own if "offset" in own or own == columns else (*own, "offset")
    for batch in _read(partition, inner, fields):
        yield with_order(batch, columns, partition.segment, partition.shift)


def _read(
    partition: InputPartition, columns: tuple[str, ...], fields: tuple[Field, ...]
) -> Iterator[Any]:
    from fmqspark.source.arrow import record_batch, stored

    spare_loaded_modules()
    if not isinstance(partition, TaskPartition):
        return
    within = _within(fields, columns)
    times = _LARGE if within else 1
    for split in partition.task:
        reader = SplitReader(split, stored(columns), Throttle(0), times=times)
        for slab in reader:
            yield record_batch(slab, columns, reader.names, split.wanted.offsets, within)


def _within(fields: tuple[Field, ...], columns: tuple[str, ...]) -> Any:
    asked = [each.column for each in fields if each.column in columns]
    if not asked:
        return None
    from fmqspark.source.json_columns import FieldReader

    _keep_memory()
    return FieldReader(fields, asked)


@cache
def _keep_memory() -> None:
    """Keep the memory of a large slab in the process for the next one.

    glibc gives back what is free above twice the largest block that it mapped and freed, of those
    below 32 MiB (mallopt(3)); each page of the next slab would be a fault again, half of the cost
    of reading it. The block's own pages are never touched. Without glibc this does nothing.
    """
    bytes(_KEPT)


_times = 0


def spare_loaded_modules() -> None:
    """From the second call in a worker on, exclude its modules from garbage collection.

    Spark collects garbage after each task: 50 ms of CPU for the 100,000 objects of Spark, Arrow and
    pandas, none of which ever goes. It has just done so when the next task begins.
    """
    global _times
    _times += 1
    if _times == 2:
        gc.freeze()
