"""Messages a consumer hands out or gives back, without needless duplicates."""

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble, until
from fmqclient.tests.test_consumer import fill, one
from fmqclient.tests.test_redelivered_copies import RAW, Rig, delivery
from fmqclient.tests.test_session_commit import assigned
from fmqclient.tests.test_session_replies import batch, piece
from fmqproto.v1.client_pb2 import Assignment, ConsumeReply

__all__ = ["one"]  # the fixture


async def test_auto_ack_covers_all_messages_fetched_together(one: ClusterDouble) -> None:
    await fill(one, 40)
    broker, got = one.brokers["g1-0"], 0
    async with (
        fmqclient.connect(one.url) as c,
        c.consumer("orders", group="billing", ack="auto") as sub,
    ):
        while got < 40:
            got += len(await sub.fetch(10))
        await sub.fetch(timeout=0.05)
        await until(lambda: sum(end - first for _, first, end in broker.acks) == 40)


async def test_buffered_messages_of_a_paused_queue_are_given_back() -> None:
    """All of them, in order: otherwise no member gets them before the ack timeout."""
    rig = Rig()
    waits = [piece(0, 4, RAW, count=1), piece(4, 6, batch(4, b"e", b"f"), count=1)]
    await rig.receive(assigned(1), ConsumeReply(deliveries=waits))
    rig.take(1)
    rig.consumer._sessions[rig.session.group] = rig.session
    rig.consumer.pause()
    request = rig.session._next_request()
    assert request is not None
    assert {(n.first_offset, n.end_offset) for n in request.nacks} == {(1, 4), (4, 6)}
    assert all(n.not_delivered for n in request.nacks), "the program got none of them"
    assert [(h.first_offset, h.end_offset) for h in request.delivered] == [(0, 1)]


async def test_buffered_messages_are_dropped_at_a_seek() -> None:
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    rig.take(1)
    elsewhere = Assignment(queue_id=0, generation=2, next_offset=90, seek_number=9)
    await rig.receive(ConsumeReply(assigned=[elsewhere]))
    assert rig.take() == []


async def test_buffered_messages_of_a_lost_session_are_redelivered() -> None:
    """The current holder of the queue works on them."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    rig.take(1)
    rig.session._note_stream_lost()
    assert rig.take() == []


async def test_delivery_of_a_revoked_queue_costs_no_credit() -> None:
    """It was in flight: if it counted, the broker would send less and less, then nothing."""
    rig = Rig()
    moved = ConsumeReply(revoked=[Assignment(queue_id=0, generation=1)])
    await rig.receive(assigned(1), moved, delivery(1))
    assert rig.take() == []
    assert rig.session._credit == len(RAW)


async def test_copy_being_handed_out_skips_messages_stored_meanwhile() -> None:
    """Stored acks are forgotten here, so stored messages must have been left out before."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    first = rig.take()
    await rig.receive(delivery(2))
    rig.take(1)
    for message in first[:3]:
        message.ack_now()
    token = rig.say()
    await rig.receive(ConsumeReply(committed_tokens=[token]))
    assert [m.offset for m in rig.take()] == [3]


async def with_a_hole() -> Rig:
    """A copy is being handed out whose second message was acked before."""
    rig = Rig()
    await rig.receive(assigned(1), delivery(1))
    rig.take()[1].ack_now()
    await rig.receive(delivery(2))
    assert [m.offset for m in rig.take(1)] == [0]
    return rig


async def test_messages_after_a_hole_are_returned_despite_stored_acks() -> None:
    """Otherwise they are redelivered only after the ack timeout."""
    rig = await with_a_hole()
    token = rig.say()
    await rig.receive(ConsumeReply(committed_tokens=[token]))
    assert [m.offset for m in rig.take()] == [2, 3]


async def test_messages_after_a_hole_go_with_their_queue() -> None:
    """The queue was given back: another member works on it."""
    rig = await with_a_hole()
    await rig.receive(ConsumeReply(revoked=[Assignment(queue_id=0, generation=1)]))
    assert rig.take() == []


async def test_handed_over_messages_are_reported_and_return_credit() -> None:
    rig = Rig(prefetch=8)
    waits = [piece(0, 4, RAW, count=1), piece(4, 6, batch(4, b"e", b"f"), count=1)]
    await rig.receive(assigned(1), ConsumeReply(deliveries=waits))
    rig.take(5)
    request = rig.session._next_request()
    assert request is not None
    assert [(h.first_offset, h.end_offset) for h in request.delivered] == [(0, 5)]
    assert request.credit_records == 5
    rig.take(1)
    await rig.receive(delivery(1))
    rig.session._note_stream_lost()
    assert rig.take() == []


async def test_an_ack_after_the_consumer_closed_is_refused(one: ClusterDouble) -> None:
    await fill(one, 2)
    async with fmqclient.connect(one.url) as c:
        async with c.consumer("orders", group="billing") as sub:
            acked, late = await sub.fetch(2)
            await acked.ack()
        for call in (late.ack, late.nack):
            with pytest.raises(fmqclient.Unavailable, match="the consumer is closed"):
                await call()
    assert sum(end - first for _, first, end in one.brokers["g1-0"].acks) == 1
