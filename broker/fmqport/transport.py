"""Port: transport. Connections, and on them calls and bidirectional streams of messages.

A message is a protobuf message of `fmqproto`; a method is named by its `Method`. Guarantees:
messages of one stream arrive whole, in order, at most once; `send` returns when the stream took the
message (back-pressure), not when the peer read it; a dead peer ends `receive` with
`TransportError`. There are no guarantees between streams.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from fmqcore.errors import ErrorCode, FmqError

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The receiver refuses a larger message, and its call fails; the connection stays open."""

MAX_CALL_BYTES: Final = 4 * 1024 * 1024
"""Both ends refuse a larger request of a call, unless its method sets another limit.

A reply may be larger, as a list of all offsets is.
"""


class TransportError(FmqError):
    """The peer cannot be reached, went away, or refused the method."""


class MessageTooLarge(TransportError):
    """A message over its method's limit: it was not read, and nothing was done."""

    code = ErrorCode.TOO_LARGE


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service, e.g. `/fmqproto.v1.Client/Produce`."""

    path: str
    request: type[Message]
    reply: type[Message]
    streaming: bool
    max_request_bytes: int = MAX_CALL_BYTES  # of a call; a stream's messages: MAX_MESSAGE_BYTES


class Stream(Protocol):
    """One end of a bidirectional stream. One task may send while another receives.

    A cancelled `send` or `receive` tears the stream down: whether its message passed is unknown.
    """

    @property
    def peer(self) -> str:
        """The address of the other end, for people."""
        ...

    async def send(self, message: Message) -> None:
        """Hand over one message; wait while the stream is full. Raises `TransportError`."""
        ...

    async def receive(self) -> Any:
        """Return the next message, None when the peer is done sending. Raises `TransportError`."""
        ...

    async def done_sending(self) -> None:
        """Signal the peer that nothing more comes. A server's end does it by returning."""
        ...

    def cancel(self) -> None:
        """Tear the stream down now; both ends' calls fail. May be called twice."""
        ...


class Connection(Protocol):
    """A client's connection to one address; it dials by itself, and again after a loss."""

    @property
    def address(self) -> str:
        """`host:port`."""
        ...

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        """Send one request and return its reply. Raises `TransportError`, also on a timeout.

        Raises `MessageTooLarge` if the request is over the limit of a call.
        """
        ...

    async def open(self, method: Method, timeout_s: float) -> Stream:
        """Open a stream and return it once the peer is connected. Raises `TransportError`."""
        ...

    async def close(self) -> None:
        """Close the connection and tear down all its calls and streams."""
        ...


StreamHandler = Callable[[Stream], Awaitable[None]]
"""Serves one stream, which ends when it returns. A raised `FmqError` ends it with its text.

When the peer dies, a `send` or `receive` in progress raises `TransportError`; a handler that is in
neither is cancelled.
"""

CallHandler = Callable[[Any], Awaitable[Message]]
"""Answers one request. A raised `FmqError` becomes the caller's `TransportError`.

It runs to its end, even if its caller has gone.
"""


class Server(Protocol):
    """A listening server."""

    @property
    def port(self) -> int:
        """The port that is bound (useful when 0 was asked for)."""
        ...

    async def close(self, grace_s: float) -> None:
        """Accept nothing new; let running work end for `grace_s` seconds, then tear it down."""
        ...


class Transport(Protocol):
    """Opens connections and servers."""

    def connect(self, address: str) -> Connection:
        """Return a connection to `host:port`; no I/O yet."""
        ...

    async def serve(
        self,
        address: str,
        *,
        calls: Mapping[Method, CallHandler],
        streams: Mapping[Method, StreamHandler],
    ) -> Server:
        """Listen on `host:port`. Raises `TransportError` naming the address if it is taken."""
        ...
