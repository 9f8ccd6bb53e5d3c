"""Requirements on the gRPC adapter only: hostile bytes, limits, silent deaths, no leak."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from grpc import StatusCode, aio

from fmqadapters.grpc import GrpcTransport, options
from fmqcore.errors import ErrorCode
from fmqport.transport import (
    MAX_MESSAGE_BYTES,
    CallContext,
    Connection,
    MessageTooLarge,
    Server,
    Stream,
    TransportError,
)
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire import methods

HOST = "127.0.0.1"
SOON = 20.0


async def echo(_: CallContext, stream: Stream) -> None:
    while (request := await stream.receive()) is not None:
        acks = [client_pb2.ProduceAck(correlation=b.correlation) for b in request.batches]
        await stream.send(client_pb2.ProduceReply(acks=acks))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = await GrpcTransport().serve(f"{HOST}:0", {methods.PRODUCE: echo})
    async with asyncio.timeout(60):
        yield server
        await server.close(0)


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    connection = GrpcTransport().connect(f"{HOST}:{server.port}")
    yield connection
    await connection.close()


async def works(connection: Connection) -> None:
    stream = await connection.open(methods.PRODUCE, SOON)
    batch = client_pb2.ProduceBatch(correlation=7)
    await stream.send(client_pb2.ProduceRequest(batches=[batch]))
    assert (await stream.receive()).acks[0].correlation == 7
    await stream.done_sending()
    assert await stream.receive() is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(100_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(100_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(10_000),
        b"",
    ],
)
async def test_garbage_at_the_port_disturbs_no_client(
    server: Server, connection: Connection, garbage: bytes
) -> None:
    stream = await connection.open(methods.PRODUCE, SOON)
    for _ in range(3):
        _reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(garbage)
        with suppress(OSError):
            await writer.drain()
        writer.close()
    batch = client_pb2.ProduceBatch(correlation=1)
    await stream.send(client_pb2.ProduceRequest(batches=[batch]))
    assert (await stream.receive()).acks[0].correlation == 1
    await works(connection)


async def test_undecodable_message_ends_its_stream_with_a_reason(
    server: Server, connection: Connection
) -> None:
    # A client with another message type for Produce.
    wrong = replace(methods.PRODUCE, request=admin_pb2.CreateTopicRequest)
    stream = await connection.open(wrong, SOON)
    await stream.send(admin_pb2.CreateTopicRequest(name="\x07"))
    with pytest.raises(TransportError, match="are no ProduceRequest"):
        await stream.receive()
    await works(connection)


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(
    connection: Connection,
) -> None:
    other = await connection.open(methods.PRODUCE, SOON)
    stream = await connection.open(methods.PRODUCE, SOON)
    batch = client_pb2.ProduceBatch(payload=bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(TransportError, match="over the limit"):
        await stream.send(client_pb2.ProduceRequest(batches=[batch]))
    await other.send(client_pb2.ProduceRequest(batches=[client_pb2.ProduceBatch(correlation=2)]))
    assert (await other.receive()).acks[0].correlation == 2
    await works(connection)


async def test_call_over_the_size_limit_is_refused_unread() -> None:
    """The bytes are in an unknown field: protobuf itself would take them."""
    asked: list[Any] = []

    async def status(_: CallContext, request: admin_pb2.StatusRequest) -> admin_pb2.StatusReply:
        asked.append(request)
        return admin_pb2.StatusReply(broker="g1-0")

    server = await GrpcTransport().serve(f"{HOST}:0", {methods.STATUS: status})
    address = f"{HOST}:{server.port}"
    connection = GrpcTransport().connect(address)
    path, large = methods.STATUS.path, client_pb2.ProduceBatch(payload=bytes(40_000_000))
    strange = replace(methods.STATUS, request=client_pb2.ProduceBatch)
    with pytest.raises(MessageTooLarge, match="over the limit of 4194304 bytes") as caught:
        await connection.call(strange, large, SOON)
    assert caught.value.code is ErrorCode.TOO_LARGE
    async with aio.insecure_channel(address, options=options.CLIENT) as channel:  # not our client
        with pytest.raises(aio.AioRpcError, match="over the limit of 4194304 bytes") as refused:
            await channel.unary_unary(path)(large.SerializeToString(), timeout=SOON)
    assert refused.value.code() is StatusCode.RESOURCE_EXHAUSTED
    assert not asked
    assert (await connection.call(methods.STATUS, admin_pb2.StatusRequest(), SOON)).broker == "g1-0"
    await connection.close()
    await server.close(0)


async def test_traceparent_of_a_caller_is_in_its_context() -> None:
    contexts: list[CallContext] = []

    async def status(context: CallContext, _: object) -> admin_pb2.StatusReply:
        contexts.append(context)
        return admin_pb2.StatusReply()

    server = await GrpcTransport().serve(f"{HOST}:0", {methods.STATUS: status})
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with aio.insecure_channel(f"{HOST}:{server.port}") as channel:  # ours sends none
        call = channel.unary_unary(methods.STATUS.path)
        for value in (trace, "x" * 1000):
            await call(b"", metadata=(("traceparent", value),))
    await server.close(0)
    assert [context.trace_id for context in contexts] == [trace, "x" * 64]
    assert contexts[0].deadline is None, "it gave none"


class Relay:
    """A wire that can go dead silently: bytes are taken and nothing is passed on."""

    def __init__(self, port: int) -> None:
        self.dead = False
        self._to = port
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, HOST, 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._to)
        self._writers += [writer, far_writer]
        with suppress(OSError, asyncio.CancelledError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, far_writer))
                tasks.create_task(self._copy(far_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.dead:
                writer.write(data)
                await writer.drain()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def test_message_over_receiver_limit_fails_only_its_stream(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await connection.open(methods.PRODUCE, SOON)
    name = "grpc.max_receive_message_length"
    others = [option for option in options.SERVER if option[0] != name]
    monkeypatch.setattr(options, "SERVER", [*others, (name, 1000)])
    small = await GrpcTransport().serve(f"{HOST}:0", {methods.PRODUCE: echo})
    far = GrpcTransport().connect(f"{HOST}:{small.port}")
    stream = await far.open(methods.PRODUCE, SOON)
    batch = client_pb2.ProduceBatch(payload=bytes(1001))
    await stream.send(client_pb2.ProduceRequest(batches=[batch]))
    with pytest.raises(TransportError, match="larger than max"):
        await stream.receive()
    await works(far)
    await far.close()
    await small.close(0)
    other.cancel()


async def test_silently_vanished_peer_is_noticed_at_both_ends() -> None:
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def watch(_: CallContext, stream: Stream) -> None:
        await stream.send(client_pb2.ProduceReply())
        try:
            await stream.receive()
        except TransportError as error:
            ended.set_result(error)
            raise

    server = await GrpcTransport().serve(f"{HOST}:0", {methods.PRODUCE: watch})
    relay = Relay(server.port)
    wire = await relay.start()
    connection = GrpcTransport().connect(f"{HOST}:{wire.sockets[0].getsockname()[1]}")
    stream = await connection.open(methods.PRODUCE, SOON)
    await stream.receive()
    relay.dead = True
    async with asyncio.timeout(30):  # keepalive is 4 s
        with pytest.raises(TransportError):
            await stream.receive()
        await ended
    await connection.close()
    relay.close()
    wire.close()
    await server.close(0)


async def test_closed_connections_leave_no_descriptor_or_thread(server: Server) -> None:
    async def once(good: bool) -> None:
        connection = GrpcTransport().connect(f"{HOST}:{server.port if good else 1}")
        if good:
            await works(connection)
        else:
            with pytest.raises(TransportError):
                await connection.open(methods.PRODUCE, SOON)
        await connection.close()

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(10):
        await once(True)
        await once(False)
    before = held()
    for _ in range(50):
        await once(True)
        await once(False)
    for _ in range(100):  # gRPC closes behind us
        if held() <= before:
            break
        await asyncio.sleep(0.05)
    after = held()
    assert after[0] <= before[0] + 3, "descriptors were left open"
    assert after[1] <= before[1], "threads were left"


async def test_cancelled_stream_does_not_cancel_a_once_cancelled_task(
    connection: Connection,
) -> None:
    """A failed TaskGroup leaves its task with one counted cancellation, which is over."""

    async def fail() -> None:
        raise LookupError

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling(), "the leftover that this is about is gone: good, drop this test"
    stream = await connection.open(methods.PRODUCE, SOON)
    asyncio.get_running_loop().call_later(0.01, stream.cancel)
    with pytest.raises(TransportError):
        await stream.receive()
    task.uncancel()


async def _at_once(connection: Connection, what: str) -> None:
    stream = await connection.open(methods.PRODUCE, SOON)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()  # as a signal handler does at any point of the task
    match what:
        case "open":
            await connection.open(methods.PRODUCE, SOON)
        case "send":
            await stream.send(client_pb2.ProduceRequest())
        case "receive":
            await stream.receive()
        case "done_sending":
            await stream.done_sending()
        case _:
            await connection.call(methods.ROUTES, client_pb2.RouteRequest(), SOON)


@pytest.mark.parametrize("what", ["call", "open", "send", "receive", "done_sending"])
async def test_cancellation_during_work_is_the_tasks_own(connection: Connection, what: str) -> None:
    """Ctrl-C during the import of gRPC was taken for a lost connection and ignored."""
    task = asyncio.create_task(_at_once(connection, what))
    with pytest.raises(asyncio.CancelledError):
        await task
