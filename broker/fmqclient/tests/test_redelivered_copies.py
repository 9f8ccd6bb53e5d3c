"""Acked messages that are redelivered are not returned again (L7)."""

import asyncio
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.consumer.consumer import Consumer
from fmqclient.consumer.message import Message
from fmqclient.consumer.session import Session
from fmqclient.settings import ConsumerSettings
from fmqclient.tests.test_session_commit import Wire, _Routes, assigned
from fmqclient.tests.test_session_replies import batch, piece
from fmqcore.batch.header import parse_header
from fmqcore.errors import StaleAssignment
from fmqcore.ids import GroupName
from fmqport.transport import TransportError
from fmqproto.v1.client_pb2 import Assignment, ConsumeReply

RAW = batch(0, b"a", b"b", b"c", b"d")


class Rig:
    """A consumer with one session; broker messages are processed at once."""

    def __init__(self, prefetch: int = 10_000) -> None:
        settings = ConsumerSettings("orders", "billing", prefetch=prefetch)
        self.consumer = Consumer(cast(Any, None), cast(Any, _Routes()), SystemClock(), settings)
        self.session = Session(
            GroupName("g1"),
            "s",
            cast(Any, None),
            cast(Any, _Routes()),
            SystemClock(),
            settings,
            self.consumer._deliver,
            self.consumer._drop,
            self.consumer._refine,
            note=self.consumer._delivery_buffer.note,
        )
        self._received = 0

    async def receive(self, *replies: ConsumeReply) -> None:
        wire = Wire()
        for reply in (*replies, None):
            wire.replies.put_nowait(reply)
        with pytest.raises(TransportError):
            async with asyncio.timeout(20):
                await self.session._receive(cast(Any, wire))

    def take(self, count: int = 9) -> list[Message]:
        found: list[Message] = []
        while len(found) < count and (message := self.consumer._take_message()) is not None:
            found.append(message)
        return found

    def say(self) -> int:
        """Send what is due; return the commit token it requests."""
        self.session.commit()
        request = self.session._next_request()
        assert request is not None
        return request.commit_token


def delivery(count: int) -> ConsumeReply:
    return ConsumeReply(deliveries=[piece(0, 4, RAW, count=count)])


async def test_ack_names_the_epoch_of_its_batch() -> None:
    """Otherwise it would count for another message at the same offset (ADR 0027)."""
    rig = Rig()
    header = parse_header(RAW)
    assert header.epoch > 0
    await rig.receive(assigned(1), delivery(1))
    rig.take(1)[0].ack_now()
    request = rig.session._next_request()
    assert request is not None
    (ack,) = request.acks
    assert (ack.first_offset, ack.end_offset, ack.epoch) == (0, 1, header.epoch)


async def test_buffered_copy_is_dropped_once_its_acks_are_stored() -> None:
    """Its acks were late (a cut link), so the broker redelivered before it had them."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    for message in rig.take():
        message.ack_now()
    token = rig.say()
    await rig.receive(delivery(2), ConsumeReply(committed_tokens=[token]))
    assert rig.take() == []


async def test_a_copy_with_count_one_is_left_out_once_acked() -> None:
    """Its count is 1: no hand-over was reported when the broker redelivered it."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    messages = rig.take()
    copy = piece(0, 4, RAW, count=1)
    copy.redelivered = True
    await rig.receive(ConsumeReply(deliveries=[copy]))
    assert [message.offset for message in rig.take(1)] == [0], "not acked yet: overdue"
    for message in messages:
        message.ack_now()
    assert rig.take() == []


async def test_overdue_buffered_message_is_returned_once() -> None:
    """The program was busy for longer than the ack timeout."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    rig.take(1)
    await rig.receive(delivery(2), ConsumeReply(deliveries=[piece(2, 4, RAW, count=3)]))
    assert [m.offset for m in rig.take()] == [1, 2, 3, 0], "0 was handed out before"
    await rig.receive(ConsumeReply(deliveries=[piece(2, 4, RAW, count=4)]))
    assert [m.offset for m in rig.take()] == [2, 3]


async def test_message_buffered_after_a_copy_is_returned_once() -> None:
    """The program is busy for twice as long, and fetches nothing in between."""
    rig = Rig()
    await rig.receive(
        assigned(1), *(ConsumeReply(deliveries=[piece(0, 1, RAW, c)]) for c in (1, 2))
    )
    await rig.receive(*(ConsumeReply(deliveries=[piece(1, 2, RAW, c)]) for c in (1, 2)))
    assert [m.offset for m in rig.take()] == [0, 1]


async def test_returned_buffered_message_is_shown_when_redelivered() -> None:
    """A seek or a move of the queue came while copies were buffered here."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1), delivery(2))
    again = delivery(3)
    again.deliveries[0].generation = 2
    await rig.receive(assigned(2), again)
    assert [m.offset for m in rig.take()] == [0, 1, 2, 3]


async def test_copy_being_handed_out_skips_messages_acked_meanwhile() -> None:
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    first = rig.take()
    await rig.receive(delivery(2))
    (again,) = rig.take(1)
    assert again.offset == 0, "no member had acked it"
    for message in first[:3]:
        message.ack_now()
    assert [m.offset for m in rig.take()] == [3]


async def test_queue_lost_and_regained_returns_no_acked_message() -> None:
    """Its acks came too late for the broker: they are sent again instead."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    for message in rig.take()[:3]:
        message.ack_now()
    here = Assignment(queue_id=0, generation=1)
    await rig.receive(ConsumeReply(revoked=[here]))
    token = rig.say()
    await rig.receive(ConsumeReply(stale_assignments=[here], committed_tokens=[token]))
    raw = piece(0, 4, RAW, count=1)
    raw.generation = 3
    await rig.receive(assigned(3), ConsumeReply(deliveries=[raw]))
    assert [m.offset for m in rig.take()] == [3]
    request = rig.session._next_request()
    assert request is not None
    assert [(a.generation, a.first_offset, a.end_offset) for a in request.acks] == [(3, 0, 3)]


async def test_stale_ack_in_a_queue_that_is_held_is_reported() -> None:
    """The session leaves, so its broker takes no acks; another task still acks and commits."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    for message in rig.take()[:3]:
        message.ack_now()
    waiter, token = rig.session.commit(), rig.say()
    here = Assignment(queue_id=0, generation=1)
    await rig.receive(ConsumeReply(stale_assignments=[here], committed_tokens=[token]))
    with pytest.raises(StaleAssignment, match="some acks for g1/0 are not stored"):
        await waiter


async def test_acks_of_redelivered_messages_are_sent_again() -> None:
    """The broker had no room for them: unsent, messages stay in flight as long as the session."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    first = rig.take()
    for message in (first[0], *first[2:]):
        message.ack_now()
    rig.say()
    await rig.receive(ConsumeReply(deliveries=[piece(0, 4, RAW, count=2)]))
    request = rig.session._next_request()
    assert request is not None
    assert [(a.first_offset, a.end_offset) for a in request.acks] == [(0, 1), (2, 4)]
    assert [m.offset for m in rig.take()] == [1]
