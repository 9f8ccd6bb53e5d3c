"""What every transport adapter gives besides messages: a call's context, typed errors."""

import asyncio

import pytest

from fmqcore.errors import FmqError, NotFound
from fmqport.tests.transport_kit import HOST, SOON, Node, asked
from fmqport.transport import ANONYMOUS, CallContext, CallRefused, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire import methods

# gRPC writes the time left with three digits and rounds it up, so the server may see
# up to 1 % more than the caller gave (grpc-timeout, gRPC core's `Timeout::FromMillis`).
ROUNDED_UP = 1.01


async def test_handler_gets_peer_principal_and_deadline(node: Node) -> None:
    seen: list[tuple[CallContext, float]] = []

    async def routes(context: CallContext, _: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        seen.append((context, asyncio.get_running_loop().time()))
        return client_pb2.RouteReply()

    async def produce(context: CallContext, stream: Stream) -> None:
        seen.append((context, 0.0))
        await stream.receive()

    server = await node.transport.serve(
        f"{HOST}:0", {methods.ROUTES: routes, methods.PRODUCE: produce}
    )
    node.servers.append(server)
    connection = node.connect(server)
    await connection.call(methods.ROUTES, client_pb2.RouteRequest(), SOON)
    stream = await connection.open(methods.PRODUCE, SOON)
    await stream.done_sending()
    assert await stream.receive() is None
    (call, called_s), (opened, _) = seen
    assert call.method is methods.ROUTES
    assert opened.method is methods.PRODUCE
    assert call.peer == opened.peer != "", "one connection"
    assert call.principal == opened.principal == ANONYMOUS
    assert call.deadline is not None
    assert called_s < call.deadline <= called_s + SOON * ROUNDED_UP
    assert opened.deadline is None, "a stream is open for as long as both ends like"
    assert call.trace_id == opened.trace_id == "", "none was given"


async def test_handler_error_reaches_caller_with_its_type(node: Node) -> None:
    async def refuse(_: CallContext, __: object) -> client_pb2.RouteReply:
        raise NotFound("no group called g9")

    async def refuse_later(_: CallContext, stream: Stream) -> None:
        await stream.receive()
        raise NotFound("no group called g9")

    server = await node.transport.serve(
        f"{HOST}:0", {methods.ROUTES: refuse, methods.PRODUCE: refuse_later}
    )
    node.servers.append(server)
    connection = node.connect(server)
    with pytest.raises(CallRefused) as called:
        await connection.call(methods.ROUTES, client_pb2.RouteRequest(), SOON)
    stream = await connection.open(methods.PRODUCE, SOON)
    await stream.send(asked(1))
    with pytest.raises(CallRefused) as received:
        await stream.receive()
    for caught in (called.value, received.value):
        assert type(caught.error) is NotFound
        assert str(caught.error) == "no group called g9"
        assert connection.address in str(caught)


async def test_error_without_a_code_of_its_own_is_a_plain_one(node: Node) -> None:
    async def refuse(_: CallContext, stream: Stream) -> None:
        raise TransportError("a connection of the handler broke")

    server = await node.transport.serve(f"{HOST}:0", {methods.PRODUCE: refuse})
    node.servers.append(server)
    connection = node.connect(server)

    async def read() -> None:
        await (await connection.open(methods.PRODUCE, SOON)).receive()

    with pytest.raises(CallRefused) as caught:
        await read()
    assert type(caught.value.error) is FmqError


async def test_lost_connection_is_no_refusal(node: Node) -> None:
    async def hold(_: CallContext, stream: Stream) -> None:
        await stream.receive()

    server = await node.transport.serve(f"{HOST}:0", {methods.PRODUCE: hold})
    stream = await node.connect(server).open(methods.PRODUCE, SOON)
    receiving = asyncio.create_task(stream.receive())
    await asyncio.sleep(0.05)
    await server.close(0)
    with pytest.raises(TransportError) as caught:
        await receiving
    assert not isinstance(caught.value, CallRefused)
