"""The takeover record: a takeover reader's progress entries in the group's state. Pure.

Base64 of an OFFSETS payload, small enough for a ZooKeeper node. It has only what changed since the
claim. Above the limit the ranges above the floors are left out (duplicates, never losses, and only
if the reader's disk is lost too); if that is not enough there is none, and the last one stays.
"""

import base64
from collections.abc import Mapping
from typing import Final, NamedTuple

from fmqcore.batch.control import decode_offsets, encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.merge import thinned
from fmqcore.errors import Malformed

MAX_RECORD_CHARS: Final = 900_000
"""A ZooKeeper node holds 1 MiB, including the rest of the group's state."""


class EncodedRecord(NamedTuple):
    """The text, None if too large even without ranges; `whole`: nothing was left out."""

    text: str | None
    whole: bool


def encode_record(
    table: Mapping[OffsetKey, OffsetEntry], max_chars: int = MAX_RECORD_CHARS
) -> EncodedRecord:
    """Encode a record of at most `max_chars` characters, if possible."""
    text = base64.b64encode(encode_offsets(table)).decode()
    if len(text) <= max_chars:
        return EncodedRecord(text, True)
    text = base64.b64encode(encode_offsets(thinned(table))).decode()
    return EncodedRecord(text if len(text) <= max_chars else None, False)


def decode_record(text: str) -> dict[OffsetKey, OffsetEntry]:
    """Decode a record; empty text gives an empty table. Raise `Malformed`."""
    if not text:
        return {}
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Malformed(f"the takeover record is not base64: {error}") from error
    return decode_offsets(raw)
