"""Values of an ordered producer: results, errors, last records, cut batches, wire forms."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fmqclient.producer.batches import InFlightBatch, PendingBatch, Record, record_bytes
from fmqclient.producer.ordered_state import per_queue
from fmqclient.producer.ordered_values import Batch, Role
from fmqcore.batch.columns import BadColumns, decode, decode_headers
from fmqcore.batch.header import HEADER_LEN, BadBatch, check_payload, parse_header
from fmqcore.errors import (
    DeliveryUnknown,
    FmqError,
    Malformed,
    SenderFenced,
    Unavailable,
    UnknownTopic,
)
from fmqcore.ids import GroupName, Offset
from fmqproto.v1 import client_pb2

_log = logging.getLogger("fmqclient")


class OrderedResult(NamedTuple):
    """Where a record was stored. It may lie in an earlier segment too: its sequence is the same."""

    group: GroupName
    queue: int
    offset: Offset
    segment: int
    sequence: int


class LastRecord(NamedTuple):
    """The last record of a queue before this sender's first one.

    If `readable` is false, its group did not answer, or retention has deleted it: then only
    `sequence` and `offset` are known.
    """

    sequence: int
    offset: Offset
    readable: bool
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]


class CutBatch(InFlightBatch):
    """The records of a batch, encoded once (L11)."""

    __slots__ = ()

    def __init__(self, pending_batch: PendingBatch) -> None:
        super().__init__(pending_batch, 0)

    @property
    def count(self) -> int:
        """See `ordered_state.Content`."""
        return len(self.records)

    @property
    def size(self) -> int:
        """See `ordered_state.Content`."""
        return len(self.payload)

    def halves(self) -> "tuple[CutBatch, CutBatch]":
        """See `ordered_state.Content`."""
        middle = len(self.records) // 2
        return self._part(self.records[:middle]), self._part(self.records[middle:])

    def _part(self, records: Iterable[Record]) -> "CutBatch":
        part = PendingBatch(self.deadline_ms, self.born_ms)
        part.records = list(records)
        part.bytes = sum(map(record_bytes, part.records))
        return CutBatch(part)


def cut_of(batch: Batch) -> CutBatch:
    """Return the content of a batch."""
    assert isinstance(batch.content, CutBatch)
    return batch.content


def result_of(group: GroupName, segment: int, offset: int, batch: Batch, at: int) -> OrderedResult:
    """Return where the record `at` of a stored batch lies; `offset`: of the batch."""
    return OrderedResult(group, batch.queue, Offset(offset + at), segment, batch.sequence + at)


def error_of_cut(batch: Batch, error: FmqError, *, refused: bool) -> FmqError:
    """Return the error of a batch's records when the producer ends (L14).

    The cause of a `DeliveryUnknown` is what ended the producer.
    """
    if isinstance(error, SenderFenced):
        return error
    if batch.open_attempts:  # an earlier one may be stored, whatever refuses the newest
        unknown = DeliveryUnknown(f"it may be stored or not: {error}")
        unknown.__cause__ = error
        return unknown
    return error if refused else error_of_unsent(error)


def error_of_unsent(error: FmqError) -> FmqError:
    """Return the error of records that were in no batch yet when the producer ends."""
    if isinstance(error, SenderFenced):
        return error
    kind = UnknownTopic if isinstance(error, UnknownTopic) else Unavailable
    return kind(f"not stored: {error}")


def wire_batch(
    correlation: int, batch: Batch, topic_id: int, segment: int, epoch: int
) -> client_pb2.ProduceBatch:
    """Return a batch as it is sent into a segment."""
    content = cut_of(batch)
    return client_pb2.ProduceBatch(
        correlation=correlation,
        topic_id=topic_id,
        queue_id=batch.queue,
        record_count=content.count,
        attrs=content.attrs,
        payload_crc=content.crc,
        tag_mask=content.tag_mask,
        ack=client_pb2.REPLICATED,
        payload=content.payload,
        chain_segment=segment,
        sender_epoch=epoch,
        ordered_sequence=batch.sequence,
    )


def role_of(state: client_pb2.SenderState) -> Role:
    """Return a sender's state from its wire form; raise `Malformed`."""
    if state.active and not state.first_sequence:
        raise Malformed(f"segment {state.chain_segment} has no first sequence of any queue")
    return Role(
        active=state.active,
        sender_epoch=state.sender_epoch,
        segment=state.chain_segment,
        group=GroupName(state.group),
        first_sequence=per_queue(state.first_sequence),
        closing=state.closing_reason,
        reason=state.reason,
    )


def last_records_of(state: client_pb2.SenderState) -> dict[int, LastRecord]:
    """Return by queue the last records that a state names."""
    return {queue: _last_record(queue, r) for queue, r in sorted(state.last_records.items())}


def _last_record(queue: int, record: client_pb2.LastRecord) -> LastRecord:
    sequence, offset, raw = record.ordered_sequence, Offset(record.offset), record.batch
    unreadable = LastRecord(sequence, offset, False, b"", None, {})
    if not raw:
        return unreadable
    try:
        header = parse_header(raw)
        payload = raw[HEADER_LEN : HEADER_LEN + header.payload_len]
        check_payload(header, payload)
        values, keys, _, headers, _ = decode(header.attrs, header.record_count, payload)
        at = offset - header.base_offset
        if not 0 <= at < len(values):
            raise BadColumns(f"offsets {header.base_offset} to {header.end_offset}")
        found = {} if headers is None else decode_headers(headers[at])
    except (BadBatch, BadColumns) as error:
        text = "the last record of queue %d, at offset %d, cannot be read: %s"
        _log.warning(text, queue, offset, error)
        return unreadable
    key = (keys[at] or None) if keys is not None else None
    return LastRecord(sequence, offset, True, values[at], key, found)
