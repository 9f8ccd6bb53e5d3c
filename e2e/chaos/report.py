"""The report at the end of a run: a table, and one line."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from e2e.chaos.judge import CHANGES_IN_ALL, ENOUGH_IN_ALL, Outcome, Verdict

OUTCOMES: Final = "outcomes.json"
"""The outcome of each fault, for programs."""


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(o), "verdict": o.verdict.value} for o in outcomes]
    path.write_text(json.dumps(rows, indent=2))


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with a line for each fault, and findings below it."""
    lines = [_row("FAULT", "VERDICT", "ACKED", "NO READS", "NO WRITES", "WHOLE AFTER", "WHAT")]
    for o in outcomes:
        if o.verdict is Verdict.NOT_RUN:
            lines.append(_row(o.name, "not run", "", "", "", "", o.summary))
            continue
        times = (_s(o.reads_ms / 1000), _s(o.writes_ms / 1000), _s(o.whole_s))
        lines.append(_row(o.name, o.verdict.value, f"{o.acked:,}", *times, o.summary))
        lines += [f"    {finding}" for finding in o.findings[:10]]
    return "\n".join(lines)


def whole_run(
    outcomes: Sequence[Outcome], findings: Sequence[str], *, all_faults: bool
) -> tuple[bool, str]:
    """Return whether the whole run is good, and a line or more about all rounds."""
    acked, changes = sum(o.acked for o in outcomes), sum(o.switches for o in outcomes)
    bad = any(o.verdict in (Verdict.FAILED, Verdict.UNKNOWN) for o in outcomes)
    summary = f"{acked:,} acknowledged, {changes} changes of reader"
    little = acked < ENOUGH_IN_ALL or changes < CHANGES_IN_ALL
    if bad or findings:
        return False, "\n".join([*findings, f"the whole run: failed; {summary}"])
    if all_faults and little:
        return False, f"the whole run: unknown, too little happened; {summary}"
    return True, f"the whole run: passed; {summary}"


def last_line(outcomes: Sequence[Outcome]) -> str:
    """Return `N faults, N passed, N failed, N not run`. Unknown counts as failed."""
    count = Counter(o.verdict for o in outcomes)
    failed = count[Verdict.FAILED] + count[Verdict.UNKNOWN]
    return (
        f"{len(outcomes)} faults, {count[Verdict.PASSED]} passed, {failed} failed, "
        f"{count[Verdict.NOT_RUN]} not run"
    )


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _row(*cells: str) -> str:
    name, verdict, acked, reads, writes, whole, what = cells
    return f"{name:22} {verdict:8} {acked:>8} {reads:>9} {writes:>9} {whole:>11}  {what}"
