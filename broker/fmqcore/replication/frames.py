"""Where a run of whole stored batches ends in the journal. Pure.

An EOF batch stands for the segment's rest but is stored and sent as its 96 header bytes, so
the end is not always `position + len(batches)`. The bytes are FMQ's own and are not checked here.
"""

from struct import Struct
from typing import Final

from fmqcore.batch.header import BatchType
from fmqcore.ids import Position

_TOTAL_LEN: Final = Struct("<I")
_TYPE_AT: Final = 7
_BASE_OFFSET: Final = Struct("<Q")
_BASE_OFFSET_AT: Final = 40
SMALL_SEGMENT: Final = 8 * 1024 * 1024
"""A segment of at most this many bytes may hold control batches alone."""
MAX_WORK: Final = 600
"""Batches and entries that a slave applies in one turn of the loop: below 5 ms."""
_ENTRY_BYTES: Final = 32
"""Of a progress entry, at least."""
_WHOLE: Final = (BatchType.DATA, BatchType.SNAP, BatchType.EOF)


def end_of_batches(position: Position, batches: bytes) -> Position:
    """Return the position one past the last of `batches`, which begin at `position`."""
    at, size = 0, len(batches)
    while at < size:
        (length,) = _TOTAL_LEN.unpack_from(batches, at)
        if batches[at + _TYPE_AT] == BatchType.EOF:
            return Position(position + at + length)
        at += length
    return Position(position + at)


def leading_work(batches: bytes, most: int = MAX_WORK) -> bytes:
    """Return the first batches that a slave applies in one short turn; at least one.

    A batch that is not read, or is read in other turns, counts as one; another one counts for
    its entries, too.
    """
    at, size, work = 0, len(batches), 0
    while at < size:
        (length,) = _TOTAL_LEN.unpack_from(batches, at)
        kind = batches[at + _TYPE_AT]
        work += 1 if kind in _WHOLE else 1 + length // _ENTRY_BYTES
        if at and work > most:
            return batches[:at]
        if kind == BatchType.EOF:  # the last one, of 96 bytes, whatever its length
            break
        at += length
    return batches


def leading_control(batches: bytes) -> bytes:
    """Return the part of `batches` before the first DATA or an ordinary-length segment."""
    at, size = 0, len(batches)
    while at < size:
        (length,) = _TOTAL_LEN.unpack_from(batches, at)
        kind = batches[at + _TYPE_AT]
        if kind == BatchType.DATA:
            break
        if kind == BatchType.SNAP:
            (segment,) = _BASE_OFFSET.unpack_from(batches, at + _BASE_OFFSET_AT)
            if segment > SMALL_SEGMENT:
                break
        at += length
        if kind == BatchType.EOF:
            return batches
    return batches[:at]
