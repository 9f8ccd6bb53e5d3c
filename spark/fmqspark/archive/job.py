"""Archive what is committed and not archived yet as Parquet; nothing comes twice.

1. What an earlier run planned and did not finish is done again, just as it was planned.
2. What is new is planned, one unit per segment, and the plan is synced.
3. The units are archived, on any engine; each is noted when all its files are there.
4. A unit that is damaged on all replicas is divided: what is around the damage is archived.

What no replica gives now (a segment that is missing, or whose begin no replica can read) is
planned, too, and left out: a later run archives it, and until then the archive's readers know.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fmqcore.errors import CorruptJournal, FmqError, InvalidArgument, Unavailable
from fmqcore.ids import Position, TopicId
from fmqcore.scan.selection import Range, Wanted
from fmqspark.archive.integrity import Amiss, compare_sizes
from fmqspark.archive.journal_identity import only_here, same_journal
from fmqspark.archive.ledger import (
    Book,
    Ledger,
    Unit,
    load,
    one_plans,
    open_book,
)
from fmqspark.archive.skip_damage import around, part
from fmqspark.archive.write import ArchiveResult, ArchiveTask, archive_unit
from fmqspark.engines.engine import Engine
from fmqspark.source.brokers import is_broker
from fmqspark.source.names import add_topic_names
from fmqspark.source.planning import SPLIT_BYTES, plan
from fmqspark.source.survey import Survey, no_file, survey

DONE: Final = 0
INCONSISTENT: Final = 2
INCOMPLETE: Final = 3


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Options of an archive run: what to archive, and where to."""

    directories: tuple[str, ...]  # or brokers: see `fmqspark.source.access`
    folder: Path
    group: str = "journal"
    """The journal's name in the archive."""
    topics: tuple[str, ...] | None = None
    bytes_per_s: float = 0
    ignore_missing: bool = False
    """Archived files may be gone: they were moved away on purpose."""
    listed: frozenset[str] | None = None
    """Topics that the brokers list for this group; None: not asked, as directories are read."""


@dataclass(slots=True)
class Archived:
    """The outcome of a run."""

    end: int = 0
    units: int = 0
    files: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    lost: list[Unit] = field(default_factory=list)
    failed: list[ArchiveResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """Sentences to report: which replica could not give what, so that others had to."""
    amiss: Amiss = Amiss()
    ignore_missing: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code: damage comes first; what is not archived is not done."""
        if any(isinstance(result.failed, CorruptJournal) for result in self.failed):
            return INCONSISTENT
        less = self.failed or self.lost or self.amiss.counts(self.ignore_missing)
        return INCOMPLETE if less else DONE

    def as_data(self) -> dict[str, Any]:
        """Return the outcome for `-o json`."""
        return {
            "exit_code": self.exit_code,
            "archived_to": self.end,
            "units": self.units,
            "files": self.files,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "replicas": self.notices,
            "missing": list(self.amiss.gone),
            "changed": list(self.amiss.changed),
            "lost": [list(unit) for unit in self.lost],
            "failed": [
                {"begin": r.unit.begin, "end": r.unit.end, "why": str(r.failed)}
                for r in self.failed
            ],
        }


def run_archive(
    options: ArchiveOptions,
    engine: Engine,
    report_progress: Callable[[int, int], None] = lambda *_: None,
) -> Archived:
    """Run the job; `report_progress(done, of)` gets how many units are done, of how many.

    Raises `InvalidArgument`, `CorruptJournal`, `Unavailable`, `DirectoryLocked`, `EngineFailed`,
    `OSError`.
    """
    before = load(options.folder, options.group)
    found = _look(options.directories, before)
    found.listed = options.listed
    outcome = Archived(notices=found.notices, ignore_missing=options.ignore_missing)
    topics = None if options.topics is None else sorted(set(options.topics))
    if topics is not None and (before is None or before.end is None):
        # Later a topic may be gone from what is left of the journal; at first it is a mistake, and
        # is reported before a folder is made.
        _require_topics(found, topics)
    only_here(options.folder, options.group, topics, found, before)
    with open_book(options.folder, options.group) as book:
        same_journal(book, found)
        _nothing_hidden(book, found)
        outcome.amiss = compare_sizes(options.folder, book.ledger)
        with one_plans(options.folder):
            only_here(options.folder, options.group, topics, found, book.ledger)
            book.begin(topics)
            book.remove_scratch()
            units = _pending(book, found, outcome) + _new(book, found, outcome)
        if topics is not None:
            units = [unit for unit in units if _named(found, unit, outcome)]
        wanted = Wanted(topics=_ids(found, topics))
        rate = options.bytes_per_s / engine.workers
        started = {unit.begin for into in book.ledger.cut.values() for unit in into}
        tasks = [_task(options, found, wanted, unit, rate, started) for unit in units]
        _run(book, outcome, engine, tasks, report_progress)
        outcome.failed.sort(key=lambda r: r.unit)
        outcome.end = book.ledger.end or 0
    return outcome


def _look(directories: Sequence[str], before: Ledger | None) -> Survey:
    """Survey what there is to read.

    What is archived need not be there any more: a replica that is far behind would end all
    archiving.
    """
    try:
        found = survey(directories, around=True)
    except (CorruptJournal, OSError) as error:
        if before is None or before.end is None:
            raise
        since = min([unit.begin for unit in before.pending] + [before.end])
        found = survey(directories, since=since, around=True)
        found.notices.append(f"the existing archive was not checked: {error}")
    if found.gaps and not found.segments:
        raise found.gaps[0].why
    return found


def _require_topics(found: Survey, topics: Sequence[str]) -> None:
    """Raise `InvalidArgument` for an unknown topic, another error if that cannot be known."""
    failed = [gap.why for gap in found.gaps]
    for view in found.segments:
        try:
            add_topic_names(found, [Range(view.segment.base, view.until)])
        except (FmqError, OSError) as error:
            failed.append(error)
    try:
        found.topic_ids(topics)
    except InvalidArgument as error:
        if not failed:
            raise
        message = f"{error}; but parts of the journal cannot be read: {failed[0]}"
        if isinstance(failed[0], OSError):
            raise OSError(message) from failed[0]
        raise type(failed[0])(message) from failed[0]


def _run(
    book: Book,
    outcome: Archived,
    engine: Engine,
    tasks: Sequence[ArchiveTask],
    report_progress: Callable[[int, int], None],
) -> None:
    """Archive the units; of damaged ones, what is around the damage."""
    damaged = list[ArchiveResult]()
    report_progress(0, len(tasks))
    for number, result in enumerate(engine.run(archive_unit, tasks), 1):
        if result.bad and around(result.unit, result.bad):
            damaged.append(result)
        else:
            _note(book, outcome, result)
        report_progress(number, len(tasks))
    rest = _around(book, outcome, tasks, damaged)
    for number, result in enumerate(engine.run(archive_unit, rest), len(tasks) + 1):
        _note(book, outcome, result)
        report_progress(number, len(tasks) + len(rest))


def _around(
    book: Book, outcome: Archived, tasks: Sequence[ArchiveTask], damaged: list[ArchiveResult]
) -> list[ArchiveTask]:
    """Divide damaged units, and return tasks for what is around the damage.

    What no replica can give waits, alone, for one that can.
    """
    task_of, rest = {task.unit: task for task in tasks}, list[ArchiveTask]()
    for result in sorted(damaged, key=lambda result: result.unit):
        unit, bad = result.unit, result.bad
        left = around(unit, bad)
        book.cut(unit, sorted([*left, *(each.unit for each in bad)]))
        outcome.bytes_read += result.bytes_read
        outcome.failed += [ArchiveResult(each.unit, failed=each.why) for each in bad]
        task = task_of[unit]
        rest += [replace(task, unit=each, splits=part(task.splits, each)) for each in left]
    return rest


def _note(book: Book, outcome: Archived, result: ArchiveResult) -> None:
    outcome.bytes_read += result.bytes_read
    if result.failed is not None:
        outcome.failed.append(result)
        return
    book.finish(result.unit, result.files)
    outcome.units += 1
    outcome.files += len(result.files)
    outcome.rows += sum(file.rows for file in result.files)
    outcome.bytes_written += sum(file.bytes for file in result.files)


def _ids(found: Survey, topics: Sequence[str] | None) -> frozenset[TopicId] | None:
    """Return topics as ids; one that is not there (any more, in this part) has no records."""
    if topics is None:
        return None
    return frozenset(i for i, name in found.names.items() if name in topics)


def _named(found: Survey, unit: Unit, outcome: Archived) -> bool:
    """Return whether all topics that have records in a unit are known.

    Else it is not known which of them to take.
    """
    try:
        add_topic_names(found, [Range(*unit)])
    except (FmqError, OSError) as error:
        outcome.failed.append(ArchiveResult(unit, failed=error))
        return False
    return True


def _nothing_hidden(book: Book, found: Survey) -> None:
    """Raise an error if a replica that reports nothing may have what would be given up.

    What is on none of the replicas is given up for good, so all that are named must be asked. The
    error is `Unavailable` (a broker) or `OSError` (a directory).
    """
    ledger = book.ledger
    begin = min([unit.begin for unit in ledger.pending] + [ledger.end or 0])
    if ledger.end is None or begin >= found.begin or not found.left_out:
        return
    message = (
        f"positions {begin} to {found.begin} are not archived yet, and on none that can be read; "
        f"{'; '.join(found.left_out)}; archive again with it, as it may have them, or do not name "
        "it any more (of brokers: take it out of the group), and they are given up"
    )
    raise Unavailable(message) if found.last else OSError(message)


def _pending(book: Book, found: Survey, outcome: Archived) -> list[Unit]:
    """Return the units that an earlier run left; one that is gone is lost, with all its files."""
    units, marks = [], dict[int, int]()
    left = book.ledger.pending
    for unit in left:
        if unit.begin >= found.begin and unit.end > found.end:
            message = (
                f"the archive is at position {unit.end}, what can be read ends at {found.end}: "
                + "; ".join(["a replica that is behind; name the others, too", *found.notices])
            )
            # A broker that knew more is away: it, or what it knew, comes back.
            raise Unavailable(message) if found.last else InvalidArgument(message)
        if unit.begin < found.begin:
            left += _lost(book, found, outcome, unit)
        elif (why := _missing(found, unit)) is not None:
            outcome.failed.append(ArchiveResult(unit, failed=why))
        else:
            units.append(unit)
            for view in found.segments:
                if view.segment.base < unit.end and view.until > unit.begin:
                    marks |= view.marks
    book.plan([], {at: marks[at] for at in marks.keys() - book.ledger.marks.keys()})
    return units


def _lost(book: Book, found: Survey, outcome: Archived, unit: Unit) -> list[Unit]:
    """Note the deleted part of a unit as lost; return the rest, which may still be stored."""
    gone, rest = Unit(unit.begin, min(unit.end, found.begin)), list[Unit]()
    if gone.end < unit.end and (left := Unit(gone.end, unit.end)) not in book.ledger.planned:
        rest = [left]
        book.plan(rest, {})  # before the whole is not planned any more
    book.remove_files(unit)
    book.lose(gone)
    outcome.lost.append(gone)
    return rest


def _missing(found: Survey, unit: Unit) -> FmqError | OSError | None:
    """Return why no replica can give all of a range; None if one can.

    What is not read is not archived, nor is it empty.
    """
    at: int = unit.begin
    for view in found.segments:
        if view.segment.base <= at < view.until:
            at = view.until
    if at >= unit.end:
        return None
    gaps = [gap.why for gap in found.gaps if gap.begin < unit.end and gap.end > unit.begin]
    return gaps[0] if gaps else no_file(at, unit.end)


def _new(book: Book, found: Survey, outcome: Archived) -> list[Unit]:
    """Plan what came since, and what is older than all before: one unit per segment."""
    begin = book.ledger.end
    if begin is not None and begin < found.begin:
        lost = Unit(begin, found.begin)
        book.lose(lost)
        outcome.lost.append(lost)
    begin = max(begin or 0, found.begin)
    oldest = _oldest(book, found)

    def new(base: int, end: int) -> list[Unit]:
        if end <= oldest:
            return [Unit(base, end)]
        return [Unit(max(base, begin), end)] if end > begin else []

    units, marks = list[Unit](), dict[int, int]()
    for view in found.segments:
        if here := new(view.segment.base, view.until):
            units += here
            marks |= view.marks
    missing = list[ArchiveResult]()
    pending = book.ledger.pending
    for gap in found.gaps:
        if here := new(gap.begin, gap.end):
            missing += [ArchiveResult(unit, failed=gap.why) for unit in here]
        elif not any(unit.begin < gap.end and unit.end > gap.begin for unit in pending):
            found.notices.append(
                f"positions {gap.begin} to {gap.end}, archived earlier, cannot be read any more: "
                f"{gap.why}"
            )
    book.plan(sorted([*units, *(result.unit for result in missing)]), marks)
    outcome.failed += missing
    return units


def _oldest(book: Book, found: Survey) -> int:
    """Return where the archive begins, if what is older belongs to it; else 0.

    A replica that has more than those before is recognised by the segment in which the archive
    begins: it has that one, too (`same_journal` has looked), and its bytes go on to there.
    """
    begin = book.ledger.begin
    if begin is None or begin not in book.ledger.marks:
        return 0
    return begin if any(view.segment.base == begin for view in found.segments) else 0


def _task(
    options: ArchiveOptions,
    found: Survey,
    wanted: Wanted,
    unit: Unit,
    rate: float,
    started: Container[int],
) -> ArchiveTask:
    """Return a unit's task; `started`: where units begin behind damage.

    A reader of such a unit need not come past the damage.
    """
    within = replace(wanted, positions=Range(unit.begin, unit.end))
    size = SPLIT_BYTES if is_broker(options.directories[0]) else 2**62
    splits = tuple(
        replace(split, known=Position(max(split.known, unit.begin)))
        if unit.begin in started
        else split
        for split in plan(found, within, size)
    )
    return ArchiveTask(unit, splits, str(options.folder), options.group, rate)
