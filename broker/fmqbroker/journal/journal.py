"""The journal (DESIGN §3): the broker's append-only byte log, and the only truth.

CONTRACT STUB: the signatures below are what the other ways are written against.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fmqbroker.settings import BrokerSettings
from fmqbroker.signal import Signal
from fmqcore.batch import BatchHeader, BatchType
from fmqcore.journal.state import JournalState
from fmqcore.words import Epoch, Offset, Position, TopicId
from fmqport.clock import Clock
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle


class BatchDraft(NamedTuple):
    """A batch before it has a place. Control batches use topic 0, queue 0, record_count 0."""

    type: BatchType
    payload: bytes
    payload_crc: int
    topic_id: TopicId = TopicId(0)
    queue_id: int = 0
    record_count: int = 0
    attrs: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    base_sequence: int = 0
    tag_mask: int = 0
    deliver_at_ms: int = 0


class Appended(NamedTuple):
    """Where a batch went."""

    position: Position
    end: Position
    base_offset: Offset
    store_ms: int


class Found(NamedTuple):
    """A stored batch, as an index entry says."""

    base_offset: Offset
    position: Position
    total_len: int
    record_count: int
    store_ms: int
    tag_mask: int


class Journal:
    """One data directory's journal. Appends are in memory and at once; the flusher follows.

    log_start ≤ durable_end ≤ written_end ≤ end. `end` moves at `append`; `written_end` after
    pwritev; `durable_end` after fdatasync. A failed fsync, or EIO, calls `lifecycle.fatal`.
    """

    state: JournalState  # next offsets, consumer offsets, topics, producers, epochs: as of `end`
    log_start: Position
    end: Position
    written_end: Position
    durable_end: Position
    epoch: Epoch  # of the last EPOCH batch; 0 = none
    last_header_crc: int  # of the batch that ends at `end`
    clean: bool  # the stop before this start was orderly
    known_commit_end: Position  # as of the last checkpoint or `note_commit_end`
    appended: Signal  # `end` moved (or went back: truncate, reset)
    flushed: Signal  # `written_end` or `durable_end` moved

    @classmethod
    async def open(
        cls, disk: Disk, settings: BrokerSettings, clock: Clock, lifecycle: Lifecycle
    ) -> "Journal":
        """Recover and open. Raises `CorruptJournal` (file, position, remedy), `DirectoryLocked`.

        A torn tail is cut; what remains is fsynced, so that `durable_end == end` at return.
        """
        raise NotImplementedError

    async def run(self) -> None:
        """Flush, checkpoint, prepare segments; runs in the broker's task group until cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        """Flush all, write a clean checkpoint, let the directory go."""
        raise NotImplementedError

    # ---- writing
    def append(self, draft: BatchDraft) -> Appended:
        """Append one batch in the journal's current epoch (master). Never blocks.

        Raises `StorageFull`, `TooLarge`. Updates `state` and the index; the flusher is woken once
        per turn of the loop. An EPOCH draft opens its epoch (the payload names it).
        """
        raise NotImplementedError

    def append_replica(self, position: Position, data: bytes) -> None:
        """Append whole batches as received (slave). Raises `BadBatch`, nothing appended then.

        Checks: position == end (R2), every header and payload CRC, chain, offset continuity,
        epoch not falling. An EOF comes as its 96 header bytes.
        """
        raise NotImplementedError

    async def wait_durable(self, position: Position) -> None:
        """Until `durable_end >= position`, forcing an fsync whatever the flush policy."""
        raise NotImplementedError

    def set_flush(self, *, sync: bool, interval_ms: int) -> None:
        """fsync every group commit, or only write and fsync every `interval_ms` (0 = never)."""
        raise NotImplementedError

    def note_commit_end(self, position: Position) -> None:
        """Remember the commit end in the next checkpoint."""
        raise NotImplementedError

    async def truncate(self, position: Position) -> None:
        """Cut back to a batch boundary, durably; state and index follow. Not below log_start."""
        raise NotImplementedError

    async def reset(self, position: Position) -> None:
        """Drop everything; the next append is the SNAP at this segment base."""
        raise NotImplementedError

    # ---- reading
    def read_tail(self, position: Position, max_bytes: int) -> bytes | None:
        """Whole stored batches from `position`, from memory; None if it is not in the cache.

        At least one batch, b"" at the end. An EOF is its 96 bytes (the next position is then its
        `end`, not position + 96), and is the last batch of what is returned.
        """
        raise NotImplementedError

    async def read(self, position: Position, max_bytes: int) -> bytes:
        """As `read_tail`, from memory or disk. Raises `NotFound` below `log_start`."""
        raise NotImplementedError

    async def read_batch(self, entry: Found) -> tuple[BatchHeader, bytes]:
        """One stored batch: its parsed header and all its stored bytes (header and payload)."""
        raise NotImplementedError

    # ---- index
    def begin_offset(self, topic_id: TopicId, queue_id: int) -> Offset:
        """The oldest offset still stored (or the next one, for an empty queue)."""
        raise NotImplementedError

    def next_offset(self, topic_id: TopicId, queue_id: int) -> Offset:
        """One past the newest offset appended."""
        raise NotImplementedError

    def committed_offset(self, topic_id: TopicId, queue_id: int, commit_end: Position) -> Offset:
        """One past the newest offset whose batch ends at or below `commit_end` (R7)."""
        raise NotImplementedError

    async def find(
        self, topic_id: TopicId, queue_id: int, offset: Offset, limit: int
    ) -> Sequence[Found]:
        """Up to `limit` index entries from the batch that holds `offset` (or the next) on."""
        raise NotImplementedError

    async def find_time(self, topic_id: TopicId, queue_id: int, wall_ms: int) -> Offset:
        """The first offset stored at or after that time; `next_offset` if there is none."""
        raise NotImplementedError

    # ---- retention
    async def retire(self, keep_from: Position, now_ms: int) -> int:
        """Delete whole old segments by time and size, none at or past `keep_from`; bytes freed."""
        raise NotImplementedError
