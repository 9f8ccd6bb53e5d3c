"""The journal: the broker's append-only byte log and its only source of truth.

The path of a batch: `head.py` assigns its place, in memory and at once → `tail_cache.py` holds it →
`flusher.py` writes and syncs it into a file of `store.py` → `upkeep.py` and `checkpoints.py` save
what is derived. Reading: `catalog.py` finds it by offset, `reader.py` reads it. `recovery.py` opens
the journal, `truncation.py` makes it shorter. A slave's segments are as long as its master's: the
SNAP that opens a segment states its length.

Order of effects: bytes persist, then the ends move, then `flushed` is notified.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from fmqbroker.journal import truncation
from fmqbroker.journal.checkpoints import Checkpoints
from fmqbroker.journal.components import Parts
from fmqbroker.journal.damage_notes import note
from fmqbroker.journal.drafts import Appended, BatchDraft, Snaps, long_snap
from fmqbroker.journal.flusher import Flusher
from fmqbroker.journal.head import Head
from fmqbroker.journal.raw_files import RawReader
from fmqbroker.journal.reader import Reader
from fmqbroker.journal.recovery import Recovered, recover
from fmqbroker.journal.resume_file import Resumes
from fmqbroker.journal.store import SegmentStore
from fmqbroker.journal.tail_cache import Tail
from fmqbroker.journal.upkeep import Keeper
from fmqbroker.runtime.fatal import or_die
from fmqbroker.runtime.freeing import Freeing
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import in_turns
from fmqcore.batch.header import BatchHeader
from fmqcore.errors import CorruptJournal, NewerJournal, NotFound
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.derived import QUEUE_INDEX, DerivedIndex
from fmqcore.journal.index import IndexEntry
from fmqcore.journal.state import MAX_EPOCHS, JournalState
from fmqport.clock import Clock
from fmqport.disk import Disk, DiskFull, DiskLock
from fmqport.lifecycle import Lifecycle

__all__ = ["Appended", "BatchDraft", "Found", "Journal", "Snaps", "long_snap"]

Found = IndexEntry
"""A stored batch, as its index entry describes it."""
T = TypeVar("T")
log = structlog.get_logger()


class Journal:
    """One data directory's journal. Appends happen in memory at once; the flusher follows.

    journal_start ≤ durable_end ≤ written_end ≤ end. `end` moves at `append`; `written_end` after
    pwritev; `durable_end` after fdatasync. A failed fsync, or EIO, calls `lifecycle.fatal`.
    """

    def __init__(
        self,
        recovered: Recovered,
        lock: DiskLock,
        settings: BrokerSettings,
        clock: Clock,
        lifecycle: Lifecycle,
        resume_every_bytes: int | None,
    ) -> None:
        """Use `open` instead."""
        self.doubts = recovered.doubts  # what this broker may have lost
        self.clean = recovered.clean  # the stop before this start was orderly (False: none was)
        self.appended = Signal()  # `end` moved (or went back: truncate, reset)
        self._settings = settings
        self._clock = clock
        self._lifecycle = lifecycle
        self._lock = lock
        self._segments_seen_ms: dict[Position, int] = {}
        self._reshaping = asyncio.Lock()
        store, catalog, loaded = recovered.store, recovered.catalog, recovered.loaded
        tail = Tail(loaded.end if loaded else store.journal_start, settings.tail_cache_bytes)
        self._freeing = Freeing()
        self._head = Head(tail, store, catalog, clock, settings.segment_bytes, self._freeing)
        self._head.adopt(loaded)
        raw_crc = loaded.raw_crc if loaded else None
        self._flusher = Flusher(tail, store, clock, lifecycle, self.last_header_crc, raw_crc)
        self.flushed = self._flusher.flushed  # `written_end` or `durable_end` moved
        checkpoints = Checkpoints(
            store,
            self._flusher,
            self._head,
            settings.checkpoint_interval_ms,
            recovered.known_commit_end,
            recovered.doubts,
        )
        reader = Reader(tail, store, self._flusher)
        self._parts = Parts(store, tail, self._flusher, catalog, checkpoints, reader)
        self.raw = RawReader(store, self._flusher)  # files as they are, for data jobs
        self.damage: CorruptJournal | None = None  # found by a read since the start
        self.damaged = Signal()
        self._resumes = Resumes(store, tail, self._flusher, catalog, self._head, resume_every_bytes)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: BrokerSettings,
        clock: Clock,
        lifecycle: Lifecycle,
        *,
        resume_every_bytes: int | None = None,
        indexes: Sequence[DerivedIndex[Any]] = (),
    ) -> "Journal":
        """Recover and open. Raises `CorruptJournal` (file, position, remedy), `DirectoryLocked`.

        A torn tail is truncated and the rest fsynced, so that `durable_end == end` at return.
        `resume_every_bytes`: see `resume_file.EVERY_BYTES`, the default. `indexes`: the derived
        indexes beside the queue index (`fmqcore.journal.derived`).
        """
        # D11: nothing is read or written before this process holds the directory's lock.
        lock = await disk.lock(f"broker {settings.broker} of group {settings.group}")
        suffixes = [index.suffix for index in (QUEUE_INDEX, *indexes)]
        assert len(suffixes) == len(set(suffixes)), "two indexes with one suffix"
        store = SegmentStore(disk, settings.segment_bytes, settings.min_free_bytes, suffixes)
        try:
            recovered = await recover(disk, store, indexes)
            journal = cls(recovered, lock, settings, clock, lifecycle, resume_every_bytes)
            await store.space.check()
            # From the first append on, a crash must not look like an orderly stop.
            await journal._parts.checkpoints.write_at_start(needed=not recovered.unclean)
        except BaseException:
            await store.close()
            lock.release()
            raise
        return journal

    async def run(self) -> None:
        """Flush, checkpoint, prepare segments; runs in the broker's task group until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flusher.run())
            group.create_task(self._freeing.run())
            group.create_task(self._or_die(self._parts.checkpoints.run()))
            group.create_task(self._or_die(Keeper(self._parts, self._resumes, self._clock).run()))

    async def close(self) -> None:
        """Flush everything, write a clean checkpoint, release the directory."""
        try:
            await self._or_die(self._finish())
        finally:
            await self._parts.store.close()
            self._lock.release()

    # ---- the ends
    @property
    def state(self) -> JournalState:
        """Next offsets, consumer offsets, topics, producers and epochs, as of `end`."""
        return self._head.state

    @property
    def end(self) -> Position:
        """The position after the last appended batch."""
        return self._head.end

    @property
    def epoch(self) -> Epoch:
        """The epoch of the last EPOCH batch; 0 = none."""
        return self._head.epoch

    @property
    def last_header_crc(self) -> int:
        """The header CRC of the batch that ends at `end`."""
        return self._head.last_header_crc

    @property
    def last_ms(self) -> int:
        """The newest store time in milliseconds; 0 = unknown."""
        return self._head.last_ms

    @property
    def journal_start(self) -> Position:
        """The oldest position still stored."""
        return self._parts.store.journal_start

    @property
    def recent_start(self) -> Position:
        """The base of the last but one segment; nothing before it is left to be committed."""
        return next((s.base for s in self._parts.store.segments[-2:]), self.journal_start)

    @property
    def written_end(self) -> Position:
        """The position below which everything is handed to the operating system."""
        return self._flusher.written_end

    @property
    def durable_end(self) -> Position:
        """The position below which everything is fsynced."""
        return self._flusher.durable_end

    @property
    def being_cut(self) -> bool:
        """Whether the journal is being shortened; on disk it may be shorter already."""
        return self._head.being_cut

    @property
    def known_commit_end(self) -> Position:
        """The commit end as of the last checkpoint or `note_commit_end`."""
        return self._parts.checkpoints.commit_end

    @property
    def full(self) -> str:
        """Empty, or why messages are refused now (`StorageFull`), for people to read."""
        return self._parts.store.space.tight

    @property
    def stuck(self) -> str:
        """Empty, or why not even a term can be opened: the writer finds no room."""
        return self._parts.store.space.no_control

    # ---- writing
    def append(self, draft: BatchDraft, *, for_term: bool = False) -> Appended:
        """Append one batch in the journal's current epoch (master). Never blocks.

        Raises `StorageFull` (with little room: for DATA; an EPOCH always finds some), `TooLarge`,
        `Malformed` (a control payload that does not decode; no records). Updates `state` and the
        index; the flusher wakes once per turn of the loop. An EPOCH draft opens its epoch (the
        payload names it). `for_term`: a control batch without which the term cannot be opened; it
        finds the same room as an EPOCH while the reserve has some.
        """
        appended = self._head.append(draft, for_term=for_term)
        self.appended.notify()  # the way through a slave is the longer one: it begins first
        self._flusher.wake()
        return appended

    def append_replica(self, position: Position, data: bytes, snaps: Snaps | None = None) -> None:
        """Append whole batches as received (slave). Raises `BadBatch`, then nothing is appended.

        Checks: position == end (R2), every header and payload CRC, chain, offset continuity,
        epoch not falling. An EOF comes as its 96 header bytes. Raises `StorageFull` too. `snaps`:
        what `unpack` returned for the same bytes.
        """
        self._head.append_replica(position, data, snaps)
        self._flusher.wake()
        self.appended.notify()

    async def unpack(self, data: bytes) -> Snaps:
        """Decode a long SNAP at the start of `data` in short turns, for `append_replica`.

        Nothing is appended or checked, and the journal may change meanwhile: the caller repeats
        its own checks afterwards.
        """
        return await in_turns(self._head.unpacking(data))

    def follow(self) -> None:
        """Note that batches are appended from a master from now on."""
        self._parts.store.space.follows = True

    async def wait_durable(self, position: Position) -> None:
        """Wait until `durable_end >= position`, forcing an fsync whatever the flush policy.

        Raises `DeliveryUnknown` if the journal is truncated first.
        """
        await self._flusher.wait_durable(position)

    def set_flush(self, *, sync: bool, interval_ms: int) -> None:
        """fsync every group commit, or only write and fsync every `interval_ms` (0 = never)."""
        self._flusher.set_flush(sync=sync, interval_ms=interval_ms)

    def note_commit_end(self, position: Position) -> None:
        """Record the commit end for the next checkpoint."""
        self._parts.checkpoints.note_commit_end(position)

    async def truncate(self, position: Position) -> None:
        """Truncate to a batch boundary, durably; state and index follow. Not below `journal_start`.

        Raises `NotFound` (outside the journal, or no boundary), `InvalidArgument` (below the commit
        end, R5), `DiskFull` (too little room to write what stays). No caller may append meanwhile.
        """
        async with self._reshaping:
            # Not above: what is dropped may be just what found no room.
            await self._flusher.flush_below(position)
            async with self._flusher.turn:
                await truncation.uninterrupted(self._or_die(self._truncate(position)))
        self.appended.notify()

    async def reset(self, position: Position) -> None:
        """Drop everything; the next append must be the SNAP at this segment base."""
        async with self._reshaping, self._flusher.turn:
            await truncation.uninterrupted(self._or_die(self._reset(position)))
        self.appended.notify()

    # ---- reading
    def read_tail(self, position: Position, max_bytes: int) -> bytes | None:
        """Return whole stored batches from `position`, from memory; None if not in the cache.

        At least one batch; b"" at the end. An EOF is returned as its 96 bytes (the next position is
        then its `end`, not position + 96) and is the last batch returned: nothing of the next
        segment follows in the same answer.
        """
        return self._parts.tail.read(position, max_bytes)

    async def read(self, position: Position, max_bytes: int) -> bytes:
        """Like `read_tail`, from memory or disk. Raises `NotFound` below `journal_start`."""
        return await self._parts.reader.read(position, max_bytes)

    async def read_sound(self, position: Position, max_bytes: int) -> bytes:
        """Like `read` where a batch is known to start, checking checksums of what comes from disk.

        Raises `CorruptJournal`, after noting it for the next start and in `damage`.
        """
        store = self._parts.store
        while True:
            shrinks = store.shrinks
            try:
                return await self._parts.reader.read_sound(position, max_bytes)
            except CorruptJournal as found:
                if shrinks != store.shrinks:
                    continue  # truncated under the read: that is no damage
                if isinstance(found, NewerJournal):
                    raise  # nothing is damaged: a newer FMQ reads it
                await self._or_die(self._condemn(position, found))
                raise

    async def read_batch(self, entry: Found) -> tuple[BatchHeader, bytes]:
        """Return a stored batch: its parsed header and all stored bytes (header and payload)."""
        return await self._parts.reader.read_batch(entry.position, entry.total_len)

    # ---- index
    def begin_offset(self, topic_id: TopicId, queue_id: int) -> Offset:
        """Return the oldest offset still stored (or the next one, for an empty queue)."""
        return self._parts.catalog.first.next_offsets.get((topic_id, queue_id), Offset(0))

    def next_offset(self, topic_id: TopicId, queue_id: int) -> Offset:
        """Return one past the newest offset appended."""
        return self.state.next_offsets.get((topic_id, queue_id), Offset(0))

    def committed_offset(self, topic_id: TopicId, queue_id: int, commit_end: Position) -> Offset:
        """Return one past the newest offset whose batch ends at or below `commit_end` (R7)."""
        if commit_end >= self.end:
            return self.next_offset(topic_id, queue_id)
        return self._parts.catalog.committed_offset((topic_id, queue_id), commit_end)

    @property
    def index_start(self) -> Position:
        """The oldest position for which `committed_offset` may be asked; see `offset_at`."""
        return self._parts.catalog.start

    async def offset_at(self, topic_id: TopicId, queue_id: int, position: Position) -> Offset:
        """Like `committed_offset` for any position, from disk if need be."""
        return await self._parts.catalog.offset_at((topic_id, queue_id), position)

    async def epoch_end(self, topic_id: TopicId, queue_id: int, epoch: Epoch) -> Offset:
        """Return the queue's next offset at the end of that epoch; 0 if the epoch is not here.

        An epoch older than all remembered ones: all that is known is that it had ended by then.
        """
        epochs = self.state.epochs
        at = bisect_left(epochs, (epoch, Position(0)))
        if len(epochs) >= MAX_EPOCHS and epoch < epochs[0][0]:
            return await self._parts.catalog.offset_at((topic_id, queue_id), epochs[0][1])
        if at == len(epochs) or epochs[at][0] != epoch:
            return Offset(0)
        if at + 1 == len(epochs):
            return self.next_offset(topic_id, queue_id)
        return await self._parts.catalog.offset_at((topic_id, queue_id), epochs[at + 1][1])

    async def find(
        self, topic_id: TopicId, queue_id: int, offset: Offset, limit: int
    ) -> Sequence[Found]:
        """Return up to `limit` index entries from the batch that holds `offset` (or the next) on.

        Fewer at the end of a segment: ask again from the last entry's `end_offset`.
        """
        if offset >= self.next_offset(topic_id, queue_id):
            return ()
        return await self._parts.catalog.find((topic_id, queue_id), offset, limit)

    async def find_time(self, topic_id: TopicId, queue_id: int, wall_ms: int) -> Offset:
        """Return the first offset stored at or after that time; `next_offset` if there is none."""
        offset = await self._parts.catalog.find_time((topic_id, queue_id), wall_ms)
        return self.next_offset(topic_id, queue_id) if offset is None else offset

    # ---- retention
    async def retire(self, keep_from: Position, now_ms: int, *, by_age: bool = True) -> int:
        """Delete whole old segments by time and size, none at or past `keep_from`.

        Nor any at or past the lowest low watermark of the derived indexes.

        Returns the bytes freed.
        """
        retention_ms = self._settings.retention_ms if by_age else 0
        most = self._settings.retention_bytes
        async with self._reshaping:
            work = truncation.retire(
                self._parts, keep_from, now_ms, retention_ms, most, self._segments_seen_ms
            )
            return await truncation.uninterrupted(self._or_die(work))

    # ---- within
    async def _truncate(self, position: Position) -> None:
        with self._being_cut():
            await truncation.cut(self._parts, position, self._head.adopt)

    async def _reset(self, position: Position) -> None:
        with self._being_cut():
            await truncation.reset(self._parts, position, self._head.adopt)

    @contextmanager
    def _being_cut(self) -> Iterator[None]:
        self._head.being_cut = True
        try:
            yield
        finally:
            self._head.being_cut = False
            self._parts.store.needs_care.notify()  # what was due waits

    async def _finish(self) -> None:
        try:
            await self._flusher.flush_all()
            await self._parts.catalog.save(self.durable_end, self.known_commit_end)
            await self._resumes.at_close()
            # With little room the next start might find none to take "clean" back.
            space = self._parts.store.space
            await self._parts.checkpoints.write(clean=space.reserved and not space.tight)
        except DiskFull as error:
            # What could not be stored was never reported as stored; the next start is unclean.
            log.error("journal_closed_without_room", reason=str(error))

    async def _condemn(self, position: Position, found: CorruptJournal) -> None:
        store = self._parts.store
        try:
            await note(store.disk, store.segment_of(position))
        except (DiskFull, NotFound) as error:
            log.warning("journal_damage_not_noted", reason=str(error))
        if self.damage is None:
            log.error("journal_damaged", reason=str(found))
            self.damage = found
        self.damaged.notify()

    async def _or_die(self, work: Awaitable[T]) -> T:
        return await or_die(work, self._lifecycle, "the journal's directory")
