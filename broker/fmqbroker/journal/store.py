"""The segment files: the existing ones, the one being written, and a spare for the next.

Leaves on disk: `<base>.journal`, one per segment, and at most one `spare`: zeros, made in advance
so that a roll waits for a rename and not for the file system to find room. A segment may be listed
here before it has a file: appends roll in memory, the flusher creates the file.

Not here: what the files hold (`reader.py`, `catalog.py`) and when they go (`data/retention.py`).
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final

import structlog

from fmqbroker.journal.disk_space import Claim, Space
from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.header import UnknownKind
from fmqcore.errors import CorruptJournal, NewerJournal, NotFound
from fmqcore.ids import Position
from fmqcore.journal.findings import REFILL, UPGRADE
from fmqcore.journal.segments import INDEX, index_name, segment_name
from fmqport.disk import Disk, DiskFile, DiskFull

MAX_OPEN: Final = 32
"""Maximum number of open files of older segments."""
SPARE: Final = "spare"
"""The next segment's file before it has a base."""
log = structlog.get_logger()


class StoredSegment:
    """One segment: [base, end), and its file once there is one."""

    __slots__ = ("base", "claim", "end", "on_disk")

    def __init__(self, base: Position, end: Position, claim: Claim, *, on_disk: bool) -> None:
        self.base = base
        self.end = end
        self.claim = claim
        self.on_disk = on_disk

    @property
    def size(self) -> int:
        """The segment's length in bytes."""
        return self.end - self.base


class SegmentStore:
    """The segments, ascending and without gaps, and their files."""

    def __init__(
        self,
        disk: Disk,
        segment_bytes: int,
        min_free_bytes: int,
        suffixes: Collection[str] = (INDEX,),
    ) -> None:
        self.disk = disk
        self.suffixes = suffixes  # of the derived indexes' files
        self.next_bytes = segment_bytes  # how long the next segment is expected to be
        self.needs_care = Signal()  # the keeper has something to do
        self.segments: list[StoredSegment] = []
        self.journal_start = Position(0)  # the base of the first, or where the first will be
        self.space = Space(disk, segment_bytes, min_free_bytes)
        self._bases: list[int] = []
        self._open: OrderedDict[Position, DiskFile] = OrderedDict()
        self._spare: DiskFile | None = None
        self.shrinks = 0  # removals and truncations so far: a read started before one may be stale
        self.changing = asyncio.Lock()  # around making and removing files

    # ---- which segments
    @property
    def last(self) -> StoredSegment | None:
        """The newest segment; None if there is none."""
        return self.segments[-1] if self.segments else None

    def add(
        self,
        base: Position,
        end: Position,
        claim: Claim = Claim.DATA,
        *,
        on_disk: bool = False,
    ) -> StoredSegment:
        """Add a segment after the last one, in memory; `writable` creates its file."""
        # D8
        assert not self.segments or self.segments[-1].end == base, "segments without gaps"
        segment = StoredSegment(base, end, claim, on_disk=on_disk)
        self.segments.append(segment)
        self._bases.append(base)
        return segment

    def number_of(self, position: Position) -> int:
        """Return the index in `segments` of the one that holds `position`. Raises `NotFound`."""
        number = bisect_right(self._bases, position) - 1
        if number < 0 or position >= self.segments[number].end:
            raise NotFound(f"position {position} is in no segment of {self.disk.path}")
        return number

    def stands_at(self, base: Position) -> bool:
        """Return whether a segment of that base is listed."""
        at = bisect_left(self._bases, base)
        return at < len(self._bases) and self._bases[at] == base

    def segment_of(self, position: Position) -> StoredSegment:
        """Return the segment that holds `position`. Raises `NotFound`."""
        return self.segments[self.number_of(position)]

    def corrupt(
        self, segment: StoredSegment, position: int, reason: str | Exception
    ) -> CorruptJournal:
        """Return the error for what cannot be read at `position`: file, place, and remedy."""
        newer = isinstance(reason, UnknownKind)
        kind, remedy = (NewerJournal, UPGRADE) if newer else (CorruptJournal, REFILL)
        return kind(
            f"{self.disk.path}/{segment_name(segment.base)}, position {position} (byte "
            f"{position - segment.base} of the file): {reason}; remedy: {remedy}"
        )

    # ---- files
    async def writable(self, segment: StoredSegment) -> DiskFile:
        """Return the segment's file, created now if there is none. Raises `DiskFull`."""
        if not segment.on_disk:
            async with self.changing:
                file = await self._make(segment)
                self._open[segment.base] = file
                segment.on_disk = True
        return await self.readable(segment)

    async def readable(self, segment: StoredSegment) -> DiskFile:
        """Return the segment's file, opened if need be. Raises `NotFound` if it was removed."""
        base = segment.base
        while base not in self._open:
            await self._close_surplus()
            try:
                file = await self.disk.open(segment_name(base))
            except FileNotFoundError:
                raise NotFound(f"segment {base} was deleted") from None
            if base in self._open:  # another task opened it first
                await file.close()
            elif not self._stands(segment):
                await file.close()
                raise NotFound(f"segment {base} was deleted")
            else:
                self._open[base] = file
        # No wait from here to the caller's use of the file: the surplus closes from the other end.
        self._open.move_to_end(base)
        return self._open[base]

    async def read(self, segment: StoredSegment, at: int, length: int) -> bytes:
        """Return up to `length` bytes of the file; fewer only at its end. Raises `NotFound`.

        Call this for each read: between two reads the file may be closed.
        """
        return await (await self.readable(segment)).read(at, length)

    def spare_due(self, written_end: Position) -> bool:
        """Return whether to make a spare: the newest segment is half full, or room was lacking."""
        last = self.last
        if last is None:  # dropped for want of room: made first, it shows that there is some
            return self._spare is None and bool(self.space.roll_blocked)
        if self._spare is not None or not last.on_disk:
            return False
        return bool(self.space.roll_blocked) or 2 * (written_end - last.base) > last.size

    async def make_spare(self, written_end: Position) -> None:
        """Create the spare file for the next segment; note if there is no room."""
        last = self.last
        if not self.spare_due(written_end):
            return
        async with self.changing:
            if self._spare is not None or self.last is not last:
                return
            try:
                await self.space.require(self.next_bytes, Claim.DATA)
                self._spare = await self._create(SPARE, self.next_bytes)
                self.space.roll_blocked = ""
            except DiskFull as error:
                if not self.space.roll_blocked:
                    log.error("journal_no_room_for_segment", reason=str(error))
                self.space.roll_blocked = str(error)

    async def adopt_spare(self, size: int) -> None:
        """At start: take over a spare of `size` bytes that an earlier run left."""
        self._spare = await self.disk.open(SPARE)
        if size != self.next_bytes:
            await self._drop_spare()

    def part_from(self, base: Position) -> list[StoredSegment]:
        """Take all segments at or above `base` off the list, but not their files; newest first."""
        self.shrinks += 1
        at = bisect_left(self._bases, base)
        void = self.segments[at:]
        del self.segments[at:], self._bases[at:]
        return void[::-1]

    async def remove(self, void: Sequence[StoredSegment]) -> None:
        """Remove the files of segments that are no longer listed."""
        async with self.changing:
            for segment in void:
                await self._remove(segment)

    async def drop_first(self) -> StoredSegment:
        """Remove the oldest segment and return it."""
        async with self.changing:
            segment = self.segments.pop(0)
            self._bases.pop(0)
            self.shrinks += 1
            await self._remove(segment)
            return segment

    async def wipe_from(self, segment: StoredSegment, position: Position) -> None:
        """Zero the segment's file from `position` on, durably, and sync what stays."""
        async with self.changing:  # an index of what was there is not being written
            await self._remove_indexes(segment)
        file = await self.readable(segment)
        await file.zero(position - segment.base, file.size)

    async def close(self) -> None:
        """Close the files."""
        files = list(self._open.values())
        if self._spare is not None:
            files.append(self._spare)
        self._open.clear()
        self._spare = None
        for file in files:
            await file.close()

    # ---- within
    def _stands(self, segment: StoredSegment) -> bool:
        at = bisect_left(self._bases, segment.base)
        return at < len(self.segments) and self.segments[at] is segment

    async def _make(self, segment: StoredSegment) -> DiskFile:
        if self._spare is not None and self._spare.size != segment.size:
            await self._drop_spare()
        name = segment_name(segment.base)
        if self._spare is None:
            return await self._create_claimed(name, segment)
        try:
            await self.disk.rename(self._spare, name)
        except FileExistsError:
            if self._spare.name != name:  # else a call that was cancelled had done it
                raise
        file, self._spare = self._spare, None
        return file

    async def _create_claimed(self, name: str, segment: StoredSegment) -> DiskFile:
        try:
            # The segment's batches are accepted already, and later ones wait behind them: what is
            # kept free is for them, too.
            await self.space.require(segment.size, max(segment.claim, Claim.CONTROL))
            file = await self._create(name, segment.size)
        except DiskFull:
            if segment.claim is not Claim.TERM or not await self.space.use_reserve():
                raise
            file = await self._create(name, segment.size)
        await self.space.check()
        return file

    async def _create(self, name: str, size: int) -> DiskFile:
        try:
            return await self.disk.create(name, size)
        except FileExistsError:
            # Ours, from a call that was cancelled; nothing was ever written to it.
            await self.disk.remove(name)
            return await self.disk.create(name, size)

    async def _drop_spare(self) -> None:
        if self._spare is not None:
            file, self._spare = self._spare, None
            await file.close()
            await self.disk.remove(SPARE)

    async def _remove(self, segment: StoredSegment) -> None:
        file = self._open.pop(segment.base, None)
        if file is not None:
            await file.close()
        await self._remove_indexes(segment)
        await self.disk.remove(segment_name(segment.base))

    async def _remove_indexes(self, segment: StoredSegment) -> None:
        for suffix in self.suffixes:
            await self.disk.remove(index_name(segment.base, suffix))

    async def _close_surplus(self) -> None:
        while len(self._open) >= MAX_OPEN:
            # The newest one's stays: it may hold bytes that are written and not yet synced.
            newest = max(self._open)
            base = next(base for base in self._open if base != newest)
            await self._open.pop(base).close()
