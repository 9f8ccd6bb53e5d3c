"""A session's handling of broker replies: pieces of one batch, and retention gaps."""

import asyncio
import logging
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.consumer.message import DeliveredBatch, Message
from fmqclient.consumer.session import Session
from fmqclient.settings import ConsumerSettings
from fmqclient.tests.test_session_commit import Wire, _Routes, assigned
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, encode_header
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, GroupName, Offset, Position, TopicId
from fmqport.transport import TransportError
from fmqproto.v1.client_pb2 import ConsumeReply, Delivery, Skipped


def batch(base: int, *values: bytes) -> bytes:
    attrs, payload = encode(values)
    header, _ = encode_header(
        type=BatchType.DATA,
        position=Position(0),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=len(payload),
        payload_crc=crc32c(payload),
        store_ms=1,
        attrs=attrs,
        queue_id=0,
        topic_id=TopicId(1),
        record_count=len(values),
        base_offset=Offset(base),
    )
    return header + payload


def piece(first: int, end: int, batch: bytes = b"", count: int = 2) -> Delivery:
    return Delivery(
        generation=1, first_offset=first, end_offset=end, delivery_count=count, batch=batch
    )


async def replied(*replies: ConsumeReply) -> tuple[Session, list[DeliveredBatch], Exception]:
    """Return a session that received all of them, then lost its stream."""
    batches: list[DeliveredBatch] = []
    session = Session(
        GroupName("g1"),
        "s",
        cast(Any, None),
        cast(Any, _Routes()),
        SystemClock(),
        ConsumerSettings("orders", "billing"),
        batches.append,
        lambda session, tracker: None,
        lambda tracker: None,
    )
    wire = Wire()
    for reply in (assigned(1), *replies, None):
        wire.replies.put_nowait(reply)
    async with asyncio.timeout(20):
        with pytest.raises((TransportError, Malformed)) as ended:
            await session._serve(cast(Any, wire))
    return session, batches, ended.value


async def test_a_further_piece_has_the_batch_of_the_one_before() -> None:
    raw = batch(10, b"a", b"b", b"c", b"d")
    pieces = [piece(10, 11, raw), piece(12, 13), piece(13, 14, count=3)]
    _, batches, _ = await replied(ConsumeReply(deliveries=pieces))
    messages = [Message(delivered, first) for delivered in batches for first, _ in delivered.ranges]
    found = [(m.offset, m.value, m.delivery_count) for m in messages]
    assert found == [(10, b"a", 2), (12, b"c", 2), (13, b"d", 3)]
    assert [delivered.bytes for delivered in batches] == [len(raw), 0, 0], (
        "credit is given back once"
    )
    await messages[0].nack()
    assert not messages[1].nacked


@pytest.mark.parametrize("second", [piece(14, 15), piece(9, 10), piece(13, 13)])
async def test_a_piece_that_its_batch_does_not_hold_is_refused(second: Delivery) -> None:
    pieces = [piece(10, 11, batch(10, b"a", b"b", b"c", b"d")), second]
    _, batches, ended = await replied(ConsumeReply(deliveries=pieces))
    assert isinstance(ended, Malformed)
    assert len(batches) == 1


async def test_records_deleted_by_retention_are_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    skipped = [Skipped(first_offset=5, end_offset=9), Skipped(first_offset=9, end_offset=10)]
    with caplog.at_level(logging.WARNING, logger="fmqclient"):
        session, _, _ = await replied(ConsumeReply(skipped=skipped))
    assert session.skipped == {0: 5}
    (first, _) = caplog.messages
    assert "orders: group g1 queue 0: 4 messages from offset 5 on" in first
