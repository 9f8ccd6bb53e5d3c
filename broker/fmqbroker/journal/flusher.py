"""Group commit: one task that moves appended bytes from memory to disk.

Order of effects: the bytes are written (and synced), then `written_end` (`durable_end`) moves,
then `flushed` is notified; no byte is reported written or durable before it is (R3). While one
write is in progress everything new gathers and becomes the next write. A segment is complete and
synced before the first byte of the next one is written, so only the newest segment can be torn.

A failed write or sync is fatal and never retried: the kernel may have dropped the pages (a second
fsync would report success). A full disk is not a failure: nothing is counted as written, appends
are refused, and the same bytes are tried again until there is room. A sync needs no room: what was
written before is synced whenever that is due or forced, also while the writer is stuck.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from fmqbroker.journal.store import SegmentStore
from fmqbroker.journal.tail_cache import Block, Tail, last_crc
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqcore.batch.crc import extend
from fmqcore.errors import DeliveryUnknown
from fmqcore.ids import Position
from fmqport.clock import Clock
from fmqport.disk import DiskFailed, DiskFull
from fmqport.lifecycle import Lifecycle

MAX_WRITE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of one write: bounds how long a small append waits behind a flood."""
FULL_RETRY_MS: Final = 500
"""Milliseconds before a write to a full disk is tried again."""


class Flusher:
    """Writes and syncs; `durable_end` ≤ `written_end` ≤ the tail's end."""

    def __init__(
        self,
        tail: Tail,
        store: SegmentStore,
        clock: Clock,
        lifecycle: Lifecycle,
        crc: int,
        raw_crc: int | None = None,
    ) -> None:
        self.written_end = tail.end
        self.durable_end = tail.end
        self.durable_crc = crc  # header CRC of the batch that ends at `durable_end`
        self._written_crc = crc
        self._raw_crc = raw_crc  # of the newest segment's bytes below `written_end`; None: unknown
        self._mark = Position(0)
        self.marked_crc: int | None = None
        self.care_at = Position(0)  # the keeper is woken when `written_end` has passed this
        self.flushed = Signal()
        self.turn = asyncio.Lock()  # held while files change: by a flush, or by a cut
        self._tail = tail
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._work = Signal()
        self._sync = True
        self._interval_ms = 0
        self._sync_due_ms: int | None = None
        self._forced = Position(0)
        self.cuts = 0  # how often what was there became void

    def wake(self) -> None:
        """Announce more to write. Many calls in one turn of the loop cause one wake-up."""
        self._work.notify()

    def set_flush(self, *, sync: bool, interval_ms: int) -> None:
        """See `Journal.set_flush`."""
        self._sync, self._interval_ms = sync, interval_ms
        if self.durable_end < self.written_end:
            self._plan_sync()
        self.wake()

    async def wait_durable(self, position: Position) -> None:
        """See `Journal.wait_durable`."""
        cuts = self.cuts
        while self.durable_end < position:
            if position > self._tail.end:
                raise DeliveryUnknown(
                    f"position {position} is not in the journal, which ends at {self._tail.end}"
                )
            if self._forced < position:
                self._forced = position
                self.wake()
            await self.flushed.wait()
            if cuts != self.cuts:  # what stands there now may be something else
                raise DeliveryUnknown(
                    f"the journal was cut while position {position} was not yet durable"
                )

    async def run(self) -> None:
        """Flush whenever there is work, until cancelled."""
        while True:
            await self._until_work()
            try:
                await self.flush_once()
            except DiskFull as error:
                self._store.space.note_stuck(str(error))
                await self._until_retry()

    async def flush_all(self) -> None:
        """Write and sync everything, before a close. Raises `DiskFull`."""
        while self.durable_end < self._tail.end:
            await self.flush_below(self._tail.end)

    async def flush_below(self, position: Position) -> None:
        """Make durable what is below `position`: what stays after a truncation.

        Raises `DiskFull`, but only if some of that is not yet written.
        """
        position = min(position, self._tail.end)
        while self.durable_end < position:
            self._forced = max(self._forced, position)
            await self.flush_once(write=self.written_end < position)

    async def flush_once(self, *, write: bool = True) -> None:
        """Do one group commit, or only its sync. Ends the process on any failure but `DiskFull`."""
        try:
            async with self.turn:
                await self._flush(write=write)
        except DiskFailed as error:  # D3: never tried again
            self._lifecycle.fatal(f"the journal cannot be written: {error}")
        self.flushed.notify()

    def mark(self, position: Position) -> None:
        """Capture in `marked_crc` the checksum of a segment's bytes below a block's end.

        None if it is not known.
        """
        self._mark = position
        self.marked_crc = self._raw_crc if position == self.written_end else None

    def _sum_up(self, blocks: Sequence[Block], base: Position) -> None:
        if blocks[0].start == base:
            self._raw_crc = 0
        if self._raw_crc is None:
            return
        for block in blocks:
            self._raw_crc = extend(self._raw_crc, block.data)
            if block.end == self._mark:
                self.marked_crc = self._raw_crc

    def cut(self, position: Position, crc: int) -> None:
        """Let the journal end at `position`, durably. The caller holds `turn`."""
        self.written_end = self.durable_end = position
        self.durable_crc = self._written_crc = crc
        self._raw_crc = self.marked_crc = None
        self._mark = Position(0)
        self.cuts += 1
        self._forced = min(self._forced, position)
        self._sync_due_ms = None
        self._store.space.note_unstuck()  # what waited for room is no more
        self.flushed.notify()

    # ---- one group
    async def _flush(self, *, write: bool) -> None:
        blocks = self._tail.blocks_from(self.written_end, MAX_WRITE_BYTES) if write else []
        sync = self._must_sync()
        if blocks:
            try:
                sync = await self._write(blocks, sync=sync)
            except DiskFull:
                if sync:
                    await self._sync_written()
                    self.flushed.notify()
                raise
        elif sync:
            await self._sync_written()
        if self.durable_end < self.written_end and self._sync_due_ms is None:
            self._plan_sync()
        # D1: nothing is reported durable that was not written (R3's local half).
        assert self.durable_end <= self.written_end <= self._tail.end
        self._tail.evict(self.written_end)
        closed = bool(blocks) and blocks[-1].closes_segment
        if closed or self.written_end >= self.care_at or self._store.spare_due(self.written_end):
            self._store.needs_care.notify()

    async def _write(self, blocks: Sequence[Block], *, sync: bool) -> bool:
        """Write blocks of one segment; return whether they were synced too. Raises `DiskFull`."""
        start, end = blocks[0].start, blocks[-1].end
        segment = self._store.segment_of(start)
        # D2: the segment before is whole and synced.
        assert start != segment.base or self.durable_end == start
        file = await self._store.writable(segment)
        pieces = [block.data for block in blocks]
        sync = sync or end == segment.end
        await file.write([(start - segment.base, pieces)], sync=sync)
        self._sum_up(blocks, segment.base)
        self._store.space.note_unstuck()
        self.written_end, self._written_crc = end, last_crc(blocks[-1])
        if sync:
            self._note_synced()
        return sync

    async def _sync_written(self) -> None:
        """Sync what is written: it is in one segment (D2)."""
        if self.durable_end < self.written_end:
            file = await self._store.writable(self._store.segment_of(self.durable_end))
            await file.write([], sync=True)
        self._note_synced()

    def _note_synced(self) -> None:
        self.durable_end, self.durable_crc = self.written_end, self._written_crc
        self._sync_due_ms = None

    def _must_sync(self) -> bool:
        due = self._sync_due_ms is not None and self._clock.monotonic_ms() >= self._sync_due_ms
        return self._sync or due or self._forced > self.durable_end

    def _plan_sync(self) -> None:
        if self._interval_ms and not self._sync:
            self._sync_due_ms = self._clock.monotonic_ms() + self._interval_ms
        else:
            self._sync_due_ms = None

    def _has_work(self) -> bool:
        if self.written_end < self._tail.end:
            return True
        return self._sync_wanted()

    def _sync_wanted(self) -> bool:
        return self.durable_end < self.written_end and self._must_sync()

    async def _until_work(self) -> None:
        while not self._has_work():
            await self._until_woken()

    async def _until_retry(self) -> None:
        """Wait until the write is tried again, or nothing is stuck any more; sync meanwhile."""
        again_ms = self._clock.monotonic_ms() + FULL_RETRY_MS
        while self._store.space.no_control and self._clock.monotonic_ms() < again_ms:
            if self._sync_wanted():
                await self.flush_once(write=False)
            else:
                await self._until_woken(again_ms)

    async def _until_woken(self, at_ms: int | None = None) -> None:
        """Wait for `wake`, at most until a sync is due or until `at_ms`."""
        times_ms = [at for at in (self._sync_due_ms, at_ms) if at is not None]
        delay_ms = max(0, min(times_ms) - self._clock.monotonic_ms()) if times_ms else None
        await wait_any(self._work, timeout_s=None if delay_ms is None else delay_ms / 1000)
