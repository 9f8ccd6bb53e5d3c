"""Received batches are checked against a cursor that a replica carries along."""

import pytest

from fmqcore.batch.header import BadBatch, BatchFault, BatchHeader, BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.scan import Cursor, check_batches
from fmqcore.tests.journal.test_scan import resealed, small, u
from fmqcore.tests.journal.writer import JournalWriter


def received(writer: JournalWriter, last: BatchHeader) -> tuple[bytes, Cursor]:
    """Return the bytes of `last`, and a cursor that took in all earlier batches one by one."""
    cursor = Cursor(Position(0), 0)
    data = bytes(writer.segments[Position(0)])
    for header in writer.headers[:-1]:
        check_batches(data[header.position : header.end], cursor)
    assert cursor.position == last.position
    return data[last.position : last.end], cursor


def test_the_cursor_carries_epoch_and_that_it_knows_every_queue() -> None:
    writer = small()
    _, cursor = received(writer, writer.headers[-1])
    assert cursor.epoch == writer.epoch
    assert cursor.complete, "its first SNAP named all queues there are"
    assert cursor.segment is not None


@pytest.mark.parametrize(
    ("what", "changes", "fault"),
    [
        ("an epoch that falls", {"at_24": u(0, 4)}, BatchFault.EPOCH),
        ("an epoch that was not opened", {"at_24": u(2, 4)}, BatchFault.EPOCH),
        ("a queue that begins in its middle", {"at_30": u(9, 2)}, BatchFault.OFFSET),
        ("a place before this one", {"at_16": u(96, 8)}, BatchFault.POSITION),
        ("a place behind this one", {"at_16": u(1 << 20, 8)}, BatchFault.POSITION),
    ],
)
def test_invalid_bytes_after_received_batches_are_refused(
    what: str, changes: dict[str, bytes], fault: BatchFault
) -> None:
    writer = small()
    raw, cursor = received(writer, writer.headers[-1])
    with pytest.raises(BadBatch) as bad:
        check_batches(resealed(raw, 0, **changes), cursor)
    assert bad.value.fault is fault, what
    assert check_batches(raw, cursor) == writer.headers[-1:]


@pytest.mark.parametrize("kind", ["OFFSETS", "CONFIG"])
def test_only_an_epoch_batch_starts_an_epoch(kind: str) -> None:
    """R1: a term is defined by its EPOCH batch and that batch's position."""
    writer = small()
    if kind == "CONFIG":
        last = writer.topic(7, "orders", 4)
    else:
        last = writer.offsets({OffsetKey("g", TopicId(7), 0): OffsetEntry(1, Offset(1))})
    assert last.type == BatchType[kind]
    raw, cursor = received(writer, last)
    with pytest.raises(BadBatch, match="in a batch that is no EPOCH"):
        check_batches(resealed(raw, 0, at_24=u(2, 4)), cursor)
