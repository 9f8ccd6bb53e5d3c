"""A commit through a lost session ends once the repeated acks are stored, not before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.consumer.session import Session
from fmqclient.settings import ConsumerSettings
from fmqcore.ids import GroupName
from fmqcore.routing import RouteTable
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
        """Return the next message that requests a token."""
        async with asyncio.timeout(20):
            while not (request := await self.sent.get()).commit_token:
                pass
        return request


class _Routes:
    table = RouteTable()

    def on_change(self, listener: object) -> Any:
        return lambda: None


def assigned(generation: int, begins_at: int = 0, **more: Any) -> ConsumeReply:
    moves = [Assignment(queue_id=0, generation=generation, next_offset=begins_at)]
    return ConsumeReply(assigned=moves, **more)


def a_session() -> Session:
    return Session(
        GroupName("g1"),
        "s",
        cast(Any, None),
        cast(Any, _Routes()),
        SystemClock(),
        ConsumerSettings("orders", "billing"),
        lambda delivered: None,
        lambda session, tracker: None,
        lambda tracker: None,
    )


@asynccontextmanager
async def stream(session: Session) -> AsyncIterator[Wire]:
    """Run a stream for a while, then lose it."""
    wire = Wire()
    serving = asyncio.create_task(session._serve(cast(Any, wire)))
    async with asyncio.timeout(20):
        yield wire
    wire.replies.put_nowait(None)
    with pytest.raises(TransportError):
        await serving
    session._note_stream_lost()


async def ten_acked(session: Session, wire: Wire) -> None:
    """Ack offsets 0 to 9; a task waits until that is stored."""
    wire.replies.put_nowait(assigned(1))
    while not session.trackers:
        await asyncio.sleep(0)
    for offset in range(10):
        session.trackers[0].ack(offset, term=0, epoch=1)
    session.acked()


def acked_ranges(request: ConsumeRequest) -> list[tuple[int, int, int]]:
    return [(a.generation, a.first_offset, a.end_offset) for a in request.acks]


async def test_token_sent_before_acks_were_repeated_proves_nothing() -> None:
    session = a_session()
    async with stream(session) as first:
        await ten_acked(session, first)
        commit = session.commit()
        assert acked_ranges(await first.token()) == [(1, 0, 10)]
    async with stream(session) as second:
        early = await second.token()
        assert not early.acks, "no queue is ours yet"
        second.replies.put_nowait(assigned(2, committed_tokens=[early.commit_token]))
        again = await second.token()
        assert acked_ranges(again) == [(2, 0, 10)]
        assert not commit.done()
        assert session.unstored
        second.replies.put_nowait(ConsumeReply(committed_tokens=[again.commit_token]))
        await commit
        assert not session.unstored


async def test_start_of_a_queue_proves_no_ack_stored() -> None:
    """The same broker counted the acks and could not store them; then another one reads."""
    session = a_session()
    async with stream(session) as first:
        await ten_acked(session, first)
        commit = session.commit()
        await first.token()
    async with stream(session) as second:
        early = await second.token()
        second.replies.put_nowait(assigned(2, begins_at=10, committed_tokens=[early.commit_token]))
        assert acked_ranges(await second.token()) == [(2, 0, 10)]
    async with stream(session) as third:
        early = await third.token()
        third.replies.put_nowait(assigned(3, committed_tokens=[early.commit_token]))
        again = await third.token()
        assert acked_ranges(again) == [(3, 0, 10)]
        assert not commit.done()
        third.replies.put_nowait(ConsumeReply(committed_tokens=[again.commit_token]))
        await commit


@pytest.mark.parametrize("paused", [False, True])
async def test_pause_state_is_sent_again_after_a_seek(paused: bool) -> None:
    """A resume under the previous generation was ignored: the queue stood still for ever."""
    session = a_session()
    async with stream(session) as wire:
        wire.replies.put_nowait(assigned(1))
        while not session.trackers:
            await asyncio.sleep(0)
        session.control(session.trackers[0], pause=not paused)
        session.control(session.trackers[0], pause=paused)
        wire.replies.put_nowait(assigned(2))
        acked_ranges: list[tuple[int, bool, bool]] = []
        while not acked_ranges or acked_ranges[-1][0] < 2:
            controls = (await wire.sent.get()).controls
            acked_ranges += [(each.generation, each.pause, each.resume) for each in controls]
        now = (paused, not paused)
        assert acked_ranges == [(1, *reversed(now)), (1, *now), (2, *now)]
