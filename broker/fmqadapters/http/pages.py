"""A few pages over HTTP, for probes and Prometheus. The one door to aiohttp's server.

This is not an API: a request gets the present state and can change nothing. Pages are rendered on
the event loop, so an answer proves that the loop turns. Leaves nothing on disk.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from fmqport.transport import TransportError

PLAIN = "text/plain; charset=utf-8"
_EVERYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a GET."""

    body: str | bytes
    status: int = 200
    content_type: str = PLAIN


MakePage = Callable[[], Awaitable[Page]]


@asynccontextmanager
async def serve_pages(address: str, pages: Mapping[str, MakePage]) -> AsyncIterator[int]:
    """Serve `pages` (path → what renders it) at `host:port` within the context; yield the port.

    A path may end in `?` and a query: that page is for exactly this query, the one without for all
    others.

    0.0.0.0 and [::] are every address of the machine, whatever its family, as for gRPC: a pod may
    have IPv6 alone, and its probes come that way.

    Raises `TransportError` naming the address if it is not available.
    """
    host, _, port = address.rpartition(":")
    app = web.Application()
    for path in dict.fromkeys(name.partition("?")[0] for name in pages):
        app.router.add_get(path, _handler(path, pages))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            await _site(runner, host.strip("[]"), int(port)).start()
        except OSError as error:
            raise TransportError(f"cannot listen on {address}: {error}") from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _site(runner: web.AppRunner, host: str, port: int) -> web.BaseSite:
    if host not in _EVERYWHERE or not socket.has_dualstack_ipv6():
        return web.TCPSite(runner, host or None, port)
    family = socket.AF_INET6
    return web.SockSite(
        runner, socket.create_server(("", port), family=family, dualstack_ipv6=True)
    )


def _handler(
    path: str, pages: Mapping[str, MakePage]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        page = await pages.get(f"{path}?{request.query_string}", pages[path])()
        body = page.body.encode() if isinstance(page.body, str) else page.body
        return web.Response(
            body=body, status=page.status, headers={"Content-Type": page.content_type}
        )

    return handle
