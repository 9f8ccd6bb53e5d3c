"""Run a check: directories in, an outcome with findings, coverage and a verdict out.

1. Look at every directory: what its listing and its checkpoint show (M, J005).
2. Check each segment (`segment.py`), on any engine.
3. Compare the replicas' digests, and read again only what differs (`compare.py`).

Beside a running broker damage is looked at twice: it may have truncated its journal meanwhile.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fmqcore.ids import Position
from fmqcore.journal.findings import Code, with_what_is_there
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.verify.directory import Verifier
from fmqinspect.directory import in_place_of
from fmqspark.check import compare
from fmqspark.check.progress import Progress
from fmqspark.check.replicas import compare_all
from fmqspark.check.rows import (
    CUT_SHORT,
    NO_FILE,
    NOT_OK,
    Covered,
    Found,
    Level,
    SegmentResult,
    State,
    found_on,
    is_error,
)
from fmqspark.check.segment import SegmentTask, check_segment
from fmqspark.check.small_files import Notes
from fmqspark.check.torn_tails import committed, escalate_torn_tails
from fmqspark.check.vanished_files import report_vanished_files
from fmqspark.engines.engine import Engine
from fmqspark.source.files import DataDirectory, inspect_directories, inspect_directory
from fmqspark.source.places import no_data_directory

CLEAN: Final = 0
WARNINGS: Final = 1
INCONSISTENT: Final = 2
INCOMPLETE: Final = 3
_RETRY_S: Final = 1.0
VERDICTS: Final = ("clean", "warnings", "inconsistent", "incomplete")
"""Verdicts by exit code."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a check: what to check, and how."""

    directories: tuple[Path, ...]
    level: Level = Level.STANDARD
    bytes_per_s: float = 0
    """Maximum bytes per second to read, all workers together; 0: no limit."""
    folder: Path | None = None
    """The folder for reports and progress."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a check: what it found and what it looked at."""

    level: Level
    replicas: list[str]
    live: list[str]
    findings: list[Found] = field(default_factory=list)
    coverage: list[Covered] = field(default_factory=list)
    segments: list[SegmentResult] = field(default_factory=list)
    reused: int = 0
    took_s: float = 0

    @property
    def exit_code(self) -> int:
        """The exit code: errors come first; what is not read is not OK."""
        if any(map(is_error, self.findings)):
            return INCONSISTENT
        not_ok = {state.value for state in NOT_OK}
        if any(covered.state in not_ok for covered in self.coverage):
            return INCOMPLETE
        return WARNINGS if self.findings else CLEAN

    def bytes_by_state(self) -> dict[str, int]:
        """Return how many bytes of the journals are in each state."""
        total = dict.fromkeys((state.value for state in State), 0)
        for covered in self.coverage:
            total[covered.state] += covered.bytes
        return total

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`."""
        counts: dict[str, int] = {}
        for found in self.findings:
            counts[found.code] = counts.get(found.code, 0) + 1
        return {
            "verdict": VERDICTS[self.exit_code],
            "exit_code": self.exit_code,
            "level": self.level.value,
            "replicas": self.replicas,
            "live": self.live,
            "findings": counts,
            "segments": len(self.segments),
            "segments_done_before": self.reused,
            "batches": sum(segment.batches for segment in self.segments),
            "records": sum(segment.records for segment in self.segments),
            "bytes": self.bytes_by_state(),
            "bytes_read": sum(segment.bytes_read for segment in self.segments),
            "took_s": round(self.took_s, 3),
        }


def run_check(
    options: Options,
    engine: Engine,
    report_progress: Callable[[int, int], None] = lambda *_: None,
    report: Callable[["Outcome"], bool] = lambda _: True,
) -> Outcome:
    """Run a check.

    `report_progress(done, of)` gets numbers of segments; `report` writes what is to stay and
    returns whether it did: only then the progress is removed.

    Raises `InvalidArgument`, `EngineFailed`, `DirectoryLocked`.
    """
    started = time.monotonic()
    views = _views(options)
    replicas: list[compare.Replica] = []
    outcome = Outcome(options.level, list(views), [n for n, v in views.items() if v.live])
    rate = options.bytes_per_s / engine.workers
    with Progress(options.folder) as progress:
        results = _segments(views, options.level, rate, engine, progress, outcome, report_progress)
        for name, view in list(views.items()):
            if view.live and any(is_error(found) for r in results[name] for found in r.findings):
                with suppress(OSError):  # then what was seen before counts
                    views[name] = inspect_directory(Path(view.path))
                again = {name: views[name]}
                results |= _segments(
                    again, options.level, rate, engine, progress, outcome, report_progress
                )
        notes = Notes(options.level)
        for name, view in views.items():
            report_vanished_files(view.path, results[name])
            if view.unread:
                file = CHECKPOINT if view.listing else ""
                outcome.coverage.append(Covered(name, file, 0, 0, State.UNREAD.value, view.unread))
            if not view.listing:
                continue
            verifier = _verifier(view)
            looked = [
                with_what_is_there(finding, in_place_of(view.path, finding.file))
                for finding in verifier.findings
            ]
            found_rows = _standing(view, [found_on(name, finding) for finding in looked])
            outcome.findings += found_rows
            missing = _missing(name, found_rows, results[name], verifier.durable_end)
            ends = committed(view.checkpoint)
            replicas.append(compare.replica_of(name, results[name], ends, missing))
            outcome.coverage += missing
            notes.check_directory(name, view, verifier.segments, results[name])
            for result in results[name]:
                outcome.segments.append(result)
                outcome.findings += result.findings
                outcome.coverage += result.coverage
        notes.compare()
        outcome.findings += notes.findings
        outcome.coverage += notes.coverage
        if len(views) == len(replicas) == 1:
            outcome.findings += compare.alone(*replicas)
        else:
            for some in notes.groups(replicas):
                found, coverage = compare_all(views, some, rate, engine)
                outcome.findings += found
                outcome.coverage += coverage
                escalate_torn_tails(some, views, outcome.findings, outcome.coverage)
        outcome.findings = _once(outcome.findings)
        outcome.findings.sort(key=lambda f: (f.replica, f.begin or 0, f.code, f.file, f.sentence))
        outcome.took_s = time.monotonic() - started
        if report(outcome):
            progress.finished()
    return outcome


def _views(options: Options) -> dict[str, DataDirectory]:
    """Return the directories to check, by the name under which each is reported."""
    found = inspect_directories(options.directories)
    if options.folder is not None:
        no_data_directory(options.folder, options.directories)
    views = {os.fsencode(view.path).decode(errors="backslashreplace"): view for view in found}
    assert len(views) == len(found), "no two folders have the same name"
    return views


def _verifier(view: DataDirectory) -> Verifier:
    """Return what the listing shows by itself."""
    return Verifier(view.listing, view.checkpoint, unread=view.unread if view.listing else "")


def _standing(view: DataDirectory, found_rows: list[Found]) -> list[Found]:
    """Return findings, except for files (M002) that a running broker has removed by now."""
    if not view.live or all(found.code != Code.M002.name for found in found_rows):
        return found_rows
    time.sleep(_RETRY_S)
    return [
        found
        for found in found_rows
        if found.code != Code.M002.name or os.path.lexists(os.path.join(view.path, found.file))
    ]


def _once(findings: Sequence[Found]) -> list[Found]:
    """Keep one finding of a segment that both the listing and its own bytes find fault with."""
    kept: dict[tuple[object, ...], Found] = {}
    for found in findings:
        key = (found.replica, found.code, found.file, found.begin)
        kept.setdefault(key if found.code == Code.J005.name else (*key, found.sentence), found)
    return list(kept.values())


def _tasks(view: DataDirectory, name: str, level: Level, rate: float) -> list[SegmentTask]:
    """Return one task per segment, ascending."""
    verifier = _verifier(view)
    files = verifier.segments
    ends = _ends(view, verifier)
    made = []
    for i, file in enumerate(files):
        near = sorted({file, *files[i + 1 : i + 2], *files[-2:]})
        made.append(
            SegmentTask(
                name,
                view.path,
                file.base,
                file.size,
                level,
                tuple((each.name, each.size) for each in near),
                view.checkpoint,
                view.live,
                newest=file in ends,
                bytes_per_s=rate,
            )
        )
    return made


def _ends(view: DataDirectory, verifier: Verifier) -> tuple[SegmentFile, ...]:
    """Return where the journal ends: the newest file, and the one before if that is empty."""
    files = verifier.segments
    newest_started = files and not (
        files[-1].name == view.empty and files[-1].base == verifier.durable_end
    )
    return files[-1:] if newest_started else files[-2:]


def _segments(
    views: dict[str, DataDirectory],
    level: Level,
    rate: float,
    engine: Engine,
    progress: Progress,
    outcome: Outcome,
    report_progress: Callable[[int, int], None],
) -> dict[str, list[SegmentResult]]:
    """Check every segment of these replicas, except those that were done before."""
    tasks = [task for name, view in views.items() for task in _tasks(view, name, level, rate)]
    results: dict[str, list[SegmentResult]] = {name: [] for name in views}
    todo = {}
    for task in tasks:
        before = progress.done(task)
        if before is None:
            todo[task.replica, task.base] = task
        else:
            results[task.replica].append(before)
            outcome.reused += 1
    done = len(tasks) - len(todo)
    report_progress(done, len(tasks))
    for result in engine.run(check_segment, list(todo.values())):
        results[result.replica].append(result)
        progress.add(todo[result.replica, result.base], result)
        done += 1
        report_progress(done, len(tasks))
    for found in results.values():
        found.sort(key=lambda result: result.base)
    return results


def _missing(
    name: str, found_rows: Sequence[Found], results: Sequence[SegmentResult], durable_end: Position
) -> list[Covered]:
    """Return what is in no file that is there: holes, and what must be behind the last file.

    The last file may be cut short with a hole behind it: what lies between is missing, too.
    """
    holes = [
        (segment_name(Position(found.begin)), found.begin, found.end, NO_FILE)
        for found in found_rows
        if found.code == Code.J005.name and found.begin is not None and found.end is not None
    ]
    if results:
        last = max(results, key=lambda result: result.base + result.size)
        end = last.base + last.size
        until = min((begin for _, begin, _, _ in holes if begin >= end), default=durable_end)
        whole = last.sealed and last.end == end
        file = segment_name(Position(end if whole else last.base))
        if end < until:
            holes.append((file, end, until, NO_FILE if whole else CUT_SHORT))
    unread = State.UNREAD.value
    return [Covered(name, file, begin, end, unread, why) for file, begin, end, why in holes]
