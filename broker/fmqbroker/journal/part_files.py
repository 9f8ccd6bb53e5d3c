"""The files of derived indexes: loads a part, builds it again from its segment, stores it.

Leaves on disk: `<base>.<suffix>`, one for each full segment and index, replaced atomically. A file
that is missing or damaged, or covers something else, is rebuilt (D7).
"""

from collections.abc import Sequence
from typing import Any

import structlog

from fmqbroker.journal.segment_scan import scan_segment
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.runtime.slices import in_turns
from fmqcore.errors import Malformed
from fmqcore.ids import Position
from fmqcore.journal.derived import DerivedIndex, P, Part
from fmqcore.journal.findings import refusal
from fmqcore.journal.recovery import SegmentFile, judge_sealed
from fmqcore.journal.scan import Cursor, Scan, Stop
from fmqcore.journal.segments import index_name
from fmqcore.turns import PIECE, Turns
from fmqport.disk import DiskFull

log = structlog.get_logger()


class PartFiles:
    """Reads and writes the parts of full segments."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def load(self, index: DerivedIndex[P], segment: StoredSegment) -> P:
        """Return the part of a full segment, from its file or rebuilt."""
        name, shrinks = index_name(segment.base, index.suffix), self._store.shrinks
        data = await self._store.disk.read_file(name)
        reason = "it is missing"
        if data is not None:
            try:
                part = await in_turns(index.restore(data))
                if (part.base, part.end) == (segment.base, segment.end):
                    return part
                reason = f"it covers [{part.base}, {part.end})"
            except Malformed as error:
                reason = str(error)
        log.warning("journal_index_rebuilt", file=name, reason=reason)
        part = index.begin(segment.base)
        await self.build((part,), segment)
        try:
            await self.write(index, segment, part, shrinks)
        except DiskFull as error:  # reads need no room
            log.warning("journal_index_not_stored", file=name, reason=str(error))
        return part

    async def build(
        self, parts: Sequence[Part], segment: StoredSegment, until: Position | None = None
    ) -> None:
        """Add the segment's batches to empty parts: all, or those below that batch boundary."""

        def visit(scan: Scan) -> Turns[Stop]:
            for number, header in enumerate(scan, 1):
                for part in parts:
                    part.add(header)
                if not number % PIECE:
                    yield
            assert scan.stop is not None  # a scan that was run to its end has one
            return scan.stop

        cursor = Cursor(segment.base)
        stop = await scan_segment(self._store, segment, cursor, visit, payloads=False, until=until)
        if until is not None and stop.position == until:
            return
        if refuse := judge_sealed(stop, SegmentFile(segment.base, segment.size)):
            raise refusal(self._store.disk.path, refuse.finding)

    async def write(
        self, index: DerivedIndex[Any], segment: StoredSegment, part: Part, shrinks: int
    ) -> None:
        """Store a part, unless segments were truncated or removed since `shrinks` was read."""
        data = await in_turns(part.encoding())
        async with self._store.changing:
            # A segment truncated or removed meanwhile must not leave an index behind for the data
            # that follows there.
            if shrinks == self._store.shrinks:
                await self._store.disk.replace_file(index_name(segment.base, index.suffix), data)
