"""`fmq job check --ordered` and `fmq job archive --chain`: options in, a report out."""

import json
from collections.abc import Sequence
from pathlib import Path

from fmqcore.errors import InvalidArgument
from fmqcore.zk.chain import Chain, Segment
from fmqspark.check.job import VERDICTS
from fmqspark.check.ordered import OrderedOptions, OrderedOutcome, check_ordered
from fmqspark.check.rows import Level
from fmqspark.cli.progress import progress
from fmqspark.engines.engine import Engine
from fmqspark.source.members import members_of, read_chain
from fmqspark.source.options import Request, understand
from fmqspark.source.places import each_once, no_data_directory

_SHOWN = 50


def ordered_options(
    topic: str,
    chain_file: Path | None,
    directories: Sequence[Path],
    level: Level,
    out: Path | None,
    bytes_per_s: float,
) -> OrderedOptions:
    """Return the options of a check. Raises `InvalidArgument`, `OSError`."""
    if chain_file is None:
        raise InvalidArgument(
            "--ordered needs --chain FILE: write it by `fmq ordered status TOPIC -o json > FILE` "
            "before the directories are copied or read"
        )
    if out is not None or level is not Level.STANDARD:
        raise InvalidArgument(
            "--ordered reads headers only, and prints what it finds (-o json): leave --level and "
            "--out out, or check each group's journal by itself"
        )
    chain = read_chain(chain_file, topic)
    members = members_of(chain, map(str, directories))
    each_once([Path(member.path) for member in members])
    return OrderedOptions(chain, members, bytes_per_s)


def run_ordered(options: OrderedOptions, engine: Engine, *, as_json: bool) -> tuple[str, int]:
    """Check, and return the report and the exit code."""
    outcome = check_ordered(options, engine, progress("scanned"))
    if as_json:
        return json.dumps(outcome.as_data(), indent=1) + "\n", outcome.exit_code
    return _text(outcome), outcome.exit_code


def archive_request(
    chain_file: Path,
    directories: Sequence[Path] | None,
    topics: Sequence[str] | None,
    connect: str,
    group: str | None,
    ignore_missing: bool,
) -> Request:
    """Return what to archive of an ordered topic. Raises `InvalidArgument`."""
    if connect or group is not None or ignore_missing:
        raise InvalidArgument(
            "--chain archives an ordered topic from data directories, GROUP=DIR: leave --connect, "
            "--group and --ignore-missing out"
        )
    if not directories:
        raise InvalidArgument(
            "--chain needs data directories: name a data directory of each group, GROUP=DIR"
        )
    given = {"paths": json.dumps([str(path) for path in directories])}
    topic = {"topic": ",".join(topics)} if topics else {}
    return understand(given | topic | {"chain": str(chain_file)})


def run_ordered_archive(
    request: Request, out: Path, engine: Engine, bytes_per_s: float, *, as_json: bool
) -> tuple[str, int]:
    """Archive, and return the report and the exit code."""
    from fmqspark.check.tables import require_arrow

    require_arrow("an archive needs", "")
    from fmqspark.archive.ordered import archive_ordered

    no_data_directory(out, [Path(text.partition("=")[2]) for text in request.directories])
    outcome = archive_ordered(request, out, engine, bytes_per_s, progress("archived"))
    if as_json:
        return json.dumps(outcome.as_data(), indent=1) + "\n", outcome.exit_code
    lines = outcome.notices + [f"not archived: {r.failed}" for r in outcome.failed]
    lines.append(
        f"{outcome.rows:,} records in {outcome.files} files of {outcome.units} parts of segments; "
        f"replay them with --group {outcome.group}"
    )
    return "".join(f"{line}\n" for line in lines), outcome.exit_code


def _text(outcome: OrderedOutcome) -> str:
    chain = outcome.chain
    lines = [_segment(chain, segment) for segment in chain.segments] or ["no segment was opened"]
    for found in outcome.findings[:_SHOWN]:
        lines += [str(found), f"  remedy: {found.remedy}"]
    more = len(outcome.findings) - _SHOWN
    if more > 0:
        lines.append(f"... and {more} more findings; all of them: -o json")
    lines += [f"not judged: {why}" for why in outcome.unread]
    lines.append(
        f"{chain.topic}: {len(chain.segments)} segments, {len(outcome.members)} members, "
        f"{outcome.batches} batches, {outcome.records} records on all members"
    )
    lines.append(f"verdict (ordered): {VERDICTS[outcome.exit_code]}")
    return "".join(f"{line}\n" for line in lines)


def _segment(chain: Chain, segment: Segment) -> str:
    lasts = segment.last_sequence
    if lasts is None:
        closing = segment is chain.last and chain.closing is not None
        end = "unknown end" if segment.end_unknown else "closing" if closing else "open"
        parts = [f"{first}–" for first in segment.first_sequence]
    else:
        end = "ended"
        pairs = zip(segment.first_sequence, lasts, strict=True)
        parts = [f"{first}–{last}" if last >= first else "none" for first, last in pairs]
    return (
        f"segment {segment.number} in {segment.group}: {end}, sender epoch "
        f"{segment.sender_epoch}, sequences {', '.join(parts)}"
    )
