"""The producer table: the last five batches of each (producer, topic, queue). Pure.

It makes retries idempotent (P5): a batch sent again gets the offset that it got the first time; and
late batches of a producer's older session are refused (P7). It is a function of the journal alone,
so master and slaves hold the same table. It has at most `MAX_PRODUCERS` entries; beyond that the
one idle for longest (in journal order) is dropped, and counts as `forgotten` if it was idle for
less than a day. A master refuses a new producer (`require_room`) that would push out a recent one.

Batches are kept in SNAP's encoding: an entry takes some 400 bytes and needs no decoding.
"""

from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.fields import Fields
from fmqcore.batch.header import BatchHeader
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import OutOfSequence, Overloaded, ProducerFenced
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.turns import PIECE, Turns, emptying, single

KEPT_BATCHES: Final = 5
"""Batches kept per (producer, topic, queue): the number that a client may have in flight."""
MAX_PRODUCERS: Final = 16_384
"""Most entries, one per (producer, topic, queue)."""
IDLE_MS: Final = 24 * 3600 * 1000
"""A producer idle for longer is left out of SNAP."""
IDLE_KEPT: Final = 1024
"""This many entries stay however long they seem idle: after a clock was wrongly set ahead, active
producers seem idle too, and their retries would be stored twice."""
RETRY_MS: Final = 5 * 60 * 1000
"""A producer that wrote within this time may still retry: no new one may push it out."""

_SEQUENCES: Final = 2**32
_BATCH: Final = Struct("<IIQQQ")
_ENTRY: Final = Struct("<QIHHI")
_EPOCH: Final = Struct("<H")
_EPOCH_AT: Final = 14
_STORE_MS: Final = Struct("<Q")
_FULL: Final = _ENTRY.size + KEPT_BATCHES * _BATCH.size
_COUNT: Final = Struct("<I")
_NEVER: Final = bytes(_FULL)


class ProducedBatch(NamedTuple):
    """One of a producer's last five batches in a queue."""

    base_sequence: int
    record_count: int
    base_offset: Offset
    end: Position  # acknowledged once the commit end has passed this
    store_ms: int


class ProducerTable:
    """The last batches of every producer, ordered by idle time, longest first."""

    __slots__ = ("_entries", "_limit", "forgotten")

    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._limit = limit
        self.forgotten = 0  # entries that had to go within a day of their last batch
        # In SNAP's encoding: a header, then the batches, oldest first.
        self._entries: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerTable) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    def is_part_of(self, other: "ProducerTable") -> bool:
        """Whether `other` has every entry of this table, with the same batches."""
        return self._entries.items() <= other._entries.items()

    def freeing(self) -> Turns[None]:
        """Remove every entry in pieces; the table is not used again."""
        yield from emptying(self._entries.popitem, single)

    def note(self, header: BatchHeader) -> None:
        """Add one DATA batch, in journal order."""
        if not header.producer_id:
            return
        key = (header.producer_id, header.topic_id, header.queue_id)
        entries = self._entries
        entry = entries.get(key, b"")
        batch = _BATCH.pack(
            header.base_sequence,
            header.record_count,
            header.base_offset,
            header.position + header.total_len,
            header.store_ms,
        )
        epoch = header.producer_epoch
        if entry and _EPOCH.unpack_from(entry, _EPOCH_AT)[0] != epoch:
            entry = b""  # a newer session begins its own window
        if len(entry) == _FULL:
            entries[key] = entry[: _ENTRY.size] + entry[_ENTRY.size + _BATCH.size :] + batch
        else:
            kept = entry[_ENTRY.size :] + batch
            entries[key] = _ENTRY.pack(*key, epoch, len(kept) // _BATCH.size) + kept
        entries.move_to_end(key)
        if len(entries) > self._limit:
            self._drop_first(header.store_ms)

    def limit(self, max_bytes: int) -> int:
        """Return the most entries allowed, given that they must fit in `max_bytes`."""
        return min(self._limit, max_bytes // _FULL)

    def require_room(self, producer_id: int, key: QueueKey, now_ms: int, max_bytes: int) -> None:
        """Raise `Overloaded` if a new entry would push out a producer that may still retry.

        `max_bytes`: room for the table in a SNAP.
        """
        entries, limit = self._entries, self.limit(max_bytes)
        if len(entries) < limit or not producer_id or (producer_id, *key) in entries:
            return
        idle_ms = now_ms - _store_ms(next(iter(entries.values()), _NEVER))
        if 0 <= idle_ms < RETRY_MS:  # less than 0: the clock was set back, so it proves nothing
            raise Overloaded(
                f"the producer table is full: {len(entries)} producers (one for each queue that "
                f"it writes to) wrote here within {idle_ms // 1000} s, at most {limit} are "
                "remembered, and without it a retry would be stored twice: send again later, use "
                "fewer producers, or spread the topic over more groups"
            )

    def knows(self, producer_id: int, key: QueueKey) -> bool:
        """Return whether the table has an entry of the producer for that queue."""
        return (producer_id, *key) in self._entries

    def check(
        self, producer_id: int, producer_epoch: int, key: QueueKey, base_sequence: int, count: int
    ) -> ProducedBatch | None:
        """See `JournalState.check_sequence`."""
        entry = self._entries.get((producer_id, *key)) if producer_id else None
        if entry is None:
            return None
        (epoch,) = _EPOCH.unpack_from(entry, _EPOCH_AT)
        if producer_epoch != epoch:
            if producer_epoch > epoch:
                return None
            raise ProducerFenced(
                f"producer {producer_id} writes to topic {key[0]} queue {key[1]} in session "
                f"{producer_epoch}, but session {epoch} is active: open a new producer"
            )
        last_sequence, last_count, *_ = _BATCH.unpack_from(entry, len(entry) - _BATCH.size)
        expected = (last_sequence + last_count) % _SEQUENCES
        if base_sequence == expected:
            return None
        for batch in _BATCH.iter_unpack(entry[_ENTRY.size :]):
            if batch[0] == base_sequence and batch[1] == count:
                return ProducedBatch._make(batch)
        raise OutOfSequence(
            f"producer {producer_id} sent sequence {base_sequence} ({count} records) to topic "
            f"{key[0]} queue {key[1]}, expected {expected}, and it is none of the last "
            f"{KEPT_BATCHES} batches: open a new producer"
        )

    def encode(self, now_ms: int, max_bytes: int) -> tuple[bytes, int]:
        """Return the table in SNAP's encoding, and how many of the longest idle are left out.

        Entries idle for a day are left out, except the newest `IDLE_KEPT`; then as many as needed
        to fit `max_bytes`.
        """
        entries = list(self._entries.values())
        total, out = sum(map(len, entries)), 0
        room = max_bytes - _COUNT.size
        # Store times never fall in a journal, so idle entries come first.
        for entry in entries:
            at_work = now_ms - _store_ms(entry) <= IDLE_MS or len(entries) - out <= IDLE_KEPT
            if total <= room and at_work:
                break
            total -= len(entry)
            out += 1
        kept = entries[out:]
        return _COUNT.pack(len(kept)) + b"".join(kept), out

    def drop_oldest(self, count: int, now_ms: int) -> None:
        """Drop `count` entries, those idle for longest."""
        for _ in range(count):
            self._drop_first(now_ms)

    def _drop_first(self, now_ms: int) -> None:
        _, entry = self._entries.popitem(last=False)
        self.forgotten += now_ms - _store_ms(entry) <= IDLE_MS

    @classmethod
    def decoding(cls, fields: Fields) -> Turns["ProducerTable"]:
        """Decode a table in pieces; raise `Malformed`."""
        table = cls()
        (count,) = fields.take(_COUNT)
        for number in range(count):
            if number % PIECE == PIECE - 1:
                yield
            producer_id, topic_id, queue_id, epoch, batches = fields.take(_ENTRY)
            if not 1 <= batches <= KEPT_BATCHES or not producer_id:
                raise fields.malformed(f"producer {producer_id} has {batches} batches")
            head = _ENTRY.pack(producer_id, topic_id, queue_id, epoch, batches)
            kept = fields.raw(batches * _BATCH.size)
            table._entries[(producer_id, TopicId(topic_id), queue_id)] = head + kept
        if len(table) != count:
            raise fields.malformed("a producer occurs twice")
        return table


def _store_ms(entry: bytes) -> int:
    """Return the time at which the newest batch of an entry was stored."""
    (store_ms,) = _STORE_MS.unpack_from(entry, len(entry) - _STORE_MS.size)
    return int(store_ms)
