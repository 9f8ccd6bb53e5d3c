"""A commit through a lost session: it ends when the acks said again are stored, not before."""

import asyncio
from typing import Any, cast

import pytest

from fmqclient.session import Session
from fmqclient.settings import ConsumerSettings
from fmqcore.routing import RouteTable
from fmqcore.words import GroupName
from fmqport.system import SystemClock
from fmqport.transport import TransportError
from fmqproto.v1.client_pb2 import Assignment, ConsumeReply, ConsumeRequest


class Wire:
    """The client's end of a stream, driven by hand."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[ConsumeRequest] = asyncio.Queue()
        self.replies: asyncio.Queue[ConsumeReply | None] = asyncio.Queue()

    async def send(self, message: ConsumeRequest) -> None:
        copy = ConsumeRequest()
        copy.CopyFrom(message)
        await self.sent.put(copy)

    async def receive(self) -> ConsumeReply:
        reply = await self.replies.get()
        if reply is None:
            raise TransportError("it is gone")
        return reply

    async def token(self) -> ConsumeRequest:
        """The next message that asks for one."""
        async with asyncio.timeout(20):
            while not (request := await self.sent.get()).commit_token:
                pass
        return request


class _Routes:
    table = RouteTable()

    def on_change(self, listener: object) -> Any:
        return lambda: None


def assigned(generation: int, **more: Any) -> ConsumeReply:
    moves = [Assignment(queue_id=0, generation=generation, next_offset=0)]
    return ConsumeReply(assigned=moves, **more)


async def test_a_token_sent_before_the_acks_were_said_again_proves_nothing() -> None:
    session = Session(
        GroupName("g1"),
        "s",
        cast(Any, None),
        cast(Any, _Routes()),
        SystemClock(),
        ConsumerSettings("orders", "billing"),
        lambda chunk: None,
        lambda session, track: None,
        lambda track: None,
    )
    first, second = Wire(), Wire()
    serving = asyncio.create_task(session._serve(cast(Any, first)))
    first.replies.put_nowait(assigned(1))
    async with asyncio.timeout(20):
        while not session.tracks:
            await asyncio.sleep(0)
    for offset in range(10):
        session.tracks[0].ack(offset, term=0)
    session.acked()
    commit = session.commit()
    assert len((await first.token()).acks) == 1
    first.replies.put_nowait(None)
    with pytest.raises(TransportError):
        await serving
    session._lost()

    serving = asyncio.create_task(session._serve(cast(Any, second)))
    early = await second.token()
    assert not early.acks, "no queue is ours yet"
    second.replies.put_nowait(assigned(2, committed_tokens=[early.commit_token]))
    again = await second.token()
    assert [(a.generation, a.first_offset, a.end_offset) for a in again.acks] == [(2, 0, 10)]
    assert not commit.done()
    assert session.unstored
    second.replies.put_nowait(ConsumeReply(committed_tokens=[again.commit_token]))
    async with asyncio.timeout(20):
        await commit
    assert not session.unstored
    second.replies.put_nowait(None)
    with pytest.raises(TransportError):
        await serving
