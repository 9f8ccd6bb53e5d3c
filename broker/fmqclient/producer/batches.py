"""Pending records as plain tuples, and the batches into which a producer gathers them.

Per record there is one tuple and one future, and no loop except in C: the cost per record limits a
producer. A `PendingBatch` gathers the records of one queue buffer; when sent it becomes an
`InFlightBatch`, which keeps its bytes, checksum and sequence until its outcome is known.
"""

import asyncio
from array import array
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.errors import DeliveryUnknown, FmqError
from fmqcore.ids import Epoch, GroupName, Offset
from fmqcore.placement import tag_bit

RECORD_OVERHEAD: Final = 24
"""Bytes that a record costs besides its content: its column offsets, rounded up."""
NO_OFFSET: Final = Offset(-1)
"""Offset of a ONE_WAY send: no broker answers, so no offset is known."""

Record = tuple[bytes, bytes, bytes, bytes, "asyncio.Future[SendResult]", bool, int]
"""(value, key, tag, encoded headers, future, pinned to its queue, number in the producer)"""


class SendResult(NamedTuple):
    """Where a record was stored."""

    group: GroupName
    queue: int
    offset: Offset


_result: Any = partial(tuple.__new__, SendResult)  # half the cost of SendResult(...)


def record_bytes(record: Record) -> int:
    """Size of a record in a batch, rounded up."""
    return len(record[0]) + len(record[1]) + len(record[2]) + len(record[3]) + RECORD_OVERHEAD


class PendingBatch:
    """A batch that was not sent: records of one queue buffer."""

    __slots__ = ("born_ms", "bytes", "deadline_ms", "doubtful", "records", "sequence", "stayed")

    def __init__(self, deadline_ms: int, born_ms: int, sequence: int = 0) -> None:
        self.records: list[Record] = []
        self.bytes = 0
        self.deadline_ms = deadline_ms
        self.born_ms = born_ms  # wall clock; 0 = not wanted
        self.sequence = sequence  # under which it was sent and refused
        self.stayed: InFlightBatch | None = None  # as which it was refused, until it is queued
        self.doubtful = False  # `outcome`


class InFlightBatch:
    """A batch in flight: sent at least once, outcome not known."""

    __slots__ = (
        "attrs",
        "born_ms",
        "bytes",
        "crc",
        "deadline_ms",
        "doubtful",
        "due_ms",
        "free_keys",
        "over",
        "payload",
        "records",
        "sequence",
        "stays",
        "tag_mask",
        "terms",
        "tracked",
        "unknown",
    )

    def __init__(self, pending_batch: PendingBatch, sequence: int) -> None:
        self.records = pending_batch.records
        self.bytes = pending_batch.bytes
        self.deadline_ms = pending_batch.deadline_ms
        self.born_ms = pending_batch.born_ms
        self.sequence = sequence
        self.unknown = False  # an attempt may have been stored: only ever tried again as it is
        self.doubtful = pending_batch.doubtful  # `outcome`
        self.terms: set[Epoch] = set()  # of the masters to which it was sent, not answered yet
        self.over = False  # answered, or given up
        self.stays = False  # later records are placed meanwhile; refused, it goes to other queues
        self.free_keys: set[bytes] = set()  # only with keys of which nothing later was placed
        self.tracked = False  # `free_keys` is kept up to date
        self.due_ms = 0  # when to try again; 0 = not planned
        self.attrs, self.payload, self.tag_mask = _encode(pending_batch)
        self.crc = crc32c(self.payload)

    def stay(self) -> None:
        """Start to stay: from here on, later records of these keys may go to other queues.

        A batch that stays already keeps its `free_keys`: the other keys were overtaken before.
        """
        if self.stays:
            return
        self.stays = self.tracked = True
        self.free_keys = {record[1] for record in self.records if not record[5]}

    def note_never_appended(self, term: Epoch) -> None:
        """Note the answer of the master of `term`: no attempt is in its journal, or will be.

        It cannot answer for an attempt in another term: a broker may have shown that one to
        consumers from a journal which `term` left behind.
        """
        if self.unknown:
            self.unknown = False
            self.doubtful = self.doubtful or self.terms != {term}
        self.terms.clear()

    @property
    def end_sequence(self) -> int:
        """Sequence one past its last record."""
        return self.sequence + len(self.records)


def _encode(pending_batch: PendingBatch) -> tuple[int, bytes, int]:
    values, keys, tags, headers, _, _, _ = zip(*pending_batch.records, strict=True)
    has_tags = any(tags)
    mask = 0
    if has_tags:
        for tag in set(tags):
            mask |= tag_bit(tag) if tag else 0
    attrs, payload = encode(
        values,
        keys if any(keys) else None,
        tags if has_tags else None,
        headers if any(headers) else None,
        array("q", [pending_batch.born_ms]) * len(values) if pending_batch.born_ms else None,
    )
    return attrs, payload, mask


def resolve(records: Iterable[Record], group: GroupName, queue: int, base: int) -> None:
    """Resolve every future of a stored batch."""
    offset = base
    for _, _, _, _, future, _, _ in records:
        if not future.done():
            future.set_result(_result((group, queue, offset)))
        offset += 1


def resolve_unanswered(records: Iterable[Record], group: GroupName, queue: int) -> None:
    """Resolve the futures of a ONE_WAY batch that left: no more will be known."""
    for record in records:
        if not record[4].done():
            record[4].set_result(SendResult(group, queue, NO_OFFSET))


def outcome(batch: PendingBatch | InFlightBatch, error: FmqError) -> FmqError:
    """Return the error that the records of a batch end with: none certain if it is doubtful (L14).

    A doubtful batch is in no journal that its group kept, so it may go anywhere, but consumers may
    have been shown it.
    """
    if not batch.doubtful or isinstance(error, DeliveryUnknown):
        return error
    return DeliveryUnknown(
        f"consumers may have seen it before a failover in which its group lost it; then: {error}"
    )


def reject(records: Iterable[Record], error: FmqError) -> None:
    """Fail the futures of records that were not stored, or whose outcome is unknown."""
    for record in records:
        future = record[4]
        if not future.done():
            own = type(error)(str(error))
            own.__cause__ = error.__cause__
            future.set_exception(own)
