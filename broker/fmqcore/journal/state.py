"""The state that a journal's batches add up to; SNAP is its encoding (DESIGN §3). Pure.

CONTRACT STUB (owner: journal formats).
"""

from typing import NamedTuple

from fmqcore.batch import BatchHeader
from fmqcore.crc import Buffer
from fmqcore.words import Epoch, Offset, Position, TopicId

QueueKey = tuple[TopicId, int]
"""(topic, queue)"""


class OffsetKey(NamedTuple):
    """Whose progress, where."""

    group: str  # consumer group
    topic_id: TopicId
    queue_id: int


class OffsetEntry(NamedTuple):
    """A consumer group's progress in one queue.

    `version` rises by one at every change; of two entries the higher version wins, so that a seek
    backwards survives a merge and a stale record never overwrites a newer one. `version` 0 with
    `floor` -1 does not occur; a deleted entry is a tombstone: floor 2**64 - 1.
    """

    version: int
    floor: Offset  # everything below is done
    ranges: tuple[tuple[Offset, Offset], ...] = ()  # done above it: [first, end), ascending


class ProducedBatch(NamedTuple):
    """One of the last five batches of a producer in a queue."""

    base_sequence: int
    record_count: int
    base_offset: Offset
    end: Position  # acknowledged once the commit end has passed this
    store_ms: int


class JournalState:
    """Next offsets, consumer offsets, topics, producers, epochs: as of one position."""

    next_offsets: dict[QueueKey, Offset]
    offsets: dict[OffsetKey, OffsetEntry]
    topics: dict[TopicId, tuple[str, int]]  # name, queues
    epochs: list[tuple[Epoch, Position]]  # ascending; start = position of the EPOCH batch

    def apply(self, header: BatchHeader, payload: Buffer) -> None:
        """Take in one batch, in journal order."""
        raise NotImplementedError

    def check_sequence(
        self, producer_id: int, producer_epoch: int, key: QueueKey, base_sequence: int, count: int
    ) -> ProducedBatch | None:
        """None: new, append it. A `ProducedBatch`: a retry, answer with that one.

        Raises `OutOfSequence` (a gap, or older than the last five) and `ProducerFenced`.
        An unknown producer may begin at any sequence (its entry may have expired).
        """
        raise NotImplementedError

    def to_snap(self, now_ms: int) -> bytes:
        """Encode as a SNAP payload; producers idle for a day are left out."""
        raise NotImplementedError

    @classmethod
    def from_snap(cls, payload: Buffer) -> "JournalState":
        """Decode; raise `Malformed`."""
        raise NotImplementedError
