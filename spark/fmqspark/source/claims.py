"""Check that a directory's checkpoint belongs to the journal that lies there.

A checkpoint of another journal, or of an older copy, would end it, or begin it, somewhere else, and
its missing records would go unnoticed. Only what costs little is checked: the batch that ends at
the durable end. The check job verifies all claims (M001). Leaves nothing on disk.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from fmqcore.batch.header import HEADER_LEN, BadBatch, parse_header
from fmqcore.errors import CorruptJournal
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import CHECKPOINT, Segment, segment_name
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqcore.verify.checkpoint import Claims
from fmqspark.source.files import SegmentBytes, Throttle, open_segment

_NEAR: Final = (64 * 1024, 1024 * 1024)  # a batch has less than the latter, but for an EOF
_CRC_AT: Final = 8


def require_own(path: str, checkpoint: Checkpoint, bases: Sequence[Position]) -> None:
    """Raise `CorruptJournal` if the journal contradicts the checkpoint.

    `bases`: of all its segments. Damage contradicts nothing, and is met where it is read; nor does
    what cannot be read.
    """
    end, number = checkpoint.durable_end, bisect_left(bases, checkpoint.durable_end) - 1
    if end <= checkpoint.journal_start or checkpoint.drop_from is not None or number < 0:
        return
    if end in bases and _follows(path, end, end, checkpoint.last_header_crc):
        return
    base = bases[number]
    try:
        with open_segment(path, segment_name(base), Throttle(0), sparse=True) as data:
            if _ends_near(data, base, checkpoint):
                return
            why = _contradicts(data, base, checkpoint)
    except OSError:
        return
    if why:
        raise CorruptJournal(
            f"{path}/{CHECKPOINT} belongs to another journal ({why}): run `fmq job check` on the "
            "directory, then restore its checkpoint or remove it: a starting broker writes one"
        )


def _follows(path: str, base: Position, at: Position, crc: int) -> bool:
    """Return whether the batch at `at` names `crc` as the CRC of the previous batch."""
    try:
        with open_segment(path, segment_name(base), Throttle(0), sparse=True) as data:
            header = parse_header(data.read(HEADER_LEN, at - base))
    except (OSError, BadBatch):
        return False
    return header.position == at and header.prev_header_crc == crc


def _ends_near(data: SegmentBytes, base: Position, checkpoint: Checkpoint) -> bool:
    """Return whether a batch with that CRC is right before the durable end."""
    end, crc = checkpoint.durable_end, struct.pack("<I", checkpoint.last_header_crc)
    for length in _NEAR:
        begin = max(base, end - length)
        raw = data.read(end - begin, begin - base)
        found = raw.rfind(crc)
        while found >= 0:
            at = found - _CRC_AT
            if at >= 0 and _is(raw[at : at + HEADER_LEN], Position(begin + at), end):
                return True
            found = raw.rfind(crc, 0, found)
    return False


def _is(raw: bytes, position: Position, end: Position) -> bool:
    try:
        header = parse_header(raw)
    except BadBatch:
        return False
    return header.position == position and header.end == end


def _contradicts(data: SegmentBytes, base: Position, checkpoint: Checkpoint) -> str:
    """Return what ends at the durable end instead; "" if it is that batch, or follows damage."""
    end = checkpoint.durable_end
    claims = Claims(checkpoint._replace(commit_end=end), SegmentFile(base, len(data)))
    segment = Segment(base, Position(base + len(data)))
    for block in HeaderScan(data.read, ScanRange(segment, base, min(end, segment.end))):
        last = bisect_left(block.column("position"), end) - 1
        if last >= 0:
            claims.see(parse_header(block.header_bytes(last)))
    found = claims.findings(None)
    return found[0].sentence if found else ""
