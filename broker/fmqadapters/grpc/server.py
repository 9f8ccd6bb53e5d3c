"""A listening gRPC server: dispatch by method, the server's end of a stream.

Every handler runs in its own task, beside the task that gRPC creates for the call and cancels when
the peer goes away. So a call's handler always runs to its end, and a stream's handler learns of a
dead peer as the port specifies: `TransportError` from `send` or `receive`; a handler that is in
neither is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from grpc import StatusCode, aio

from fmqadapters.grpc import options
from fmqadapters.grpc.client import parse, serialize
from fmqadapters.grpc.error_codes import trailer_of
from fmqcore.errors import FmqError
from fmqport.transport import (
    ANONYMOUS,
    CallContext,
    Handler,
    Handlers,
    MessageTooLarge,
    Method,
    TransportError,
)

_Context = Any  # aio.ServicerContext: grpc has no types
_CLOSE_NOTICE_S = 0.02
_LAST_WORDS_S = 0.3
_LONGEST = 2000  # bytes, up to three each in a trailer; gRPC carries 8 KiB for sure
_TRACE_KEY = "traceparent"  # W3C Trace Context
_LONGEST_TRACE = 64  # characters; version 00 has 55


class GrpcServer:
    """The real `Server`."""

    def __init__(self, server: aio.Server, port: int, handlers: "set[asyncio.Task[Any]]") -> None:
        self._server = server
        self._port = port
        self._handlers = handlers

    @classmethod
    async def listen(cls, address: str, handlers: Handlers) -> "GrpcServer":
        """Bind and serve; raise `TransportError` naming the address if it is not available."""
        server = aio.server(options=options.SERVER)
        methods = _Methods(handlers)
        server.add_generic_rpc_handlers((methods,))
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            await server.stop(None)
            raise TransportError(f"cannot listen on {address}: {error}") from None
        await server.start()
        return cls(server, port, methods.running)

    @property
    def port(self) -> int:
        """See `Server`."""
        return self._port

    async def close(self, grace_s: float) -> None:
        """See `Server`."""
        await self._server.stop(grace_s)
        if self._handlers:  # they have just learned that their peers are gone
            await asyncio.wait(self._handlers, timeout=_LAST_WORDS_S)
        while self._handlers:
            for task in self._handlers:
                task.cancel()
            await asyncio.wait(self._handlers)


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Returns the handler of a path to gRPC; an unknown path is UNIMPLEMENTED for the caller."""

    def __init__(self, handlers: Handlers) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self._handlers = {
            m.path: (self._stream_handler if m.streaming else self._call_handler)(m, handler)
            for m, handler in handlers.items()
        }

    def service(self, details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        return self._handlers.get(details.method)

    def _call_handler(self, method: Method, handler: Handler) -> Any:
        async def answer(raw: bytes, context: _Context) -> bytes:
            call = _call_of(method, context)
            try:
                request = parse(method.request, raw, call.peer, method.max_request_bytes)
                reply: Message = await asyncio.shield(self._run(handler(call, request)))
                return serialize(reply, call.peer)
            except MessageTooLarge as error:
                await context.abort(StatusCode.RESOURCE_EXHAUSTED, _detail(error))
                raise AssertionError from error  # abort has raised
            except FmqError as error:
                await _refuse(context, error)
                raise AssertionError from error  # abort has raised

        return grpc.unary_unary_rpc_method_handler(answer)

    def _stream_handler(self, method: Method, handler: Handler) -> Any:
        async def serve(_: object, context: _Context) -> None:
            call = _call_of(method, context)
            stream = ServerStream(method, call.peer, context)
            task = self._run(handler(call, stream))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                # The peer is gone, the server closes, or the handler itself called `cancel`.
                if not stream.fail():
                    task.cancel()
                if stream.cancelled_here:
                    await context.abort(StatusCode.CANCELLED, "cancelled by the broker")
                raise
            except FmqError as error:
                await _refuse(context, error)
            finally:
                stream.fail()  # a stray task that still holds it must not touch a finished call

        return grpc.stream_stream_rpc_method_handler(serve)

    def _run(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: then no task asks for it


class ServerStream:
    """The server's end of a stream. A cancelled `send` or `receive` tears it down."""

    def __init__(self, method: Method, peer: str, context: _Context) -> None:
        self._request = method.request
        self._context = context
        self._peer = peer
        self._call = asyncio.current_task()  # gRPC's own task for this call
        self._busy = 0
        self._over = asyncio.Event()
        self.cancelled_here = False

    @property
    def peer(self) -> str:
        """See `Stream`."""
        return self._peer

    async def send(self, message: Message) -> None:
        """See `Stream`."""
        await self._do(self._context.write(serialize(message, self._peer)))

    async def receive(self) -> Any:
        """See `Stream`."""
        raw = await self._do(self._read())
        return None if raw is aio.EOF else parse(self._request, raw, self._peer)

    async def _read(self) -> Any:
        raw = await self._context.read()
        if raw is aio.EOF:
            # A half close and a dead peer look the same at first: wait for the report of a death.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_NOTICE_S):
                    await self._over.wait()
                    raise self._gone()
        return raw

    async def done_sending(self) -> None:
        """See `Stream`: a server's end is done by returning."""

    def cancel(self) -> None:
        """See `Stream`."""
        if not self._over.is_set():
            self._over.set()
            self.cancelled_here = True
            if self._call is not None:
                self._call.cancel()

    def fail(self) -> bool:
        """End the stream; return whether a `send` or `receive` in progress will raise."""
        self._over.set()
        return self._busy > 0

    async def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._over.is_set():
            work.close()
            raise self._gone()
        self._busy += 1
        try:
            return await work
        except aio.BaseError:
            raise self._gone() from None
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._busy -= 1

    def _gone(self) -> TransportError:
        return TransportError(f"{self._peer}: the stream has ended: the peer is gone, or cancelled")


def _call_of(method: Method, context: _Context) -> CallContext:
    """Return what gRPC knows of the call that arrived."""
    left_s = context.time_remaining()
    deadline = None if left_s is None else asyncio.get_running_loop().time() + left_s
    trace = ""
    for key, value in context.invocation_metadata() or ():
        if key == _TRACE_KEY:
            trace = value[:_LONGEST_TRACE]
    return CallContext(method, _peer(context), ANONYMOUS, deadline, trace)


async def _refuse(context: _Context, error: FmqError) -> None:
    """End the call with an error; does not return."""
    await context.abort(StatusCode.FAILED_PRECONDITION, _detail(error), trailer_of(error))


def _detail(error: FmqError) -> str:
    """Return the error's text, shortened to what a trailer can carry.

    gRPC would report a longer one as another error.
    """
    return str(error).encode()[:_LONGEST].decode(errors="ignore")


def _peer(context: _Context) -> str:
    """`ipv4:127.0.0.1:51234` or `ipv6:%5B::1%5D:51234` without the scheme."""
    return unquote(context.peer()).partition(":")[2]
