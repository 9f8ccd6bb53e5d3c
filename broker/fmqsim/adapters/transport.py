"""Simulator adapter of the transport port: connections and servers of a process.

It keeps the promises of gRPC's adapter: a connection dials at its first use and again after a loss,
an attempt is given up after a second, a call's handler runs to its end even if its caller is gone,
its deadline counts from when the process reads the call, and a closing server lets running handlers
end within its grace. Leaves nothing behind.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from google.protobuf.message import Message

from fmqcore.errors import FmqError
from fmqport.transport import (
    CallContext,
    CallRefused,
    Handler,
    Handlers,
    Method,
    TransportError,
)
from fmqsim.engine.network import Network
from fmqsim.engine.node import Process
from fmqsim.engine.stream import ClientStream, ServerStream, parse, serialize
from fmqsim.engine.wire import (
    CLIENT,
    SERVER,
    Frame,
    Kind,
    Refusal,
    Wire,
    failure,
    refusal_of,
)

CONNECT_S: Final = 1.0
"""Timeout of one attempt, as in `fmqadapters.grpc.options`."""
_LAST_WORDS_S: Final = 0.3


class SimTransport:
    """The simulated `Transport` of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        network.attach(process.node)
        process.on_death(lambda: network.process_died(process))

    def connect(self, address: str) -> "SimConnection":
        """See `Transport`."""
        self._process.check()
        return SimConnection(self._network, self._process, address)

    async def serve(self, address: str, handlers: Handlers) -> "SimServer":
        """See `Transport`."""
        self._process.check()
        return SimServer(self._network, self._process, address, handlers)


class SimConnection:
    """The simulated `Connection`."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self._network = network
        self._process = process
        self._address = address
        self._wire: Wire | None = None
        self._closed = False
        self._calls: dict[asyncio.Future[Any], None] = {}

    @property
    def address(self) -> str:
        """See `Connection`."""
        return self._address

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        """See `Connection`."""
        self._process.check()
        raw = serialize(request, self._address)
        end: CallEnd | None = None
        try:
            async with asyncio.timeout(timeout_s):
                wire = await self._dial(timeout_s)
                end = CallEnd(wire, method, raw, timeout_s)
                answer = await self._unless_closed(end.answer)
        except TimeoutError:
            raise TransportError(f"{self._address}: {method.path}: no answer in time") from None
        except CallRefused as refused:
            raise CallRefused(f"{self._address}: {refused}", refused.error) from None
        except TransportError as error:
            raise TransportError(f"{self._address}: {error}") from None
        finally:
            if end is not None:
                end.forget()
        return parse(method.reply, answer, self._address)

    async def open(self, method: Method, timeout_s: float) -> ClientStream:
        """See `Connection`."""
        self._process.check()
        try:
            wire = await self._dial(timeout_s)
        except TransportError as error:
            raise TransportError(f"{self._address}: {error}") from None
        return ClientStream(wire, method, self._address, self._network.window_bytes)

    async def close(self) -> None:
        """See `Connection`."""
        self._process.check()
        self._closed = True
        for future in list(self._calls):
            if not future.done():
                future.set_exception(TransportError("the connection was closed"))
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close(CLIENT, "the connection was closed")

    async def _dial(self, timeout_s: float) -> Wire:
        if self._closed:
            raise TransportError("this connection is closed")
        wire = self._wire
        if wire is not None and wire.up[CLIENT] and not wire.draining:
            return wire
        dialling = self._network.dial(self._process, self._address)
        try:
            async with asyncio.timeout(min(timeout_s, CONNECT_S)):
                fresh: Wire = await self._unless_closed(dialling)
        except TimeoutError:
            raise TransportError("no connection in time") from None
        finally:
            dialling.cancel()
        wire = self._wire
        if wire is not None and wire is not fresh and wire.up[CLIENT] and not wire.draining:
            fresh.close(CLIENT, "another one was quicker")
            return wire
        self._wire = fresh
        return fresh

    async def _unless_closed(self, future: "asyncio.Future[Any]") -> Any:
        self._calls[future] = None
        try:
            return await future
        finally:
            del self._calls[future]


class CallEnd:
    """A client's running call."""

    def __init__(self, wire: Wire, method: Method, raw: bytes, timeout_s: float) -> None:
        self._wire = wire
        self._number = wire.number()
        self.answer: asyncio.Future[bytes] = wire.loop.create_future()
        wire.ends[CLIENT][self._number] = self
        wire.push(CLIENT, (Kind.CALL, self._number, (method.path, raw, timeout_s)))
        if not wire.up[CLIENT]:
            self.lost("the connection was closed")

    def arrived(self, kind: Kind, body: Any) -> None:
        """See `End`."""
        if kind is Kind.REPLY and not self.answer.done():
            self.answer.set_result(body)
        else:
            self.lost(body)

    def lost(self, reason: str | Refusal) -> None:
        """See `End`."""
        if not self.answer.done():
            self.answer.set_exception(failure("", reason))

    def forget(self) -> None:
        """Drop the call: its caller no longer waits, the handler runs on."""
        self._wire.ends[CLIENT].pop(self._number, None)
        self.answer.cancel()


class SimServer:
    """The simulated `Server`."""

    def __init__(
        self,
        network: Network,
        process: Process,
        address: str,
        handlers: Handlers,
    ) -> None:
        self.process = process
        self.wires: dict[Wire, None] = {}
        self._network = network
        self._handlers = {method.path: (method, handler) for method, handler in handlers.items()}
        self._running: dict[asyncio.Task[None], None] = {}
        self.address = network.listen(address, self)

    @property
    def port(self) -> int:
        """See `Server`."""
        return int(self.address.rpartition(":")[2])

    async def close(self, grace_s: float) -> None:
        """See `Server`."""
        self.process.check()
        self._network.unlisten(self)
        for wire in self.wires:
            wire.draining = True
        if self._running and grace_s > 0:
            await asyncio.wait(self._running, timeout=grace_s)
        for wire in list(self.wires):
            wire.close(SERVER, "the server is closed")
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_WORDS_S)
        while self._running:
            for task in list(self._running):
                task.cancel()
            await asyncio.wait(self._running)

    def begin(self, wire: Wire, frame: Frame) -> None:
        """Handle an incoming stream or call."""
        kind, number, body = frame
        if wire.draining:
            wire.push(SERVER, (_REFUSAL[kind], number, "the server is closing"))
        elif kind is Kind.OPEN:
            self._begin_stream(wire, number, body)
        else:
            self._begin_call(wire, number, *body)

    def _begin_stream(self, wire: Wire, number: int, path: str) -> None:
        found = self._handlers.get(path)
        if found is None or not found[0].streaming:
            wire.push(SERVER, (Kind.END, number, f"{path}: not implemented"))
            return
        method, handler = found
        stream = ServerStream(wire, number, method, self._network.window_bytes)
        context = CallContext(method, wire.client)
        stream.task = self._run(self._serve(handler, context, stream))

    async def _serve(self, handler: Handler, context: CallContext, stream: ServerStream) -> None:
        reason: str | Refusal = "cancelled by the broker"
        try:
            await handler(context, stream)
            reason = ""
        except FmqError as error:
            reason = refusal_of(error)
        except Exception as error:
            reason = f"Unexpected {type(error)}"
            raise
        finally:
            stream.over(reason)

    def _begin_call(self, wire: Wire, number: int, path: str, raw: bytes, timeout_s: float) -> None:
        found = self._handlers.get(path)
        if found is None or found[0].streaming:
            wire.push(SERVER, (Kind.REFUSED, number, f"{path}: not implemented"))
            return
        method, handler = found
        self._run(self._answer(wire, number, method, handler, raw, timeout_s))

    async def _answer(
        self,
        wire: Wire,
        number: int,
        method: Method,
        handler: Handler,
        raw: bytes,
        timeout_s: float,
    ) -> None:
        kind, body = Kind.REFUSED, b""
        deadline = asyncio.get_running_loop().time() + timeout_s
        context = CallContext(method, wire.client, deadline=deadline)
        try:
            reply = await handler(context, parse(method.request, raw, wire.client))
            kind, body = Kind.REPLY, serialize(reply, wire.client)
        except FmqError as error:
            wire.push(SERVER, (kind, number, refusal_of(error)))
        except Exception as error:
            wire.push(SERVER, (kind, number, f"Unexpected {type(error)}"))
            raise
        else:
            wire.push(SERVER, (kind, number, body))

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._network.loop.spawn(self.process, work)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            message = "handler_failed"
            self._network.loop.call_exception_handler({"message": message, "exception": error})


_REFUSAL: Final = {Kind.OPEN: Kind.END, Kind.CALL: Kind.REFUSED}
