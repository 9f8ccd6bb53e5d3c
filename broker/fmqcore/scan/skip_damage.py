"""Find the next place after damage where a batch certainly begins. Pure.

For tools that inspect a journal (`fmq journal verify` and `dump`), never for a broker, which stops
at damage. A batch begins where magic, version, header CRC and the header's own position all agree;
the range before it cannot be read. The search reads one piece at a time, so it needs little
memory.
"""

from typing import Final

from fmqcore.batch.header import (
    ALIGN,
    HEADER_LEN,
    MAGIC,
    VERSION,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    parse_header,
)
from fmqcore.ids import Position
from fmqcore.journal.scan import Cursor, Fault, Readable
from fmqcore.journal.segments import Segment

_MARK: Final = MAGIC.to_bytes(2, "little") + bytes((VERSION,))
_MARK_AT: Final = 4
_STEP: Final = 1024 * 1024
_GOOD_BYTES: Final = (BatchFault.CHAIN, BatchFault.OFFSET, BatchFault.EPOCH)
"""Faults of a batch that can be read but does not follow from the one before."""


def resync(fault: Fault, data: Readable, segment: Segment, cursor: Cursor) -> int | None:
    """Move the cursor to the next batch after `fault`; return the bytes skipped, None = all.

    From there on everything is accepted as it comes: chain, epoch and offsets start again.
    """
    at = fault.position - segment.base
    found: int | None = at
    if fault.fault not in _GOOD_BYTES or not _may_be_taken(bytes(data[at : at + HEADER_LEN])):
        found = _next_header(data, segment, at + ALIGN)
    if found is None:
        return None
    cursor.position = Position(segment.base + found)
    cursor.prev_header_crc, cursor.epoch = None, None
    cursor.segment = None if cursor.position == segment.base else segment  # its SNAP must come
    cursor.next_offsets, cursor.complete = {}, False
    return found - at


def _may_be_taken(raw: bytes) -> bool:
    """A batch without records is always wrong: accepted again, it would be the same fault."""
    header = parse_header(raw)
    return header.type != BatchType.DATA or header.record_count > 0


def _next_header(data: Readable, segment: Segment, at: int) -> int | None:
    while at + HEADER_LEN <= len(data):
        piece = bytes(data[at : min(at + _STEP, len(data))])
        mark = piece.find(_MARK, _MARK_AT)
        while mark >= 0:
            begin = at + mark - _MARK_AT
            head = bytes(data[begin : begin + HEADER_LEN])
            if begin % ALIGN == 0 and _is_header(head, begin, segment):
                return begin
            mark = piece.find(_MARK, mark + 1)
        at += max(ALIGN, len(piece) - HEADER_LEN)
    return None


def _is_header(raw: bytes, at: int, segment: Segment) -> bool:
    try:
        header: BatchHeader = parse_header(raw)
    except BadBatch:
        return False
    return header.position == segment.base + at and header.end <= segment.end
