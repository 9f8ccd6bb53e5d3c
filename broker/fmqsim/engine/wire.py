"""A simulated connection between two processes: two pipes, with streams and calls.

The model is TCP below HTTP/2: frames arrive whole and in order, later or not at all. A cut link
swallows them (and delivers them later if it heals before an end gives up); a stalled link holds
back data while pings pass. Either end may close, and the other learns this from a frame.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from fmqcore.errors import FmqError, error_of
from fmqport.transport import CallRefused, TransportError
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process

CLIENT: Final = 0
SERVER: Final = 1
_RETRANSMIT_S: Final = (0.0, 0.3)


class Kind(IntEnum):
    """The kind of a frame."""

    OPEN = 1  # a stream begins: its method's path
    CALL = 2  # (path, request, the caller's timeout in seconds)
    DATA = 3  # a message of a stream
    HALF = 4  # the client is done sending
    END = 5  # the server's handler is over: "", its `Refusal`, or the text of another failure
    REPLY = 6  # a call's reply
    REFUSED = 7  # a call's `Refusal`, or the text of another failure
    RESET = 8  # a stream was cancelled
    CLOSED = 9  # the connection is closed


Frame = tuple[Kind, int, Any]


class Refusal(NamedTuple):
    """The error of a handler on its way to the caller."""

    code: int
    text: str

    def __str__(self) -> str:
        return self.text


def refusal_of(error: FmqError) -> Refusal:
    """Return the error in the form of a frame."""
    return Refusal(int(error.code), str(error) or type(error).__name__)


def failure(place: str, reason: str | Refusal) -> TransportError:
    """Return the error of a call or stream that failed, named by its place."""
    text = f"{place}: {reason}" if place else f"{reason}"
    if isinstance(reason, Refusal):
        return CallRefused(text, error_of(reason.code, reason.text))
    return TransportError(text)


class Link:
    """One direction between two hosts."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.delay_s = 0.0002
        self.jitter_s = 0.0003
        self.loss = 0.0  # this share of what is sent needs to be sent again: late
        self.cut = False
        self.stalled = False
        self.lose_next_reply = 0  # number of messages that are lost, with their connection
        self.pipes: dict[Pipe, None] = {}

    def draw(self, random: Random) -> float:
        """Return how many seconds the next frame takes."""
        took = self.delay_s + random.random() * self.jitter_s
        if self.loss and random.random() < self.loss:
            took += 0.2 * 2 ** random.randrange(2)
        return took


class Pipe:
    """One direction of a wire: frames arrive in order, none twice."""

    __slots__ = ("_arrived", "_held", "_loop", "dead", "last_s", "link")

    def __init__(self, loop: SimLoop, link: Link, arrived: Callable[[Frame], None]) -> None:
        self._loop = loop
        self._arrived = arrived
        self.last_s = 0.0  # when the last of what was sent arrives
        self._held: deque[Frame] = deque()
        self.link = link
        self.dead = False
        link.pipes[self] = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of messages that were sent and are held back."""
        return sum(len(body) for kind, _, body in self._held if kind is Kind.DATA)

    def push(self, frame: Frame) -> None:
        """Send a frame."""
        loop = self._loop
        at = loop.now + self.link.draw(loop.random)
        if at < self.last_s:
            at = self.last_s
        self.last_s = at
        loop.at_time(at, self._come, frame)

    def _come(self, frame: Frame) -> None:
        if self.dead:
            return
        link = self.link
        if link.cut or link.stalled or self._held:
            self._held.append(frame)
        else:
            self._arrived(frame)

    def flush(self) -> None:
        """Send the held frames once more, in order: the link works again."""
        if self._held and not self.dead:
            loop = self._loop
            after = loop.now + loop.random.uniform(*_RETRANSMIT_S)
            loop.at_time(after, self._let_go)
            self.last_s = max(self.last_s, after)

    def _let_go(self) -> None:
        link, held = self.link, self._held
        while held and not (self.dead or link.cut or link.stalled):
            self._arrived(held.popleft())

    def drop(self) -> None:
        """Drop all frames in flight."""
        self.dead = True
        self.link.pipes.pop(self, None)


class End(Protocol):
    """One end of a stream or call on a wire."""

    def arrived(self, kind: Kind, body: Any) -> None:
        """Handle a frame for this end."""
        ...

    def lost(self, reason: str) -> None:
        """Handle the loss of the wire."""
        ...


class Wire:
    """A connection. Each side's socket closes by itself; see `close`."""

    def __init__(
        self,
        loop: SimLoop,
        links: tuple[Link, Link],
        processes: tuple[Process, Process],
        begin: Callable[["Wire", Frame], None],
        client: str,
        gone: Callable[["Wire"], None],
    ) -> None:
        self.processes = processes
        self.client = client  # the client's address, as the server sees it
        self.up = [True, True]
        self.draining = False  # the server takes nothing new
        self.blocked_at: float | None = None  # since then pings go unanswered
        self.ends: tuple[dict[int, End], dict[int, End]] = ({}, {})
        self.loop = loop
        self._begin = begin
        self._gone = gone
        self._number = 0
        self._pipes = (
            Pipe(loop, links[CLIENT], lambda frame: self._arrived(SERVER, frame)),
            Pipe(loop, links[SERVER], lambda frame: self._arrived(CLIENT, frame)),
        )

    def number(self) -> int:
        """Return the number for a new stream or call."""
        self._number += 1
        return self._number

    def push(self, side: int, frame: Frame) -> None:
        """Send a frame from that side."""
        if self.up[side]:
            self._pipes[side].push(frame)

    def delay(self, side: int) -> float:
        """Return how many seconds a small frame from that side takes now."""
        return self._pipes[side].link.draw(self.loop.random)

    def _arrived(self, side: int, frame: Frame) -> None:
        if not self.up[side]:
            return
        kind, number, body = frame
        if kind is Kind.CLOSED:
            self.close(side, body, notify=False)
            return
        link = self._pipes[1 - side].link
        if link.lose_next_reply and kind in (Kind.DATA, Kind.REPLY):
            link.lose_next_reply -= 1
            self.loop.note(f"reply lost {link.source}->{link.target}")
            self.reset("connection reset by peer")
            return
        end = self.ends[side].get(number)
        if end is not None:
            end.arrived(kind, body)
        elif side == SERVER and kind in (Kind.OPEN, Kind.CALL):
            self._begin(self, frame)

    def close(self, side: int, reason: str, *, notify: bool = True) -> None:
        """Close that side's socket.

        Its streams and calls fail on that side; `notify` decides whether the other is notified.
        """
        if not self.up[side]:
            return
        if notify:
            self.push(side, (Kind.CLOSED, 0, "connection closed by peer"))
        self.up[side] = False
        ends = list(self.ends[side].values())
        self.ends[side].clear()
        for end in ends:
            end.lost(reason)
        self._forget()

    def died(self, side: int, *, silent: bool) -> None:
        """Handle the death of that side's process.

        Its kernel closes the socket, unless the power is off.
        """
        if not self.up[side]:
            return
        self.ends[side].clear()
        if silent or self.loop.random.random() < 0.5:
            self._pipes[side].drop()  # what it had sent last goes with it
            if not silent and self.up[1 - side]:
                self.loop.at_world(self.delay(side), self._refused, 1 - side)
        else:
            self.push(side, (Kind.CLOSED, 0, "connection reset by peer"))
        self.up[side] = False
        self._forget()

    def _refused(self, side: int) -> None:
        """Reset the connection as a dead process's kernel does, if the link is not cut."""
        link = self._pipes[1 - side].link
        if not link.cut:
            self.close(side, "connection reset by peer", notify=False)

    def reset(self, reason: str) -> None:
        """Close both sockets at once; no frame in flight arrives."""
        for pipe in self._pipes:
            pipe.drop()
        for side in (CLIENT, SERVER):
            self.close(side, reason, notify=False)

    def _forget(self) -> None:
        if not any(self.up):
            for pipe in self._pipes:
                pipe.drop()
            self._gone(self)
