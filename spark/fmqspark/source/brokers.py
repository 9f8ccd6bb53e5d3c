"""Read from live brokers: who holds a group's journal, and its segments' bytes.

Blocking, as all reading here is: each call runs its thread's event loop until it is answered.
Connections are kept while any caller is within `connections()`. A broker is named
`fmq://host:port`, where a directory has its path. Leaves nothing on disk.
"""

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from fmqadapters.grpc import GrpcTransport
from fmqcore.address import SCHEME, parse_url
from fmqcore.errors import (
    CorruptJournal,
    FmqError,
    InvalidArgument,
    NewerJournal,
    NotFound,
    Overloaded,
    Unavailable,
    error_of,
)
from fmqcore.ids import Position, Role
from fmqport.transport import Connection, TransportError
from fmqproto.v1.client_pb2 import Error, RouteReply, RouteRequest
from fmqproto.v1.segments_pb2 import SegmentRead, SegmentsReply, SegmentsRequest
from fmqspark.source.files import Throttle
from fmqwire.methods import READ_SEGMENT, ROUTES, SEGMENTS

T = TypeVar("T")
DIAL_TIMEOUT_S: Final = 5.0
SILENCE_TIMEOUT_S: Final = 90.0
"""Silence after which a broker counts as gone; a waiting read is served sooner."""
ROUNDS: Final = 4
"""How many times all brokers are asked for a range that none has, `_RETRY_S` apart."""
_RETRY_S: Final = 1.0
_BUSY_TRIES: Final = 30
_BUSY_S: Final = (0.05, 0.5)

_LEAST: Final = 16 * 1024
_MOST: Final = 4 * 1024 * 1024
_KEPT: Final = 48 * 1024 * 1024  # of one segment: headers first, then payloads, is one transfer


class BrokerGone(Unavailable):
    """The broker cannot be reached, or went away; another one may have what was asked for."""


class Listing(NamedTuple):
    """The journal, range and segments that a broker reports to hold."""

    journal: str  # cluster and group
    begin: Position
    end: Position  # what may be read
    bases: tuple[Position, ...]
    stored_end: Position = Position(0)
    withheld_reason: str = ""  # why what is stored from `end` on may stay unreadable


class Members(NamedTuple):
    """The brokers of a group, its slaves first, its master last."""

    group: str
    sources: tuple[str, ...]
    topics: frozenset[str] = frozenset()  # that have queues in this group


class Wish(NamedTuple):
    """A part of a segment: nothing at or behind `until`, hardly anything behind `ahead`."""

    base: Position
    until: Position
    ahead: Position


def is_broker(source: str) -> bool:
    """Return whether a source is a broker; else it is a directory."""
    return source.startswith(SCHEME)


# ---- brokers of a group
def brokers_of(
    seeds: Sequence[str], group: str = "", topics: Sequence[str] | None = None
) -> Members:
    """Find whose journal is meant, and the brokers that hold it.

    Raises `InvalidArgument` for an unknown group or topics, and where several groups might be
    meant; `Unavailable` if no broker answers.
    """
    found = _ask_any(seeds)
    known = {group.group: group for group in found.groups}
    if group and group not in known:
        groups = ", ".join(sorted(known)) or "none"
        raise InvalidArgument(f"no group {group!r}: the cluster's groups are {groups}")
    candidates = [group] if group else sorted(_holding(found, topics) or known)
    if len(candidates) != 1:
        names = ", ".join(candidates) or "none"
        raise InvalidArgument(
            f"a read covers one group's journal, and several groups match: name one of {names}"
        )
    rows = known[candidates[0]].brokers
    ranked = sorted(rows, key=lambda row: (row.role == Role.MASTER.value, not row.live, row.id))
    if not ranked:
        raise Unavailable(f"group {candidates[0]} has no broker to read from: start its brokers")
    topics_here = (t.name for t in found.topics if any(g.group == candidates[0] for g in t.groups))
    sources = tuple(SCHEME + row.address for row in ranked)
    return Members(candidates[0], sources, frozenset(topics_here))


def _holding(found: RouteReply, topics: Sequence[str] | None) -> set[str]:
    """Return the groups that have queues of these topics; a journal shows whether it holds one.

    A deleted topic stays in the journals of the groups that had it for as long as they keep it.
    """
    wanted = set(topics or ())
    if wanted and wanted.isdisjoint(topic.name for topic in found.topics):
        names = ", ".join(sorted(topic.name for topic in found.topics)[:20]) or "none"
        groups = ", ".join(sorted(group.group for group in found.groups))
        raise InvalidArgument(
            f"no topic {', '.join(sorted(wanted))}: the cluster's topics are {names}; to read what "
            f"is left of one that was deleted, name its group, one of {groups}"
        )
    return {g.group for topic in found.topics if topic.name in wanted for g in topic.groups}


def _ask_any(seeds: Sequence[str]) -> RouteReply:
    failures = []
    with connections() as lines:
        for seed in seeds:
            for address in parse_url(seed if is_broker(seed) else SCHEME + seed):
                try:
                    reply: RouteReply = lines.call(address, ROUTES, RouteRequest())
                except BrokerGone as error:
                    failures.append(str(error))
                else:
                    return reply
    raise Unavailable(
        f"no broker answers ({'; '.join(failures)}): check the addresses and the network"
    )


def listing(source: str) -> Listing:
    """Return what a broker holds. Raises `BrokerGone`, and what the broker refuses with."""
    with connections() as lines:
        reply: SegmentsReply = lines.call(_address(source), SEGMENTS, SegmentsRequest())
    if reply.HasField("error"):
        raise error_of(reply.error.code, f"{source}: {reply.error.message}")
    bases = tuple(Position(segment.base) for segment in reply.segments)
    where = f"{reply.cluster}/{reply.group}"
    begin, end, stored_end = map(Position, (reply.journal_start, reply.end, reply.stored_end))
    return Listing(where, begin, end, bases, stored_end, reply.withheld_reason)


# ---- bytes
class BrokerSegment:
    """One segment of one broker, read like a `SegmentBytes`.

    It fetches ahead, the more the longer reading goes straight on, and keeps that for a second
    look: headers are read first, and then the payloads between them.
    """

    def __init__(self, lines: "Lines", source: str, wish: Wish, throttle: Throttle) -> None:
        self.bytes_read = 0
        self._lines = lines
        self._source = source
        self._base = wish.base
        self._throttle = throttle
        self._end = wish.until - wish.base
        self._near_end = wish.ahead - wish.base
        self._windows: deque[tuple[int, bytes]] = deque()
        self._kept = 0
        self._ahead = _LEAST
        self._next = -1  # where straight on is

    def read(self, length: int, at: int) -> bytes:
        """Return `length` bytes from `at` on, fewer at the end. Raises `BrokerGone`, `NotFound`."""
        for start, window in reversed(self._windows):
            if start <= at and at + length <= start + len(window):
                return window[at - start : at - start + length]
        straight = 0 <= at - self._next <= self._ahead or 0 <= self._next - at <= length
        self._ahead = min(self._ahead * 2, _MOST) if straight else _LEAST
        wanted = min(max(length, min(self._ahead, self._near_end - at)), self._end - at)
        if wanted <= 0:
            return b""
        request = SegmentRead(base=self._base, at=at, length=wanted)
        window = self._lines.fetch(_address(self._source), request)
        if len(window) < wanted:
            raise BrokerGone(
                f"{self._source} sent {len(window)} of {wanted} bytes at position {self._base + at}"
            )
        self.bytes_read += len(window)
        self._throttle.read(len(window))
        self._next = at + len(window)
        self._keep(at, window)
        return window if len(window) == length else window[:length]

    def _keep(self, at: int, window: bytes) -> None:
        self._windows.append((at, window))
        self._kept += len(window)
        while self._kept > _KEPT and len(self._windows) > 1:
            _, old = self._windows.popleft()
            self._kept -= len(old)


@contextmanager
def open_broker_segment(source: str, wish: Wish, throttle: Throttle) -> Iterator[BrokerSegment]:
    """Open a segment of a broker."""
    with connections() as lines:
        yield BrokerSegment(lines, source, wish, throttle)


def broker_index(source: str, base: Position) -> bytes | None:
    """Return a segment's index file; None if the broker has none. Raises `BrokerGone`."""
    with connections() as lines:
        try:
            return lines.fetch(_address(source), SegmentRead(base=base, index=True))
        except NotFound:
            return None


# ---- patience
class Patience:
    """Decide whether to retry a range that no broker can give: one may be restarting."""

    def __init__(self) -> None:
        self._rounds = 0

    def progress(self) -> None:
        """Start counting again: something came."""
        self._rounds = 0

    def again(self, failures: Sequence[Exception]) -> bool:
        """Wait a little and return True; False after enough rounds, or if waiting does not help."""
        self._rounds += 1
        if self._rounds >= ROUNDS or not any(isinstance(f, _PASSING) for f in failures):
            return False
        time.sleep(_RETRY_S)
        return True


_PASSING: Final = (BrokerGone, Overloaded)


# ---- connections
class Lines:
    """The connections of one thread, and the event loop that they live on."""

    def __init__(self) -> None:
        self.users = 0
        self._runner = asyncio.Runner()
        self._transport = GrpcTransport()
        self._connections: dict[str, Connection] = {}

    def call(self, address: str, method: Any, request: Any) -> Any:
        """Make one call. Raises `BrokerGone`."""
        return self._run(address, self._connection(address).call(method, request, DIAL_TIMEOUT_S))

    def fetch(self, address: str, request: SegmentRead) -> bytes:
        """Fetch a whole range. Raises `BrokerGone`, and what the broker refuses with."""
        for _ in range(_BUSY_TRIES):
            try:
                return self._run(address, self._fetch(self._connection(address), request))
            except Overloaded as error:
                busy = error
                time.sleep(random.uniform(*_BUSY_S))
        raise busy

    async def _fetch(self, connection: Connection, request: SegmentRead) -> bytes:
        stream = await connection.open(READ_SEGMENT, DIAL_TIMEOUT_S)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S) as limit:
                await stream.send(request)
                await stream.done_sending()
                while (part := await stream.receive()) is not None:
                    if part.HasField("error"):
                        raise _refusal(connection.address, part.error)
                    parts.append(part.data)
                    limit.reschedule(asyncio.get_running_loop().time() + SILENCE_TIMEOUT_S)
        except TimeoutError:
            raise BrokerGone(
                f"{connection.address} sent nothing for {SILENCE_TIMEOUT_S:.0f} s"
            ) from None
        finally:
            stream.cancel()
        return b"".join(parts)

    def close(self) -> None:
        """Close the connections and the loop."""
        try:
            if self._connections:
                self._runner.run(self._hang_up())
        finally:
            self._runner.close()

    async def _hang_up(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    def _connection(self, address: str) -> Connection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self._transport.connect(address)
        return found

    def _run(self, address: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except TransportError as error:
            text = str(error)
            raise BrokerGone(text if address in text else f"{address}: {text}") from error


_here = threading.local()


@contextmanager
def connections() -> Iterator[Lines]:
    """Lend this thread's connections; they are closed when the last user leaves."""
    lines: Lines = getattr(_here, "lines", None) or Lines()
    _here.lines = lines
    lines.users += 1
    try:
        yield lines
    finally:
        lines.users -= 1
        if not lines.users:
            if getattr(_here, "lines", None) is lines:
                del _here.lines
            lines.close()


def _address(source: str) -> str:
    return source.removeprefix(SCHEME)


def _refusal(address: str, error: Error) -> FmqError:
    """Return a broker's refusal as an error.

    A refused range is `BrokerGone`: another broker may know that it is committed, or this one soon.
    """
    found = error_of(error.code, f"{address}: {error.message}")
    return BrokerGone(str(found)) if isinstance(found, InvalidArgument) else found


def gone(begin: int, end: int, failures: Sequence[Exception]) -> FmqError:
    """Return the error for a range that none of the brokers gave."""
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    message = f"positions {begin} to {end} could not be read from any broker: {reasons}"
    for kind in (NewerJournal, CorruptJournal, NotFound):
        if all(isinstance(failure, kind) for failure in failures):
            return kind(message)
    return Unavailable(message)
