"""Serve the list and bytes of stored segments to data jobs, so that no disk is shared.

A job reads what is the same on every replica (R5): below the commit end, as far as it is in this
broker's files. This needs no permission, so slaves serve it as masters do. A chunk is one read on
the disk's threads and one message; it is never parsed, and no work is done per record. All streams
together keep to `scan_bytes_per_s`, and at most `scan_streams` are active.

Order of effects: read a chunk → check that it is still below the end (the journal may have been
truncated or reset meanwhile) → wait for its turn → send. Nothing is written to disk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.wire_errors import as_error
from fmqcore.errors import FmqError, InvalidArgument, NotFound, Overloaded
from fmqcore.ids import Position
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers, Stream
from fmqproto.v1 import segments_pb2 as wire
from fmqwire.methods import READ_SEGMENT, SEGMENTS

CHUNK_BYTES: Final = 256 * 1024
STUCK_S: Final = 60.0
"""Time after which a reader that sends or reads nothing loses its place to others."""

_T = TypeVar("_T")
_Read = Callable[[int, int], Awaitable[bytes]]


class SegmentService:
    """The handlers of the `Segments` service. `sent_bytes` and `refused` only grow."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        visible: Visible,
        withheld_reason: Callable[[], str],
    ) -> None:
        self.sent_bytes = 0
        self.refused = 0
        self._settings = settings
        self._journal = journal
        self._visible = visible
        self._withheld_reason = withheld_reason  # "" = of a moment, or not served here
        self._throttle = _Throttle(clock, settings.scan_bytes_per_s)
        self._streams = 0

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {SEGMENTS: self.list, READ_SEGMENT: self.serve}

    async def list(self, _: CallContext, request: wire.SegmentsRequest) -> wire.SegmentsReply:
        """Return the segments that can be read now."""
        journal, settings, end = self._journal, self._settings, self._end()
        extents = journal.raw.extents()
        readable = [e for e in extents if e.base < end and e.end > request.since]
        return wire.SegmentsReply(
            cluster=settings.cluster,
            group=settings.group,
            broker=settings.broker,
            journal_start=journal.journal_start,
            end=max(end, journal.journal_start),
            stored_end=max(end, journal.end),
            withheld_reason=self._withheld_reason() if journal.end > end else "",
            segments=[
                wire.StoredSegment(base=e.base, end=e.end, sealed=e.end <= journal.end)
                for e in readable
            ],
        )

    async def serve(self, _: CallContext, stream: Stream) -> None:
        """Serve one range of one segment."""
        try:
            request: wire.SegmentRead | None = await _soon(stream.receive())
            if request is not None:
                await self._serve(stream, request)
        except TimeoutError:
            stream.cancel()

    async def _serve(self, stream: Stream, request: wire.SegmentRead) -> None:
        if self._streams >= self._settings.scan_streams:
            self.refused += 1
            reason = (
                f"{self._streams} scans are at work at broker {self._settings.broker}: try later"
            )
            await self._refuse(stream, Overloaded(reason))
            return
        self._streams += 1
        try:
            if request.index:
                await self._send_index(stream, request)
            else:
                await self._send_range(stream, request)
        except (NotFound, InvalidArgument) as error:
            await self._refuse(stream, error)
        finally:
            self._streams -= 1

    async def _send_range(self, stream: Stream, request: wire.SegmentRead) -> None:
        base = Position(request.base)
        readable = min(self._journal.raw.extent(base).end, self._end()) - base
        end = request.at + request.length if request.length else readable
        if not request.at <= end <= readable:
            raise InvalidArgument(
                f"bytes {request.at} to {end} of segment {base} are asked for; {max(readable, 0)} "
                "bytes are committed here"
            )

        async def read(at: int, length: int) -> bytes:
            data = await self._journal.raw.read(base, at, length)
            # The journal may have been truncated, or reset and started again, during the read.
            if base + at + length > self._end():
                raise NotFound(f"segment {base} was truncated or deleted while it was read")
            self._journal.raw.extent(base)
            return data

        await self._send(stream, read, request.at, end)

    async def _send_index(self, stream: Stream, request: wire.SegmentRead) -> None:
        base = Position(request.base)

        async def read(at: int, length: int) -> bytes:
            return await self._journal.raw.read_index(base, at, length)

        end = request.at + request.length if request.length else 1 << 62
        await self._send(stream, read, request.at, end)

    async def _send(self, stream: Stream, read: _Read, at: int, end: int) -> None:
        """Send chunk by chunk, to `end` or to the end of the file."""
        step = min(CHUNK_BYTES, self._settings.scan_bytes_per_s or CHUNK_BYTES)
        while at < end:
            length = min(step, end - at)
            data = await read(at, length)
            if not data:
                return
            await self._throttle.turn(len(data))
            await _soon(stream.send(wire.SegmentPart(data=data)))
            self.sent_bytes += len(data)
            at += len(data)

    async def _refuse(self, stream: Stream, error: FmqError) -> None:
        await _soon(stream.send(wire.SegmentPart(error=as_error(error))))

    def _end(self) -> Position:
        """Return the end of what may be read: visible, and in the files."""
        return self._visible.now().limited(self._journal.written_end).end


class _Throttle:
    """Limits the bytes per second of all streams together, in the order in which they ask."""

    def __init__(self, clock: Clock, bytes_per_s: int) -> None:
        self._clock = clock
        self._rate = bytes_per_s
        self._free_ms = 0.0

    async def turn(self, count: int) -> None:
        """Wait until `count` bytes may be sent."""
        if not self._rate:
            return
        now = float(self._clock.monotonic_ms())
        begin = max(now, self._free_ms)
        self._free_ms = begin + count * 1000 / self._rate
        if begin > now:
            await self._clock.sleep((begin - now) / 1000)


async def _soon(work: Awaitable[_T]) -> _T:
    async with asyncio.timeout(STUCK_S):
        return await work
