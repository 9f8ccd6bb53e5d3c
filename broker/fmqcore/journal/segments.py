"""Segments: their files' names, what fits in one, and the two batches that frame it. Pure.

A segment begins with a SNAP (whose header's `base_offset` holds the segment's length in bytes, so
that a receiver makes its file as long as the sender's) and ends with an EOF that reaches exactly to
its end, or exactly full. So that an EOF always fits, a batch must leave either nothing or at least
96 bytes free behind it. The next segment's base is this one's end. Segment files are
preallocated; bytes not yet written read as zeros.

On disk: `<base, 20 digits>.journal`, `<base, 20 digits>.index`, `checkpoint`.
"""

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    ALIGN,
    HEADER_LEN,
    BatchHeader,
    BatchType,
    batch_len,
    encode_header,
    padding,
)
from fmqcore.ids import Epoch, Position

CHECKPOINT: Final = "checkpoint"
"""The checkpoint's file name."""
INDEX: Final = "index"
"""The ending of the queue index's file names."""
MIN_SEGMENT: Final = 64 * 1024
"""Least bytes of a segment."""
_MAX_PRODUCER_ROOM: Final = 3 * 1024 * 1024  # all of `MAX_PRODUCERS`
_MAX_PROGRESS_ROOM: Final = 16 * 1024 * 1024  # some 200,000 entries
MAX_SEGMENT: Final = 4096 * 1024 * 1024
"""Most bytes of a segment: an EOF's `total_len` is a u32 and never spans a whole segment."""
_LAST_BASE: Final = 2**64 - 1 - MAX_SEGMENT  # 20 digits may say more than a position can be
NO_TERM: Final = Epoch(0)
"""A segment that was closed or opened because one was full, not for a term."""
NO_CORRECTION: Final = Position(0)
"""In place of the base of a segment that lowers the store times: there is none."""

_NAME: Final = re.compile(r"([0-9]{20})\.([a-z]+)")


class Segment(NamedTuple):
    """One segment's place: [base, end)."""

    base: Position
    end: Position


def segment_name(base: Position) -> str:
    """Return the file name of the segment that begins at `base`."""
    return f"{base:020d}.journal"


def index_name(base: Position, suffix: str = INDEX) -> str:
    """Return the file name of that segment's queue index, or of another derived index."""
    return f"{base:020d}.{suffix}"


def segment_base(name: str) -> Position | None:
    """Return the base in a segment file's name; None if it is no such name."""
    return _base(name, ("journal",))


def index_base(name: str, suffixes: Collection[str] = (INDEX,)) -> Position | None:
    """Return the base in an index file's name; None if it is no such name."""
    return _base(name, suffixes)


def fits(position: int, length: int, segment_end: int) -> bool:
    """Whether a batch of `length` bytes may stand at `position`: it leaves nothing or EOF room."""
    rest = segment_end - position - length
    return rest == 0 or rest >= HEADER_LEN


def producer_room(segment_bytes: int) -> int:
    """Return the bytes reserved for producers in a segment's SNAP."""
    return min(_MAX_PRODUCER_ROOM, segment_bytes // 4)


def progress_room(segment_bytes: int) -> int:
    """Return the bytes of progress in such a segment's SNAP at which no new group is accepted."""
    return min(_MAX_PROGRESS_ROOM, segment_bytes // 4)


def snap_room(segment_bytes: int) -> tuple[int, int]:
    """Return the maximum bytes of a segment's SNAP payload, and of the producers in it.

    The first can be met only as far as leaving out producers helps (`JournalState.to_snap`). Half
    of the segment is for batches, whatever grows beyond its room.
    """
    return segment_bytes // 2, producer_room(segment_bytes)


def usual_snap(segment_bytes: int) -> int:
    """Return the bytes of a SNAP payload whose tables stay within their rooms."""
    return producer_room(segment_bytes) + progress_room(segment_bytes)


def max_payload(segment_bytes: int, snap_payload_len: int) -> int:
    """Return the largest payload that fits a fresh segment behind such a SNAP; negative = none."""
    room = segment_bytes - batch_len(snap_payload_len) - 2 * HEADER_LEN
    return room & -ALIGN


def snap_batch(*, base: Position, payload: bytes, **fields: Any) -> tuple[bytes, int]:
    """Make a SNAP batch, header and payload; return it with its header CRC.

    `fields`: see `snap_header`.
    """
    header, crc = snap_header(
        base=base, payload_len=len(payload), payload_crc=crc32c(payload), **fields
    )
    return header + payload + padding(len(payload)), crc


def snap_header(  # of the first batch of every segment
    *,
    base: Position,
    segment_bytes: int,
    epoch: Epoch,
    prev_header_crc: int,
    payload_len: int,
    payload_crc: int,
    store_ms: int,
    framed_for: Epoch = NO_TERM,
    corrected_from_ms: int = 0,
    last_correction: Position = NO_CORRECTION,
) -> tuple[bytes, int]:
    """Make the header of a SNAP batch; return it with its CRC."""
    return encode_header(
        type=BatchType.SNAP,
        position=base,
        epoch=epoch,
        prev_header_crc=prev_header_crc,
        payload_len=payload_len,
        payload_crc=payload_crc,
        store_ms=store_ms,
        base_offset=segment_bytes,
        base_sequence=framed_for,
        deliver_at_ms=corrected_from_ms,
        tag_mask=last_correction,
    )


def eof_batch(
    *,
    position: Position,
    segment_end: Position,
    epoch: Epoch,
    prev_header_crc: int,
    store_ms: int,
    framed_for: Epoch = NO_TERM,
) -> tuple[bytes, int]:
    """Make the 96 bytes of the EOF that closes a segment; return them with the header CRC."""
    return encode_header(
        type=BatchType.EOF,
        position=position,
        epoch=epoch,
        prev_header_crc=prev_header_crc,
        payload_len=0,
        payload_crc=0,
        store_ms=store_ms,
        total_len=segment_end - position,
        base_sequence=framed_for,
    )


def segment_of_snap(header: BatchHeader) -> Segment | None:
    """Return the segment that a SNAP opens; None if its length is invalid."""
    length = int(header.base_offset)
    if length % ALIGN or not MIN_SEGMENT <= length <= MAX_SEGMENT:
        return None
    return Segment(header.position, Position(header.position + length))


def _base(name: str, suffixes: Collection[str]) -> Position | None:
    match = _NAME.fullmatch(name)
    if match is None or match[2] not in suffixes or int(match[1]) > _LAST_BASE:
        return None
    return Position(int(match[1]))
