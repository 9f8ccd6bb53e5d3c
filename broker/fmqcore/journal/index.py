"""The index of one segment: per queue, one 40-byte entry a batch. Pure.

It is derived from the journal's headers alone, so it can always be rebuilt, and deterministically:
two builders of the same segment give equal bytes. It is kept as columns of machine words: adding
and looking up cost about a microsecond, and encoding copies slices instead of looping over entries.
On disk it is `<base>.index` (byte diagram in `docs/reference/file-format.md`).
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, Self

from fmqcore.batch.crc import Buffer, crc32c
from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import Malformed
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.scan import Readable, crc_of
from fmqcore.turns import Turns, finish

ENTRY_LEN: Final = 40

_MAGIC: Final = 0x58514D46  # "FMQX"
_VERSION: Final = 1
_HEADER: Final = Struct("<IHHIIQQQ")
_QUEUE: Final = Struct("<IHHQ")
_ENTRY: Final = Struct("<QQQQQ")
_CRC: Final = Struct("<I")
_CRC_FROM: Final = 12  # the CRC covers everything behind itself
_WORDS: Final = ENTRY_LEN // 8
_U32: Final = 2**32 - 1
_STEP: Final = 1024 * 1024
_ROWS_A_PIECE: Final = 40_000  # between two pauses: some 2 ms
_ROWS_OF_A_QUEUE: Final = 100  # what a queue costs beside its rows, in rows
_AT_ONCE: Final = 256  # entries of one queue, where all queues are read side by side
assert sys.byteorder == "little", "the index and the columns are little-endian machine words"


class IndexEntry(NamedTuple):
    """Where one batch is stored."""

    base_offset: Offset
    position: Position
    total_len: int
    record_count: int
    store_ms: int
    tag_mask: int

    @property
    def end(self) -> Position:
        """Position one past the batch."""
        return Position(self.position + self.total_len)

    @property
    def end_offset(self) -> Offset:
        """Offset one past the last record."""
        return Offset(self.base_offset + self.record_count)


class _Queue:
    """One queue's entries as five columns; `sizes` holds total_len | count << 32."""

    __slots__ = ("base_offsets", "positions", "sizes", "store_ms", "tag_masks")

    def __init__(self) -> None:
        self.base_offsets = array("Q")
        self.positions = array("Q")
        self.sizes = array("Q")
        self.store_ms = array("Q")
        self.tag_masks = array("Q")

    def columns(self) -> "tuple[array[int], ...]":
        return (self.base_offsets, self.positions, self.sizes, self.store_ms, self.tag_masks)

    def packed(self, first: int = 0, end: int | None = None) -> bytes:
        """Return the given rows, or all rows, in their stored form."""
        end = len(self.positions) if end is None else end
        words = array("Q", bytes(ENTRY_LEN * (end - first)))
        for i, column in enumerate(self.columns()):
            words[i::_WORDS] = column[first:end]
        return words.tobytes()

    def below(self, position: Position) -> int:
        """Return the row of the last batch that ends at or below `position`; -1 if none does."""
        at = bisect_left(self.positions, position) - 1
        if at >= 0 and self.positions[at] + (self.sizes[at] & _U32) > position:
            at -= 1
        return at

    def end_offset(self, at: int) -> Offset:
        return Offset(self.base_offsets[at] + (self.sizes[at] >> 32))

    def entry(self, at: int) -> IndexEntry:
        size = self.sizes[at]
        return IndexEntry(
            Offset(self.base_offsets[at]),
            Position(self.positions[at]),
            size & _U32,
            size >> 32,
            self.store_ms[at],
            self.tag_masks[at],
        )


class SegmentIndex:
    """One segment's index in memory. `end`: positions below it are indexed."""

    def __init__(self, base: Position) -> None:
        self.base = base
        self.end = base
        self._queues: dict[QueueKey, _Queue] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the index takes, roughly."""
        return len(self) * ENTRY_LEN + 1024

    def __len__(self) -> int:
        return sum(len(queue.positions) for queue in self._queues.values())

    def queues(self) -> list[QueueKey]:
        """Return the queues that have batches here, ascending."""
        return sorted(self._queues)

    def add(self, header: BatchHeader) -> None:
        """Add the next batch; one that is not DATA only moves `end`."""
        self.end = header.end
        if header.type != BatchType.DATA:
            return
        key = (header.topic_id, header.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.base_offsets.append(header.base_offset)
        queue.positions.append(header.position)
        queue.sizes.append(header.total_len | header.record_count << 32)
        queue.store_ms.append(header.store_ms)
        queue.tag_masks.append(header.tag_mask)

    def entries(self, key: QueueKey) -> list[IndexEntry]:
        """Return all entries of a queue."""
        queue = self._queues.get(key)
        return [queue.entry(i) for i in range(len(queue.positions))] if queue else []

    def columns(self, key: QueueKey) -> "tuple[array[int], ...]":
        """Return base offsets, positions, sizes, store times, tag masks of a queue; do not change.

        A size is `total_len | record_count << 32`.
        """
        return (self._queues.get(key) or _Queue()).columns()

    def by_position(self) -> dict[Position, tuple[QueueKey, IndexEntry]]:
        """Return all entries of all queues, by the positions of their batches."""
        return {entry.position: (key, entry) for key in self._queues for entry in self.entries(key)}

    def first(self, key: QueueKey) -> IndexEntry | None:
        """Return the queue's first entry here; None if there is none."""
        queue = self._queues.get(key)
        return queue.entry(0) if queue else None

    def last(self, key: QueueKey) -> IndexEntry | None:
        """Return the queue's last entry here; None if there is none."""
        queue = self._queues.get(key)
        return queue.entry(len(queue.positions) - 1) if queue else None

    def find(self, key: QueueKey, offset: Offset, limit: int) -> list[IndexEntry]:
        """Return up to `limit` entries, from the batch that holds `offset` (or the next one) on."""
        queue = self._queues.get(key)
        if queue is None:
            return []
        at = max(bisect_right(queue.base_offsets, offset) - 1, 0)
        if queue.end_offset(at) <= offset:
            at += 1
        return [queue.entry(i) for i in range(at, min(at + limit, len(queue.positions)))]

    def find_time(self, key: QueueKey, wall_ms: int) -> IndexEntry | None:
        """Return the first entry stored at or after that time; store times never fall."""
        queue = self._queues.get(key)
        at = bisect_left(queue.store_ms, wall_ms) if queue else 0
        return queue.entry(at) if queue and at < len(queue.positions) else None

    def last_below(self, key: QueueKey, position: Position) -> IndexEntry | None:
        """Return the last entry whose batch ends at or below `position` (a commit end)."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        at = queue.below(position)
        return queue.entry(at) if at >= 0 else None

    def end_offset_below(self, key: QueueKey, position: Position) -> Offset | None:
        """Return the `end_offset` of `last_below` without creating an entry: it is called often."""
        queue = self._queues.get(key)
        at = -1 if queue is None else queue.below(position)
        return None if queue is None or at < 0 else queue.end_offset(at)

    def truncate(self, position: Position) -> None:
        """Drop the batches at or above `position` (a batch boundary)."""
        for key, queue in list(self._queues.items()):
            at = bisect_left(queue.positions, position)
            for column in queue.columns():
                del column[at:]
            if not at:
                del self._queues[key]
        self.end = min(self.end, position)

    def packed(self, key: QueueKey) -> bytes:
        """Return a queue's entries as they are stored."""
        return (self._queues.get(key) or _Queue()).packed()

    def encode(self) -> bytes:
        """Encode the index file."""
        return finish(self.encoding())

    def encoding(self, until: Position | None = None) -> Turns[bytes]:
        """Encode the index file in pieces; with `until`, of the batches below that batch boundary.

        Batches at or above `until` may be added meanwhile. The index must not be truncated.
        """
        until, keys = self.end if until is None else until, self.queues()
        yield
        directory, parts, queues, total = bytearray(), list[bytes](), 0, 0
        left = _ROWS_A_PIECE
        for key in keys:
            queue = self._queues[key]
            count = bisect_left(queue.positions, until)
            if count:
                directory += _QUEUE.pack(*key, 0, count)
                queues, total = queues + 1, total + count
            for at in range(0, count, _ROWS_A_PIECE):
                rows = min(count - at, _ROWS_A_PIECE)
                parts.append(queue.packed(at, at + rows))
                left -= rows + _ROWS_OF_A_QUEUE
                if left <= 0:
                    left = _ROWS_A_PIECE
                    yield
        head = _HEADER.pack(_MAGIC, _VERSION, 0, 0, queues, self.base, until, total)
        body = b"".join((head[_CRC_FROM:], directory, *parts))
        yield
        return b"".join((head[:8], _CRC.pack(crc32c(body)), body))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode an index file; raise `Malformed`."""
        return finish(cls.decoding(data))

    @classmethod
    def decoding(cls, data: Buffer) -> Turns[Self]:
        """Like `decode`, in pieces; `data` must not change meanwhile."""
        file = IndexFile(data)
        yield
        index = cls(file.base)
        index.end = file.end
        left = _ROWS_A_PIECE
        for key, at, length in file.queues:
            words = array("Q")
            words.frombytes(data[at : at + length * ENTRY_LEN])
            queue = index._queues[key] = _Queue()
            for i, column in enumerate(queue.columns()):
                column.extend(words[i::_WORDS])
            left -= length + _ROWS_OF_A_QUEUE
            if left <= 0:
                left = _ROWS_A_PIECE
                yield
        return index


class IndexFile:
    """An index file read piece by piece: with small batches it has a third of the segment's size.

    `queues`: each queue, where its entries are in the file, and how many.
    """

    def __init__(self, data: Readable) -> None:
        """Check the whole file; raise `Malformed`."""
        self._data = data
        head = bytes(data[: _HEADER.size])
        if len(head) < _HEADER.size:
            raise Malformed(f"an index file of {len(data)} bytes is too short")
        magic, version, zero, crc, queues, base, end, count = _HEADER.unpack(head)
        if (magic, version, zero) != (_MAGIC, _VERSION, 0):
            raise Malformed(f"not an index file of version {_VERSION}: {head[:8].hex()}")
        if crc != crc_of(data, _CRC_FROM, len(data)):
            raise Malformed("the index file's CRC does not match")
        at = _HEADER.size + queues * _QUEUE.size
        if len(data) != at + count * ENTRY_LEN:
            raise Malformed(f"the index file has {len(data)} bytes, which do not match its counts")
        self.base, self.end = Position(base), Position(end)
        self.queues: list[tuple[QueueKey, int, int]] = []
        for topic_id, queue_id, _, length in _QUEUE.iter_unpack(bytes(data[_HEADER.size : at])):
            self.queues.append(((TopicId(topic_id), queue_id), at, length))
            at += length * ENTRY_LEN
        if at != len(data):
            raise Malformed("the index file's queues do not add up to its entries")

    def packed(self, at: int, length: int) -> Iterator[bytes]:
        """Yield `length` entries from byte `at` on as they are stored, in large pieces."""
        until = at + length * ENTRY_LEN
        for begin in range(at, until, _STEP):
            yield bytes(self._data[begin : min(begin + _STEP, until)])

    def entries(self, at: int, length: int) -> Iterator[IndexEntry]:
        """Yield `length` entries from byte `at` on; little is read ahead."""
        until, step = at + length * ENTRY_LEN, _AT_ONCE * ENTRY_LEN
        for begin in range(at, until, step):
            piece = bytes(self._data[begin : min(begin + step, until)])
            for base_offset, position, size, store_ms, tag_mask in _ENTRY.iter_unpack(piece):
                yield IndexEntry(base_offset, position, size & _U32, size >> 32, store_ms, tag_mask)
