"""A session that brokers refuse before they answer its opening, over real gRPC."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqclient.net.connections import Connections, open_at_first
from fmqcore.errors import CorruptJournal, FmqError, NoPermission, Unsupported
from fmqcore.ids import BrokerId
from fmqcore.routing import BrokerRoute
from fmqport.transport import CallContext, Handler, Stream
from fmqproto.v1.client_pb2 import ProduceOpened, ProduceReply, ProduceRequest
from fmqwire.methods import PRODUCE


def answering(error: FmqError | None) -> Handler:
    async def produce(_: CallContext, stream: Stream) -> None:
        if error is not None:
            raise error
        await stream.send(ProduceReply(opened=ProduceOpened()))
        await stream.receive()

    return produce


async def opened_at(*errors: FmqError | None) -> str:
    """Open at brokers that refuse with these errors (None: accept); return which one accepted."""
    async with AsyncExitStack() as stack:
        connections, routes = Connections(GrpcTransport()), list[BrokerRoute]()
        for error in errors:
            server = await GrpcTransport().serve("127.0.0.1:0", {PRODUCE: answering(error)})
            stack.push_async_callback(server.close, 0)
            name = BrokerId(f"g1-{len(routes)}")
            routes.append(BrokerRoute(name, f"127.0.0.1:{server.port}"))
        stack.push_async_callback(connections.close)
        broker, stream, _ = await open_at_first(connections, routes, PRODUCE, ProduceRequest())
        stream.cancel()
        return broker.id


async def test_refusal_of_a_whole_call_reaches_the_client_typed() -> None:
    with pytest.raises(Unsupported, match="mallory lacks the right produce"):
        await opened_at(Unsupported("mallory lacks the right produce"), None)


@pytest.mark.parametrize("error", [NoPermission("not the master"), CorruptJournal("damaged")])
async def test_other_broker_is_tried_after_no_permission_or_fault(error: FmqError) -> None:
    assert await opened_at(error, None) == "g1-1"


class Opened:
    """A stream whose broker gives that answer at once."""

    def __init__(self, answer: ProduceReply | None) -> None:
        self.answer = answer
        self.cancelled = False

    async def send(self, _: ProduceRequest) -> None:
        pass

    async def receive(self) -> ProduceReply | None:
        return self.answer

    def cancel(self) -> None:
        self.cancelled = True


class Streams:
    """Connections by address: each opens its stream once `gate` is set."""

    def __init__(self, *streams: Opened) -> None:
        self.streams = {str(number): stream for number, stream in enumerate(streams)}
        self.gate = asyncio.Event()
        self.tasks: list[asyncio.Task[Any]] = []

    def to(self, address: str) -> Any:
        outer = self

        class At:
            async def open(self, *_: object) -> Opened:
                task = asyncio.current_task()
                assert task is not None
                outer.tasks.append(task)
                await outer.gate.wait()
                return outer.streams[address]

        return At()

    def opening(self) -> "asyncio.Task[Any]":
        brokers = [BrokerRoute(BrokerId(f"g1-{at}"), at) for at in self.streams]
        work = open_at_first(cast(Any, self), brokers, PRODUCE, ProduceRequest())
        return asyncio.create_task(work)


def accepting() -> Opened:
    return Opened(ProduceReply(opened=ProduceOpened()))


async def test_second_session_that_opened_beside_is_given_up() -> None:
    streams = Streams(accepting(), accepting())
    opening = streams.opening()
    while len(streams.tasks) < 2:
        await asyncio.sleep(0.01)
    streams.gate.set()
    _, stream, _ = await opening
    assert [s is not stream for s in streams.streams.values()] == [
        s.cancelled for s in streams.streams.values()
    ]


@pytest.mark.parametrize("answer", [None, ProduceReply()])
async def test_session_that_does_not_open_is_cancelled(answer: ProduceReply | None) -> None:
    streams = Streams(Opened(answer))
    streams.gate.set()
    with pytest.raises(NoPermission, match="ended the session at once"):
        await streams.opening()
    assert streams.streams["0"].cancelled


async def test_attempt_that_the_program_cancels_leaves_the_others() -> None:
    streams = Streams(accepting(), accepting())
    opening = streams.opening()
    while not streams.tasks:
        await asyncio.sleep(0.01)
    streams.tasks[0].cancel()
    streams.gate.set()
    broker, _, _ = await opening
    assert broker.id == "g1-1"
