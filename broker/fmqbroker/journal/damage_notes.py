"""Notes on damage that a read finds while the broker runs, for the next start.

A start reads the newest segment only (ADR 0011); in a sealed one, damage shows when it is read.
Then the segment is noted on disk before anything else happens, and `Journal.damage` reports it: the
owner of the journal decides whether others can do without this copy. The next start reads that
segment in full: it refuses, as for any damage below the durable end, or forgets the note if the
whole segment is sound (the memory was at fault).

Leaves `suspect`: the segment's base in decimal (`fmqcore.journal.damage_note`).
"""

import structlog

from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchType, check_payload, parse_header
from fmqcore.errors import Malformed
from fmqcore.journal.damage_note import SUSPECT, decode_suspect, encode_suspect
from fmqport.disk import Disk

_log = structlog.get_logger()


def check_batches(data: bytes) -> tuple[int, BadBatch | None]:
    """Return where the first bad batch starts in `data`, and its fault; None if all is sound."""
    at = 0
    view = memoryview(data)
    while at < len(data):
        try:
            header = parse_header(data, at)
            if header.type == BatchType.EOF:
                break
            check_payload(header, view[at + HEADER_LEN : at + HEADER_LEN + header.payload_len])
        except BadBatch as bad:
            return at, bad
        at += header.total_len
    return at, None


async def note(disk: Disk, segment: StoredSegment) -> None:
    """Make the next start read that segment in full."""
    await disk.replace_file(SUSPECT, encode_suspect(segment.base))


async def noted(disk: Disk, store: SegmentStore) -> StoredSegment | None:
    """Return the segment that an earlier run found damaged, if it still exists."""
    raw = await disk.read_file(SUSPECT)
    if raw is None:
        return None
    try:
        base = decode_suspect(raw)
    except Malformed:
        _log.warning("journal_damage_note_unreadable")
        return None
    return next((segment for segment in store.segments if segment.base == base), None)


async def forget(disk: Disk) -> None:
    """Remove the note: nothing is wrong."""
    if await disk.read_file(SUSPECT) is not None:
        await disk.remove(SUSPECT)
