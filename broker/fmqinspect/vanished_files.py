"""A segment file that vanished beside a running broker: retired by it, or taken away."""

import os
from pathlib import Path
from typing import Final

from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.findings import Code, Finding, error
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import CHECKPOINT
from fmqinspect.directory import read_small

_AWAY: Final = "the file was missing when it was to be read, and exists now: run this again"
_UNKNOWN: Final = "it vanished, and no checkpoint states by now whether the broker retired it"
_TAKEN: Final = "the file vanished before it was read, and the checkpoint lists it"


def listed_bases(path: Path | str) -> frozenset[Position] | None:
    """Return where the segments start that the checkpoint lists by now; None: it is unreadable.

    Retention, a truncation or a reset write their checkpoint before the first file goes, so it
    names no file that one of them removes.
    """
    try:
        checkpoint = decode_checkpoint(read_small(path, CHECKPOINT) or b"")
    except (OSError, Malformed):
        return None
    start, void = checkpoint.journal_start, checkpoint.drop_from
    return frozenset(b for b in checkpoint.bases if b >= start and (void is None or b < void))


def judge_vanished(path: Path, file: SegmentFile) -> Finding | str | None:
    """Judge a file that vanished beside a running broker. None: the broker retired it.

    A text: why it is unread.
    """
    bases = listed_bases(path)
    if bases is None:
        return _UNKNOWN
    if file.base not in bases:
        return None
    if os.path.lexists(path / file.name):
        return _AWAY
    return error(Code.J005, file.name, file.base, _TAKEN, file.end)
