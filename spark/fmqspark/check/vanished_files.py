"""Report files that went while their live directory was checked, if the broker needs them."""

import os
from collections.abc import Iterable
from typing import Final

from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.findings import Code, error
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqspark.check.rows import NO_FILE, Covered, SegmentResult, State, found_on
from fmqspark.source.files import read_small

_AWAY: Final = "the file was missing when it was to be read, and exists now: run the check again"
_TAKEN: Final = "the file vanished before it was read, and the checkpoint lists it"


def report_vanished_files(path: str, results: Iterable[SegmentResult]) -> None:
    """Report files that went and that the broker still counts on.

    Retention, a truncation or a reset did not take them: each of these writes its checkpoint before
    the first file goes, so the one that is there by now does not name the file any more.
    """
    retired = [result for result in results if result.retired]
    if not retired:
        return
    try:
        checkpoint = decode_checkpoint(read_small(path, CHECKPOINT) or b"")
    except (OSError, Malformed):
        return  # another finding reports the checkpoint
    void = checkpoint.drop_from
    kept = {
        b for b in checkpoint.bases if b >= checkpoint.journal_start and (void is None or b < void)
    }
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
