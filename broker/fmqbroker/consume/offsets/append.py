"""Append progress entries to the journal as OFFSETS batches of few entries each.

Encoding some hundred thousand entries at once would block the event loop for a second. Batches that
were appended before an error stay, which is harmless, since each entry stands for itself.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from fmqbroker.journal.journal import BatchDraft, Journal
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.merge import cut_up
from fmqcore.ids import Position

BATCH_BYTES: Final = 8 * 1024
"""Entry bytes in one batch and one turn of the event loop: some 3 ms."""


async def append_offsets(
    journal: Journal,
    entries: Mapping[OffsetKey, OffsetEntry],
    go_on: Callable[[], None] = lambda: None,
    *,
    for_term: bool = False,
) -> Position:
    """Append `entries`, one batch per turn of the loop; return the end, or 0 without entries.

    `go_on` is called before each further batch and raises if there must be none. Raises
    `StorageFull` and the other errors of `Journal.append`.
    """
    end = Position(0)
    for number, part in enumerate(cut_up(entries.items(), BATCH_BYTES)):
        if number:
            await asyncio.sleep(0)
            go_on()
        payload = encode_offsets(part)
        draft = BatchDraft(type=BatchType.OFFSETS, payload=payload, payload_crc=crc32c(payload))
        end = journal.append(draft, for_term=for_term).end
    return end
