"""The derived indexes over all segments; look-ups in the queue index: offset → position.

The newest segment's parts are in memory and grow with every append (`apply`). When a segment is
full they are stored by `part_files.py`, and read back for reads of old offsets: the few most
recently used ones are held, bounded in bytes. A queue's next offset at a segment's start is in the
segment's SNAP.

The indexes of segments that are not wholly committed yet stay in memory, so that
`committed_offset` needs no disk. Over `MAX_HOT_BYTES` the oldest of them go too; the answer for a
commit end that far back is then too low, never too high (R7).
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from fmqbroker.journal.part_files import PartFiles
from fmqbroker.journal.store import SegmentStore, StoredSegment
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.header import HEADER_LEN, BadBatch, BatchHeader, check_payload, parse_header
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import CorruptJournal, Malformed, NotFound
from fmqcore.ids import Offset, Position
from fmqcore.journal.derived import QUEUE_INDEX, DerivedIndex, P, Part
from fmqcore.journal.index import IndexEntry, SegmentIndex
from fmqcore.journal.segments import NO_CORRECTION
from fmqcore.journal.snap_payload import taking_next_offsets

MAX_HOT_BYTES: Final = 48 * 1024 * 1024
MAX_COLD_BYTES: Final = 32 * 1024 * 1024
MAX_STARTS: Final = 512
T = TypeVar("T")
SegmentParts = tuple[SegmentIndex, *tuple[Part, ...]]
"""All indexes of one segment, the queue index first."""


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
    """A segment whose parts always stay in memory: the newest, and those not committed."""

    __slots__ = ("index", "parts", "saved", "segment", "start")

    def __init__(self, segment: StoredSegment, start: SegmentStart, parts: SegmentParts) -> None:
        self.segment = segment
        self.start = start
        self.parts = parts
        self.index = parts[0]
        self.saved = False

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in self.parts)


class Catalog:
    """Looks up offsets; `current` is the newest segment's queue index, `first` the oldest's start.

    `apply` adds the next batch to the newest segment's parts. With one index it is that part's own
    method, since it runs for every batch. `others`: indexes beside the queue index.
    """

    apply: Callable[[BatchHeader], None]

    def __init__(self, store: SegmentStore, others: Sequence[DerivedIndex[Any]] = ()) -> None:
        self.first = SegmentStart({}, 0)
        self._store = store
        self._files = PartFiles(store)
        self._indexes: tuple[DerivedIndex[Any], ...] = (QUEUE_INDEX, *others)
        self._grow(self._begin_parts(Position(0)))
        self._hot: list[_Hot] = []
        self._cold: OrderedDict[tuple[str, Position], Part] = OrderedDict()
        self._cold_bytes = 0
        self._starts: OrderedDict[Position, SegmentStart] = OrderedDict()

    # ---- growing
    def begin(
        self, segment: StoredSegment, start: SegmentStart, parts: SegmentParts | None = None
    ) -> None:
        """Add a new segment: `start` is its SNAP's content; `parts` is given if it was scanned."""
        parts = self._begin_parts(segment.base) if parts is None else parts
        self._grow(parts)
        self._hot.append(_Hot(segment, start, parts))
        if segment is self._store.segments[0]:
            self.first = start

    async def load_uncommitted(self, commit_end: Position) -> None:
        """At start, before `begin`: load the indexes of segments that end above `commit_end`."""
        held = 0
        hot: list[_Hot] = []
        for segment in reversed(self._store.segments[:-1]):
            if segment.end <= commit_end or held > MAX_HOT_BYTES:
                break
            parts, start = await self._parts_of(segment), await self.start_of(segment)
            hot.append(_Hot(segment, start, parts))
            held += hot[-1].held_bytes
            hot[-1].saved = True
        self._hot = hot[::-1]

    async def scanned(
        self, segment: StoredSegment, index: SegmentIndex, end: Position
    ) -> SegmentParts:
        """Return all parts of a segment below `end`; its queue index was built already."""
        others = [other.begin(segment.base) for other in self._indexes[1:]]
        if others:
            await self._files.build(others, segment, end)
        return (index, *others)

    async def save(self, durable_end: Position, commit_end: Position) -> None:
        """Write the indexes of full, durable segments; release those that are committed."""
        shrinks = self._store.shrinks
        for hot in list(self._hot):
            if hot.segment.end <= durable_end and not hot.saved:
                for index, part in zip(self._indexes, hot.parts, strict=True):
                    await self._files.write(index, hot.segment, part, shrinks)
                    if shrinks != self._store.shrinks:
                        return  # what was to be written may be no more: the keeper looks again
                hot.saved = True
        while len(self._hot) > 1 and self._hot[0].saved:
            hot = self._hot[0]
            too_much = sum(h.held_bytes for h in self._hot) > MAX_HOT_BYTES
            if hot.segment.end > commit_end and not too_much:
                break
            del self._hot[0]
            for index, part in zip(self._indexes, hot.parts, strict=True):
                self._keep_cold(index, part)
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
        """Return the segment's queue index."""
        return await self.part_of(QUEUE_INDEX, segment)

    async def part_of(self, index: DerivedIndex[P], segment: StoredSegment) -> P:
        """Return an index's part of the segment: from memory, from its file, or rebuilt."""
        for hot in self._hot:
            if hot.segment is segment:
                return cast(P, hot.parts[self._indexes.index(index)])
        part = self._cold.get((index.suffix, segment.base))
        if part is not None:
            self._cold.move_to_end((index.suffix, segment.base))
            return cast(P, part)
        shrinks = self._store.shrinks
        loaded = await self._files.load(index, segment)
        if shrinks == self._store.shrinks:
            self._keep_cold(index, loaded)
        return loaded

    async def low_watermark(self, segment: StoredSegment) -> Position | None:
        """Return the lowest position in the segment that an index needs; None if none does."""
        lowest: Position | None = None
        for index in self._indexes:
            if index.holds_retention:
                low = index.low_watermark(await self.part_of(index, segment))
                if low is not None and (lowest is None or low < lowest):
                    lowest = low
        return lowest

    # ---- shrinking
    async def begin_at(self, segment: StoredSegment) -> None:
        """Let the journal start at that segment: earlier ones are about to be removed."""
        self.first = await self.start_of(segment)

    def forget_first(self) -> None:
        """Forget the segments that the store has removed."""
        stands = self._store.stands_at
        self._hot = [hot for hot in self._hot if stands(hot.segment.base)]
        for key in [key for key in self._cold if not stands(key[1])]:
            self._drop_cold(key)
        for base in [base for base in self._starts if not stands(base)]:
            del self._starts[base]

    def cut(self, segment: StoredSegment, start: SegmentStart, parts: SegmentParts) -> None:
        """Adopt a truncation within that segment or at its end; `parts` are of what is left."""
        self.forget_first()  # and the last
        self._hot = [hot for hot in self._hot if hot.segment is not segment]
        for index in self._indexes:
            self._drop_cold((index.suffix, segment.base))
        self.begin(segment, start, parts)

    def clear(self) -> None:
        """Forget everything: the journal was dropped. `begin` follows."""
        self._grow(self._begin_parts(Position(0)))
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

    def _begin_parts(self, base: Position) -> SegmentParts:
        return (QUEUE_INDEX.begin(base), *(other.begin(base) for other in self._indexes[1:]))

    def _grow(self, parts: SegmentParts) -> None:
        """Apply what is appended from here on to these parts."""
        self.current = parts[0]
        self.apply = parts[0].add if len(parts) == 1 else _to_all(parts)

    async def _parts_of(self, segment: StoredSegment) -> SegmentParts:
        index = await self.index_of(segment)
        return (index, *[await self.part_of(other, segment) for other in self._indexes[1:]])

    def _keep_cold(self, index: DerivedIndex[Any], part: Part) -> None:
        key = (index.suffix, part.base)
        if key not in self._cold:
            self._cold[key] = part
            self._cold_bytes += part.held_bytes
        while self._cold_bytes > MAX_COLD_BYTES and len(self._cold) > 1:
            self._drop_cold(next(iter(self._cold)))

    def _drop_cold(self, key: tuple[str, Position]) -> None:
        if (part := self._cold.pop(key, None)) is not None:
            self._cold_bytes -= part.held_bytes

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


def _to_all(parts: SegmentParts) -> Callable[[BatchHeader], None]:
    adders = [part.add for part in parts]

    def apply(header: BatchHeader) -> None:
        for add in adders:
            add(header)

    return apply
