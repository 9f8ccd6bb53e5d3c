"""gRPC errors about wrong addresses in plain words; from real connections where quick."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fmqadapters.grpc import GrpcTransport
from fmqadapters.grpc.error_text import in_words
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import STATUS

LOST = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: "


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            "errors resolving a:1: [field:hostname lookup error:address lookup failed for a:1: "
            "Domain name not found]",
            "its name does not resolve, is it spelled right?",
        ),
        (f"{LOST}connection attempt timed out before receiving SETTINGS frame", "does not answer"),
        (f"{LOST}Failed to connect to remote host: No route to host", "no route to that host"),
        (
            f"{LOST}Failed to connect to remote host: Timeout occurred: FD Shutdown "
            "(connect() timed out)",
            "no connection in time",
        ),
        ("Stream removed (ping timeout)", "it has stopped answering"),
        ("something new", "something new (UNAVAILABLE)"),
        ("", "UNAVAILABLE"),
    ],
)
def test_words(details: str, words: str) -> None:
    text = in_words(details, "UNAVAILABLE")
    assert words in text
    assert ": " not in text
    assert "]" not in text


def test_a_handlers_own_text_stays() -> None:
    text = "g1-1: Connection refused"
    assert in_words(text, "FAILED_PRECONDITION") == f"{text} (FAILED_PRECONDITION)"


async def refused() -> str:
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return await error_of(f"127.0.0.1:{port}")


async def http() -> str:
    return await answered(b"HTTP/1.0 400 Bad Request\r\n\r\n")


async def closing() -> str:
    return await answered(b"")


async def answered(answer: bytes) -> str:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        while await reader.read(65536):  # closing with unread data would be a reset
            pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        return await error_of(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def error_of(address: str) -> str:
    connection = GrpcTransport().connect(address)
    with pytest.raises(TransportError) as caught:
        await connection.call(STATUS, admin_pb2.StatusRequest(), 10.0)
    await connection.close()
    return str(caught.value).rpartition(": ")[2]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (refused, "connection refused, nothing listens there"),
        (http, "what listens there is no broker"),
        (closing, "the connection was closed"),
    ],
)
async def test_a_real_connection(ask: Callable[[], Awaitable[str]], words: str) -> None:
    assert await ask() == words
