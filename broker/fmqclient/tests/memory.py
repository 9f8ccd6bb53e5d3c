"""In-memory clock and transport: the client's ports replaced, so that seeds can be replayed.

Time is the loop's (on a `VirtualLoop` it jumps), chance is seeded, streams are queues. The
guarantees of streams hold (`fmqport.transport`); messages sent before a cancel may be lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from google.protobuf.message import Message

from fmqport.transport import CallContext, Handler, Handlers, Method, TransportError


def answering(answer: Callable[[Any], Awaitable[Any]]) -> Handler:
    """Return a handler that looks at the request alone."""

    async def handle(_: CallContext, request: Any) -> Any:
        return await answer(request)

    return handle


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing else is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        really = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            self._now += timeout or 0
            return really(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


class SeededClock:
    """The clock port over the running loop and a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def monotonic_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000_000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def random_id(self) -> int:
        return self._random.getrandbits(63) | 1


class _Pair:
    """The two directions of one stream."""

    def __init__(self, delay: Any) -> None:
        self.delay = delay
        self.to_server: asyncio.Queue[Message | None] = asyncio.Queue()
        self.to_client: asyncio.Queue[Message | None] = asyncio.Queue()
        self.over = asyncio.Event()


class MemoryStream:
    """One end."""

    def __init__(
        self, pair: _Pair, out: "asyncio.Queue[Any]", into: "asyncio.Queue[Any]", peer: str
    ) -> None:
        self.peer = peer
        self._pair = pair
        self._out = out
        self._in = into

    async def send(self, message: Message) -> None:
        await asyncio.sleep(self._pair.delay())
        if self._pair.over.is_set():
            raise TransportError(f"{self.peer}: the stream has ended")
        copy = type(message)()
        copy.CopyFrom(message)
        self._out.put_nowait(copy)

    async def receive(self) -> Any:
        getting = asyncio.ensure_future(self._in.get())
        ending = asyncio.ensure_future(self._pair.over.wait())
        try:
            await asyncio.wait((getting, ending), return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            raise TransportError(f"{self.peer}: the stream has ended")
        finally:
            getting.cancel()
            ending.cancel()

    async def done_sending(self) -> None:
        self._out.put_nowait(None)

    def cancel(self) -> None:
        self._pair.over.set()


class MemoryServer:
    """A listening server."""

    def __init__(
        self,
        transport: "MemoryTransport",
        port: int,
        handlers: Handlers,
    ) -> None:
        self.port = port
        self.handlers = handlers
        self.pairs: list[_Pair] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self._transport = transport

    async def close(self, grace_s: float) -> None:
        self._transport.servers.pop(self.port, None)
        for pair in self.pairs:
            pair.over.set()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    def accept(self, method: Method, pair: _Pair) -> None:
        self.pairs.append(pair)
        stream = MemoryStream(pair, pair.to_client, pair.to_server, "client")

        async def serve() -> None:
            try:
                await self.handlers[method](CallContext(method, "client"), stream)
            except* TransportError:
                pass
            finally:
                await asyncio.sleep(0.01)  # the last messages are in flight
                pair.over.set()

        task = asyncio.ensure_future(serve())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class MemoryConnection:
    """A client's connection."""

    def __init__(self, transport: "MemoryTransport", address: str) -> None:
        self.address = address
        self._transport = transport

    def _server(self) -> MemoryServer:
        server = self._transport.servers.get(int(self.address.rpartition(":")[2]))
        if server is None:
            raise TransportError(f"{self.address}: connection refused")
        return server

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        await asyncio.sleep(self._transport.delay())
        deadline = asyncio.get_running_loop().time() + timeout_s
        context = CallContext(method, "client", deadline=deadline)
        return await self._server().handlers[method](context, request)

    async def open(self, method: Method, timeout_s: float) -> MemoryStream:
        await asyncio.sleep(self._transport.delay())
        pair = _Pair(self._transport.delay)
        self._server().accept(method, pair)
        return MemoryStream(pair, pair.to_server, pair.to_client, self.address)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class MemoryTransport:
    """The transport port in memory; delays are seeded."""

    def __init__(self, seed: int) -> None:
        self.servers: dict[int, MemoryServer] = {}
        self._random = Random(seed)
        self._ports = 1000

    def delay(self) -> float:
        return self._random.choice((0, 0, 0.001, 0.005, 0.02))

    def connect(self, address: str) -> MemoryConnection:
        return MemoryConnection(self, address)

    async def serve(self, address: str, handlers: Handlers) -> MemoryServer:
        port = int(address.rpartition(":")[2])
        if not port:
            port = self._ports = self._ports + 1
        server = self.servers[port] = MemoryServer(self, port, handlers)
        return server
