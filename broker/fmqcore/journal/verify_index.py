"""Hold a segment's index file against what the segment's headers say. Pure."""

from enum import Enum
from typing import Final, Protocol

from fmqcore.errors import Malformed
from fmqcore.journal.findings import REMADE_AT_START, Code, Finding, Severity, warning
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import index_name
from fmqcore.words import Position

_REMEDY: Final = "stop the broker and remove the index file: it is rebuilt at the next start"


class IndexState(Enum):
    """What a segment's index file is."""

    OK = "ok"
    NONE = "-"  # the newest segment needs none
    MISSING = "missing"
    UNREADABLE = "unreadable"
    DIFFERS = "differs"


class _Report(Protocol):
    file: SegmentFile
    sealed: bool
    index: IndexState
    findings: list[Finding]


def check_index(
    report: _Report, built: SegmentIndex, raw: bytes | None, *, pending: bool = False
) -> None:
    """Set `report.index` and add what was found. `built` is from the segment's headers.

    `pending`: a broker at work may not have written the file yet.
    """
    name = index_name(report.file.base)
    if raw is None:
        if report.sealed and not pending:
            report.index = IndexState.MISSING
            sentence = "the file is missing"
            report.findings.append(warning(Code.I001, name, None, sentence, REMADE_AT_START))
        return
    try:
        stored = SegmentIndex.decode(raw)
    except Malformed as bad:
        report.index = IndexState.UNREADABLE
        report.findings.append(warning(Code.I002, name, None, str(bad), REMADE_AT_START))
        return
    found = _difference(stored, built, sealed=report.sealed)
    report.index = IndexState.DIFFERS if found else IndexState.OK
    if found:
        code, position, sentence = found
        report.findings.append(Finding(code, Severity.ERROR, name, position, sentence, _REMEDY))


def _difference(
    stored: SegmentIndex, built: SegmentIndex, *, sealed: bool
) -> tuple[Code, Position | None, str] | None:
    if stored.base != built.base:
        return Code.I005, None, f"it is of the segment at {stored.base}"
    if not sealed:  # one may be behind the other: only what both claim to know counts
        end = min(stored.end, built.end)
        stored.truncate(end)
        built.truncate(end)
    elif stored.end < built.end:
        return Code.I003, stored.end, f"it ends there, its segment at {built.end}"
    elif stored.end > built.end:
        return Code.I004, built.end, f"its segment ends there, it goes on to {stored.end}"
    if stored.encode() == built.encode():
        return None
    have, want = stored.by_position(), built.by_position()
    for code, positions in (
        (Code.I003, want.keys() - have.keys()),
        (Code.I004, have.keys() - want.keys()),
        (Code.I005, {p for p in want.keys() & have.keys() if want[p] != have[p]}),
    ):
        if positions:
            first = min(positions)
            return code, first, f"{code.value} ({len(positions)} of {len(want)}; the first of them)"
    return Code.I005, None, "its queues are not those of the journal"
