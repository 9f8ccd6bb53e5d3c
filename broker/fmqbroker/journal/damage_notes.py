"""Damage that a read finds while the broker runs, and what the next start makes of it.

A start reads the newest segment only (ADR 0011); in a sealed one, damage shows when somebody reads
it. Then the segment is noted on disk before anything else happens, and `Journal.damage` says so:
who runs the journal decides whether others can do without this copy. The next start reads that
segment in full: it refuses, as for any damage below the durable end, or forgets the note if
all is whole (it was the memory).

Leaves `suspect`: the segment's base in decimal (`fmqcore.journal.damage_note`).
"""

import structlog

from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchType, check_payload, parse_header
from fmqcore.errors import Malformed
from fmqcore.journal.damage_note import SUSPECT, decode_suspect, encode_suspect
from fmqport.disk import Disk

_log = structlog.get_logger()


def check_batches(data: bytes) -> tuple[int, str]:
    """Where in these whole batches the first damaged one begins, and what is wrong; "": nothing."""
    at = 0
    view = memoryview(data)
    while at < len(data):
        try:
            header = parse_header(data, at)
            if header.type == BatchType.EOF:
                break
            check_payload(header, view[at + HEADER_LEN : at + HEADER_LEN + header.payload_len])
        except BadBatch as bad:
            return at, str(bad)
        at += header.total_len
    return at, ""


async def note(disk: Disk, segment: StoredSegment) -> None:
    """The next start is to read it in full."""
    await disk.replace_file(SUSPECT, encode_suspect(segment.base))


async def noted(disk: Disk, store: SegmentStore) -> StoredSegment | None:
    """The segment that an earlier run has found damaged, if it is still there."""
    raw = await disk.read_file(SUSPECT)
    if raw is None:
        return None
    try:
        base = decode_suspect(raw)
    except Malformed:
        _log.warning("journal: the note on a damaged segment is unreadable and does not count")
        return None
    return next((segment for segment in store.segments if segment.base == base), None)


async def forget(disk: Disk) -> None:
    """Nothing is wrong."""
    if await disk.read_file(SUSPECT) is not None:
        await disk.remove(SUSPECT)
