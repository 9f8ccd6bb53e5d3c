"""Links: which bytes pass, which are held, which are reset, and for which caller."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fmqdev.proxy import Link, Proxies


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with Proxies() as made:
        yield made


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """Return the address of an echo server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


class Caller:
    """A connection through a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, link: Link) -> "Caller":
        return cls(*await asyncio.open_connection("127.0.0.1", link.port))

    async def answer(self, data: bytes) -> bytes:
        async with asyncio.timeout(10):
            self.writer.write(data)
            return await self.reader.readexactly(len(data))

    async def is_reset(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


async def test_a_link_passes_both_ways(proxies: Proxies, echo: str) -> None:
    caller = await Caller.dial(proxies.link(echo))
    assert await caller.answer(b"x" * 300_000) == b"x" * 300_000
    caller.close()


async def test_cut_resets_current_and_new_connections(proxies: Proxies, echo: str) -> None:
    link = proxies.link(echo)
    caller = await Caller.dial(link)
    assert await caller.answer(b"hello") == b"hello"
    link.cut()
    assert await caller.is_reset()
    late = await Caller.dial(link)
    assert await late.is_reset()
    link.resume()
    again = await Caller.dial(link)
    assert await again.answer(b"hello") == b"hello"
    for one in (caller, late, again):
        one.close()


async def test_held_bytes_arrive_later(proxies: Proxies, echo: str) -> None:
    link = proxies.link(echo)
    early = await Caller.dial(link)
    assert await early.answer(b"1") == b"1"
    link.hold()
    late = await Caller.dial(link)
    waiting = [asyncio.create_task(caller.answer(b"held")) for caller in (early, late)]
    done, _ = await asyncio.wait(waiting, timeout=0.2)
    assert not done
    link.resume()
    assert await asyncio.gather(*waiting) == [b"held", b"held"]
    early.close()
    late.close()


async def test_callers_are_distinguished(proxies: Proxies, echo: str) -> None:
    names: dict[int, str] = {}
    link = proxies.link(echo, who=lambda port: names.get(port, ""))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        names[bound.getsockname()[1]] = "slave"
        bound.setblocking(False)
        await asyncio.get_running_loop().sock_connect(bound, ("127.0.0.1", link.port))
        slave = Caller(*await asyncio.open_connection(sock=bound))
        client = await Caller.dial(link)
        assert await slave.answer(b"s") == b"s"
        assert await client.answer(b"c") == b"c"
        link.cut("slave")
        assert await slave.is_reset()
        assert await client.answer(b"c") == b"c"
        slave.close()
        client.close()


async def test_a_target_that_is_away_is_a_reset(proxies: Proxies) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    caller = await Caller.dial(proxies.link(f"127.0.0.1:{port}"))
    assert await caller.is_reset()
    caller.close()


async def test_only_one_connection_at_a_time(proxies: Proxies, echo: str) -> None:
    """Only for one caller; others are unaffected. After healing, several are allowed again."""
    names: dict[int, str] = {}
    link = proxies.link(echo, who=lambda port: names.get(port, ""))

    async def dial(name: str) -> Caller:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        names[port] = name
        here = ("127.0.0.1", port)
        return Caller(*await asyncio.open_connection("127.0.0.1", link.port, local_addr=here))

    refused = link.only_one("slave")
    first, other, second = await dial("slave"), await dial("client"), await dial("slave")
    assert await first.answer(b"stream") == b"stream"
    assert await second.is_reset()
    assert await other.answer(b"hello") == b"hello"
    assert [names[port] for port in refused] == ["slave"]
    link.cut("slave")
    link.heal()
    both = await dial("slave"), await dial("slave")
    for one in both:
        assert await one.answer(b"again") == b"again"
    for one in (first, other, second, *both):
        one.close()


async def test_no_caller_is_identified_while_all_are_treated_alike(
    proxies: Proxies, echo: str
) -> None:
    """Identifying a caller costs more than connecting: short-lived callers must not wait for it."""
    asked: list[int] = []

    def who(port: int) -> str:
        asked.append(port)
        return "slave"

    link = proxies.link(echo, who=who)
    before = await Caller.dial(link)
    assert await before.answer(b"1") == b"1"
    assert not asked
    link.cut("another")
    assert await before.answer(b"2") == b"2"
    link.resume("another")
    after = await Caller.dial(link)
    assert await after.answer(b"3") == b"3"
    assert len(asked) == 1, "the one that was there when somebody was cut"
    before.close()
    after.close()


async def test_caller_gone_before_its_turn_delays_no_other(
    proxies: Proxies, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = 0, threading.Event()
    readers: list[asyncio.StreamReader] = []
    is_welcome = Link._is_welcome

    def who(port: int) -> str:
        nonlocal asked
        asked += 1
        go_on.wait(60)
        return "client"

    async def noted(
        link: Link, caller: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        readers.append(reader)
        return await is_welcome(link, caller, reader, writer)

    monkeypatch.setattr(Link, "_is_welcome", noted)
    link = proxies.link(echo, who=who)
    link.cut("slave")
    gone = [await Caller.dial(link) for _ in range(20)]
    for caller in gone:
        caller.writer.transport.abort()
    patient = await Caller.dial(link)
    async with asyncio.timeout(30):  # the proxy accepts and reads on its own thread
        while sum(reader.at_eof() for reader in list(readers)) < len(gone):
            await asyncio.sleep(0.01)
    go_on.set()
    assert await patient.answer(b"hello") == b"hello"
    assert asked <= 2, "the first, which was asked for when it went, and the last"
    patient.close()
