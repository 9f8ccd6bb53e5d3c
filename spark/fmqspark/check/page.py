"""Make an HTML page about a check: verdict, maps of the replicas' segments, findings. Pure.

No script, font or picture comes from elsewhere: the page can be mailed and opened anywhere.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from fmqcore.ids import Position
from fmqcore.journal.segments import segment_name
from fmqspark.check.rows import Covered, Found, SegmentResult, State

_MAX_FINDINGS: Final = 1000
_MAX_CELLS: Final = 4000
_COLOURS: Final = {
    "ok": ("#2e9e5b", "checked, nothing found"),
    "warning": ("#e0a800", "a warning: heals by itself"),
    "error": ("#c62828", "an error"),
    "unread": ("#7b1fa2", "not read: not OK"),
    "empty": ("#cfd8dc", "not written yet, void or retired"),
}
_UNREAD: Final = (State.UNREAD.value, State.MOVING.value)
_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;
color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{display:inline-block;padding:.1rem .6rem;border-radius:.3rem;color:#fff}
.map{display:flex;flex-wrap:wrap;gap:2px;margin:.3rem 0 1rem}
.map span{width:14px;height:14px;border-radius:2px}
.key span{display:inline-block;width:12px;height:12px;border-radius:2px;margin:0 .3rem 0 1rem}
table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}
code{font-size:.85em}
@media(prefers-color-scheme:dark){body{background:#16181a;color:#e6e6e6}th,td{border-color:#333}}
"""
_VERDICT_COLOURS: Final = {
    "clean": "ok",
    "warnings": "warning",
    "inconsistent": "error",
    "incomplete": "unread",
}


def page(
    summary: dict[str, Any],
    findings: Sequence[Found],
    coverage: Sequence[Covered],
    segments: Sequence[SegmentResult],
) -> str:
    """Return the page."""
    verdict = str(summary["verdict"])
    colour = _COLOURS[_VERDICT_COLOURS[verdict]][0]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>FMQ check: {verdict}</title><style>{_STYLE}</style>",
        f"<h1>Consistency check: <span class=verdict style='background:{colour}'>"
        f"{escape(verdict)}</span></h1>",
        f"<p>Level {escape(str(summary['level']))}; {summary['segments']} segments, "
        f"{summary['batches']} batches, {summary['records']} records in {summary['took_s']} s.</p>",
        _key(),
    ]
    for replica in summary["replicas"]:
        parts.append(f"<h2><code>{escape(replica)}</code></h2>")
        own = [segment for segment in segments if segment.replica == replica]
        own += _missing(replica, own, coverage)
        parts.append(_map(sorted(own, key=lambda segment: segment.base), findings, coverage))
    parts += [_coverage_table(summary["bytes"]), _findings_table(findings)]
    parts.append(_not_read_table([row for row in coverage if row.needs_own_line]))
    return "\n".join(parts) + "\n"


def _missing(
    replica: str, there: Sequence[SegmentResult], coverage: Sequence[Covered]
) -> list[SegmentResult]:
    """Return a square for each range that is in no file that is there."""
    files = {segment_name(Position(segment.base)) for segment in there}
    return [
        SegmentResult(replica, row.begin, row.bytes, row.begin)
        for row in coverage
        if row.replica == replica and row.state == State.UNREAD.value and row.file not in files
    ]


def _key() -> str:
    cells = (f"<span style='background:{c}'></span>{text}" for c, text in _COLOURS.values())
    return f"<p class=key>One square a segment, oldest first: {''.join(cells)}</p>"


def _map(
    segments: Sequence[SegmentResult], findings: Sequence[Found], coverage: Sequence[Covered]
) -> str:
    if not segments:
        return "<p>No segment.</p>"
    replica = segments[0].replica
    of_replica = [found for found in findings if found.replica == replica]
    unread = [c for c in coverage if c.replica == replica and c.state in _UNREAD]
    cells = []
    for group in _grouped(segments):
        begin, end = group[0].base, group[-1].base + group[-1].size
        names = {name for s in group for name in (f"{s.base:020d}.journal", f"{s.base:020d}.index")}
        reported = [f for f in of_replica if f.file in names or _touches(f, begin, end)]
        lost = [c for c in unread if c.file in names or (c.begin < end and begin < c.end)]
        state = _state(group, reported, lost)
        title = f"[{begin}, {end}) {_COLOURS[state][1]}"
        if reported:
            title += ": " + ", ".join(sorted({found.code for found in reported}))
        cells.append(f"<span style='background:{_COLOURS[state][0]}' title='{title}'></span>")
    return f"<div class=map>{''.join(cells)}</div>"


def _grouped(segments: Sequence[SegmentResult]) -> Iterable[Sequence[SegmentResult]]:
    """Group segments into at most `_MAX_CELLS` squares, each of several segments if need be."""
    each = -(-len(segments) // _MAX_CELLS)
    return (segments[at : at + each] for at in range(0, len(segments), each))


def _touches(found: Found, begin: int, end: int) -> bool:
    if found.begin is None:
        return False
    last = found.end if found.end is not None else found.begin + 1
    return found.begin < end and begin < last


def _state(
    group: Sequence[SegmentResult], reported: Sequence[Found], unread: Sequence[Covered]
) -> str:
    severities = {found.severity for found in reported}
    if "error" in severities:
        return "error"
    if unread:
        return "unread"
    if "warning" in severities:
        return "warning"
    return "ok" if any(segment.batches for segment in group) else "empty"


def _coverage_table(by_state: dict[str, int]) -> str:
    rows = "".join(
        f"<tr><td>{escape(state)}<td class=n>{count:,}" for state, count in by_state.items()
    )
    return f"<h2>What was looked at</h2><table><tr><th>state<th class=n>bytes{rows}</table>"


def _findings_table(findings: Sequence[Found]) -> str:
    if not findings:
        return "<h2>Findings</h2><p>None.</p>"
    rows = "".join(
        f"<tr><td>{escape(f.code)}<td>{escape(f.severity)}<td>{escape(f.replica)}<br>"
        f"<code>{escape(f.file)}</code><td class=n>{_range(f)}<td>{escape(f.sentence)}<br>"
        f"<em>{escape(f.remedy)}</em>"
        for f in findings[:_MAX_FINDINGS]
    )
    head = "<tr><th>code<th>severity<th>where<th>positions<th>what, and what to do"
    return f"<h2>Findings</h2><table>{head}{rows}</table>{_more(findings, 'findings.parquet')}"


def _not_read_table(rows: Sequence[Covered]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td>{escape(row.state)}<td>{escape(row.replica)}<br><code>{escape(row.file)}</code>"
        f"<td class=n>{f'{row.begin}–{row.end}' if row.bytes else 'whole file'}"
        f"<td>{escape(row.why)}"
        for row in rows[:_MAX_FINDINGS]
    )
    head = "<tr><th>state<th>where<th>positions<th>why"
    return f"<h2>Not read</h2><table>{head}{cells}</table>{_more(rows, 'coverage.parquet')}"


def _more(rows: Sequence[object], file: str) -> str:
    """Return a note if a table leaves rows out, which are in a file beside the page."""
    more = len(rows) - _MAX_FINDINGS
    return f"<p>And {more} more: see {file}.</p>" if more > 0 else ""


def _range(found: Found) -> str:
    if found.begin is None:
        return "whole file"
    return f"{found.begin}" if found.end is None else f"{found.begin}–{found.end}"
