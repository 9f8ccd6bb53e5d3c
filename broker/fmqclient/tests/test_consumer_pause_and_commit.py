"""Special uses of a consumer: pauses, delays, commits that end, `fmq consume -e`."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import fmqclient
from fmqclient.consumer.session import Session
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.test_consumer import fill, one, take
from fmqclient.tests.test_consumer_close import Routes, consumer
from fmqclient.tests.test_redelivered_copies import RAW, Rig
from fmqclient.tests.test_session_commit import assigned
from fmqclient.tests.test_session_replies import batch, piece
from fmqcore.errors import InvalidArgument, StaleAssignment
from fmqproto.v1.client_pb2 import ConsumeReply

__all__ = ["one"]  # the fixture


async def test_deliveries_in_flight_at_a_pause_are_not_returned() -> None:
    rig = Rig()
    await rig.receive(assigned(1), ConsumeReply(deliveries=[piece(0, 4, RAW, count=1)]))
    rig.take(1)
    rig.consumer._sessions[rig.session.group] = rig.session
    rig.consumer.pause()
    more = batch(4, b"e", b"f")
    await rig.receive(ConsumeReply(deliveries=[piece(4, 6, more, count=1)]))  # sent before it heard
    assert rig.take() == [], "paused"
    rig.consumer.resume()
    request = rig.session._next_request()
    assert request is not None
    nacked = {(n.first_offset, n.end_offset) for n in request.nacks}
    assert nacked == {(1, 4), (4, 6)}, "given back, in its order"


@pytest.mark.parametrize("delay_ms", [-1, 0.5, 2**32, "1"])
async def test_impossible_nack_delay_is_refused(delay_ms: Any) -> None:
    rig = Rig()
    await rig.receive(assigned(1), ConsumeReply(deliveries=[piece(0, 4, RAW, count=1)]))
    (message,) = rig.take(1)
    with pytest.raises(InvalidArgument, match="delay_ms"):
        await message.nack(delay_ms=delay_ms)
    assert not message.nacked


async def test_a_commit_ends_when_its_consumer_is_closed(one: ClusterDouble) -> None:
    await fill(one, 1)
    one.brokers["g1-0"].tokens = False
    async with fmqclient.connect(one.url) as c:
        async with c.consumer("orders", group="billing", close_timeout_s=0.1) as sub:
            (message,) = await take(sub, 1)
            await message.ack()
            committing = asyncio.create_task(sub.commit())
            await asyncio.sleep(0.05)
        async with asyncio.timeout(20):
            with pytest.raises(fmqclient.Unavailable, match="was closed"):
                await committing


async def test_lost_acks_are_reported_after_a_cancelled_commit() -> None:
    asked: list[asyncio.Future[None]] = [asyncio.Future() for _ in range(2)]
    sub = consumer(Routes())
    sessions = [SimpleNamespace(unstored=True, commit=lambda f=f: f) for f in asked]
    sub._sessions = cast(Any, dict(enumerate(sessions)))
    asked[1].set_exception(StaleAssignment("g2/0 went to others"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):  # the program's own
            await sub.commit()
    sub._sessions = {}
    with pytest.raises(StaleAssignment):
        await sub.commit()


async def test_group_learnt_while_the_consumer_ends_is_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever task refreshes the routes calls it, for the whole client."""
    routes = Routes()

    def know(*names: str) -> None:
        groups = [SimpleNamespace(group=n, queues=1) for n in names]
        routes.table = cast(Any, SimpleNamespace(topics={"orders": SimpleNamespace(groups=groups)}))

    async def run(self: Session) -> None:
        if self.group == "g1":
            await asyncio.sleep(0.01)
            raise InvalidArgument("the broker says so")
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(0.01)  # its stream is being given up

    monkeypatch.setattr(Session, "run", run)
    know("g1", "g2")
    sub = consumer(routes)
    await sub.__aenter__()
    await asyncio.sleep(0.015)
    know("g1", "g2", "g3")
    sub._open_sessions()
    with pytest.raises(InvalidArgument):
        await sub.fetch()
    await sub.close()
