"""Read consumer progress back from the OFFSETS batches at the end of a journal.

A takeover reader cannot know whether the master also has the OFFSETS batches above the commit end.
Progress below the commit end, or from other sources, is not read here. Nothing is written to disk.
"""

import asyncio
from typing import Final

import structlog

from fmqbroker.journal.damage_notes import check_batches
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.control import decoding_offsets
from fmqcore.batch.header import HEADER_LEN, BatchType, parse_header
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, merge
from fmqcore.errors import CorruptJournal, Malformed, NotFound
from fmqcore.ids import Position
from fmqcore.replication.frames import end_of_batches
from fmqport.disk import DiskFailed

_READ_BYTES: Final = 128 * 1024
"""Bytes whose batches are checked and walked in one turn of the loop."""

_log = structlog.get_logger()


async def offsets_above(journal: Journal, committed: Position) -> dict[OffsetKey, OffsetEntry]:
    """Return the merged OFFSETS batches from `committed` (a batch's start) to the journal's end.

    At most the two newest segments are read, because consumers are waiting. Unreadable parts are
    skipped, which costs duplicates: reads must go on.
    """
    table: dict[OffsetKey, OffsetEntry] = {}
    position = max(committed, journal.recent_start)
    try:
        while position < journal.end:
            chunk = await journal.read(position, _READ_BYTES)
            if wrong := check_batches(chunk)[1]:
                raise Malformed(str(wrong)) from wrong
            await _merge_from(chunk, table)
            position = end_of_batches(position, chunk)
    except (Malformed, CorruptJournal, NotFound, DiskFailed) as error:
        _log.error("offsets_unreadable", position=position, reason=str(error), lost="what follows")
    return table


async def _merge_from(batches: bytes, table: dict[OffsetKey, OffsetEntry]) -> None:
    at = 0
    while at < len(batches):
        header = parse_header(batches, at)
        if header.type == BatchType.OFFSETS:
            payload = batches[at + HEADER_LEN : at + HEADER_LEN + header.payload_len]
            merge(table, await in_turns(decoding_offsets(payload)))
            await asyncio.sleep(0)
        at += header.stored_len
