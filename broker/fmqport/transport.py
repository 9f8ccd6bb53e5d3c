"""Port: transport. Connections between parts, on them calls and bidirectional message streams.

A message is a protobuf message of `fmqproto`; a method is named by its `Method`. What it promises:
messages of one stream arrive whole, in order, at most once; `send` returns when the stream took
the message (back-pressure), not when the peer read it; a dead peer ends `receive` with
`TransportError`. No promise between streams.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from fmqcore.errors import ErrorCode, FmqError

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""A larger message is refused by the receiver, and its call fails; the connection lives on."""

MAX_CALL_BYTES: Final = 4 * 1024 * 1024
"""A larger request of a call (one request, one reply) is refused by both ends, unless its method
says otherwise. A reply may be larger, as a list of all offsets is."""


class TransportError(FmqError):
    """The peer cannot be reached, went away, or refused the method."""


class MessageTooLarge(TransportError):
    """A message over the limit of its method: nobody has looked at it, nothing was done."""

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

    A cancelled `send` or `receive` tears the stream down: what was under way cannot be known.
    """

    @property
    def peer(self) -> str:
        """The other end's address, for people."""
        ...

    async def send(self, message: Message) -> None:
        """Hand over one message; wait while the stream is full. Raises `TransportError`."""
        ...

    async def receive(self) -> Any:
        """The next message, or None when the peer is done sending. Raises `TransportError`."""
        ...

    async def done_sending(self) -> None:
        """Tell the peer that nothing more comes (a client's end; a server's ends by returning)."""
        ...

    def cancel(self) -> None:
        """Tear it down now; both ends' calls fail. May be called twice."""
        ...


class Connection(Protocol):
    """A client's connection to one address; dials by itself, and again after a loss."""

    @property
    def address(self) -> str:
        """`host:port`."""
        ...

    async def call(self, method: Method, request: Message, timeout_s: float) -> Any:
        """One request, one reply. Raises `TransportError`, also when time is out.

        `MessageTooLarge` if the request is over what a call may ask.
        """
        ...

    async def open(self, method: Method, timeout_s: float) -> Stream:
        """Open a stream; returns once the peer is connected. Raises `TransportError`."""
        ...

    async def close(self) -> None:
        """Tear down all that is on it."""
        ...


StreamHandler = Callable[[Stream], Awaitable[None]]
"""Serves one stream; the stream ends when it returns. A `FmqError` raised ends it with its text.

When the peer dies, `send` and `receive` under way raise `TransportError`; a handler that is in
neither is cancelled.
"""

CallHandler = Callable[[Any], Awaitable[Message]]
"""Answers one request. A `FmqError` raised becomes the caller's `TransportError`.

It runs to its end, though its caller may have gone.
"""


class Server(Protocol):
    """A listening server."""

    @property
    def port(self) -> int:
        """The port really bound (useful when 0 was asked for)."""
        ...

    async def close(self, grace_s: float) -> None:
        """Accept nothing new; let what runs end for `grace_s`, then tear it down."""
        ...


class Transport(Protocol):
    """Makes connections and servers."""

    def connect(self, address: str) -> Connection:
        """A connection to `host:port`; no I/O yet."""
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
