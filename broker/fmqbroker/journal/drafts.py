"""Batches on their way into the journal: drafts without a place, and replicas as received."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fmqcore.batch.header import (
    HEADER_LEN,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    parse_header,
)
from fmqcore.errors import Malformed
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.kinds import kind_of
from fmqcore.journal.state import JournalState

LONG_SNAP: Final = 64 * 1024
"""Bytes of a SNAP that takes more than a short turn of the loop to decode."""
Snaps = dict[Position, JournalState]
"""Decoded SNAP payloads by the positions of their batches."""


class BatchDraft(NamedTuple):
    """A batch before it has a place. Control batches use topic 0, queue 0, record_count 0."""

    type: BatchType
    payload: bytes
    payload_crc: int
    topic_id: TopicId = TopicId(0)
    queue_id: int = 0
    record_count: int = 0
    attrs: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    base_sequence: int = 0
    tag_mask: int = 0
    deliver_at_ms: int = 0


class Appended(NamedTuple):
    """The place of an appended batch."""

    position: Position
    end: Position
    base_offset: Offset
    store_ms: int


def long_snap(data: bytes) -> BatchHeader | None:
    """Return the header of a long SNAP at the start of received batches; None if there is none."""
    if len(data) < LONG_SNAP:
        return None
    try:
        header = parse_header(data)
    except BadBatch:
        return None
    long = header.type == BatchType.SNAP and header.payload_len >= LONG_SNAP
    return header if long else None


def control_payloads(
    headers: Sequence[BatchHeader], data: bytes, snaps: Snaps, *, known: bool
) -> list[bytes]:
    """Return the payloads for the state, all decoded once so that nothing stays half-applied.

    SNAPs that `snaps` lacks are added to it. `known`: the first one is applied without decoding.
    """
    payloads, at = [], 0
    for header in headers:
        payload = b""
        row = kind_of(header.type)
        wanted = row.by_payload and (at or not known) and header.position not in snaps
        if wanted and row.decode is not None:
            payload = data[at + HEADER_LEN : at + HEADER_LEN + header.payload_len]
            try:
                decoded = row.decode(payload)
            except Malformed as error:
                raise BadBatch(
                    BatchFault.CONTENT, f"at position {header.position}: {error}"
                ) from error
            if isinstance(decoded, JournalState):
                snaps[header.position] = decoded
        payloads.append(payload)
        at += header.stored_len
    return payloads
