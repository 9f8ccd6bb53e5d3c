"""`fmq job ...` and `python -m fmqspark ...`: the jobs on the command line, same options.

Data goes to standard output, messages to standard error. Exit codes:

    0 clean   1 warnings   2 inconsistent   3 incomplete   64 wrong usage   69 unavailable
    130 interrupted   143 terminated
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fmqcore.errors import InvalidArgument
from fmqcore.names import is_name, no_name
from fmqspark.check.job import INCOMPLETE, INCONSISTENT, Options, Outcome, run_check
from fmqspark.check.rows import Level
from fmqspark.cli.errors import (
    INTERRUPTED,
    USAGE,
    ends_in_order,
    errors_reported,
    leave,
    mistake,
    say,
    sentence,
    write,
)
from fmqspark.cli.ordered import (
    archive_request,
    ordered_options,
    run_ordered,
    run_ordered_archive,
)
from fmqspark.cli.progress import progress
from fmqspark.engines.engines import open_engine
from fmqspark.rebuild.job import Done, IndexResult, rebuild
from fmqspark.source.places import each_once, no_data_directory

if TYPE_CHECKING:
    from fmqspark.archive.job import Archived
    from fmqspark.source.brokers import Members

_UNITS: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}
_SHOWN: Final = 50

app = typer.Typer(
    name="job",
    help="Data jobs: check a journal and its replicas, rebuild indexes, archive and replay.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


class Output(Enum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


class EngineName(Enum):
    """Where the tasks of a job run."""

    LOCAL = "local"
    POOL = "pool"
    SPARK = "spark"


def _folder(text: str) -> Path:
    """Parse a folder's name; an empty one (an unset variable) would be the current folder."""
    if not text:
        raise typer.BadParameter("the folder's name is empty: name a folder, or . for this one")
    if text == "-":
        raise typer.BadParameter(
            "- is standard input or output: name a folder (one called - is ./-)"
        )
    return Path(text)


def _file(text: str) -> Path:
    """Parse the name of a file to read; `-` is standard input."""
    if not text:
        raise typer.BadParameter("a file's name is empty: name one, or - for standard input")
    return Path("/dev/stdin" if text == "-" else text)


def _topic(text: str) -> str:
    """Parse a topic's name; an empty one (an unset variable) is no topic."""
    if not is_name(text):
        raise typer.BadParameter(no_name("topic", text))
    return text


def _brokers(text: str) -> str:
    """Parse the address of live brokers."""
    if not text:
        raise typer.BadParameter("the address of the brokers is empty: fmq://host:port,...")
    return text


_DIRECTORIES: Final = typer.Argument(
    metavar="DIR...",
    parser=_folder,
    help="data directories of the brokers of one group, the master's first",
)
Directories = Annotated[list[Path], _DIRECTORIES]
EngineOption = Annotated[
    EngineName,
    typer.Option("--engine", help="where tasks run: this process, a pool of processes, or Spark"),
]
Workers = Annotated[
    int, typer.Option(min=0, max=4096, help="number of tasks at a time; 0 = as many as cores")
]
Master = Annotated[
    str, typer.Option(help="Spark's master; left out: this machine, or spark-submit's")
]
Rate = Annotated[
    str, typer.Option(help="maximum bytes to read per second, in total: 50M, 1G; 0 = no limit")
]
Connect = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        parser=_brokers,
        help="read from live brokers, fmq://host:port,..., instead of directories",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="how to print results")]


@app.callback()
def _app(context: typer.Context) -> None:
    """Data jobs."""
    context.with_resource(ends_in_order())


@app.command()
def check(
    directories: Directories,
    level: Annotated[
        Level,
        typer.Option(help="quick: headers; standard: control batches, too; deep: every checksum"),
    ] = Level.STANDARD,
    engine: EngineOption = EngineName.LOCAL,
    workers: Workers = 0,
    master: Master = "",
    rate: Rate = "0",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=_folder,
            help="folder for summary.json, findings and coverage.parquet, report.html",
        ),
    ] = None,
    ordered: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            parser=_topic,
            help="check this ordered topic: each DIR is GROUP=DIR, of all groups",
        ),
    ] = None,
    chain: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=_file,
            help="with --ordered: a file with the output of fmq ordered status TOPIC -o json",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a journal: batches, indexes, offsets, checkpoint; several directories: replicas."""
    if ordered is not None or chain is not None:
        with errors_reported():
            what = ordered_options(ordered or "", chain, directories, level, out, _bytes(rate))
            with open_engine(engine.value, workers, master) as running:
                text, code = run_ordered(what, running, as_json=output is Output.JSON)
            leave(text)
            write(text)
        raise typer.Exit(code)
    with errors_reported():
        if out is not None:
            from fmqspark.check.tables import require_arrow

            require_arrow()
        options = Options(tuple(directories), level, _bytes(rate), out)
        unwritten: list[OSError] = []
        with open_engine(engine.value, workers, master) as running:
            outcome = run_check(options, running, progress("checked"), _reports(out, unwritten))
        leave(_in_short(outcome))
        if output is Output.JSON:
            write(json.dumps(_as_data(outcome), indent=1) + "\n")
        else:
            write(_text(outcome, None if unwritten else out))
    for error in unwritten:
        say(f"the reports are not written ({sentence(error)}): the findings are only printed above")
    code = max(outcome.exit_code, INCOMPLETE) if unwritten else outcome.exit_code
    raise typer.Exit(INCONSISTENT if outcome.exit_code == INCONSISTENT else code)


def _reports(out: Path | None, unwritten: list[OSError]) -> Callable[[Outcome], bool]:
    """Write the reports; a failure to do so does not hide what was found."""

    def report(outcome: Outcome) -> bool:
        if out is None:
            return True
        from fmqspark.check.reports import write_reports

        try:
            write_reports(out, outcome)
        except OSError as error:
            unwritten.append(error)
        return not unwritten

    return report


@app.command("rebuild-index")
def rebuild_index(
    directories: Directories,
    engine: EngineOption = EngineName.LOCAL,
    workers: Workers = 0,
    master: Master = "",
    rate: Rate = "0",
    live: Annotated[
        bool, typer.Option("--live", help="work even while a broker uses the directory")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="only print what would be done")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rebuild the index files of full segments that are missing or wrong."""
    with errors_reported():
        with open_engine(engine.value, workers, master) as running:
            found = rebuild(directories, running, bytes_per_s=_bytes(rate), live=live, dry=dry)
        code = _rebuild_code(found)
        leave(_rebuild_text(found))
        if output is Output.JSON:
            rows = [
                {
                    "directory": r.path,
                    "index": r.name,
                    "done": r.done.name.lower(),
                    "batches": r.batches,
                    "why": r.why,
                }
                for r in found
            ]
            write(json.dumps({"exit_code": code, "indexes": rows}, indent=1) + "\n")
        else:
            write(_rebuild_text(found))
    raise typer.Exit(code)


_ArchivedChain = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=_file,
        help="the chain of an ordered topic to archive: each DIR is GROUP=DIR",
    ),
]


@app.command()
def archive(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", parser=_folder, help="the archive's folder")
    ],
    directories: Annotated[list[Path] | None, _DIRECTORIES] = None,
    connect: Connect = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", parser=_topic, help="only this topic; may be repeated"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="the journal's name in the archive, its broker group (left out: journal)"
        ),
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    workers: Workers = 0,
    master: Master = "",
    rate: Rate = "0",
    ignore_missing: Annotated[
        bool,
        typer.Option("--ignore-missing", help="archived files were moved away on purpose"),
    ] = False,
    chain: _ArchivedChain = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Topics to Parquet by topic and date. Run again, it adds what came since: no record twice."""
    if chain is not None:
        with errors_reported():
            request = archive_request(
                chain, directories, topic, connect or "", group, ignore_missing
            )
            with open_engine(engine.value, workers, master) as running:
                text, code = run_ordered_archive(
                    request, out, running, _bytes(rate), as_json=output is Output.JSON
                )
            leave(text)
            write(text)
        raise typer.Exit(code)
    with errors_reported():
        from fmqspark.check.tables import require_arrow

        require_arrow("an archive needs", "")
        from fmqspark.archive.job import ArchiveOptions, run_archive

        topics = tuple(topic) if topic else None
        no_data_directory(out, directories or [])
        members = _members(directories or [], connect or "", group, topics)
        options = ArchiveOptions(
            members.sources,
            out,
            members.group,
            topics,
            _bytes(rate),
            ignore_missing,
            members.topics if connect else None,
        )
        with open_engine(engine.value, workers, master) as running:
            outcome = run_archive(options, running, progress("archived"))
        leave(_archive_text(outcome))
        if output is Output.JSON:
            write(json.dumps(outcome.as_data(), indent=1) + "\n")
        else:
            write(_archive_text(outcome))
    raise typer.Exit(outcome.exit_code)


def _members(
    directories: Sequence[Path], connect: str, group: str | None, topics: Sequence[str] | None
) -> "Members":
    """Return what to read, its journal's name, and the topics that the brokers list for it."""
    if group == "":
        raise InvalidArgument("--group is empty: name a broker group, or leave the option out")
    if bool(connect) == bool(directories):
        raise InvalidArgument(
            "name either data directories or brokers (--connect fmq://...), not both"
        )
    from fmqspark.source.brokers import Members, brokers_of

    if connect:
        return brokers_of([connect], group or "", topics)
    each_once(directories)
    return Members(group or "journal", tuple(map(str, directories)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python -m fmqspark`; never returns."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if sys.stderr is None:  # closed by the parent process: no reader for messages
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the exit
    try:
        code = app(args=given, prog_name="python -m fmqspark", standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # the last place that can inform the user
        usage = getattr(error, "format_message", None)  # click's own, wherever typer keeps it
        if usage is None:
            say(sentence(error) if isinstance(error, OSError) else mistake(error))
            sys.exit(INCOMPLETE)
        if text := str(usage()):
            say(text)
        sys.exit(USAGE)
    sys.exit(code if isinstance(code, int) else 0)


def _bytes(text: str) -> float:
    """Return a rate like `50M` in bytes per second. Raises `InvalidArgument`."""
    number, unit = text.strip().lower().removesuffix("b"), ""
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], number[-1]
    try:
        rate = float(number) * _UNITS[unit]
    except ValueError:
        rate = -1
    if not 0 <= rate < float("inf"):
        raise InvalidArgument(
            f"--rate {text} must be bytes per second, like 50M or 1.5G; 0 = no limit"
        )
    return rate


def _as_data(outcome: Outcome) -> dict[str, Any]:
    return outcome.summary() | {
        "findings": [found._asdict() for found in outcome.findings],
        "coverage": [covered._asdict() for covered in outcome.coverage],
    }


def _text(outcome: Outcome, out: Path | None) -> str:
    lines = []
    for found in outcome.findings[:_SHOWN]:
        lines += [str(found), f"  remedy: {found.remedy}"]
    more = len(outcome.findings) - _SHOWN
    if more > 0:
        lines.append(f"... and {more} more findings; all of them: --out FOLDER, or -o json")
    lines += _not_read(outcome)
    for name in outcome.live:
        lines.append(
            f"{name} is in use by a running broker: the result is as of the time of the read"
        )
    lines.append(_covered(outcome))
    if out is not None:
        lines.append(f"reports: {out}")
    lines.append(_verdict(outcome))
    return "".join(f"{line}\n" for line in lines)


def _in_short(outcome: Outcome) -> str:
    """Return the outcome with the verdict first, as there may be little room to report it."""
    findings = map(str, outcome.findings[:_SHOWN])
    return "\n".join([_verdict(outcome), _covered(outcome), *findings, *_not_read(outcome)])


def _not_read(outcome: Outcome) -> list[str]:
    """Return what was to be read and was not, except for what the findings report."""
    lines = [str(covered) for covered in outcome.coverage if covered.needs_own_line]
    more = len(lines) - _SHOWN
    rest = f"... and {more} more places that were not read; all of them: --out FOLDER, or -o json"
    return [*lines[:_SHOWN], rest] if more > 0 else lines


def _covered(outcome: Outcome) -> str:
    summary = outcome.summary()
    states = ", ".join(f"{n:,} {state}" for state, n in summary["bytes"].items() if n)
    return (
        f"{len(outcome.replicas)} replica(s), {summary['segments']} segments, "
        f"{summary['batches']} batches, {summary['records']} records; bytes: {states or '0'}"
    )


def _verdict(outcome: Outcome) -> str:
    return f"verdict ({outcome.level.value}): {outcome.summary()['verdict']}"


def _rebuild_code(found: Sequence[IndexResult]) -> int:
    done = {result.done for result in found}
    if done & {Done.DAMAGED, Done.NEWER, Done.MISSING}:
        return INCONSISTENT
    if Done.UNREAD in done:
        return INCOMPLETE
    return 1 if Done.WOULD in done else 0


def _rebuild_text(found: Sequence[IndexResult]) -> str:
    lines = [
        f"{r.path}/{r.name}: {r.done.value}{': ' + r.why if r.why else ''}"
        for r in found
        if r.done not in (Done.SAME, Done.OPEN, Done.RETIRED)
    ]
    counts = [(done.value, sum(r.done is done for r in found)) for done in Done]
    lines.append("; ".join(f"{count} {what}" for what, count in counts if count) or "no segment")
    return "".join(f"{line}\n" for line in lines)


def _archive_text(outcome: "Archived") -> str:
    lines = outcome.notices + outcome.amiss.lines(outcome.ignore_missing)
    lines += [
        f"positions {unit.begin} to {unit.end}: deleted by retention before they were archived"
        for unit in outcome.lost
    ]
    lines += [
        f"positions {failed.unit.begin} to {failed.unit.end} are not archived: {failed.failed}"
        for failed in outcome.failed
    ]
    lines.append(
        f"{outcome.rows:,} records in {outcome.files} files, {outcome.bytes_written:,} bytes; "
        f"planned up to position {outcome.end}"
    )
    return "".join(f"{line}\n" for line in lines)
