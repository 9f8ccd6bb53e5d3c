"""List what of a segment's file was looked at, range by range: each byte in one row. Pure."""

import itertools
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from fmqcore.journal.findings import Code
from fmqcore.verify.directory import SegmentReport
from fmqspark.check.rows import DAMAGE, Covered, State

_MOVING: Final = "its end kept moving, as a running broker writes to it: run the check again"
_HEADER_CODES: Final = (Code.J001, Code.J003, Code.J004, Code.J005, Code.J006)


class Piece(NamedTuple):
    """A range of a journal, and what it is to a check."""

    begin: int
    end: int
    state: State
    why: str = ""


def cover(
    replica: str, report: SegmentReport, end: int, lost: Sequence[Piece] = ()
) -> list[Covered]:
    """Return rows for the whole file.

    `end` is one past its last good batch; what is `lost` is that before all.
    """
    file = report.file
    end = min(end, file.end)  # an EOF reaches further than a file that is cut behind it
    pieces = [*lost]
    pieces += _found(report, _HEADER_CODES, State.UNREAD)
    if report.unread_bytes > report.skipped_bytes:
        pieces.append(Piece(end, file.end, State.UNREAD, DAMAGE))
    pieces += _found(report, (Code.J002,), State.DAMAGED)
    pieces.append(Piece(file.base, end, State.CHECKED))
    behind = _behind(report)
    pieces.append(Piece(end, file.end, behind, _MOVING if behind is State.MOVING else ""))
    return [Covered(replica, file.name, b, e, s.value, why) for b, e, s, why in _flat(pieces)]


def _found(report: SegmentReport, codes: Sequence[Code], state: State) -> Iterator[Piece]:
    """Yield the ranges of findings, within and behind damage."""
    file = report.file
    for found in report.findings:
        if found.code in codes and found.file == file.name and found.position is not None:
            until = found.position if found.end is None else min(found.end, file.end)
            yield Piece(found.position, until, state, DAMAGE)


def _behind(report: SegmentReport) -> State:
    if report.moving:
        return State.MOVING
    if any("torn" in f.sentence or "unfinished" in f.sentence for f in report.findings):
        return State.VOID
    return State.EMPTY


def _flat(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without overlap: the first one counts, and equal neighbours become one."""
    waiting = sorted(range(len(pieces)), key=lambda i: pieces[i].begin, reverse=True)
    open_ones: list[int] = []  # a heap
    flat: list[Piece] = []
    edges = sorted({edge for piece in pieces for edge in piece[:2]})
    for begin, end in itertools.pairwise(edges):
        while waiting and pieces[waiting[-1]].begin <= begin:
            heappush(open_ones, waiting.pop())
        while open_ones and pieces[open_ones[0]].end <= begin:
            heappop(open_ones)
        if not open_ones:
            continue
        piece = pieces[open_ones[0]]._replace(begin=begin, end=end)
        if flat and flat[-1][1:] == (begin, piece.state, piece.why):
            piece = piece._replace(begin=flat.pop().begin)
        flat.append(piece)
    return flat
