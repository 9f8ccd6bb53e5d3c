"""The addresses on which HTTP pages are served."""

import socket

import aiohttp
import pytest

from fmqadapters.http.pages import Page, serve_pages
from fmqport.transport import TransportError


async def well() -> Page:
    """Serve a page."""
    return Page("well\n")


async def asked(host: str, port: int) -> str:
    """Return the page or the error."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"http://{host}:{port}/p") as reply:
            return await reply.text()
    except aiohttp.ClientError as error:
        return str(error)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_everywhere_is_every_address_of_either_family(address: str) -> None:
    """A cluster may give its pods IPv6 only: probes there would get no answer."""
    async with serve_pages(address, {"/p": well}) as port:
        assert [await asked(host, port) for host in ("127.0.0.1", "[::1]")] == ["well\n"] * 2


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
async def test_an_address_that_is_taken_is_named(address: str) -> None:
    async with serve_pages(f"{address}:0", {"/p": well}) as port:
        with pytest.raises(TransportError, match=f"cannot listen on {address}:{port}"):
            async with serve_pages(f"{address}:{port}", {"/p": well}):
                pass


async def test_one_address_is_that_one_alone() -> None:
    async with serve_pages("127.0.0.1:0", {"/p": well}) as port:
        assert await asked("127.0.0.1", port) == "well\n"
        assert "::1" in await asked("[::1]", port)
