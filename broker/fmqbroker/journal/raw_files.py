"""Reads segment and index files as they are, byte for byte, for data jobs that analyse them.

Bypasses the tail cache and the read-ahead windows, so that a scan of everything displaces nothing
that consumers read. Never reads a byte past what is written. Leaves nothing on disk.
"""

from typing import NamedTuple

from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqcore.errors import NotFound
from fmqcore.ids import Position
from fmqcore.journal.segments import index_name


class Extent(NamedTuple):
    """The range of one segment: [base, end)."""

    base: Position
    end: Position


class RawReader:
    """Reads files of the running journal. Raises `DiskFailed` too."""

    def __init__(self, store: SegmentStore, flusher: Flusher) -> None:
        self._store = store
        self._flusher = flusher

    def extents(self) -> list[Extent]:
        """Return the segments, ascending and without gaps."""
        return [Extent(segment.base, segment.end) for segment in self._store.segments]

    def extent(self, base: Position) -> Extent:
        """Return the segment that starts at `base`. Raises `NotFound` if it does not exist."""
        segment = self._segment(base)
        return Extent(segment.base, segment.end)

    async def read(self, base: Position, at: int, length: int) -> bytes:
        """Return bytes of a segment's file; fewer at the written end. Raises `NotFound`."""
        segment = self._segment(base)
        length = min(length, min(segment.end, self._flusher.written_end) - base - at)
        if length <= 0:
            return b""
        return await self._store.read(segment, at, length)

    async def read_index(self, base: Position, at: int, length: int) -> bytes:
        """Return bytes of the segment's index file. Raises `NotFound` if there is none (yet)."""
        name = index_name(self._segment(base).base)
        try:
            file = await self._store.disk.open(name)
        except FileNotFoundError:
            raise NotFound(f"segment {base} has no index file now") from None
        try:
            return await file.read(at, length)
        finally:
            await file.close()

    def _segment(self, base: Position) -> StoredSegment:
        try:
            segment = self._store.segment_of(base)
        except NotFound:
            segment = None
        if segment is None or segment.base != base:
            raise NotFound(
                f"segment {base} is not in {self._store.disk.path}: deleted by retention, or never "
                f"there; the journal starts at {self._store.journal_start}"
            )
        return segment
