"""Report files that went while their live directory was checked, if the broker needs them."""

import os
from collections.abc import Iterable
from typing import Final

from fmqcore.ids import Position
from fmqcore.journal.findings import Code, error
from fmqcore.journal.segments import segment_name
from fmqinspect.vanished_files import listed_bases
from fmqspark.check.rows import NO_FILE, Covered, SegmentResult, State, found_on

_AWAY: Final = "the file was missing when it was to be read, and exists now: run the check again"
_TAKEN: Final = "the file vanished before it was read, and the checkpoint lists it"


def report_vanished_files(path: str, results: Iterable[SegmentResult]) -> None:
    """Report files that went and that the broker still counts on: it did not remove them."""
    retired = [result for result in results if result.retired]
    if not retired:
        return
    kept = listed_bases(path)
    if kept is None:
        return  # another finding reports the checkpoint
    for result in retired:
        if result.base in kept:
            there = os.path.lexists(os.path.join(path, segment_name(Position(result.base))))
            _is_missing(result, there=there)


def _is_missing(result: SegmentResult, *, there: bool) -> None:
    """Report a segment as missing; with `there`, its file is back and only was not read."""
    begin, end = Position(result.base), Position(result.base + result.size)
    name, why = segment_name(begin), _AWAY if there else NO_FILE
    result.retired = False
    if not there:
        result.findings = [found_on(result.replica, error(Code.J005, name, begin, _TAKEN, end))]
    result.coverage = [Covered(result.replica, name, begin, end, State.UNREAD.value, why)]
