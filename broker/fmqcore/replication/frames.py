"""Where a run of whole stored batches ends in the journal. Pure.

An EOF batch stands for the rest of its segment but is stored and sent as its 96 header bytes, so
the end is not always `position + len(batches)`. Nothing is checked here: the bytes are our own.
"""

from struct import Struct
from typing import Final

from fmqcore.batch import BatchType
from fmqcore.words import Position

_TOTAL_LEN: Final = Struct("<I")
_TYPE_AT: Final = 7


def end_of_batches(position: Position, batches: bytes) -> Position:
    """The position one past the last of `batches`, which begin at `position`."""
    at, size = 0, len(batches)
    while at < size:
        (length,) = _TOTAL_LEN.unpack_from(batches, at)
        if batches[at + _TYPE_AT] == BatchType.EOF:
            return Position(position + at + length)
        at += length
    return Position(position + at)
