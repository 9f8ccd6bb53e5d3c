"""Recovery's decisions: which segments count, and what a scan's end means. Pure.

A start has three steps, each pure except for the reading between them:

1. `survey` compares the directory's listing with the checkpoint: what exists, what is left over
   from a truncation or a retention that a crash interrupted, what is missing (refuse).
2. `replay` scans the last segment in full and builds state and index. (If nothing in it is good,
   the journal ends at its base, and the segment before it is replayed.)
3. `judge` interprets the scan's end: clean, truncate there, or refuse.

A segment is fsynced before the first byte of the next one is written, so everything below the base
of the last non-empty segment is durable by construction; within that segment, the checkpoint's
`durable_end` is the limit. A fault at or above it is a torn write: truncate. A fault below it is
corruption: never truncate (D4). After an orderly stop nothing can be torn, so every fault is
corruption.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from fmqcore.batch.header import BatchFault, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint
from fmqcore.journal.findings import (
    CUT_AT_START,
    FAULT_CODES,
    LOOK_AT_THE_DISK,
    MISSING,
    REMADE_AT_START,
    Code,
    Finding,
    error,
    warning,
)
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.kinds import apply_batch
from fmqcore.journal.scan import Blank, Fault, Scan, Sealed, Stop
from fmqcore.journal.segments import (
    CHECKPOINT,
    INDEX,
    Segment,
    index_base,
    segment_base,
    segment_name,
)
from fmqcore.journal.state import JournalState
from fmqcore.turns import PIECE, Turns, finish


class SegmentFile(NamedTuple):
    """The file of a segment in the directory."""

    base: Position
    size: int

    @property
    def name(self) -> str:
        """The file's name."""
        return segment_name(self.base)

    @property
    def end(self) -> Position:
        """The position where the next segment begins."""
        return Position(self.base + self.size)


class Survey(NamedTuple):
    """The content of a data directory. With a `refusal` nothing may be removed or opened."""

    journal_start: Position
    segments: tuple[SegmentFile, ...]  # ascending, without gap
    leftovers: tuple[str, ...]  # files to remove: void, retired, or an index without its segment
    durable_end: Position  # below: durable for sure, as far as is known before a scan
    cut_at: Position | None  # a cut that was under way: scan only below, then cut there
    findings: tuple[Finding, ...]
    refusal: Finding | None
    missing: tuple[Finding, ...]  # every hole in the chain of segments, the refusal's included


class Clean(NamedTuple):
    """The journal ends at `end`, and only zeros follow: continue."""

    end: Position


class Cut(NamedTuple):
    """The journal ends at `at`: zero the file from there on (at its base: remove it), continue."""

    at: Position
    finding: Finding


class Refuse(NamedTuple):
    """Corruption: do not start, do not truncate."""

    finding: Finding


Verdict = Clean | Cut | Refuse


class _Then(Enum):
    CLEAN = "clean"
    CUT = "cut"
    REFUSE = "refuse"


_ENTRY_BYTES: Final = 64
"""Payload bytes of a control batch that take as long as a batch: a progress entry."""
_SOUND: Final = (BatchFault.CONTENT, BatchFault.KIND)
"""Faults of a batch whose checksums are right: no torn write, wherever it is."""
_RULES: Final = {  # (below the durable end, orderly stop, how the scan ended) → what to do
    (True, True, "zeros"): _Then.REFUSE,
    (True, True, "fault"): _Then.REFUSE,
    (True, True, "sealed"): _Then.REFUSE,
    (True, False, "zeros"): _Then.REFUSE,
    (True, False, "fault"): _Then.REFUSE,
    (True, False, "sealed"): _Then.REFUSE,
    (False, True, "zeros"): _Then.CLEAN,
    (False, True, "dirty zeros"): _Then.REFUSE,
    (False, True, "fault"): _Then.REFUSE,
    (False, True, "sealed"): _Then.CLEAN,
    (False, False, "zeros"): _Then.CLEAN,
    (False, False, "dirty zeros"): _Then.CUT,
    (False, False, "fault"): _Then.CUT,
    (False, False, "sealed"): _Then.CLEAN,
    # The checksum is right, so nothing is torn: another version wrote these bytes deliberately.
    (False, True, "content"): _Then.REFUSE,
    (False, False, "content"): _Then.REFUSE,
}


def survey(
    listing: Iterable[tuple[str, int]],
    checkpoint: Checkpoint | None,
    *,
    damaged: str = "",
    unread: str = "",
    suffixes: Collection[str] = (INDEX,),
) -> Survey:
    """Compare (name, size) of the directory's files with the checkpoint.

    `suffixes`: the endings of derived indexes' files.

    No checkpoint: there is none, or it is `damaged` (why it does not decode) or `unread` (why it
    cannot be read). A file without any stored batch is a segment, too: only a scan can determine
    that, and what must come before it.
    """
    names = sorted(listing)
    found = sorted(
        SegmentFile(base, size) for name, size in names if (base := segment_base(name)) is not None
    )
    first = found[0].base if found else Position(0)
    journal_start = checkpoint.journal_start if checkpoint else first
    drop_from = checkpoint.drop_from if checkpoint else None
    segments = tuple(
        s for s in found if s.base >= journal_start and (drop_from is None or s.base < drop_from)
    )
    bases = {s.base for s in segments}
    cutting = bool(segments) and drop_from is not None and drop_from < segments[-1].end
    indexed = bases - {segments[-1].base} if cutting else bases
    leftovers = tuple(
        name
        for name, _ in names
        if ((base := segment_base(name)) is not None and base not in bases)
        or ((base := index_base(name, suffixes)) is not None and base not in indexed)
    )
    lost = _missing_known(bases, checkpoint)
    gaps = [gap for gap in _gaps(segments, journal_start, lost) if gap.end != gap.position]
    holes = tuple(sorted([*lost, *gaps], key=lambda hole: hole.position or 0))
    strays = [name for name in leftovers if not _within(index_base(name, suffixes), holes)]
    known = checkpoint.durable_end if checkpoint else journal_start
    last = segments[-1].base if segments else journal_start
    return Survey(
        journal_start=journal_start,
        segments=segments,
        leftovers=leftovers,
        durable_end=max(known if drop_from is None else min(known, drop_from), last),
        cut_at=drop_from if cutting else None,
        findings=_survey_findings(checkpoint, strays, bool(found), damaged, unread),
        refusal=next(iter([*lost, *gaps]), None),
        missing=holes,
    )


def replay(scan: Scan, state: JournalState, index: SegmentIndex | None = None) -> Stop:
    """Run a scan with payloads to its end; update `state` and `index` and return the stop."""
    return finish(replaying(scan, state, index))


def replaying(scan: Scan, state: JournalState, index: SegmentIndex | None = None) -> Turns[Stop]:
    """Like `replay`, in pieces. At a pause `state` and `index` stand behind the same batch."""
    cost = 0
    for header in scan:
        try:
            if header.type == BatchType.SNAP:
                decoded = yield from JournalState.decoding_snap(scan.payload(header))
                state.follow_snap(header, decoded)
            else:
                apply_batch(state, header, scan.payload(header))
        except Malformed as bad:
            return Fault(header.position, BatchFault.CONTENT, str(bad))
        if index is not None:
            index.add(header)
        cost += 1 if header.type == BatchType.DATA else 1 + header.payload_len // _ENTRY_BYTES
        if cost >= PIECE:
            cost = 0
            yield
    if scan.stop is None:
        raise AssertionError("a scan that was run to its end has a stop")
    return scan.stop


def judge(
    stop: Stop, file: str, *, durable_end: Position, clean: bool, dirty: bool = False
) -> Verdict:
    """Return what the end of the last segment's scan means.

    `durable_end` is the survey's; `clean` the checkpoint's (False without one); `dirty`: some byte
    after the zeros or the truncation point where the scan ended is not zero (`scan.first_nonzero`).
    """
    below = stop.position < durable_end  # D4
    how = _how(stop, dirty=dirty and not below)  # D12
    match _RULES[below, clean, "fault" if below and how == "content" else how]:
        case _Then.CLEAN:
            return Clean(stop.position)
        case _Then.CUT:
            return Cut(stop.position, _torn(stop, file))
        case _Then.REFUSE:
            return Refuse(_corrupt(stop, file, durable_end, clean=clean))


def judge_sealed(stop: Stop, segment: SegmentFile) -> Refuse | None:
    """Refuse unless a segment that has a successor is sealed and ends where its file ends."""
    if isinstance(stop, Sealed):
        if stop.position == segment.end:
            return None
        sentence = f"the segment ends at {stop.position}, its file at {segment.end}"
        return Refuse(error(Code.J005, segment.name, stop.position, sentence))
    return Refuse(_corrupt(stop, segment.name, segment.end, clean=False))


def check_length(segment: Segment | None, file: SegmentFile) -> Finding | None:
    """Compare the last segment's length, as its SNAP states it, with its file's."""
    if segment is None or segment.end == file.end:
        return None
    length = segment.end - segment.base
    sentence = f"the file has {file.size} bytes, its segment {length}"
    if file.end > segment.end:
        return error(Code.J005, file.name, segment.end, sentence)
    remedy = "nothing: the file grows again as it is written"
    return warning(Code.J005, file.name, file.end, sentence, remedy)


def _how(stop: Stop, *, dirty: bool) -> str:
    match stop:
        case Blank():
            return "dirty zeros" if dirty else "zeros"
        case Sealed():
            return "sealed"
        case Fault():
            return "content" if stop.fault in _SOUND else "fault"


def _torn(stop: Stop, file: str) -> Finding:
    if isinstance(stop, Fault):
        code = FAULT_CODES[stop.fault]
        sentence = f"torn write above the durable end: {stop.sentence}"
    else:
        code, sentence = Code.J001, "bytes of an unfinished write behind the journal's end"
    return warning(code, file, stop.position, sentence, CUT_AT_START)


def _corrupt(stop: Stop, file: str, durable_end: Position, *, clean: bool) -> Finding:
    known = f"everything below {durable_end} is known to have been durable"
    if clean:
        known = f"the broker stopped in order with all below {durable_end} durable"
    match stop:
        case Fault():
            code, sentence = FAULT_CODES[stop.fault], stop.sentence
            if stop.fault is BatchFault.KIND:
                return error(code, file, stop.position, sentence)
            if stop.fault is BatchFault.CONTENT:
                known += ", and its checksum is right: perhaps a newer FMQ wrote it"
        case Blank():
            code, sentence = Code.J001, "zeros where a batch must be, or bytes behind the end"
        case Sealed():
            code, sentence = Code.J005, "the segment is sealed and the one behind it is missing"
            file = segment_name(stop.position)
    return error(code, file, stop.position, f"{sentence} ({known})")


def _missing_known(bases: set[Position], checkpoint: Checkpoint | None) -> list[Finding]:
    """Segments that the checkpoint lists and that are missing, ascending."""
    if checkpoint is None:
        return []
    below = checkpoint.durable_end  # a segment at or above it holds nothing that could be missed
    if checkpoint.drop_from is not None:
        below = min(below, checkpoint.drop_from)
    wanted = sorted(b for b in checkpoint.bases if checkpoint.journal_start <= b < below)
    if not wanted and checkpoint.journal_start < below:
        wanted = [checkpoint.journal_start]
    found = []
    for lost in wanted:
        if lost not in bases:
            name = segment_name(lost)
            end = min((b for b in {*wanted, *bases} if b > lost), default=below)
            sentence = f"{MISSING}, and the checkpoint names it"
            found.append(error(Code.J005, name, lost, sentence, end))
    return found


def _within(base: Position | None, holes: Sequence[Finding]) -> bool:
    """Whether an index belongs to a missing segment: then only the segment is reported."""
    return base is not None and any(
        hole.position is not None and hole.end is not None and hole.position <= base < hole.end
        for hole in holes
    )


def _gaps(
    segments: Sequence[SegmentFile], journal_start: Position, lost: Sequence[Finding]
) -> list[Finding]:
    """Return where a segment does not begin at the end of the one before it, ascending.

    A gap ends at the first of the `lost` segments, which are reported separately; it may be empty.
    """
    known = [hole.position for hole in lost if hole.position is not None]
    found = []
    expected = journal_start
    before: SegmentFile | None = None
    for segment in segments:
        if segment.base != expected:
            end = min([p for p in known if expected <= p < segment.base], default=segment.base)
            found.append(_gap(before, segment, expected, end))
        expected, before = segment.end, segment
    return found


def _gap(
    before: SegmentFile | None, segment: SegmentFile, expected: Position, end: Position
) -> Finding:
    if before is not None and segment.base < expected:
        sentence = f"the file has {before.size} bytes and reaches into {segment.name}"
        return error(Code.J005, before.name, segment.base, sentence)
    cut = f", or {before.name} has been cut short ({before.size} bytes)" if before else ""
    sentence = f"{MISSING}{cut}: the next one there is {segment.name}"
    return error(Code.J005, segment_name(expected), expected, sentence, end)


def _survey_findings(
    checkpoint: Checkpoint | None,
    leftovers: Sequence[str],
    any_segment: bool,
    damaged: str,
    unread: str,
) -> tuple[Finding, ...]:
    findings = [
        warning(Code.M002, name, None, "left over from a cut or retention", CUT_AT_START)
        for name in leftovers
    ]
    if checkpoint is None and (any_segment or damaged or unread):
        reason, remedy = "there is none", REMADE_AT_START
        if damaged:
            reason = f"it is damaged and does not count ({damaged})"
        elif unread:
            reason, remedy = f"it cannot be read ({unread})", LOOK_AT_THE_DISK
        sentence = f"{reason}: nothing in the last segment counts as known durable"
        findings.insert(0, warning(Code.M001, CHECKPOINT, None, sentence, remedy))
    return tuple(findings)
