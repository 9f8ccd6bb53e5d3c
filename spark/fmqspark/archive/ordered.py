"""Archive the ended segments of an ordered topic over all groups, in its order, with its chain.

A unit is one queue's part of one segment: an end never changes once it is given (K11), so nothing
comes twice. The open segment is archived after it has ended (`fmq ordered switch` ends it). In the
ledger the unit of segment k and queue q is [k * 65536 + q, k * 65536 + q + 1), so its files come in
the topic's order per queue, and a replay sends them in that order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fmqcore.errors import CorruptJournal, InvalidArgument
from fmqcore.zk.chain_json import chain_to_json
from fmqspark.archive.job import DONE, INCOMPLETE, INCONSISTENT
from fmqspark.archive.ledger import FOLDER, Unit, open_book
from fmqspark.archive.write import ArchiveResult, ArchiveTask, Order, archive_unit, put
from fmqspark.engines.engine import Engine
from fmqspark.source.files import sync_folder
from fmqspark.source.options import Request
from fmqspark.source.ordered import plan_ordered

_QUEUES: Final = 65_536


@dataclass(slots=True)
class OrderedArchive:
    """The outcome of a run."""

    group: str
    units: int = 0
    files: int = 0
    rows: int = 0
    failed: list[ArchiveResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code: damage comes first; what is not archived is not done."""
        if any(isinstance(result.failed, CorruptJournal) for result in self.failed):
            return INCONSISTENT
        return INCOMPLETE if self.failed else DONE

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `-o json`."""
        return {
            "exit_code": self.exit_code,
            "group": self.group,
            "units": self.units,
            "files": self.files,
            "rows": self.rows,
            "notices": self.notices,
            "failed": [{"unit": list(r.unit), "why": str(r.failed)} for r in self.failed],
        }


def archive_ordered(
    request: Request,
    folder: Path,
    engine: Engine,
    bytes_per_s: float = 0,
    report_progress: Callable[[int, int], None] = lambda *_: None,
) -> OrderedArchive:
    """Archive what has ended and is not archived yet. Raises what planning and reading raise."""
    plan = plan_ordered(request)
    chain = plan.chain
    group = f"ordered-{chain.topic}"
    outcome = OrderedArchive(group, notices=plan.notices)
    with open_book(folder, group) as book:
        book.begin([chain.topic])
        marks = {0: int(chain.topic_id)}
        if book.ledger.marks and book.ledger.marks != marks:
            raise InvalidArgument(
                f"{folder} holds another topic {chain.topic}, which was deleted since: archive "
                "into another folder"
            )
        tasks = []
        for stretch in plan.stretches:
            segment = chain.segment(stretch.segment)
            begin = stretch.segment * _QUEUES + stretch.queue
            unit = Unit(begin, begin + 1)
            if segment is None or segment.end is None or unit in book.ledger.done:
                continue
            order = Order(stretch.segment, stretch.group, stretch.shift)
            splits = tuple(
                split
                for task in plan.tasks
                if (task.segment, task.queue) == (stretch.segment, stretch.queue)
                for split in task.task
            )
            rate = bytes_per_s / engine.workers
            tasks.append(ArchiveTask(unit, splits, str(folder), group, rate, order))
        planned = set(book.ledger.planned)
        book.plan([task.unit for task in tasks if task.unit not in planned], marks)
        report_progress(0, len(tasks))
        for number, result in enumerate(engine.run(archive_unit, tasks), 1):
            if result.failed is not None:
                outcome.failed.append(result)
            else:
                book.finish(result.unit, result.files)
                outcome.units += 1
                outcome.files += len(result.files)
                outcome.rows += sum(file.rows for file in result.files)
            report_progress(number, len(tasks))
        home = folder / FOLDER
        fresh = home / f"{group}.chain.tmp"
        fresh.write_bytes(chain_to_json(chain))
        put(fresh, home / f"{group}.chain.json")
        sync_folder(home)
    return outcome
