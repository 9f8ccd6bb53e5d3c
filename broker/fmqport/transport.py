"""Port: transport. Connections, and on them calls and bidirectional streams of messages.

A message is a protobuf message of `fmqproto`; a method is named by its `Method`. Guarantees:
messages of one stream arrive whole, in order, at most once; `send` returns when the stream took the
message (back-pressure), not when the peer read it; a dead peer ends `receive` with
`TransportError`. There are no guarantees between streams.

A server's handler gets a `CallContext` (by whom, until when) and the request. An `Interceptor`
stands around handlers: it sees every call once, at its start, never its records.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import Message

from fmqcore.errors import ErrorCode, FmqError

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The receiver refuses a larger message, and its call fails; the connection stays open."""

MAX_CALL_BYTES: Final = 4 * 1024 * 1024
"""Both ends refuse a larger request of a call, unless its method sets another limit.

A reply may be larger, as a list of all offsets is.
"""


NO_TIMEOUT: Final = inf
"""Of streams, and of calls whose callers set their own limits."""


class TransportError(FmqError):
    """The peer cannot be reached, went away, or refused the method."""


class MessageTooLarge(TransportError):
    """A message over its method's limit: it was not read, and nothing was done."""

    code = ErrorCode.TOO_LARGE


class CallRefused(TransportError):
    """The peer answered with an error. `error` is that error, typed by its code on the wire."""

    def __init__(self, text: str, error: FmqError) -> None:
        super().__init__(text)
        self.error = error


class Plane(Enum):
    """What a method carries."""

    DATA = "data"
    ADMIN = "admin"
    REPLICATION = "replication"


class Right(Enum):
    """What a caller must be allowed to do. (`Permission` is what a broker may serve.)"""

    PRODUCE = "produce"
    CONSUME = "consume"
    DESCRIBE = "describe"
    SCAN = "scan"
    MANAGE_TOPICS = "manage_topics"
    MANAGE_GROUPS = "manage_groups"
    REPLICATE = "replicate"


class QuotaClass(Enum):
    """The budget that a call draws on. Replication has none: durability depends on it."""

    PRODUCE = "produce"
    CONSUME = "consume"
    SCAN = "scan"
    REQUEST = "request"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service, e.g. `/fmqproto.v1.Client/Produce`. The rows: `fmqwire.methods`."""

    path: str
    request: type[Message]
    reply: type[Message]
    streaming: bool
    plane: Plane
    right: Right
    quota: QuotaClass
    idempotent: bool  # a second try of the same request changes nothing more
    timeout_s: float  # how long a caller waits if it sets no limit
    max_request_bytes: int = MAX_CALL_BYTES  # of a call; a stream's messages: MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call."""

    name: str


ANONYMOUS: Final = Principal("anonymous")
"""Every caller, as long as no part proves who calls."""


class CallContext(NamedTuple):
    """What is known of a call besides its request. Made by the transport when the call arrives."""

    method: Method
    peer: str  # the caller's address, for people
    principal: Principal = ANONYMOUS
    deadline: float | None = None  # of the caller, as `asyncio.timeout_at` takes it; None: none
    trace_id: str = ""  # the caller's `traceparent`; "" if it gave none


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
        """Return the next message, None when the peer is done sending.

        Raises `TransportError`; a client's end `CallRefused` if the handler raised an error.
        """
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

        Raises `CallRefused` if the handler raised an error, `MessageTooLarge` if the request is
        over the limit of a call.
        """
        ...

    async def open(self, method: Method, timeout_s: float) -> Stream:
        """Open a stream and return it once the peer is connected.

        Raises `TransportError`, and `CallRefused` if the handler has raised an error by then.
        """
        ...

    async def close(self) -> None:
        """Close the connection and tear down all its calls and streams."""
        ...


Handler = Callable[[CallContext, Any], Awaitable[Any]]
"""Answers one call: gets its request, returns its reply. A raised `FmqError` is the caller's
`CallRefused`. It runs to its end, even if its caller has gone.

For a streaming method the request is the `Stream`, which ends when the handler returns (None) or
raises. When the peer dies, a `send` or `receive` in progress raises `TransportError`; a handler
that is in neither is cancelled.
"""

Handlers = Mapping[Method, Handler]

Interceptor = Callable[[CallContext, Any, Handler], Awaitable[Any]]
"""Stands around a handler: gets what it gets, and the handler. It returns what the handler returns,
raises instead of calling it, or calls it with another context or a wrapped `Stream`.
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

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """Listen on `host:port`. Raises `TransportError` naming the address if it is taken."""
        ...
