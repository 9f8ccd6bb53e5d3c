"""Consumer sessions over real gRPC: shared queues, a lost consumer, a refusal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fmqadapters.grpc import GrpcTransport
from fmqbroker.tests.consume_harness import (
    GENEROUS_S,
    Consumer,
    Rig,
    numbers,
    open_request,
    running,
    stored,
    until,
)
from fmqcore.ids import Permission
from fmqport.transport import Server, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest
from fmqwire.methods import CONSUME


@asynccontextmanager
async def listening(rig: Rig) -> AsyncIterator[Server]:
    server = await GrpcTransport().serve("127.0.0.1:0", rig.fetch.handlers)
    try:
        yield server
    finally:
        await server.close(0)


@asynccontextmanager
async def dialled(server: Server, session: str, **fields: Any) -> AsyncIterator[Consumer]:
    """Run a consumer on its own connection; `consumer.stream` may be cut."""
    connection = GrpcTransport().connect(f"127.0.0.1:{server.port}")
    requests: asyncio.Queue[ConsumeRequest] = asyncio.Queue()
    consumer = Consumer(requests.put_nowait)
    stream: Stream = await connection.open(CONSUME, GENEROUS_S)
    consumer.stream = stream  # type: ignore[attr-defined]

    async def write() -> None:
        with suppress(TransportError):
            while True:
                await stream.send(await requests.get())

    async def read() -> None:
        with suppress(TransportError):
            while (reply := await stream.receive()) is not None:
                consumer.take(reply)
        consumer.over = True

    consumer.send(open_request(session, **fields))
    tasks = [asyncio.create_task(write()), asyncio.create_task(read())]
    try:
        await until(lambda: consumer.opened)
        yield consumer
    finally:
        stream.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connection.close()


async def test_two_consumers_share_a_topic_and_one_is_disconnected(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, listening(rig) as server:
        async with dialled(server, "a") as a, dialled(server, "b") as b:
            await until(lambda: len(a.held) == len(b.held) == 2)
            for queue in range(4):
                rig.produce(queue, b"x", b"y")
            await until(lambda: len(a.values()) + len(b.values()) == 8)
            for consumer in (a, b):
                for delivery in consumer.got:
                    consumer.ack_range(delivery.queue_id, 0, 1)
            await until(lambda: all(stored(rig, q).floor == 1 for q in range(4)))
            theirs = sorted(b.held)
            b.stream.cancel()  # type: ignore[attr-defined]
            await until(lambda: len(a.held) == 4)
            await until(lambda: len(a.values()) == 6)
            assert [numbers(a, q) for q in theirs] == [[1], [1]]
            assert {count for q, _, _, count in a.values() if q in theirs} == {2}


async def test_losing_read_is_announced_and_ends_the_stream(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, listening(rig) as server:
        async with dialled(server, "a") as a:
            await until(lambda: a.held)
            rig.gate.grant(Permission.NONE, "fenced")
            await until(lambda: a.error)
            assert a.error is not None
            assert a.error.code == client_pb2.NO_PERMISSION
            await until(lambda: a.over)
        async with dialled(server, "b") as b:
            assert b.opened is not None
            assert "fenced" in b.opened.error.message
            await until(lambda: b.over)


async def test_leaving_is_answered_after_the_acks_are_stored(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, listening(rig) as server:
        rig.produce(0, b"x", b"y")
        async with dialled(server, "a") as a:
            await until(lambda: a.got)
            ack = client_pb2.AckRange(
                queue_id=0, generation=a.held[0], first_offset=0, end_offset=2
            )
            a.send(ConsumeRequest(acks=[ack], commit_token=9, leave=True))
            await until(lambda: a.left)
            assert a.tokens == [9]
            assert stored(rig, 0).floor == 2
            await until(lambda: a.over)
