"""A client's connection over gRPC: dialling, calls, the client's end of a stream.

A connection dials when it is first used. When an attempt fails, or the line is lost, its channel is
dropped and the next `call` or `open` dials at once on a fresh one: the caller decides how long to
wait before that, never a hidden back-off.
"""

import asyncio
from typing import Any, NoReturn

from google.protobuf.message import DecodeError, Message
from grpc import ChannelConnectivity, StatusCode, aio

from fmqadapters.grpc import options
from fmqadapters.grpc.error_codes import error_in
from fmqadapters.grpc.error_text import in_words
from fmqport.transport import (
    MAX_MESSAGE_BYTES,
    CallRefused,
    MessageTooLarge,
    Method,
    TransportError,
)

_EOF = aio.EOF
_LOST = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)


class GrpcConnection:
    """The real `Connection`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: Any = None  # aio.Channel: grpc has no types
        self._closed = False

    @property
    def address(self) -> str:
        """See `Connection`."""
        return self._address

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        """See `Connection`."""
        raw = serialize(request, self._address, method.max_request_bytes)
        before = _cancellations()
        channel = self._dial()
        call = channel.unary_unary(method.path)(raw, timeout=timeout_s)
        try:
            answer = await call
        except aio.AioRpcError as error:
            await self._lost(channel, error.code())
            raise self._failed(method, error) from None
        except asyncio.CancelledError:
            call.cancel()
            _reraise_own_cancel(before)
            raise TransportError(f"{self._address}: the connection was closed") from None
        return parse(method.reply, answer, self._address)

    async def open(self, method: Method, timeout_s: float) -> "ClientStream":
        """See `Connection`."""
        channel, before = self._dial(), _cancellations()
        call = channel.stream_stream(method.path)()
        try:
            async with asyncio.timeout(timeout_s):
                await call.wait_for_connection()
        except TimeoutError:
            call.cancel()
            await self._lost(channel, StatusCode.DEADLINE_EXCEEDED)
            raise TransportError(f"{self._address}: no connection within {timeout_s} s") from None
        except aio.AioRpcError as error:
            await self._lost(channel, error.code())
            raise self._failed(method, error) from None
        except asyncio.CancelledError:
            call.cancel()
            _reraise_own_cancel(before)
            raise TransportError(f"{self._address}: the connection was closed") from None
        return ClientStream(self._address, method, call)

    async def close(self) -> None:
        """See `Connection`."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _dial(self) -> aio.Channel:
        if self._closed:
            raise TransportError(f"{self._address}: this connection is closed")
        channel = self._channel
        if channel is None:
            channel = self._channel = aio.insecure_channel(self._address, options=options.CLIENT)
        return channel

    async def _lost(self, channel: aio.Channel, code: StatusCode) -> None:
        """Drop a channel that may be waiting in a back-off: the next use dials at once.

        A channel on which a stream may still live is kept: it is connected, and only the call
        failed.
        """
        if code in _LOST and channel is self._channel and not _is_ready(channel):
            self._channel = None
            await channel.close()

    def _failed(self, method: Method, error: aio.AioRpcError) -> TransportError:
        place = f"{self._address}: {method.path}"
        if error.code() is StatusCode.RESOURCE_EXHAUSTED:
            return MessageTooLarge(f"{place}: {_text(error)}")
        return _failure(place, error)


class ClientStream:
    """The client's end of a stream. A cancelled `send` or `receive` tears it down."""

    def __init__(
        self, address: str, method: Method, call: "aio.StreamStreamCall[bytes, bytes]"
    ) -> None:
        self._address = address
        self._reply = method.reply
        self._call = call

    @property
    def peer(self) -> str:
        """See `Stream`."""
        return self._address

    async def send(self, message: Message) -> None:
        """See `Stream`."""
        raw, before = serialize(message, self._address), _cancellations()
        try:
            await self._call.write(raw)
        except aio.AioRpcError as error:
            raise _failure(self._address, error) from None
        except (asyncio.InvalidStateError, asyncio.CancelledError):
            await self._ended(before)

    async def receive(self) -> Any:
        """See `Stream`."""
        before = _cancellations()
        try:
            raw = await self._call.read()
        except aio.AioRpcError as error:
            raise _failure(self._address, error) from None
        except (asyncio.InvalidStateError, asyncio.CancelledError):
            await self._ended(before)
        if raw is _EOF:
            return None
        try:
            return parse(self._reply, raw, self._address)
        except TransportError:
            self._call.cancel()
            raise

    async def done_sending(self) -> None:
        """See `Stream`."""
        before = _cancellations()
        try:
            await self._call.done_writing()
        except aio.AioRpcError as error:
            raise _failure(self._address, error) from None
        except (asyncio.InvalidStateError, asyncio.CancelledError):
            await self._ended(before)

    def cancel(self) -> None:
        """See `Stream`."""
        self._call.cancel()

    async def _ended(self, before: int) -> NoReturn:
        """Raise the task's own cancellation or the stream's end: gRPC raises the same for both."""
        _reraise_own_cancel(before)
        if self._call.cancelled() or not self._call.done():
            raise TransportError(f"{self._address}: the stream was cancelled")
        details, code = await self._call.details(), await self._call.code()
        refused = error_in(await self._call.trailing_metadata(), details or "")
        text = f"{self._address}: the stream has ended: {in_words(details, code.name)}"
        raise TransportError(text) if refused is None else CallRefused(text, refused)


def serialize(message: Message, peer: str, limit: int = MAX_MESSAGE_BYTES) -> bytes:
    """Encode a message; one over the limit is refused here, where it harms no other call."""
    raw = message.SerializeToString()
    _check_size(type(message), raw, peer, limit)
    return raw


def parse(kind: type[Message], raw: bytes, peer: str, limit: int = MAX_MESSAGE_BYTES) -> Any:
    """Decode a message; raise a `TransportError` that names the peer if it does not decode."""
    _check_size(kind, raw, peer, limit)
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        name = kind.DESCRIPTOR.name
        raise TransportError(f"{peer}: {len(raw)} bytes are no {name}: {error}") from None


def _check_size(kind: type[Message], raw: bytes, peer: str, limit: int) -> None:
    if len(raw) > limit:
        name = kind.DESCRIPTOR.name
        raise MessageTooLarge(
            f"{peer}: a {name} of {len(raw)} bytes is over the limit of {limit} bytes"
        )


def _cancellations() -> int:
    """Return how often this task was asked to cancel and has received it.

    It does not return to 0 by itself: an `asyncio.TaskGroup` of Python 3.11 whose child failed
    leaves one behind in a task that lives on. A request is not received yet if a signal handler
    made it while the task was at work and not waiting.
    """
    task = asyncio.current_task()
    if task is None:
        return 0
    return task.cancelling() - bool(getattr(task, "_must_cancel", False))


def _reraise_own_cancel(before: int) -> None:
    """Within `except CancelledError`: raise it again if this task was asked to cancel since."""
    if _cancellations() > before:
        raise asyncio.CancelledError


def _is_ready(channel: aio.Channel) -> bool:
    return channel.get_state() is ChannelConnectivity.READY


def _failure(place: str, error: aio.AioRpcError) -> TransportError:
    """Return the error of a failed call: the handler's, or the connection's."""
    text = f"{place}: {_text(error)}"
    refused = error_in(error.trailing_metadata(), error.details() or "")
    return TransportError(text) if refused is None else CallRefused(text, refused)


def _text(error: aio.AioRpcError) -> str:
    return in_words(error.details(), error.code().name)
