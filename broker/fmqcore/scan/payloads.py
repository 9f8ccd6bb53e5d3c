"""Payload columns of chosen DATA batches, for bulk readers. Pure.

Batches are read by their places, neighbours in one read, and nothing in between is read. Each batch
is checked: header CRC, place, payload CRC, and that its columns fit. No object is created per
record: a batch's column is two slices, its offsets and its bytes, as they are stored and as an
Arrow binary array has them. Code that joins them to larger arrays checks that the offsets rise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from fmqcore.batch.columns import BadColumns
from fmqcore.batch.header import (
    HEADER_LEN,
    MAX_RECORDS,
    Attrs,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    UnknownKind,
    aligned,
    check_payload,
    parse_header,
)
from fmqcore.errors import CorruptJournal, FmqError, NewerJournal
from fmqcore.ids import Position
from fmqcore.journal.scan import Fault
from fmqcore.journal.segments import segment_name
from fmqcore.scan.headers import HeaderBlock, Read
from fmqcore.scan.selection import Places

BYTES_COLUMNS: Final = ("value", "key", "tag", "headers")
"""Columns of bytes, in their stored order."""
BORN: Final = "born_ms"
"""The column of numbers that follows them."""

_RUN: Final = 4 * 1024 * 1024  # bytes of one read at most (one batch may be larger)
_SLAB_BYTES: Final = 8 * 1024 * 1024
_SLAB_RECORDS: Final = 64 * 1024
_LARGE: Final = 4096  # if only headers are wanted, larger batches are read header by header
_BITS: Final = {
    "value": 0,
    "key": int(Attrs.KEY),
    "tag": int(Attrs.TAG),
    "headers": int(Attrs.HEADERS),
}
_U32: Final = Struct("<I")
_EMPTY: Final = memoryview(bytes(4 * (MAX_RECORDS + 1)))


@dataclass(slots=True)
class BytesColumn:
    """One column of a slab: for each batch `u32[N + 1]`, starting with 0, and the bytes."""

    offsets: list[memoryview] = field(default_factory=list)
    data: list[memoryview] = field(default_factory=list)


class Slab:
    """Decoded batches in journal order. A column that a batch lacks is all empty there."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.columns = {name: BytesColumn() for name in BYTES_COLUMNS if name in columns}
        self.born_ms: list[memoryview] = []  # i64[N] of each batch
        self._headers = bytearray()

    @property
    def headers(self) -> HeaderBlock:
        """The headers of all batches in the slab."""
        return HeaderBlock(bytes(self._headers))

    def add_header(self, raw: bytes, header: BatchHeader) -> None:
        """Add the next batch's header."""
        self._headers += raw
        self.batches += 1
        self.records += header.record_count

    def add_payload(self, header: BatchHeader, payload: bytes, last: str, born: bool) -> None:
        """Add the columns up to `last`. Raise `BadColumns`, and then add nothing."""
        view, count, at = memoryview(payload), header.record_count, 0
        attrs, columns = header.attrs, self.columns
        width = 4 * (count + 1)
        taken: list[tuple[BytesColumn, memoryview, memoryview]] = []
        if attrs & Attrs.CODEC_MASK:
            raise BadColumns(f"codec {attrs & Attrs.CODEC_MASK} is not known")
        for name, bit in _BITS.items():
            column = columns.get(name)
            if bit and not attrs & bit:
                if column is not None:
                    taken.append((column, _EMPTY[:width], _EMPTY[:0]))
            else:
                body = at + width
                if body > len(payload):
                    raise BadColumns(f"the offsets of {name} are truncated")
                end = body + _U32.unpack_from(payload, body - 4)[0]
                if end > len(payload):
                    raise BadColumns(f"the bytes of {name} are truncated")
                if column is not None:
                    taken.append((column, view[at:body], view[body:end]))
                at += aligned(end - at)
            if name == last and not born:
                break
        if born:
            has = attrs & Attrs.BORN
            if has and at + 8 * count > len(payload):
                raise BadColumns("born_ms is truncated")
            self.born_ms.append(view[at : at + 8 * count] if has else _EMPTY[:0])
        for column, offsets, data in taken:
            column.offsets.append(offsets)
            column.data.append(data)
        self.bytes += len(payload)


class PayloadScan:
    """Iterate over slabs of the wanted batches. Raises `CorruptJournal` at a bad batch, and the
    errors of `read`, after a slab of the good batches before it.

    `read(length, at)` reads the segment's file. `good_to`: all wanted batches that begin below it
    are in the slabs so far, including the current one. `bytes_read` counts the bytes asked of
    `read`. A slab has 8 MiB of payloads, or `times` as much: for callers with a high cost per slab.
    """

    def __init__(
        self, read: Read, base: Position, places: Places, columns: Sequence[str], times: int = 1
    ) -> None:
        self.good_to = base
        self.bytes_read = 0
        self._read = read
        self._base = base
        self._places = places
        self._columns = columns
        self._times = times
        wanted = [name for name in BYTES_COLUMNS if name in columns]
        self._last = wanted[-1] if wanted else ""
        self._born = BORN in columns
        self._payloads = bool(wanted) or self._born

    def __iter__(self) -> Iterator[Slab]:
        slab, most = Slab(self._columns), _SLAB_BYTES * self._times
        records = _SLAB_RECORDS * self._times
        positions, lengths = self._places
        for first, end in self._runs():
            taken = first
            try:
                window = self._window(first, end)
                for i in range(first, end):
                    self._take(slab, window, positions[i] - positions[first], i)
                    taken = i + 1
                    if slab.bytes >= most or slab.records >= records:
                        self.good_to = Position(positions[i] + lengths[i])
                        yield slab
                        slab = Slab(self._columns)
            except (FmqError, OSError):
                if slab.batches:
                    self.good_to = Position(positions[taken - 1] + lengths[taken - 1])
                    yield slab
                raise
        if slab.batches:
            self.good_to = Position(positions[-1] + lengths[-1])
            yield slab

    def _window(self, first: int, end: int) -> bytes:
        """Read the bytes of neighbours; only the header of a single batch if that is enough."""
        positions, lengths = self._places
        length = positions[end - 1] - positions[first] + HEADER_LEN
        if self._payloads:
            length += lengths[end - 1] - HEADER_LEN
        window = self._read(length, positions[first] - self._base)
        self.bytes_read += len(window)
        return window

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield neighbours, as [first, end) of the places."""
        positions, lengths = self._places
        first = 0
        for i in range(1, len(positions) + 1):
            if (
                i == len(positions)
                or positions[i] != positions[i - 1] + lengths[i - 1]
                or positions[i] + lengths[i] - positions[first] > _RUN
                or (not self._payloads and lengths[i - 1] > _LARGE)
            ):
                yield first, i
                first = i

    def _take(self, slab: Slab, window: bytes, at: int, i: int) -> None:
        position = Position(self._places.positions[i])
        raw = window[at : at + HEADER_LEN]
        try:
            header = parse_header(raw)
            if header.position != position or header.total_len != self._places.lengths[i]:
                raise BadBatch(BatchFault.POSITION, "there is another batch than the index names")
            if header.type != BatchType.DATA:
                raise BadBatch(BatchFault.TYPE, "the batch holds no records")
            if self._payloads:
                begin = at + HEADER_LEN
                payload = window[begin : begin + header.payload_len]
                check_payload(header, payload)
                slab.add_payload(header, payload, self._last, self._born)
            slab.add_header(raw, header)
        except (BadBatch, BadColumns) as error:
            raise damaged(self._base, position, error) from error


def damaged(
    base: Position, position: Position, reason: str | Exception | Fault, of: str = ""
) -> CorruptJournal:
    """Return the error for a segment that cannot be read on; `of`: the copy with the fault."""
    newer, sentence = isinstance(reason, UnknownKind), str(reason)
    if isinstance(reason, Fault):
        newer, sentence = reason.fault is BatchFault.KIND, reason.sentence
    place = f"at position {position} (byte {position - base} of the file): {of}{sentence}"
    if newer:
        return NewerJournal(f"{segment_name(base)}: not read {place}")
    return CorruptJournal(
        f"{segment_name(base)}: damaged {place}; run `fmq job check` on the directory, and name a "
        "good replica as well"
    )
