"""Shared by the transport conformance suites: a node, and how to talk to it.

A simulated adapter is one more entry of `ADAPTERS`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from fmqadapters.grpc import GrpcTransport
from fmqport.transport import CallContext, Connection, Server, Stream, Transport
from fmqproto.v1 import client_pb2
from fmqwire import methods

ADAPTERS: dict[str, Callable[[], Transport]] = {"grpc": GrpcTransport}
StreamHandler = Callable[[Stream], Awaitable[None]]
HOST = "127.0.0.1"
SOON = 20.0  # a bound for events, never a measurement


class Node:
    """A server with one stream handler and one call handler, and connections to it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.servers: list[Server] = []
        self.connections: list[Connection] = []
        self.ended: asyncio.Queue[BaseException | None] = asyncio.Queue()  # how handlers ended

    async def serve(self, handler: StreamHandler, port: int = 0) -> Server:
        async def watched(_: CallContext, stream: Stream) -> None:
            try:
                await handler(stream)
            except BaseException as error:
                self.ended.put_nowait(error)
                raise
            self.ended.put_nowait(None)

        server = await self.transport.serve(f"{HOST}:{port}", {methods.PRODUCE: watched})
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


async def echo_call(_: CallContext, stream: Stream) -> None:
    await echo(stream)


async def read_for_ever(stream: Stream) -> None:
    while await stream.receive() is not None:
        pass
