"""The headers-only scan kernel: a byte range of a segment becomes columns. Pure.

It runs over every header of a journal of any size, so no object is created per batch: the 96 bytes
of each good header are concatenated as they are, and a column is a strided slice of that block,
taken on demand. The checks of each header: magic, version, CRC, type, lengths, position, chain.
Checks that need more than the header before it (offsets, epochs, payloads) are in
`fmqcore.verify.directory`.

Bytes come through a function `read(length, at)`, for example `functools.partial(os.pread, fd)`. The
size of a read follows the batches: of large ones only the headers, of small ones windows.
"""

from array import array
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    HEADER_LEN,
    MAGIC,
    VERSION,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    kind_name,
    parse_header,
)
from fmqcore.ids import Position
from fmqcore.journal.scan import Blank, Fault, Sealed, Stop
from fmqcore.journal.segments import Segment, fits, segment_of_snap

Read = Callable[[int, int], bytes]
"""`read(length, at)`: `length` bytes from byte `at` of the segment's file, fewer at its end."""

WINDOW: Final = 256 * 1024
"""Bytes read at a time while batches are small."""

_LARGE: Final = 4096  # above it a read for each header is cheaper than to copy what lies between
_FIRST: Final = 64 * 1024
_RESIZE_AFTER: Final = 64  # headers read one by one before the size is judged again
_MAX_BLOCK: Final = 1 << 16  # headers of one block at most: 6 MiB

_HEAD: Final = Struct("<IIIIQ56xIIQ")
_FIELDS: Final = Struct("<IHBBIIQIHHIIQQQQHHIIIQ")
_MARK: Final = MAGIC | VERSION << 16
_MARK_MASK: Final = 0x00FFFFFF
_DATA: Final = _MARK | BatchType.DATA << 24
_PLACES: Final = {  # column → (machine word, where in the header, counted in such words)
    "total_len": ("I", 0),
    "type": ("B", 7),
    "header_crc": ("I", 2),
    "payload_crc": ("I", 3),
    "position": ("Q", 2),
    "epoch": ("I", 6),
    "attrs": ("H", 14),
    "queue_id": ("H", 15),
    "topic_id": ("I", 8),
    "record_count": ("I", 9),
    "base_offset": ("Q", 5),
    "store_ms": ("Q", 6),
    "deliver_at_ms": ("Q", 7),
    "producer_id": ("Q", 8),
    "producer_epoch": ("H", 36),
    "base_sequence": ("I", 19),
    "prev_header_crc": ("I", 20),
    "payload_len": ("I", 21),
    "tag_mask": ("Q", 11),
}
COLUMNS: Final = tuple(_PLACES)
"""The names that `HeaderBlock.column` accepts."""
pack: Final = _FIELDS.pack
"""`pack(*header)` returns the 96 bytes that the header was parsed from."""
assert _HEAD.size == _FIELDS.size == HEADER_LEN


class HeaderBlock:
    """Headers of consecutive batches, packed as they are stored."""

    __slots__ = ("_words", "raw")

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw
        self._words: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self.raw) // HEADER_LEN

    def column(self, name: str) -> "array[int]":
        """Return one field of all headers, as machine words (`array` has the buffer protocol)."""
        word, place = _PLACES[name]
        words = self._words.get(word)
        if words is None:
            words = self._words[word] = array(word, self.raw)
        return words[place :: HEADER_LEN // words.itemsize]

    def headers(self) -> Iterator[BatchHeader]:
        """Iterate over header objects, for callers that need only a few."""
        return map(BatchHeader._make, _FIELDS.iter_unpack(self.raw))

    def header_bytes(self, at: int) -> bytes:
        """Return the bytes of one header."""
        return self.raw[at * HEADER_LEN : (at + 1) * HEADER_LEN]


class ScanRange(NamedTuple):
    """The range to scan: the batches that begin in [begin, end) of one segment.

    A batch must begin at `begin`: the segment's base, or a place from an index or an earlier scan.
    """

    segment: Segment
    begin: Position
    end: Position
    prev_header_crc: int | None = None  # None: the first batch's chain is taken as it is


class HeaderScan:
    """Iterate over blocks; afterwards `stop` has the reason, None at the range's end.

    `position` is one past the last good batch, `bytes_read` counts the bytes asked of `read`.
    """

    def __init__(self, read: Read, wanted: ScanRange) -> None:
        self.position = wanted.begin
        self.segment = wanted.segment
        self.stop: Stop | None = None
        self.bytes_read = 0
        self._read = read
        self._end = wanted.end
        self._prev = wanted.prev_header_crc
        self._window = _FIRST

    @property
    def last_crc(self) -> int | None:
        """The header CRC of the last good batch, which the next one names; None if unknown."""
        return self._prev

    def __iter__(self) -> Iterator[HeaderBlock]:
        raw = bytearray()
        while self.stop is None and self.position < self._end:
            if self.position == self.segment.end:
                self.stop = Sealed(self.position)
                break
            self._step(raw)
            if len(raw) >= _MAX_BLOCK * HEADER_LEN:
                yield HeaderBlock(bytes(raw))
                raw.clear()
        if raw:
            yield HeaderBlock(bytes(raw))
        if self.stop is None and self.position >= self.segment.end:
            self.stop = Sealed(self.position)

    def _step(self, raw: bytearray) -> None:
        """Read one window, or a run of single headers; then choose the next read's size."""
        had, first = len(raw), self.position
        if self._window == HEADER_LEN:
            self._singles(raw)
        else:
            self._one_window(raw)
        batches = (len(raw) - had) // HEADER_LEN
        mean = (self.position - first) // batches if batches else 0
        self._window = HEADER_LEN if mean > _LARGE else WINDOW

    def _singles(self, raw: bytearray) -> None:
        """Read headers one by one, without payloads."""
        read, base, crc, unpack = self._read, self.segment.base, crc32c, _HEAD.unpack
        position, prev, last = self.position, self._prev, min(self._end, self.segment.end)
        room = last - HEADER_LEN
        count = 0
        while count < _RESIZE_AFTER and position < last:
            count += 1
            head = read(HEADER_LEN, position - base)
            if len(head) < HEADER_LEN:
                break
            total, mark, stored, _, place, before, length, _ = unpack(head)
            end = position + total
            if (
                mark != _DATA
                or before != prev
                or place != position
                or total != (length + 103) & -8
                or end > room
                or stored != crc(head[:8] + head[12:])
            ):
                break
            raw += head
            prev, position = stored, end
        self.bytes_read += count * HEADER_LEN
        self.position, self._prev = position, prev
        if position < last and count < _RESIZE_AFTER:
            self._slow(raw, read(HEADER_LEN, position - base))

    def _one_window(self, raw: bytearray) -> None:
        window = self._read(self._window, self.position - self.segment.base)
        self.bytes_read += len(window)
        crc, unpack, origin = crc32c, _HEAD.unpack, self.position
        position, prev, last = self.position, self._prev, min(self._end, self.segment.end)
        room = last - HEADER_LEN
        while position < last:
            at = position - origin
            head = window[at : at + HEADER_LEN]
            if len(head) < HEADER_LEN:
                break
            total, mark, stored, _, place, before, length, _ = unpack(head)
            end = position + total
            if (
                mark != _DATA
                or before != prev
                or place != position
                or total != (length + 103) & -8
                or end > room
                or stored != crc(head[:8] + head[12:])
            ):
                self.position, self._prev = position, prev
                if not self._slow(raw, head):
                    return
                position, prev = self.position, self._prev
                continue
            raw += head
            prev, position = stored, end
        self.position, self._prev = position, prev
        if position == origin and len(window) < HEADER_LEN:
            self._slow(raw, window)

    def _slow(self, raw: bytearray, head: bytes) -> bool:
        """Check a header in full that is not plainly the next DATA batch; return True if good."""
        position = self.position
        if head == bytes(len(head)):
            self.stop = Blank(position)
            return False
        try:
            header = parse_header(head)
            self._check(header)
        except BadBatch as bad:
            self.stop = Fault(position, bad.fault, str(bad))
            return False
        raw += head
        self._prev, self.position = header.header_crc, header.end
        if header.type == BatchType.EOF:
            self.stop = Sealed(header.end)
            return False
        return True

    def _check(self, header: BatchHeader) -> None:
        """Check a header's place as `fmqcore.journal.scan` does, in the same order."""
        position, segment = self.position, self.segment
        if (header.type == BatchType.SNAP) != (position == segment.base):
            raise BadBatch(BatchFault.TYPE, f"a {kind_name(header.type)} batch is not allowed here")
        if header.type == BatchType.SNAP:
            stored = segment_of_snap(header)
            if stored is None:
                raise BadBatch(BatchFault.LENGTH, f"a segment of {header.base_offset} bytes")
            self.segment = segment = Segment(position, stored.end)
        if header.type == BatchType.EOF:
            good = position + header.total_len == segment.end
        else:
            good = fits(position, header.total_len, segment.end)
        if not good:
            raise BadBatch(
                BatchFault.LENGTH,
                f"length {header.total_len} does not fit the segment, which ends at {segment.end}",
            )
        if header.position != position:
            raise BadBatch(BatchFault.POSITION, f"the batch states the position {header.position}")
        if self._prev not in (None, header.prev_header_crc):
            raise BadBatch(
                BatchFault.CHAIN,
                f"the batch before it has CRC {self._prev:#010x}, "
                f"it names {header.prev_header_crc:#010x}",
            )


def scan_headers(read: Read, wanted: ScanRange) -> tuple[HeaderBlock, HeaderScan]:
    """Return all headers of a range in one block (96 bytes a batch), and the finished scan."""
    scan = HeaderScan(read, wanted)
    return HeaderBlock(b"".join(block.raw for block in scan)), scan
