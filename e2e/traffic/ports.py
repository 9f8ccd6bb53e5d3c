"""How traffic reaches a cluster: its clients' ports, and a transport that can be cut.

The same traffic runs on real and on simulated ports; it must not reach for either by itself.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

from google.protobuf.message import Message

import fmqclient
from fmqport.clock import Clock
from fmqport.transport import (
    Connection,
    Handlers,
    Method,
    Server,
    Stream,
    Transport,
    TransportError,
)


@dataclass(frozen=True, slots=True)
class Door:
    """The ports that a client needs. None: the real one."""

    url: str
    transport: Transport
    clock: Clock | None = None
    timeout_s: float = 10.0

    def client(self, who: str) -> fmqclient.Client:
        """Return a client of that name; open it with `async with`."""
        return fmqclient.connect(
            self.url,
            name=who,
            transport=self.transport,
            clock=self.clock,
            timeout_s=self.timeout_s,
        )

    def severable(self) -> "tuple[Door, Severable]":
        """Return the door with connections that can all be torn at once."""
        transport = Severable(self.transport)
        return Door(self.url, transport, self.clock, self.timeout_s), transport


class Severable:
    """A `Transport` for one client, which can lose all its connections as if it had died."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._open: list[Connection] = []
        self._severed = False

    def connect(self, address: str) -> Connection:
        """See `Transport`."""
        if self._severed:
            return _Dead(address)
        connection = self._inner.connect(address)
        self._open.append(connection)
        return connection

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """See `Transport`."""
        return await self._inner.serve(address, handlers)

    async def sever(self) -> None:
        """Close all connections at once, without a goodbye."""
        self._severed = True
        for connection in self._open:
            await connection.close()


class _Dead:
    """A `Connection` that leads nowhere."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        """See `Connection`."""
        del request, timeout_s
        self._refuse(method)

    async def open(self, method: Method, timeout_s: float) -> Stream:
        """See `Connection`."""
        del timeout_s
        self._refuse(method)

    async def close(self) -> None:
        """See `Connection`."""

    def _refuse(self, method: Method) -> NoReturn:
        raise TransportError(f"{method.path}: this client is cut off from {self.address}")
