"""Archive the ended segments of an ordered topic over all groups, in its order, with its chain.

A unit is one queue's part of one segment: an end never changes once it is given (K11), so nothing
comes twice. The open segment is archived after it has ended (`fmq ordered switch` ends it). In the
ledger the unit of segment k and queue q is [k * 65536 + q, k * 65536 + q + 1), so its files come in
the topic's order per queue, and a replay sends them in that order.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from fmqcore.errors import CorruptJournal, InvalidArgument, Malformed, Unavailable
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqspark.archive.job import DONE, INCOMPLETE, INCONSISTENT
from fmqspark.archive.ledger import FOLDER, Book, Ledger, Unit, bounded_name, load, open_book
from fmqspark.archive.write import ArchiveResult, ArchiveTask, Order, archive_unit, put
from fmqspark.engines.engine import Engine
from fmqspark.source.files import sync_folder
from fmqspark.source.options import Request
from fmqspark.source.ordered import KEEPING, OrderedPlan, chain_of, dropped_until, plan_ended
from fmqspark.source.splits import Split

_QUEUES: Final = 65_536


@dataclass(slots=True)
class OrderedArchive:
    """The outcome of a run."""

    group: str
    units: int = 0
    files: int = 0
    rows: int = 0
    failed: list[ArchiveResult] = field(default_factory=list)
    lost: list[Unit] = field(default_factory=list)
    """Whole segments that the chain has dropped, and parts of which retention took records."""
    notices: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The exit code: damage comes first; what is not archived is not done."""
        if any(isinstance(result.failed, CorruptJournal) for result in self.failed):
            return INCONSISTENT
        return INCOMPLETE if self.failed or self.lost else DONE

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `-o json`."""
        return {
            "exit_code": self.exit_code,
            "group": self.group,
            "units": self.units,
            "files": self.files,
            "rows": self.rows,
            "notices": self.notices,
            "lost": [list(unit) for unit in self.lost],
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
    chain = chain_of(request)
    group = bounded_name(f"ordered-{chain.topic}")
    done = (load(folder, group) or Ledger()).done
    plan = plan_ended(request, chain, lambda s: _unit(s.segment, s.queue) not in done)
    outcome = OrderedArchive(group, notices=plan.notices)
    with open_book(folder, group) as book:
        book.begin([chain.topic])
        marks = {0: int(chain.topic_id)}
        if book.ledger.marks and book.ledger.marks != marks:
            raise InvalidArgument(
                f"{folder} holds another topic {chain.topic}, which was deleted since: archive "
                "into another folder"
            )
        book.remove_scratch()
        _give_up_dropped(book, chain, outcome)
        tasks = _tasks(book, plan, bytes_per_s / engine.workers)
        planned = set(book.ledger.planned)
        book.plan([task.unit for task in tasks if task.unit not in planned], marks)
        _note_empty(book, chain)
        tasks = _without_doubtful(book, plan, outcome, tasks)
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
        _keep_chain(folder / FOLDER, group, chain)
    return outcome


def _keep_chain(home: Path, group: str, chain: Chain) -> None:
    """Store the chain, unless a newer one is there."""
    target = home / f"{group}.chain.json"
    with suppress(FileNotFoundError, Malformed):
        if _age(chain_from_json(target.read_bytes())) > _age(chain):
            return
    fresh = home / f"{group}.chain.tmp"
    fresh.write_bytes(chain_to_json(chain))
    put(fresh, target)
    sync_folder(home)


def _age(chain: Chain) -> tuple[int, int, int]:
    """Return what never falls while a chain goes on: opened, ended and dropped segments."""
    dropped = chain.floor.number
    ended = sum(segment.end is not None for segment in chain.segments)
    return chain.next_number, dropped + ended, dropped


def _give_up_dropped(book: Book, chain: Chain, outcome: OrderedArchive) -> None:
    """Note as lost the segments that the chain has dropped before they were archived.

    All consumer groups had read them, or retention had emptied them: it does not know any more
    which records were theirs.
    """
    ledger, planned = book.ledger, [*book.ledger.planned, *book.ledger.lost]
    numbers = {number for unit in planned for number in _segments(unit)}
    waiting = [unit for unit in ledger.pending if unit.begin // _QUEUES <= chain.floor.number]
    never = list[Unit]()
    for number in range(1, dropped_until(chain) + 1):
        whole = Unit(number * _QUEUES, (number + 1) * _QUEUES)
        if number in numbers:
            continue
        if never and never[-1].end == whole.begin:
            never[-1] = Unit(never[-1].begin, whole.end)
        else:
            never.append(whole)
    for unit in (*waiting, *never):
        book.remove_files(unit)
        book.lose(unit)
        outcome.lost.append(unit)
        outcome.notices.append(
            f"{_place(unit)}: dropped from the chain before it was archived, and given up; "
            f"{KEEPING}"
        )


def _note_empty(book: Book, chain: Chain) -> None:
    """Note ended segments without a record, so that they count as archived once dropped."""
    numbers = {number for unit in book.ledger.planned for number in _segments(unit)}
    for segment in takewhile(lambda segment: segment.end is not None, chain.segments):
        if segment.number not in numbers:
            unit = _unit(segment.number, 0)
            book.plan([unit], {})
            book.finish(unit, [])


def _segments(unit: Unit) -> range:
    return range(unit.begin // _QUEUES, (unit.end - 1) // _QUEUES + 1)


def _place(unit: Unit) -> str:
    """Return a unit in words: one queue of a segment, or whole segments."""
    numbers = _segments(unit)
    if unit.end - unit.begin == 1:
        return f"segment {numbers[0]} queue {unit.begin % _QUEUES}"
    if len(numbers) == 1:
        return f"segment {numbers[0]}"
    return f"each of segments {numbers[0]} to {numbers[-1]}"


def _tasks(book: Book, plan: OrderedPlan, bytes_per_s: float) -> list[ArchiveTask]:
    """Return what is to be archived: parts of ended segments that are not archived yet."""
    splits: dict[Unit, list[Split]] = {}
    for task in plan.tasks:
        splits.setdefault(_unit(task.segment, task.queue), []).extend(task.task)
    tasks = []
    for stretch in plan.stretches:
        unit = _unit(stretch.segment, stretch.queue)
        if unit in book.ledger.done:  # by another run since
            continue
        order = Order(stretch.segment, stretch.group, stretch.shift)
        given = tuple(splits.get(unit, ()))
        tasks.append(ArchiveTask(unit, given, str(book.folder), book.group, bytes_per_s, order))
    return tasks


def _without_doubtful(
    book: Book, plan: OrderedPlan, outcome: OrderedArchive, tasks: list[ArchiveTask]
) -> list[ArchiveTask]:
    """Note as lost what retention took of these tasks; their rest is archived.

    A task fails instead if a named directory that cannot be read may have all records.
    """
    deleted = {_unit(s.segment, s.queue): (s.group, text) for s, text in plan.deleted.items()}
    kept = []
    for task in tasks:
        group, text = deleted.get(task.unit, (None, ""))
        if group is not None and plan.left_out[group]:
            why = Unavailable(
                f"{text}; {'; '.join(plan.left_out[group])}; archive again with it, as it may have "
                "them, or do not name it any more, and they are given up"
            )
            outcome.failed.append(ArchiveResult(task.unit, failed=why))
            continue
        kept.append(task)
        if group is not None:
            outcome.lost.append(task.unit)
            if task.unit not in book.ledger.lost:  # else a run died behind this
                book.lose(task.unit)
    return kept


def _unit(segment: int, queue: int) -> Unit:
    begin = segment * _QUEUES + queue
    return Unit(begin, begin + 1)
