"""Reads stored batches: from memory while they are there, else from the segment files.

Never reads a byte past what is written: memory serves what is not yet written. Reads from the
files do not go through the tail cache. Single batches go through a few read-ahead windows, so that
a consumer far behind costs one read per window, not per batch, and bounded memory.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final

from fmqbroker.journal.damage_notes import check_batches
from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.journal.tail_cache import Tail
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchHeader, BatchType, parse_header
from fmqcore.errors import NotFound
from fmqcore.ids import Position

WINDOW_BYTES: Final = 256 * 1024
WINDOWS: Final = 32
"""Read-ahead windows kept: 8 MiB."""
_FRAME: Final = Struct("<I3xB8xQ")  # total_len, type, position


class Reader:
    """Reads whole batches by position."""

    def __init__(self, tail: Tail, store: SegmentStore, flusher: Flusher) -> None:
        self._tail = tail
        self._store = store
        self._flusher = flusher
        self._windows: OrderedDict[Position, bytes] = OrderedDict()

    async def read(self, position: Position, max_bytes: int) -> bytes:
        """See `Journal.read`."""
        data = self._tail.read(position, max_bytes)
        if data is not None:
            return data
        if position > self._tail.end:
            raise NotFound(f"position {position} is above the journal's end {self._tail.end}")
        segment = self._store.segment_of(position)
        end = min(segment.end, self._flusher.written_end)
        length = min(max(max_bytes, HEADER_LEN), end - position)
        data = await self._read_file(segment, position, length)
        whole, needed = self._whole_batches(segment, position, data)
        if not whole:  # the first batch alone is larger than `max_bytes`
            data = await self._read_file(segment, position, min(needed, end - position))
            whole, _ = self._whole_batches(segment, position, data)
            if not whole:
                raise self._store.corrupt(
                    segment, position, "the batch is incomplete: the file ends within it"
                )
        return data if whole == len(data) else data[:whole]

    async def read_sound(self, position: Position, max_bytes: int) -> bytes:
        """Like `read`, checking checksums of bytes from files: read again if they differ."""
        data = self._tail.read(position, max_bytes)
        if data is not None:
            return data
        data = await self.read(position, max_bytes)
        if check_batches(data)[1]:
            data = await self.read(position, max_bytes)
            at, wrong = check_batches(data)
            if wrong:
                raise self._store.corrupt(self._store.segment_of(position), position + at, wrong)
        return data

    async def read_batch(self, position: Position, total_len: int) -> tuple[BatchHeader, bytes]:
        """Return one batch: its parsed header and all its bytes."""
        data = self._tail.read(position, total_len)
        if data is None:
            data = await self._read_window(position, total_len)
        try:
            header = parse_header(data)
        except BadBatch as bad:
            segment = self._store.segment_of(position)
            raise self._store.corrupt(segment, position, bad) from bad
        if header.position != position or header.total_len != total_len:
            raise NotFound(f"no batch of {total_len} bytes at position {position}")
        return header, data

    def forget(self) -> None:
        """Drop the windows: the journal was truncated, and what was read ahead may be void."""
        self._windows.clear()

    async def _read_window(self, position: Position, length: int) -> bytes:
        segment = self._store.segment_of(position)
        # Windows lie on a grid within the segment; a batch over an edge takes two of them.
        at = position - segment.base
        first = at - at % WINDOW_BYTES
        if length > WINDOW_BYTES:
            return await self._read_file(segment, position, length)
        data = await self._window(segment, first)
        if at + length > first + WINDOW_BYTES:
            data += await self._window(segment, first + WINDOW_BYTES)
        part = data[at - first : at - first + length]
        if len(part) < length:
            raise self._store.corrupt(segment, position, "the file ends before this range does")
        return part

    async def _window(self, segment: StoredSegment, at: int) -> bytes:
        start = Position(segment.base + at)
        data = self._windows.get(start)
        if data is None:
            end = min(segment.end, start + WINDOW_BYTES)
            complete = end <= self._flusher.written_end
            shrinks = self._store.shrinks
            data = await self._read_file(segment, start, end - start)
            if complete and shrinks == self._store.shrinks:
                self._windows[start] = data
                while len(self._windows) > WINDOWS:
                    self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(start)
        return data

    async def _read_file(self, segment: StoredSegment, position: Position, length: int) -> bytes:
        return await self._store.read(segment, position - segment.base, length)

    def _whole_batches(
        self, segment: StoredSegment, position: Position, data: bytes
    ) -> tuple[int, int]:
        """Return the bytes of whole batches at the front of `data`, and the first one's length."""
        at, needed, size = 0, 0, len(data)
        unpack = _FRAME.unpack_from
        while at + HEADER_LEN <= size:
            total_len, kind, says = unpack(data, at)
            if says != position + at or total_len < HEADER_LEN:
                raise self._store.corrupt(segment, position + at, "no batch begins there")
            if kind == BatchType.EOF:
                return at + HEADER_LEN, needed
            if not at:
                needed = total_len
            if at + total_len > size:
                break
            at += total_len
        return at, needed
