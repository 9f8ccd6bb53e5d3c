"""The state that a journal's batches build up; SNAP is its encoding. Pure.

A SNAP batch replaces the state. So a journal read from its beginning and one read from any
segment's SNAP give the same state, and what the writer of the SNAP left out (idle producers, old
tombstones) is gone on every replica at the same position.
"""

from collections.abc import Iterable, Set
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from fmqcore.batch.control import Seal, TopicSetting, encode_properties
from fmqcore.batch.crc import Buffer
from fmqcore.batch.fields import Fields, encode_name
from fmqcore.batch.header import BatchHeader
from fmqcore.batch.offset_entry import (
    OffsetEntry,
    OffsetKey,
    QueueKey,
    cost_of,
    decode_entry,
    encode_entry,
    merge,
)
from fmqcore.consume.offsets.packed_entries import BlockKey
from fmqcore.consume.offsets.table import ProgressTable, drop_keys
from fmqcore.ids import MAX_QUEUES, Epoch, Offset, Position, TopicId
from fmqcore.journal.packed_queues import PackedQueues
from fmqcore.journal.producers import ProducedBatch, ProducerTable
from fmqcore.journal.snap_entries import NOTES, PRESENCE_QUEUE, TEMPORARY_QUEUE, SnapEntries
from fmqcore.journal.snap_payload import (
    COUNT,
    EPOCH_START,
    MILLISECONDS,
    SNAP_COUNTS,
    SNAP_VERSION,
    TOPIC_QUEUES,
    WITH_PROPERTIES,
    Snapshot,
    take_snap_counts,
    taking_properties,
    taking_queues,
)
from fmqcore.properties import Properties
from fmqcore.turns import FREED, PIECE, Turns, emptying, finish, single

__all__ = [
    "PRESENCE_QUEUE",
    "TEMPORARY_QUEUE",
    "JournalState",
    "OffsetEntry",
    "OffsetKey",
    "ProducedBatch",
    "QueueKey",
]

MAX_EPOCHS: Final = 1000
"""Most epochs remembered: the newest."""
TOMBSTONE_MS: Final = 24 * 3600 * 1000
"""How long a deleted progress entry stays in SNAP, plus the rest of that hour."""
_BLOCK_COST: Final = 10
"""What it costs to drop a group's tombstones, beside its entries in the topic."""
MAX_SEALS: Final = 16
"""Most seals remembered of one topic: the newest."""
_NO_LIMIT: Final = 1 << 62


class Sealed(NamedTuple):
    """Where a segment of a chain ends here, and the position behind its SEAL batch."""

    ends: tuple[int, ...]
    end: Position


@dataclass(slots=True)
class JournalState:
    """Next offsets, consumer offsets, topics, producers and epochs as of one position.

    `next_offsets` keeps the queues of deleted topics: a group may get the topic back, and its
    offsets must then continue. `seals` are those of the batches that this process has read or
    written: SNAP has none of them (ADR 0066).
    """

    next_offsets: dict[QueueKey, Offset] = field(default_factory=dict)
    offsets: ProgressTable = field(default_factory=ProgressTable)  # tombstones too
    topics: dict[TopicId, tuple[str, int]] = field(default_factory=dict)  # name, queues (> 0)
    topic_properties: dict[TopicId, Properties] = field(default_factory=dict)  # of those with any
    epochs: list[tuple[Epoch, Position]] = field(default_factory=list)  # ascending; first bytes
    producers: ProducerTable = field(default_factory=ProducerTable)
    deleted_ms: dict[OffsetKey, int] = field(default_factory=dict)  # when a tombstone came
    seals: dict[TopicId, dict[int, Sealed]] = field(default_factory=dict, compare=False)
    _packed: SnapEntries = field(default_factory=SnapEntries, compare=False, repr=False)
    _queues: PackedQueues = field(default_factory=PackedQueues, compare=False, repr=False)
    _forgotten: int = field(default=0, compare=False, repr=False)  # by tables that were replaced

    # ---- what the rows of `kinds.py` do with a batch
    def count(self, data: BatchHeader) -> None:
        """Advance the queue's next offset past a DATA batch, and note the batch's producer."""
        queue = data.topic_id, data.queue_id
        if queue not in self.next_offsets:
            self._queues.add(queue)
        self.next_offsets[queue] = data.end_offset
        self.producers.note(data)

    def begin_epoch(self, epoch: Epoch, position: Position) -> None:
        """Note where an epoch begins; of several batches that say so, the first counts."""
        if self.epochs and self.epochs[-1][0] >= epoch:
            return
        self.epochs.append((epoch, position))
        del self.epochs[:-MAX_EPOCHS]

    def note_frame(self, frame: BatchHeader) -> None:
        """Note that a term whose EPOCH batch had no room begins with its frames (ADR 0020).

        The frames carry the epoch before, and that epoch's own master may have written something
        else at their positions, which a slave holds.
        """
        if frame.framed_for:
            self.begin_epoch(frame.framed_for, frame.position)

    def merge_offsets(
        self, packed: dict[OffsetKey, tuple[OffsetEntry, bytes]], store_ms: int
    ) -> None:
        """Merge the entries of an OFFSETS batch, each with its own bytes."""
        entries = {key: entry for key, (entry, _) in packed.items()}
        if self._packed.leaving:
            self._recall(entries)
        for key in merge(self.offsets, entries):
            raw, before_ms = packed[key][1], self.deleted_ms.pop(key, None)
            if entries[key].deleted:
                self.deleted_ms[key] = store_ms
                raw += MILLISECONDS.pack(store_ms)
            self._packed.put(key, raw, self.deleted_ms, before_ms)

    def set_topic(self, setting: TopicSetting) -> None:
        """Take a topic as a CONFIG batch has it; a deleted one goes with its progress."""
        topic_id, name, queues, properties = setting
        self.topic_properties.pop(topic_id, None)
        if queues:
            self.topics[topic_id] = (name, queues)
            if properties:
                self.topic_properties[topic_id] = properties
            return
        self.topics.pop(topic_id, None)
        self.seals.pop(topic_id, None)
        for group in list(self.offsets.groups_in(topic_id)):
            self._packed.drop((group, topic_id))
            self._drop((group, topic_id), set(self.offsets.queues_of(group, topic_id)))

    def note_seal(self, seal: Seal, end: Position) -> None:
        """Note where a segment of an ordered topic ends; of several SEALs the last counts."""
        seals = self.seals.setdefault(seal.topic_id, {})
        seals.pop(seal.segment, None)
        seals[seal.segment] = Sealed(seal.ends, end)
        if len(seals) > MAX_SEALS:
            del seals[next(iter(seals))]

    def replace(self, other: "JournalState") -> "JournalState":
        """Take another state, a SNAP's, in place of this one; return this one as it was.

        A caller on an event loop frees that with `freeing`.
        """
        before = copy(self)
        self.next_offsets = other.next_offsets
        self.offsets = other.offsets
        self.topics = other.topics
        self.topic_properties = other.topic_properties
        self.epochs = other.epochs
        self._forgotten = self.forgotten_producers
        self.producers = other.producers
        self.deleted_ms = other.deleted_ms
        self._packed = other._packed
        self._queues = other._queues
        return before

    def freeing(self) -> Turns[None]:
        """Free the large tables in pieces: thousands of entries at once hold a loop for long.

        Nothing uses the state again, so it may be half empty at a pause.
        """
        yield from emptying(self.next_offsets.popitem, single)
        yield from emptying(self.deleted_ms.popitem, single)
        yield from self.offsets.freeing()
        yield from self._packed.freeing()
        yield from self.producers.freeing()

    def follow_snap(self, snap: BatchHeader, decoded: "JournalState") -> "JournalState":
        """Apply a SNAP batch whose payload is decoded already; return the state before it.

        `decoded` is not used again.
        """
        before = self.replace(decoded)
        self.note_frame(snap)
        return before

    # ---- what a broker asks
    def check_sequence(
        self, producer_id: int, producer_epoch: int, key: QueueKey, base_sequence: int, count: int
    ) -> ProducedBatch | None:
        """Return None for a new batch, which is to be appended, or the stored batch of a retry.

        Raises `OutOfSequence` (a gap, or older than the last five) and `ProducerFenced`.
        An unknown producer, or a newer session of a known one, may start at any sequence (its entry
        may have expired). Producer 0 is not idempotent: its batches are always new.
        """
        return self.producers.check(producer_id, producer_epoch, key, base_sequence, count)

    def progress(self, key: OffsetKey) -> OffsetEntry | None:
        """Return a consumer group's progress; None if it has none or it was deleted."""
        entry = self.offsets.get(key)
        return None if entry is None or entry.deleted else entry

    @property
    def progress_bytes(self) -> int:
        """Bytes of consumer progress in a SNAP."""
        return self._packed.size

    @property
    def forgotten_producers(self) -> int:
        """Number of producer entries dropped within a day of their last batch (P5)."""
        return self._forgotten + self.producers.forgotten

    def present_ms(self, group: str, topic_id: TopicId) -> int | None:
        """Return when the group was last noted to have members on the topic; None if never."""
        times = (self.deleted_ms.get(OffsetKey(group, topic_id, queue)) for queue in NOTES)
        return max((ms for ms in times if ms is not None), default=None)

    def to_snap(
        self, now_ms: int, max_bytes: int = _NO_LIMIT, max_producers: int = _NO_LIMIT
    ) -> bytes:
        """Encode as a SNAP payload: see `snapshot`."""
        return self.snapshot(now_ms, max_bytes, max_producers).payload

    def snapshot(
        self, now_ms: int, max_bytes: int = _NO_LIMIT, max_producers: int = _NO_LIMIT
    ) -> Snapshot:
        """Encode as a SNAP payload; producers idle for a day and old tombstones are left out.

        More producers, those idle for longest, are left out until they take at most `max_producers`
        bytes and everything at most `max_bytes` (`segments.snap_room`); nothing else is. This is a
        pause between two appends, so progress is kept encoded and taken as it is.
        """
        self._pack_missing()
        hours = self._packed.hours_before(now_ms - TOMBSTONE_MS)
        progress, count = self._packed.parts(hours)
        head = SNAP_COUNTS.pack(
            SNAP_VERSION,
            WITH_PROPERTIES if self.topic_properties else 0,
            len(self.next_offsets),
            len(self.epochs),
            len(self.topics),
            count,
        )
        epochs = b"".join([EPOCH_START.pack(epoch, start) for epoch, start in self.epochs])
        topics = b"".join([
            TOPIC_QUEUES.pack(topic_id, queues) + encode_name(name)
            for topic_id, (name, queues) in sorted(self.topics.items())
        ])  # fmt: skip
        parts = [head, self._queues.pack(self.next_offsets), epochs, topics, *progress]
        properties = self._encode_properties()
        length = sum(map(len, parts)) + len(properties)
        producers, idle = self.producers.encode(now_ms, min(max_producers, max_bytes - length))
        parts += [producers, properties]
        return Snapshot(parts, length + len(producers), hours, idle, now_ms)

    def settle(self, snapshot: Snapshot) -> None:
        """Forget what the snapshot, just taken and now stored, left out.

        The same as to `apply` it, without decoding it. The tombstones leave the tables with
        `dropping`; they count as absent already (`SnapEntries`).
        """
        for hour in snapshot.hours:
            if self._packed.is_leaving(hour):  # the clock was set back by more than a day
                finish(self.dropping())
            self._packed.leave(hour)
        self.producers.drop_oldest(snapshot.producers, snapshot.now_ms)

    def dropping(self, piece: int = FREED) -> Turns[None]:
        """Drop in pieces what SNAPs left out; the state may change and be replaced meanwhile."""
        entries, left = self._packed, piece
        while entries is self._packed and (found := entries.pop_leaving()) is not None:
            (group, topic_id), queues = found
            left -= _BLOCK_COST + len(self.offsets.queues_of(group, topic_id))
            self._drop((group, topic_id), queues)
            if left <= 0:
                left = piece
                yield

    @classmethod
    def from_snap(cls, payload: Buffer) -> "JournalState":
        """Decode a SNAP payload; raise `Malformed`."""
        return finish(cls.decoding_snap(payload))

    @classmethod
    def decoding_snap(cls, payload: Buffer) -> Turns["JournalState"]:
        """Like `from_snap`, in pieces; `payload` must not change meanwhile."""
        fields = Fields(payload, "SNAP payload")
        flags, queues, epochs, topics, offsets = take_snap_counts(fields)
        state = cls()
        state.next_offsets = yield from taking_queues(fields, queues)
        yield
        state._queues = PackedQueues(state.next_offsets)
        state.epochs = [(Epoch(e), Position(p)) for e, p in fields.many(EPOCH_START, epochs)]
        for number in range(1, topics + 1):
            topic_id, count = fields.take(TOPIC_QUEUES)
            state.topics[TopicId(topic_id)] = (fields.name(), count)
            if not number % PIECE:
                yield
        cost = 0
        for _ in range(offsets):
            at = fields.at
            key, entry = decode_entry(fields)
            state.offsets[key] = entry
            if entry.deleted:
                (state.deleted_ms[key],) = fields.take(MILLISECONDS)
            state._packed.put(key, fields.since(at), state.deleted_ms)
            cost += cost_of(entry)
            if cost >= PIECE:
                cost = 0
                yield
        state.producers = yield from ProducerTable.decoding(fields)
        if flags & WITH_PROPERTIES:
            state.topic_properties = yield from taking_properties(fields)
        fields.done()
        if len(state.topics) != topics or len(state.offsets) != offsets:
            raise fields.malformed("a topic or a progress entry occurs twice")
        state._check(fields)
        return state

    def _encode_properties(self) -> bytes:
        """Encode the topics' properties; b"" if no topic has any: SNAPs stay as they were."""
        if not self.topic_properties:
            return b""
        parts = [
            COUNT.pack(topic_id) + encode_properties(properties)
            for topic_id, properties in sorted(self.topic_properties.items())
        ]
        return COUNT.pack(len(parts)) + b"".join(parts)

    def _pack_missing(self) -> None:
        """Encode what did not come through `apply`; a broker has nothing of that kind."""
        if len(self._queues) != len(self.next_offsets):
            self._queues = PackedQueues(self.next_offsets)
        if self._packed.count + self._packed.leaving == len(self.offsets):
            return
        finish(self.dropping())
        self._packed = SnapEntries()
        for key, entry in self.offsets.items():
            deleted = MILLISECONDS.pack(self.deleted_ms[key]) if entry.deleted else b""
            self._packed.put(key, encode_entry(key, entry) + deleted, self.deleted_ms)

    def _drop(self, block: BlockKey, queues: Set[int]) -> None:
        """Remove the entries of these queues of a group in a topic from the tables."""
        self.offsets.drop(*block, queues)
        if self.deleted_ms:
            drop_keys(self.deleted_ms, *block, queues)

    def _recall(self, entries: Iterable[OffsetKey]) -> None:
        """Remove what is leaving of these keys, and of the notes of their groups.

        Replicas that have dropped it already then agree about the entries that come.
        """
        groups = dict.fromkeys((group, topic_id) for group, topic_id, _ in entries)
        notes = (OffsetKey(*block, note) for block in groups for note in NOTES)
        for key in chain(entries, notes):
            ms = self.deleted_ms.get(key)
            if ms is not None and self._packed.recall(key, ms):
                del self.offsets[key], self.deleted_ms[key]

    def _check(self, fields: Fields) -> None:
        if self.epochs != sorted(set(self.epochs)):
            raise fields.malformed("the epochs do not rise")
        if any(not 0 < queues <= MAX_QUEUES for _, queues in self.topics.values()):
            raise fields.malformed(f"a topic has not 1 to {MAX_QUEUES} queues")


def disagreement(state: JournalState, snap: JournalState) -> str:
    """Return why a SNAP cannot follow from this state; "" if it can.

    A SNAP may leave out idle producers and old tombstones, nothing else.
    """
    if state.next_offsets != snap.next_offsets:
        return "next offsets differ"
    if state.epochs != snap.epochs:
        return "epochs differ"
    if state.topics != snap.topics:
        return "topics differ"
    if state.topic_properties != snap.topic_properties:
        return "properties of topics differ"
    if any(state.offsets.get(key) != entry for key, entry in snap.offsets.items()):
        return "consumer offsets differ"
    if any(not e.deleted for key, e in state.offsets.items() if key not in snap.offsets):
        return "consumer offsets are missing"
    return "" if snap.producers.is_part_of(state.producers) else "producers differ"
