"""The queue index over all segments: offset → position. Derived, rebuildable.

The newest segment's index is in memory and grows with every append. When a segment is full its
index becomes `<base>.index` (left on disk by this file) and is read back for reads of old offsets:
the few most recently used ones are held, bounded in bytes. A missing or damaged index is
rebuilt from the segment (D7). A queue's next offset at a segment's start is in the segment's SNAP.

The indexes of segments that are not wholly committed yet stay in memory, so that
`committed_offset` needs no disk. Over `MAX_HOT_BYTES` the oldest of them go too; the answer for a
commit end that far back is then too low, never too high (R7).
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import structlog

from fmqbroker.journal.segment_scan import scan_segment
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchHeader, check_payload, parse_header
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import CorruptJournal, Malformed, NotFound
from fmqcore.ids import Offset, Position
from fmqcore.journal.findings import refusal
from fmqcore.journal.index import ENTRY_LEN, IndexEntry, SegmentIndex
from fmqcore.journal.recovery import SegmentFile, judge_sealed
from fmqcore.journal.scan import Cursor, Scan, Stop
from fmqcore.journal.segments import NO_CORRECTION, index_name
from fmqcore.journal.state import taking_next_offsets
from fmqcore.turns import PIECE, Turns
from fmqport.disk import DiskFull

MAX_HOT_BYTES: Final = 48 * 1024 * 1024
MAX_COLD_BYTES: Final = 32 * 1024 * 1024
MAX_STARTS: Final = 512
T = TypeVar("T")
log = structlog.get_logger()


class SegmentStart(NamedTuple):
    """The content of a segment's SNAP: each queue's next offset, and the time it was made.

    `corrected_from_ms`, `last_correction`: see `BatchHeader`.
    """

    next_offsets: dict[QueueKey, Offset]
    store_ms: int
    corrected_from_ms: int = 0
    last_correction: Position = NO_CORRECTION


def segment_start(snap: BatchHeader, next_offsets: dict[QueueKey, Offset]) -> SegmentStart:
    """Return the start of the segment that a SNAP opens."""
    return SegmentStart(next_offsets, snap.store_ms, snap.corrected_from_ms, snap.last_correction)


class Correction(NamedTuple):
    """A segment whose SNAP lowers the store times: all before it was stored by `store_ms`."""

    base: Position
    store_ms: int


class _Hot:
    """A segment whose index always stays in memory: the newest, and those not committed."""

    __slots__ = ("index", "saved", "segment", "start")

    def __init__(self, segment: StoredSegment, start: SegmentStart, index: SegmentIndex) -> None:
        self.segment = segment
        self.start = start
        self.index = index
        self.saved = False


class Catalog:
    """Looks up offsets; `current` is the newest segment's index, `first` the oldest's start."""

    def __init__(self, store: SegmentStore) -> None:
        self.current = SegmentIndex(Position(0))
        self.first = SegmentStart({}, 0)
        self._store = store
        self._hot: list[_Hot] = []
        self._cold: OrderedDict[Position, SegmentIndex] = OrderedDict()
        self._cold_bytes = 0
        self._starts: OrderedDict[Position, SegmentStart] = OrderedDict()

    # ---- growing
    def begin(
        self, segment: StoredSegment, start: SegmentStart, index: SegmentIndex | None = None
    ) -> None:
        """Add a new segment: `start` is its SNAP's content; `index` is given if it was scanned."""
        self.current = SegmentIndex(segment.base) if index is None else index
        self._hot.append(_Hot(segment, start, self.current))
        if segment is self._store.segments[0]:
            self.first = start

    async def load_uncommitted(self, commit_end: Position) -> None:
        """At start, before `begin`: load the indexes of segments that end above `commit_end`."""
        held = 0
        hot: list[_Hot] = []
        for segment in reversed(self._store.segments[:-1]):
            if segment.end <= commit_end or held > MAX_HOT_BYTES:
                break
            index, start = await self.index_of(segment), await self.start_of(segment)
            held += _bytes(index)
            hot.append(_Hot(segment, start, index))
            hot[-1].saved = True
        self._hot = hot[::-1]

    async def save(self, durable_end: Position, commit_end: Position) -> None:
        """Write the indexes of full, durable segments; release those that are committed."""
        shrinks = self._store.shrinks
        for hot in list(self._hot):
            if hot.segment.end <= durable_end and not hot.saved:
                await self._write(hot.segment, hot.index, shrinks)
                if shrinks != self._store.shrinks:
                    return  # what was to be written may be no more: the keeper looks again
                hot.saved = True
        while len(self._hot) > 1 and self._hot[0].saved:
            hot = self._hot[0]
            too_much = sum(_bytes(h.index) for h in self._hot) > MAX_HOT_BYTES
            if hot.segment.end > commit_end and not too_much:
                break
            del self._hot[0]
            self._keep_cold(hot.segment.base, hot.index)
            self._keep_start(hot.segment.base, hot.start)

    def needs_save(self, durable_end: Position) -> bool:
        """Return whether a full, durable segment has an index that is not written yet."""
        return any(not h.saved and h.segment.end <= durable_end for h in self._hot)

    # ---- looking up
    @property
    def start(self) -> Position:
        """From this position on `committed_offset` is right: older indexes are not in memory."""
        return self._hot[0].segment.base if self._hot else self._store.journal_start

    def committed_offset(self, key: QueueKey, commit_end: Position) -> Offset:
        """See `Journal.committed_offset`."""
        for hot in reversed(self._hot):
            if hot.segment.base >= commit_end:
                continue
            end = hot.index.end_offset_below(key, commit_end)
            return hot.start.next_offsets.get(key, Offset(0)) if end is None else end
        if self._hot and self._hot[0].segment.base == commit_end:
            return self._hot[0].start.next_offsets.get(key, Offset(0))
        return self.first.next_offsets.get(key, Offset(0))

    async def offset_at(self, key: QueueKey, position: Position) -> Offset:
        """Return the queue's next offset at the start of the batch at `position`, however old."""
        return await self._standing(lambda: self._offset_at(key, position))

    async def _offset_at(self, key: QueueKey, position: Position) -> Offset:
        segments = self._store.segments
        at = bisect_left(segments, position, key=lambda segment: segment.base) - 1
        if at < 0:
            return self.first.next_offsets.get(key, Offset(0))
        segment = segments[at]
        end = (await self.index_of(segment)).end_offset_below(key, position)
        if end is not None:
            return end
        return (await self.start_of(segment)).next_offsets.get(key, Offset(0))

    async def find(self, key: QueueKey, offset: Offset, limit: int) -> list[IndexEntry]:
        """See `Journal.find`."""
        return await self._standing(lambda: self._find(key, offset, limit))

    async def _find(self, key: QueueKey, offset: Offset, limit: int) -> list[IndexEntry]:
        offset = max(offset, self.first.next_offsets.get(key, Offset(0)))
        for hot in reversed(self._hot):
            if hot.start.next_offsets.get(key, 0) <= offset:
                return hot.index.find(key, offset, limit)
        older = self._older()
        low, high = 0, len(older)
        while high - low > 1:  # the last segment that begins at or below `offset`
            middle = (low + high) // 2
            start = await self.start_of(older[middle])
            if start.next_offsets.get(key, 0) <= offset:
                low = middle
            else:
                high = middle
        if not older:
            return []
        return (await self.index_of(older[low])).find(key, offset, limit)

    async def find_time(self, key: QueueKey, wall_ms: int) -> Offset | None:
        """Return the first offset stored at or after that time; None if there is none."""
        return await self._standing(lambda: self._find_time(key, wall_ms))

    async def _find_time(self, key: QueueKey, wall_ms: int) -> Offset | None:
        # All before a correction was stored by its time, whatever the store times there.
        corrected = next((c for c in await self.corrections() if c.store_ms < wall_ms), None)
        segments = self._older() + [hot.segment for hot in self._hot]
        low, high = 0, len(segments)
        if corrected is not None:
            low = max(bisect_right(segments, corrected.base, key=lambda s: s.base) - 1, 0)
        while high - low > 1:  # the last segment that started before that time
            middle = (low + high) // 2
            if (await self.start_of(segments[middle])).store_ms < wall_ms:
                low = middle
            else:
                high = middle
        if not segments:
            return None
        entry = (await self.index_of(segments[low])).find_time(key, wall_ms)
        if entry is not None:
            return entry.base_offset
        if low + 1 == len(segments):
            return None
        # The queue's next batch, wherever it is, is the first one stored later.
        start = await self.start_of(segments[low + 1])
        return start.next_offsets.get(key, Offset(0))

    async def start_of(self, segment: StoredSegment) -> SegmentStart:
        """Return the content of the segment's SNAP."""
        for hot in self._hot:
            if hot.segment is segment:
                return hot.start
        start = self._starts.get(segment.base)
        if start is None:
            shrinks = self._store.shrinks
            start = await self._read_start(segment)
            if shrinks == self._store.shrinks:
                self._keep_start(segment.base, start)
        return start

    @property
    def last_correction(self) -> Position:
        """The base of the newest segment whose SNAP lowers the store times; 0 = none."""
        if not self._hot:
            return NO_CORRECTION
        newest = self._hot[-1]
        return (
            newest.segment.base if newest.start.corrected_from_ms else newest.start.last_correction
        )

    async def corrections(self) -> list[Correction]:
        """Return the stored segments whose SNAPs lower the store times, newest first."""
        found, base = list[Correction](), self.last_correction
        while base:
            segments = self._store.segments
            at = bisect_left(segments, base, key=lambda s: s.base)
            if at == len(segments) or segments[at].base != base:
                break  # deleted by retention
            start = await self.start_of(segments[at])
            found.append(Correction(base, start.store_ms))
            base = start.last_correction
        return found

    async def index_of(self, segment: StoredSegment) -> SegmentIndex:
        """Return the segment's index: from memory, from its file, or rebuilt."""
        for hot in self._hot:
            if hot.segment is segment:
                return hot.index
        index = self._cold.get(segment.base)
        if index is None:
            shrinks = self._store.shrinks
            index = await self._load(segment)
            if shrinks == self._store.shrinks:
                self._keep_cold(segment.base, index)
        else:
            self._cold.move_to_end(segment.base)
        return index

    # ---- shrinking
    async def begin_at(self, segment: StoredSegment) -> None:
        """Let the journal start at that segment: earlier ones are about to be removed."""
        self.first = await self.start_of(segment)

    def forget_first(self) -> None:
        """Forget the segments that the store has removed."""
        stands = self._store.stands_at
        self._hot = [hot for hot in self._hot if stands(hot.segment.base)]
        for base in [base for base in self._cold if not stands(base)]:
            self._cold_bytes -= _bytes(self._cold.pop(base))
        for base in [base for base in self._starts if not stands(base)]:
            del self._starts[base]

    def cut(self, segment: StoredSegment, start: SegmentStart, index: SegmentIndex) -> None:
        """Adopt a truncation within that segment or at its end; `index` is the segment's rest."""
        self.forget_first()  # and the last
        self._hot = [hot for hot in self._hot if hot.segment is not segment]
        if (cold := self._cold.pop(segment.base, None)) is not None:
            self._cold_bytes -= _bytes(cold)
        self.begin(segment, start, index)

    def clear(self) -> None:
        """Forget everything: the journal was dropped. `begin` follows."""
        self.current = SegmentIndex(Position(0))
        self.first = SegmentStart({}, 0)
        self._hot.clear()
        self._cold.clear()
        self._starts.clear()
        self._cold_bytes = 0

    # ---- within
    async def _standing(self, look: Callable[[], Awaitable[T]]) -> T:
        """Repeat a look-up if segments were removed meanwhile, by retention or a truncation."""
        while True:
            shrinks = self._store.shrinks
            try:
                return await look()
            except (NotFound, CorruptJournal):
                if shrinks == self._store.shrinks:
                    raise

    def _older(self) -> list[StoredSegment]:
        """Return the segments that are not hot."""
        return self._store.segments[: len(self._store.segments) - len(self._hot)]

    def _keep_cold(self, base: Position, index: SegmentIndex) -> None:
        if base not in self._cold:
            self._cold[base] = index
            self._cold_bytes += _bytes(index)
        while self._cold_bytes > MAX_COLD_BYTES and len(self._cold) > 1:
            _, old = self._cold.popitem(last=False)
            self._cold_bytes -= _bytes(old)

    def _keep_start(self, base: Position, start: SegmentStart) -> None:
        self._starts[base] = start
        self._starts.move_to_end(base)
        while len(self._starts) > MAX_STARTS:
            self._starts.popitem(last=False)

    async def _read_start(self, segment: StoredSegment) -> SegmentStart:
        try:
            header = parse_header(await self._store.read(segment, 0, HEADER_LEN))
            payload = await self._store.read(segment, HEADER_LEN, header.payload_len)
            check_payload(header, payload)
            return segment_start(header, await in_turns(taking_next_offsets(payload)))
        except (BadBatch, Malformed) as bad:
            raise self._store.corrupt(segment, segment.base, bad) from bad

    async def _load(self, segment: StoredSegment) -> SegmentIndex:
        name, shrinks = index_name(segment.base), self._store.shrinks
        data = await self._store.disk.read_file(name)
        why = "it is missing"
        if data is not None:
            try:
                index = await in_turns(SegmentIndex.decoding(data))
                if (index.base, index.end) == (segment.base, segment.end):
                    return index
                why = f"it covers [{index.base}, {index.end})"
            except Malformed as error:
                why = str(error)
        log.warning("journal_index_rebuilt", file=name, why=why)
        index = await self._rebuild(segment)
        try:
            await self._write(segment, index, shrinks)
        except DiskFull as error:  # reads need no room
            log.warning("journal_index_not_stored", file=name, why=str(error))
        return index

    async def _rebuild(self, segment: StoredSegment) -> SegmentIndex:
        index = SegmentIndex(segment.base)

        def visit(scan: Scan) -> Turns[Stop]:
            for number, header in enumerate(scan, 1):
                index.add(header)
                if not number % PIECE:
                    yield
            assert scan.stop is not None  # a scan that was run to its end has one
            return scan.stop

        cursor = Cursor(segment.base)
        stop = await scan_segment(self._store, segment, cursor, visit, payloads=False)
        if refuse := judge_sealed(stop, SegmentFile(segment.base, segment.size)):
            raise refusal(self._store.disk.path, refuse.finding)
        return index

    async def _write(self, segment: StoredSegment, index: SegmentIndex, shrinks: int) -> None:
        data = await in_turns(index.encoding())
        async with self._store.changing:
            # A segment truncated or removed meanwhile must not leave an index behind for the data
            # that follows there.
            if shrinks == self._store.shrinks:
                await self._store.disk.replace_file(index_name(segment.base), data)


def _bytes(index: SegmentIndex) -> int:
    return len(index) * ENTRY_LEN + 1024
