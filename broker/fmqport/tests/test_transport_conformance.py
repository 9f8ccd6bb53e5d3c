"""Requirements on every transport adapter: messages, back-pressure, errors, calls."""

import asyncio
from contextlib import suppress

import pytest

from fmqcore.errors import NotFound
from fmqport.tests.transport_kit import HOST, SOON, Node, answered, asked, echo, read_for_ever
from fmqport.transport import CallContext, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire import methods

# ---- messages


async def test_messages_arrive_whole_and_in_order_both_ways(node: Node) -> None:
    stream = await node.open(echo)

    async def send() -> None:
        for number in range(500):
            await stream.send(asked(number, number % 7 * 1000))
        await stream.done_sending()

    async with asyncio.TaskGroup() as group:
        group.create_task(send())
        got = [await stream.receive() for _ in range(500)]
    assert [(r.acks[0].correlation, r.acks[0].message) for r in got] == [
        (number, str(number % 7 * 1000)) for number in range(500)
    ]
    assert await stream.receive() is None
    assert await node.how_it_ended() is None


async def test_an_empty_message_is_a_message(node: Node) -> None:
    async def answer_once(stream: Stream) -> None:
        assert await stream.receive() == client_pb2.ProduceRequest()
        await stream.send(client_pb2.ProduceReply())

    stream = await node.open(answer_once)
    await stream.send(client_pb2.ProduceRequest())
    assert await stream.receive() == client_pb2.ProduceReply()
    assert await stream.receive() is None


async def test_a_message_of_16_mib_comes_through(node: Node) -> None:
    stream = await node.open(echo)
    await stream.send(asked(1, 16 * 1024 * 1024))
    assert (await stream.receive()).acks[0].message == str(16 * 1024 * 1024)


async def test_two_streams_of_one_connection_do_not_mix(node: Node) -> None:
    connection = node.connect(await node.serve(echo))
    one, two = [await connection.open(methods.PRODUCE, SOON) for _ in range(2)]
    await one.send(asked(1))
    await two.send(asked(2))
    assert (await two.receive()).acks[0].correlation == 2
    one.cancel()
    await two.send(asked(3))
    assert (await two.receive()).acks[0].correlation == 3


async def test_server_may_send_first_and_both_know_their_peer(node: Node) -> None:
    async def greet(stream: Stream) -> None:
        await stream.send(answered(1, stream.peer))

    stream = await node.open(greet)
    assert (await stream.receive()).acks[0].message.startswith(f"{HOST}:")
    assert stream.peer == node.connections[0].address


# ---- back-pressure


async def test_send_waits_while_the_receiver_does_not_read(node: Node) -> None:
    go = asyncio.Event()

    async def read_late(stream: Stream) -> None:
        await go.wait()
        await read_for_ever(stream)

    stream = await node.open(read_late)
    sent = 0

    async def send() -> None:
        nonlocal sent
        for number in range(64):
            await stream.send(asked(number, 1024 * 1024))
            sent += 1
        await stream.done_sending()

    task = asyncio.create_task(send())
    before = -1
    while before != sent:  # until it stands still
        before = sent
        await asyncio.sleep(0.3)
    assert sent < 32, "64 MiB were taken though no side reads"
    go.set()
    await task
    assert await node.how_it_ended() is None


# ---- errors


async def test_a_handlers_error_reaches_the_client_with_its_text(node: Node) -> None:
    async def refuse(stream: Stream) -> None:
        await stream.receive()
        raise NotFound("no group called ü-17: create it with `fmq group`")

    stream = await node.open(refuse)
    await stream.send(asked(1))
    with pytest.raises(TransportError, match="no group called ü-17: create it"):
        await stream.receive()
    with suppress(TransportError):
        await stream.send(asked(2))


async def test_unreachable_address_fails_at_once_and_is_named(node: Node) -> None:
    server = await node.serve(echo)
    await server.close(0)
    connection = node.connect(server)
    for _ in range(3):
        with pytest.raises(TransportError, match=connection.address):
            await connection.open(methods.PRODUCE, 3600)
        with pytest.raises(TransportError, match=connection.address):
            await connection.call(methods.ROUTES, client_pb2.RouteRequest(), 3600)


async def test_a_peer_that_came_back_is_reached_on_the_same_connection(node: Node) -> None:
    server = await node.serve(echo)
    connection = node.connect(server)
    for _ in range(3):
        stream = await connection.open(methods.PRODUCE, SOON)
        await server.close(0)
        with pytest.raises(TransportError):
            await stream.receive()
        with pytest.raises(TransportError):
            await connection.open(methods.PRODUCE, SOON)
        server = await node.serve(echo, server.port)
        stream = await connection.open(methods.PRODUCE, SOON)
        await stream.send(asked(1))
        assert (await stream.receive()).acks[0].correlation == 1


async def test_a_taken_address_is_refused_and_named(node: Node) -> None:
    server = await node.serve(echo)
    assert server.port > 0
    with pytest.raises(TransportError, match=f"{HOST}:{server.port}"):
        await node.serve(echo, server.port)


async def test_an_unknown_method_is_refused(node: Node) -> None:
    connection = node.connect(await node.serve(echo))
    with pytest.raises(TransportError):
        await connection.call(methods.ROUTES, client_pb2.RouteRequest(), SOON)

    async def consume() -> None:  # refused by `open`, if the answer is there before it returns
        stream = await connection.open(methods.CONSUME, SOON)
        await stream.receive()

    with pytest.raises(TransportError):
        await consume()


# ---- calls


async def test_a_call_is_answered_refused_or_out_of_time(node: Node) -> None:
    hang, ended = asyncio.Event(), asyncio.Event()

    async def routes(_: CallContext, request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        match request.topics[0]:
            case "good":
                return client_pb2.RouteReply(cluster="c")
            case "bad":
                raise NotFound("no topic called bad")
            case _:
                await hang.wait()
                ended.set()
                return client_pb2.RouteReply()

    server = await node.transport.serve(f"{HOST}:0", {methods.ROUTES: routes})
    node.servers.append(server)
    connection = node.connect(server)

    async def ask(topic: str, timeout_s: float = SOON) -> client_pb2.RouteReply:
        request = client_pb2.RouteRequest(topics=[topic])
        return await connection.call(methods.ROUTES, request, timeout_s)  # type: ignore[no-any-return]

    assert (await ask("good")).cluster == "c"
    with pytest.raises(TransportError, match="no topic called bad"):
        await ask("bad")
    with pytest.raises(TransportError, match=connection.address):
        await ask("slow", 0.05)
    hang.set()  # a handler runs to its end, though no caller awaits its answer
    async with asyncio.timeout(SOON):
        await ended.wait()
    assert (await ask("good")).cluster == "c"
