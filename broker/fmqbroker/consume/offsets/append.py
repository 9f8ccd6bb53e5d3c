"""Progress entries into the journal: OFFSETS batches, few entries each.

Encoding some hundred thousand entries in one go would stop all else for a second. Leaves OFFSETS
batches at the journal's end; what was appended before an error stays, which harms nothing, as an
entry stands for itself.
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

BATCH_BYTES: Final = 12 * 1024
"""Of entries in one batch and one turn of the loop: some 3 ms."""


async def append_offsets(
    journal: Journal,
    entries: Mapping[OffsetKey, OffsetEntry],
    go_on: Callable[[], None] = lambda: None,
    *,
    for_term: bool = False,
) -> Position:
    """Append them, each batch in a turn of its own; return the end, 0 without entries.

    `go_on` is called before each further batch and raises if there must be none. Raises
    `StorageFull` and what else `Journal.append` raises.
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
