"""What every transport adapter must do. A simulated adapter is one more entry of `ADAPTERS`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from fmqcore.errors import NotFound
from fmqport import methods
from fmqport.rpc import GrpcTransport
from fmqport.transport import Connection, Server, Stream, StreamHandler, Transport, TransportError
from fmqproto.v1 import client_pb2

ADAPTERS: dict[str, Callable[[], Transport]] = {"grpc": GrpcTransport}
HOST = "127.0.0.1"
SOON = 20.0  # a bound for what must happen, never a measure


class Node:
    """A server with one stream handler and one call handler, and connections to it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.servers: list[Server] = []
        self.connections: list[Connection] = []
        self.ended: asyncio.Queue[BaseException | None] = asyncio.Queue()  # how handlers ended

    async def serve(self, handler: StreamHandler, port: int = 0) -> Server:
        async def watched(stream: Stream) -> None:
            try:
                await handler(stream)
            except BaseException as error:
                self.ended.put_nowait(error)
                raise
            self.ended.put_nowait(None)

        server = await self.transport.serve(
            f"{HOST}:{port}", calls={}, streams={methods.PRODUCE: watched}
        )
        self.servers.append(server)
        return server

    def connect(self, server: Server) -> Connection:
        connection = self.transport.connect(f"{HOST}:{server.port}")
        self.connections.append(connection)
        return connection

    async def open(self, handler: StreamHandler) -> Stream:
        connection = self.connect(await self.serve(handler))
        return await connection.open(methods.PRODUCE, SOON)

    async def how_it_ended(self) -> BaseException | None:
        async with asyncio.timeout(SOON):
            return await self.ended.get()

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()
        for server in self.servers:
            await server.close(0)


@pytest.fixture(params=sorted(ADAPTERS))
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    node = Node(ADAPTERS[request.param]())
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        yield node
        await node.close()
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}, "a task was left behind"


def asked(number: int, size: int = 0) -> client_pb2.ProduceRequest:
    batch = client_pb2.ProduceBatch(correlation=number, payload=bytes(size))
    return client_pb2.ProduceRequest(batches=[batch])


def answered(number: int, text: str = "") -> client_pb2.ProduceReply:
    ack = client_pb2.ProduceAck(correlation=number, message=text)
    return client_pb2.ProduceReply(acks=[ack])


async def echo(stream: Stream) -> None:
    while (request := await stream.receive()) is not None:
        batch = request.batches[0]
        await stream.send(answered(batch.correlation, str(len(batch.payload))))


async def read_for_ever(stream: Stream) -> None:
    while await stream.receive() is not None:
        pass


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


async def test_the_server_may_speak_first_and_both_know_whom_they_speak_to(node: Node) -> None:
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
    assert sent < 32, "64 MiB were taken though nobody reads"
    go.set()
    await task
    assert await node.how_it_ended() is None


# ---- ends


async def test_done_sending_ends_the_others_receive_and_answers_still_come(node: Node) -> None:
    async def answer_at_the_end(stream: Stream) -> None:
        await read_for_ever(stream)
        for number in range(3):
            await stream.send(answered(number))

    stream = await node.open(answer_at_the_end)
    await stream.send(asked(1))
    await stream.done_sending()
    assert [(await stream.receive()).acks[0].correlation for _ in range(3)] == [0, 1, 2]
    assert await stream.receive() is None
    assert await stream.receive() is None, "and again"


async def test_a_cancel_by_the_client_fails_both_ends(node: Node) -> None:
    connection = node.connect(await node.serve(echo))
    for _ in range(20):
        stream = await connection.open(methods.PRODUCE, SOON)
        await stream.send(asked(1))
        await stream.receive()
        stream.cancel()
        stream.cancel()
        with pytest.raises(TransportError):
            await stream.receive()
        with pytest.raises(TransportError):
            await stream.send(asked(2))
        assert isinstance(await node.how_it_ended(), TransportError), "never a half close"


async def test_a_cancel_by_the_server_fails_both_ends(node: Node) -> None:
    async def give_up(stream: Stream) -> None:
        await stream.receive()
        stream.cancel()
        stream.cancel()
        await stream.receive()

    stream = await node.open(give_up)
    await stream.send(asked(1))
    with pytest.raises(TransportError):
        await stream.receive()
    with pytest.raises(TransportError):
        await stream.send(asked(2))
    assert isinstance(await node.how_it_ended(), TransportError)


async def test_a_cancel_wakes_a_receive_under_way_at_either_end(node: Node) -> None:
    async def cancel_beside(stream: Stream) -> None:
        reading = asyncio.create_task(stream.receive())
        await stream.send(answered(1))
        await asyncio.sleep(0.05)
        stream.cancel()
        with pytest.raises(TransportError):
            await reading

    stream = await node.open(cancel_beside)
    assert (await stream.receive()).acks[0].correlation == 1
    with pytest.raises(TransportError):
        await stream.receive()
    assert await node.how_it_ended() is None

    other = await node.connections[0].open(methods.PRODUCE, SOON)
    await other.receive()
    reading = asyncio.create_task(other.receive())
    await asyncio.sleep(0.01)
    other.cancel()
    with pytest.raises(TransportError):
        await reading


async def test_a_cancelled_receive_tears_the_stream_down(node: Node) -> None:
    stream = await node.open(read_for_ever)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stream.receive()
    assert isinstance(await node.how_it_ended(), TransportError)
    with pytest.raises(TransportError):
        await stream.receive()


async def test_a_closed_connection_is_a_dead_peer(node: Node) -> None:
    stream = await node.open(read_for_ever)
    await stream.send(asked(1))
    reading = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    await node.connections[0].close()
    assert isinstance(await node.how_it_ended(), TransportError)
    with pytest.raises(TransportError):
        await reading
    with pytest.raises(TransportError):
        await node.connections[0].open(methods.PRODUCE, SOON)
    await node.connections[0].close()


async def test_a_handler_that_neither_sends_nor_receives_is_cancelled_when_its_peer_dies(
    node: Node,
) -> None:
    started = asyncio.Event()

    async def wait_for_ever(stream: Stream) -> None:
        started.set()
        await asyncio.Event().wait()

    stream = await node.open(wait_for_ever)
    await stream.send(asked(1))
    await started.wait()
    stream.cancel()
    assert isinstance(await node.how_it_ended(), asyncio.CancelledError)


async def test_a_closed_server_fails_its_streams_and_ends_its_handlers(node: Node) -> None:
    stream = await node.open(read_for_ever)
    await stream.send(asked(1))
    await node.servers[0].close(0)
    with pytest.raises(TransportError):
        await stream.receive()
    assert isinstance(await node.how_it_ended(), TransportError)
    await node.servers[0].close(0)


async def test_a_closing_server_lets_what_runs_end_within_its_grace(node: Node) -> None:
    stream = await node.open(echo)
    await stream.send(asked(1))
    await stream.receive()
    closing = asyncio.create_task(node.servers[0].close(SOON))
    await asyncio.sleep(0.05)
    await stream.send(asked(2))
    assert (await stream.receive()).acks[0].correlation == 2
    await stream.done_sending()
    assert await stream.receive() is None
    await closing


async def test_two_hundred_streams_leave_nothing_behind(node: Node) -> None:
    server = await node.serve(echo)
    tasks = len(asyncio.all_tasks())
    for number in range(200):
        connection = node.transport.connect(f"{HOST}:{server.port}")
        stream = await connection.open(methods.PRODUCE, SOON)
        await stream.send(asked(number))
        await stream.receive()
        if number % 2:
            stream.cancel()
        await connection.close()
        assert isinstance(await node.how_it_ended(), TransportError)
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) <= tasks + 2


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


async def test_nobody_there_fails_at_once_and_names_the_address(node: Node) -> None:
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
    stream = await connection.open(methods.CONSUME, SOON)
    with pytest.raises(TransportError):
        await stream.receive()


# ---- calls


async def test_a_call_is_answered_refused_or_out_of_time(node: Node) -> None:
    hang, ended = asyncio.Event(), asyncio.Event()

    async def routes(request: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        match request.topics[0]:
            case "good":
                return client_pb2.RouteReply(cluster="c")
            case "bad":
                raise NotFound("no topic called bad")
            case _:
                await hang.wait()
                ended.set()
                return client_pb2.RouteReply()

    server = await node.transport.serve(f"{HOST}:0", calls={methods.ROUTES: routes}, streams={})
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
    hang.set()  # a handler runs to its end, though nobody waits for its answer
    async with asyncio.timeout(SOON):
        await ended.wait()
    assert (await ask("good")).cluster == "c"
