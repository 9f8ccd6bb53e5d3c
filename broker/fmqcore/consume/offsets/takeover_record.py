"""The takeover record: a takeover reader's progress entries in the group's state. Pure.

Base64 of an OFFSETS payload, small enough for a ZooKeeper node. It has only what changed since the
claim. Above the limit the ranges above the floors are left out (duplicates, never losses, and only
if the reader's disk is lost too); if that is not enough there is none, and the last one stays.
"""

import base64
from collections.abc import Mapping
from typing import Final, NamedTuple

from fmqcore.batch.control import decoding_offsets, encoding_offsets
from fmqcore.batch.offset_entry import MIN_ENTRY_BYTES, OffsetEntry, OffsetKey
from fmqcore.consume.offsets.table import keys_of
from fmqcore.errors import Malformed
from fmqcore.turns import Turns, finish

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
    return finish(encoding_record(table, max_chars))


def encoding_record(
    table: Mapping[OffsetKey, OffsetEntry], max_chars: int = MAX_RECORD_CHARS
) -> Turns[EncodedRecord]:
    """Like `encode_record`, in pieces; the table may change as for `encoding_offsets`.

    A table with too many entries to fit is not encoded at all.
    """
    if chars_of(len(table) * MIN_ENTRY_BYTES) > max_chars:
        return EncodedRecord(None, False)
    whole = yield from encoding_offsets(table, keys_of(table))
    if chars_of(len(whole)) <= max_chars:
        return EncodedRecord(base64.b64encode(whole).decode(), True)
    thin = yield from encoding_offsets(table, keys_of(table), thin=True)
    if chars_of(len(thin)) > max_chars:
        return EncodedRecord(None, False)
    return EncodedRecord(base64.b64encode(thin).decode(), False)


def chars_of(size: int) -> int:
    """Return the length of `size` bytes as base64."""
    return (size + 2) // 3 * 4


def decode_record(text: str) -> dict[OffsetKey, OffsetEntry]:
    """Decode a record; empty text gives an empty table. Raise `Malformed`."""
    return finish(decoding_record(text))


def decoding_record(text: str) -> Turns[dict[OffsetKey, OffsetEntry]]:
    """Like `decode_record`, in pieces."""
    if not text:
        return {}
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Malformed(f"the takeover record is not base64: {error}") from error
    return (yield from decoding_offsets(raw))
