"""The gRPC adapter after a failed call: what it drops, what survives, and no leaks."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from grpc import aio

from fmqadapters.grpc import GrpcTransport
from fmqport.tests.transport_kit import HOST, SOON, Node, asked, echo, echo_call, read_for_ever
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire import methods


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node(GrpcTransport())
    async with asyncio.timeout(60):
        yield node
        await node.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every channel that is created from now on."""
    made: list[Any] = []
    real = aio.insecure_channel

    def make(*args: Any, **options: Any) -> Any:
        made.append(real(*args, **options))
        return made[-1]

    monkeypatch.setattr(aio, "insecure_channel", make)
    return made


class Stuck:
    """A call's handler that waits for ever."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = False

    async def answer(self, _: object, __: object) -> client_pb2.RouteReply:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError("no caller lets it go")


async def test_a_call_out_of_time_leaves_the_streams_of_its_connection(
    node: Node, channels: list[Any]
) -> None:
    handlers = {methods.ROUTES: Stuck().answer, methods.PRODUCE: echo_call}
    server = await node.transport.serve(f"{HOST}:0", handlers)
    node.servers.append(server)
    connection = node.connect(server)
    stream = await connection.open(methods.PRODUCE, SOON)
    with pytest.raises(TransportError, match="no answer in time"):
        await connection.call(methods.ROUTES, client_pb2.RouteRequest(), 0.05)
    await stream.send(asked(1))
    assert (await stream.receive()).acks[0].correlation == 1
    await connection.open(methods.PRODUCE, SOON)
    assert len(channels) == 1


@pytest.mark.parametrize("how", ["a call refused", "a call out of time", "an open out of time"])
async def test_failed_channel_is_dropped_and_next_use_dials_at_once(
    how: str, silent: int, channels: list[Any]
) -> None:
    """A failed channel waits in its own back-off."""
    port = 1 if how == "a call refused" else silent
    connection = GrpcTransport().connect(f"{HOST}:{port}")
    for number in range(3):
        assert len(channels) == number
        if how == "an open out of time":
            trying: Coroutine[Any, Any, Any] = connection.open(methods.PRODUCE, 0.05)
        else:
            trying = connection.call(methods.ROUTES, client_pb2.RouteRequest(), 0.05)
        with pytest.raises(TransportError, match=connection.address):
            await trying
    assert len(channels) == 3
    await connection.close()


async def test_abandoned_open_opens_no_stream_later(
    node: Node,
) -> None:
    opened: list[Stream] = []

    async def count(stream: Stream) -> None:
        opened.append(stream)
        await echo(stream)

    server = await node.serve(count)
    let_in = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await let_in.wait()
        far_reader, far_writer = await asyncio.open_connection(HOST, server.port)
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    wire = await asyncio.start_server(accept, HOST, 0)
    connection = GrpcTransport().connect(f"{HOST}:{wire.sockets[0].getsockname()[1]}")
    node.connections.append(connection)
    given_up = asyncio.create_task(connection.open(methods.PRODUCE, SOON))
    await asyncio.sleep(0.05)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    let_in.set()
    stream = await connection.open(methods.PRODUCE, SOON)
    await stream.send(asked(1))
    assert (await stream.receive()).acks[0].correlation == 1
    assert len(opened) == 1
    await connection.close()
    wire.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_undecodable_answer_tears_its_stream_down(node: Node) -> None:
    """Its handler would wait for ever for a client that has moved on."""

    async def greet(stream: Stream) -> None:
        opened = client_pb2.ProduceOpened(max_batch_bytes=300)  # not UTF-8
        await stream.send(client_pb2.ProduceReply(opened=opened))
        await read_for_ever(stream)

    connection = node.connect(await node.serve(greet))
    wrong = replace(methods.PRODUCE, reply=admin_pb2.CreateTopicRequest)
    stream = await connection.open(wrong, SOON)
    with pytest.raises(TransportError, match="are no CreateTopicRequest"):
        await stream.receive()
    assert isinstance(await node.how_it_ended(), TransportError)


async def test_a_closed_server_leaves_no_handler_of_a_call(node: Node) -> None:
    stuck = Stuck()
    server = await node.transport.serve(f"{HOST}:0", {methods.ROUTES: stuck.answer})
    connection = node.connect(server)
    asking = asyncio.create_task(connection.call(methods.ROUTES, client_pb2.RouteRequest(), SOON))
    await stuck.started.wait()
    await server.close(0)
    assert stuck.cancelled
    with pytest.raises(TransportError):
        await asking
