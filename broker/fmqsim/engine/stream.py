"""The two ends of a simulated stream; `fmqport.transport.Stream` states their contract.

A window bounds the bytes that one end has sent and the other has not taken: a `send` above it
waits, as in HTTP/2. Messages cross as bytes: nothing is shared between processes.
"""

import asyncio
from collections import deque
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from fmqport.transport import Method, TransportError
from fmqsim.engine.node import Process
from fmqsim.engine.wire import CLIENT, SERVER, Kind, Refusal, Wire, failure

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024


def serialize(message: Message, peer: str) -> bytes:
    """Encode a message. Raises `TransportError` if it is too large, as the real adapter does."""
    raw = message.SerializeToString()
    if len(raw) > MAX_MESSAGE_BYTES:
        name = message.DESCRIPTOR.name
        raise TransportError(f"{peer}: a {name} of {len(raw)} bytes is over the limit")
    return raw


def parse(kind: type[Message], raw: bytes, peer: str) -> Any:
    """Decode a message. Raises `TransportError` if the bytes are no such message."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise TransportError(f"{peer}: no {kind.DESCRIPTOR.name}: {error}") from None


class StreamEnd:
    """The part that both ends of a stream share."""

    side: int

    def __init__(
        self, wire: Wire, number: int, peer: str, receives: type[Message], window: int
    ) -> None:
        self._wire = wire
        self._number = number
        self._peer = peer
        self._receives = receives
        self._window = window
        self._process: Process = wire.processes[self.side]
        self._inbox: deque[bytes] = deque()
        self._unread = 0  # bytes sent that the peer has not taken
        self._error: str | Refusal = ""  # why every call fails
        self._closed = ""  # why nothing can be sent any more, though what came can be read
        self._done = False  # nothing more comes
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self.busy = 0  # calls under way
        wire.ends[self.side][number] = self

    @property
    def peer(self) -> str:
        """See `Stream`."""
        return self._peer

    # ---- what the shell calls

    async def send(self, message: Message) -> None:
        """See `Stream`."""
        self._process.check()
        raw = serialize(message, self._peer)
        self.busy += 1
        try:
            self._may_send()
            while self._unread >= self._window:
                self._sender = self._wire.loop.create_future()
                await self._sender
                self._may_send()
            self._unread += len(raw) + 5
            self._push(Kind.DATA, raw)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self.busy -= 1

    async def receive(self) -> Any:
        """See `Stream`."""
        self._process.check()
        self.busy += 1
        try:
            while not self._inbox:
                if self._error:
                    raise failure(self._peer, self._error)
                if self._done:
                    return None
                self._receiver = self._wire.loop.create_future()
                await self._receiver
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self.busy -= 1
        raw = self._inbox.popleft()
        self._taken(len(raw) + 5)
        try:
            return parse(self._receives, raw, self._peer)
        except TransportError:
            self.cancel()
            raise

    async def done_sending(self) -> None:
        """See `Stream`."""
        self._process.check()

    def cancel(self) -> None:
        """See `Stream`."""
        if not self._error and self._process.alive:
            self._push(Kind.RESET, "the stream was cancelled by the peer")
            self.fail("the stream was cancelled")
            self._inbox.clear()

    # ---- what comes from the wire

    def arrived(self, kind: Kind, body: Any) -> None:
        """See `End`."""
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """See `End`."""
        self.fail(reason)
        if self._wire.loop.random.random() < 0.5:
            self._inbox.clear()  # what had come in is lost with it, or not

    def fail(self, reason: str | Refusal) -> None:
        """Fail every call from now on, once the messages that arrived before are read."""
        if not self._error:
            self._error = reason
            self._wire.ends[self.side].pop(self._number, None)
        self._wake(self._sender)
        self._wake(self._receiver)

    def _got(self, raw: bytes) -> None:
        self._inbox.append(raw)
        self._wake(self._receiver)

    def _push(self, kind: Kind, body: Any) -> None:
        self._wire.push(self.side, (kind, self._number, body))

    def _may_send(self) -> None:
        if self._error or self._closed:
            raise failure(self._peer, self._error or self._closed)

    def _taken(self, size: int) -> None:
        """Let the peer send as many bytes again, a moment after the program took a message."""
        peer = self._wire.ends[1 - self.side].get(self._number)
        if isinstance(peer, StreamEnd):
            peer._unread -= size
            if peer._sender is not None and not peer._sender.done():
                self._wire.loop.at_world(self._wire.delay(self.side), self._wake, peer._sender)

    def _wake(self, waiter: "asyncio.Future[None] | None") -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class ClientStream(StreamEnd):
    """The end of the client, which opened the stream."""

    side = CLIENT

    def __init__(self, wire: Wire, method: Method, address: str, window: int) -> None:
        super().__init__(wire, wire.number(), address, method.reply, window)
        self._push(Kind.OPEN, method.path)

    async def done_sending(self) -> None:
        """See `Stream`."""
        self._process.check()
        self._may_send()
        self._closed = "nothing can be sent after `done_sending`"
        self._push(Kind.HALF, None)

    def arrived(self, kind: Kind, body: Any) -> None:
        """See `End`."""
        if kind is Kind.DATA:
            self._got(body)
        elif kind is Kind.END and not body:
            self._done, self._closed = True, "the stream has ended"
            self._wire.ends[CLIENT].pop(self._number, None)
            self._wake(self._sender)
            self._wake(self._receiver)
        elif kind is Kind.END:
            self.fail(body)
        else:
            self.lost(body)


class ServerStream(StreamEnd):
    """The end of the server."""

    side = SERVER

    def __init__(self, wire: Wire, number: int, method: Method, window: int) -> None:
        super().__init__(wire, number, wire.client, method.request, window)
        self.task: asyncio.Task[None] | None = None  # its handler's

    def arrived(self, kind: Kind, body: Any) -> None:
        """See `End`."""
        if kind is Kind.DATA:
            self._got(body)
        elif kind is Kind.HALF:
            self._done = True
            self._wake(self._receiver)
        else:
            self.lost(body)

    def fail(self, reason: str | Refusal) -> None:
        """See `StreamEnd`; also cancels a handler that neither sends nor receives."""
        if not self._error and self._process.alive:
            self._wire.loop.on_node(self._process, self._cancel_idle)
        super().fail(reason)

    def over(self, error: str | Refusal) -> None:
        """Notify the client that the handler has ended, unless it knows; stray calls fail."""
        if not self._error:
            self._push(Kind.END, error)
            self.task = None
            self.fail("the stream has ended")

    def _cancel_idle(self) -> None:
        if self.busy == 0 and self.task is not None:
            self.task.cancel()
