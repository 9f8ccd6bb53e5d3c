"""`fmq journal ls|dump|verify`: look at a data directory, offline, read-only.

Safe beside a running broker: it only reads, and takes the moving end for what it is. Data on
standard output, talk on standard error. Exit codes: 0 clean, 1 warnings (they heal at the next
start), 2 inconsistent, 3 incomplete (something could not be read, or the output not be written),
64 wrong usage. `ls` and `dump` use them for the part that they read.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from fmqcli import common
from fmqcli.common import USAGE, NotWritten, Output, OutputOption, talk
from fmqcli.given_names import name_option
from fmqcli.journal_dump import Dump, Filter
from fmqcli.journal_unread import UnreadFiles
from fmqcli.output import journal as show
from fmqcli.stdio.input_paths import folder
from fmqcore.ids import Position
from fmqcore.journal.findings import Finding, Severity, with_what_is_there, worst
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import index_name
from fmqcore.verify.directory import SegmentReport, Verifier
from fmqinspect.directory import in_place_of
from fmqinspect.files import DataDirectory, NoJournal, SegmentBytes
from fmqinspect.small_files import Notes

INCOMPLETE: Final = 3
_COLUMNS: Final = ("SEGMENT", "USED", "BATCHES", "RECORDS", "FIRST", "LAST", "STATE", "INDEX")
_INCONSISTENT: Final = 2
_VERDICTS: Final = {
    0: "clean",
    1: "warnings",
    _INCONSISTENT: "inconsistent",
    INCOMPLETE: "incomplete",
}
_BAR_FROM_BYTES: Final = 64 * 1024 * 1024
_LOOKS: Final = 10
_RETRY_S: Final = 0.05
_LINES: Final = 500  # written in one go

app = typer.Typer(
    name="journal",
    help="Inspect a broker's data directory: offline, read-only.",
    no_args_is_help=True,
)


Directory = Annotated[
    Path, typer.Argument(metavar="DIR", parser=folder, help="a broker's data directory")
]


@app.command()
def ls(directory: Directory, output: OutputOption = Output.TABLE) -> None:
    """List the segments: bytes used, batches, records, times, sealed, index."""
    with _opened(directory) as opened:
        listing = _Listing(opened)
        rows = list(listing.rows())
        common.show(output, _COLUMNS, map(_cells, rows), rows)
        code = listing.print_notes()
    raise typer.Exit(code)


@app.command()
def dump(
    directory: Directory,
    topic: Annotated[
        str | None, name_option("topic", "only this topic: name or number", metavar="TOPIC")
    ] = None,
    queue: Annotated[int | None, typer.Option(help="only this queue", min=0)] = None,
    start: Annotated[int, typer.Option("--from", help="position of the first batch", min=0)] = 0,
    limit: Annotated[int, typer.Option(help="maximum number of batches; 0 = all", min=0)] = 0,
    values: Annotated[
        bool, typer.Option("--values", help="print the records of each batch, too")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print one line a batch; with -o json one JSON object a line."""
    wanted = Filter(topic or "", queue, Position(start), limit)
    with _opened(directory) as opened:
        dumping = Dump(opened, wanted, values=values)
        lines: list[str] = []
        for row in dumping.rows():
            if output is Output.JSON:
                lines.append(json.dumps(row) + "\n")
            else:
                lines.append(show.batch_line(row) + "\n")
                lines += [show.record_line(record) + "\n" for record in row.get("values", ())]
            if len(lines) >= _LINES:
                common.write("".join(lines).encode())
                lines.clear()
        common.write("".join(lines).encode())
        if dumping.stopped:
            talk(dumping.stopped.rstrip())
            raise typer.Exit(dumping.exit_code)


@app.command()
def verify(directory: Directory, output: OutputOption = Output.TABLE) -> None:
    """Check everything: checksums, chain, continuity, snapshots, indexes, the small files."""
    with _opened(directory) as opened:
        checked, code = _verified(opened)
        if output is Output.JSON:
            common.show(output, (), (), checked.as_data(code))
        else:
            checked.print(code)
    raise typer.Exit(code)


def _verified(opened: DataDirectory) -> tuple["_Verification", int]:
    """Damage seen beside a broker at work is looked at twice: it may have cut its journal."""
    for attempt in (1, 2):
        checked = _Verification(opened)
        checked.run()
        code = checked.exit_code()
        if code != _INCONSISTENT or not opened.live or attempt == 2:
            break
        opened = DataDirectory(opened.path)
    return checked, code


class _Verification:
    """One run over a directory."""

    def __init__(self, opened: DataDirectory) -> None:
        self._opened = opened
        self._reports: list[SegmentReport] = []
        self._files = UnreadFiles(opened)
        self._unread_notes: list[str] = []
        self._verifier = Verifier(
            opened.listing, opened.checkpoint, unread=opened.unread, live=opened.live
        )
        self._notes = Notes(opened, self._verifier.segments)

    def run(self) -> None:
        files = self._verifier.segments
        with _progress(sum(file.size for file in files)) as progress:
            for file in files:
                self._one(file, progress)
        self._verifier.finish()
        self._unread_notes = self._notes.read(self._reports)

    @property
    def _unreadable(self) -> list[str]:
        return [*self._files.unread, *self._unread_notes]

    @property
    def _findings(self) -> list[Finding]:
        seen = _looked_at(self._opened, self._verifier.findings)
        return [*seen, *self._files.findings, *self._notes.findings]

    def _one(self, file: SegmentFile, progress: Any) -> None:
        try:
            with self._opened.segment(file.name) as data:
                index = self._opened.small(index_name(file.base))
                report = self._verifier.segment(
                    file, data, index, again=_Again(data), progress=progress
                )
            self._reports.append(report)
        except OSError as failed:
            self._files.note(file, failed)

    def exit_code(self) -> int:
        severity = worst(self._findings)
        if severity is Severity.ERROR:
            return _INCONSISTENT
        if self._unreadable or any(report.moving for report in self._reports):
            return INCOMPLETE
        return 1 if severity is Severity.WARNING else 0

    def coverage(self) -> show.Row:
        reports = self._reports
        return {
            "segments": len(reports),
            "of_segments": len(self._verifier.segments),
            "bytes_read": sum(report.used for report in reports),
            "bytes_not_read": sum(report.unread_bytes for report in reports) + self._files.size,
            "batches": sum(report.batches for report in reports),
            "records": sum(report.records for report in reports),
            "unreadable": self._unreadable,
            "moving_end": any(report.moving for report in reports),
        }

    def as_data(self, code: int) -> show.Row:
        return {
            "directory": str(self._opened.path),
            "verdict": _VERDICTS[code],
            "exit_code": code,
            "live": self._opened.live,
            "coverage": self.coverage(),
            "findings": [show.finding_row(finding) for finding in self._findings],
            "segments": [show.report_row(report) for report in self._reports],
            "notes": [show.note_row(note) for note in self._notes.found],
        }

    def print(self, code: int) -> None:
        lines = []
        for finding in self._findings:
            where = "" if finding.position is None else f", position {finding.position}"
            lines.append(
                f"{finding.severity.value}: {finding.code.name} {finding.file}{where}: "
                f"{finding.sentence}\n  remedy: {finding.remedy}\n"
            )
        lines += [f"not read: {line}\n" for line in self._unreadable]
        lines += [f"{n.file}: {n.says}\n" for n in self._notes.found if n.finding is None]
        coverage = self.coverage()
        lines.append(
            f"read {coverage['segments']} of {coverage['of_segments']} segments, "
            f"{show.size(coverage['bytes_read'])}, {coverage['batches']} batches, "
            f"{coverage['records']} records; not read: "
            f"{show.size(coverage['bytes_not_read'])}"
            f"{' and the moving end' if coverage['moving_end'] else ''}\n"
            f"verdict: {_VERDICTS[code]}\n"
        )
        common.write("".join(lines).encode())


class _Again:
    """Looks again at a moving end, a few times for each size it had."""

    def __init__(self, data: SegmentBytes) -> None:
        self._data = data
        self._left = _LOOKS

    def __call__(self) -> bool:
        if not self._left:
            return False
        self._left -= 1
        time.sleep(_RETRY_S)
        self._data.refresh()
        return True


class _Listing:
    """What `ls` shows: headers and indexes only; payloads are for `verify`."""

    def __init__(self, opened: DataDirectory) -> None:
        self._opened = opened
        self._empty = opened.empty()
        self._verifier = Verifier(
            opened.listing, opened.checkpoint, unread=opened.unread, live=True, payloads=False
        )
        self._notes = Notes(opened, self._verifier.segments)
        self._opening_findings = _looked_at(opened, self._verifier.findings)
        self._files = UnreadFiles(opened)
        self._torn = False

    def rows(self) -> Iterator[show.Row]:
        """One row per segment that can be read."""
        opened, verifier, empty = self._opened, self._verifier, self._empty
        for file in verifier.segments:
            try:
                with opened.segment(file.name) as data:
                    report = verifier.segment(file, data, opened.small(index_name(file.base)))
            except OSError as failed:
                self._files.note(file, failed)
                continue
            row = show.report_row(report)
            row["state"] = "sealed" if report.sealed else "open"
            if file.name == empty:
                row["state"] = "empty"
            if report.findings or report.moving:
                row["state"] = "see verify"
            self._torn |= report.moving and not opened.live
            yield row

    def print_notes(self) -> int:
        """Print the directory's findings and its notes; return the exit code."""
        unread = [*self._files.unread, *self._notes.read(None)]
        for line in unread:
            talk(f"not read: {line}")
        found = [*self._files.findings, *self._notes.findings]
        for finding in (*self._opening_findings, *found):
            talk(str(finding))
        for note in self._notes.found:
            if note.finding is None:
                talk(f"{note.file}: {note.says}")
        severity = worst([*self._verifier.findings, *found])
        if severity is Severity.ERROR:
            return _INCONSISTENT
        if unread:
            return INCOMPLETE
        return 1 if severity is Severity.WARNING or self._torn else 0


def _cells(row: show.Row) -> list[str]:
    return [
        str(row["base"]),
        show.size(row["used"]),
        str(row["batches"]),
        str(row["records"]),
        show.moment(row["first_ms"]),
        show.moment(row["last_ms"]),
        row["state"],
        row["index"],
    ]


def _looked_at(opened: DataDirectory, findings: Sequence[Finding]) -> list[Finding]:
    """What is no file is not listed: what stands in a missing one's place?"""
    return [
        with_what_is_there(finding, in_place_of(opened.path, finding.file)) for finding in findings
    ]


@contextmanager
def _opened(path: Path) -> Iterator[DataDirectory]:
    """The directory; wrong usage and unreadable files are reported here for all commands."""
    try:
        opened = DataDirectory(path)
        if opened.live:
            talk("a broker is at work in this directory: what is read is as of now")
        yield opened
    except NoJournal as error:
        talk(str(error))
        raise typer.Exit(USAGE) from None
    except NotWritten as error:
        talk(str(error))
        raise typer.Exit(INCOMPLETE) from None
    except OSError as error:
        talk(f"cannot read {error.filename or path}: {error.strerror or error}")
        raise typer.Exit(INCOMPLETE) from None


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, for large directories only."""
    if total < _BAR_FROM_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    bar = Progress(
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("verify", total=total)
        yield lambda count: bar.advance(task, count)
