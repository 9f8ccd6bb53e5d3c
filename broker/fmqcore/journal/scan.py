"""The scan kernel: walk over stored batches and stop at the first fault. Pure.

`advance` takes one step; `Scan` walks one segment; `check_batches` checks what a replica received.
The checks of a batch, in this order: length, magic, version, header CRC, kind, position, chain
(`prev_header_crc`), payload CRC and zero padding (unless headers only), offset continuity, epoch.
A headers-only scan touches no payload byte.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from fmqcore.batch.crc import Buffer, extend
from fmqcore.batch.header import (
    HEADER_LEN,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    UnknownKind,
    check_payload,
    kind_name,
    parse_header,
)
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Offset, Position
from fmqcore.journal.segments import Segment, fits, segment_of_snap
from fmqcore.journal.snap_payload import snap_next_offsets

_BLANK_HEADER: Final = bytes(HEADER_LEN)
_STEP: Final = 1024 * 1024
_ZEROS: Final = bytes(_STEP)


class Readable(Protocol):
    """A segment's bytes: `bytes`, a `memoryview`, an mmap, or a file read in windows."""

    def __len__(self) -> int:
        """Return the number of bytes."""
        ...

    def __getitem__(self, piece: slice, /) -> Buffer:
        """Return a piece, shorter only at the end."""
        ...


class Behind:
    """The part of a `Readable` after its first `begin` bytes."""

    def __init__(self, data: Readable, begin: int) -> None:
        self._data = data
        self._begin = begin

    def __len__(self) -> int:
        return max(len(self._data) - self._begin, 0)

    def __getitem__(self, piece: slice) -> Buffer:
        begin, end, _ = piece.indices(len(self))
        return self._data[self._begin + begin : self._begin + end]


class Blank(NamedTuple):
    """Zeros at the cursor: the end of what was written."""

    position: Position


class Sealed(NamedTuple):
    """The segment is closed by its EOF, or exactly full; `position` is its end."""

    position: Position


class Fault(NamedTuple):
    """The bytes at `position` are not the batch that must be there; `sentence` says why."""

    position: Position
    fault: BatchFault
    sentence: str


Stop = Blank | Sealed | Fault
"""The reason why a scan ended."""


class Growing:
    """Next offsets that grow over others, which are neither copied nor changed."""

    __slots__ = ("_before", "_news")

    def __init__(self, before: "Offsets") -> None:
        self._before: dict[QueueKey, Offset]
        self._news: dict[QueueKey, Offset]
        if isinstance(before, Growing):
            self._before, self._news = before._before, dict(before._news)
        else:
            self._before, self._news = before, {}

    def get(self, key: QueueKey) -> Offset | None:
        """Return a queue's next offset; None if it is not known."""
        found = self._news.get(key)
        return self._before.get(key) if found is None else found

    def __setitem__(self, key: QueueKey, offset: Offset) -> None:
        self._news[key] = offset

    def whole(self) -> dict[QueueKey, Offset]:
        """Return all of them; not to be changed."""
        return {**self._before, **self._news} if self._news else self._before


Offsets = dict[QueueKey, Offset] | Growing
"""Each queue's next offset."""


def whole(offsets: Offsets) -> dict[QueueKey, Offset]:
    """Return all next offsets; not to be changed."""
    return offsets.whole() if isinstance(offsets, Growing) else offsets


@dataclass(slots=True)
class Cursor:
    """The state of a scan, and what the next batch must agree with.

    For a fresh journal: `Cursor(Position(0), prev_header_crc=0)`. For the first remaining segment,
    or the one after a RESET: `Cursor(base)`: its SNAP's chain and epoch are taken as they are.
    """

    position: Position
    prev_header_crc: int | None = None  # None: whatever the next batch says
    epoch: Epoch | None = None  # None: whatever the next batch says
    segment: Segment | None = None  # None: at a base, a SNAP must come
    next_offsets: Offsets = field(default_factory=dict)
    complete: bool = False  # a queue not in `next_offsets` begins at 0; else anywhere


class Scan:
    """Iterate over the good batches of one segment's bytes; afterwards `stop` has the reason.

    `data[0]` is at position `origin` (the segment's base). `cursor` moves along: when a header is
    yielded, the cursor stands behind its batch. `payload(header)` returns the payload. With
    `until`, what begins there or later counts as not written.
    """

    def __init__(
        self,
        data: Readable,
        origin: Position,
        cursor: Cursor,
        *,
        payloads: bool = True,
        until: Position | None = None,
    ) -> None:
        self.data = data
        self._origin = origin
        self._payloads = payloads
        self._until = until
        self.cursor = cursor
        self.stop: Stop | None = None

    def __iter__(self) -> Iterator[BatchHeader]:
        data, origin, cursor, payloads = self.data, self._origin, self.cursor, self._payloads
        until = self._until
        while True:
            if until is not None and cursor.position >= until:
                self.stop = Blank(cursor.position)
                return
            found = advance(data, origin, cursor, payloads=payloads)
            if not isinstance(found, BatchHeader):
                self.stop = found
                return
            yield found
            if found.type == BatchType.EOF:
                self.stop = Sealed(cursor.position)
                return

    def payload(self, header: BatchHeader) -> Buffer:
        """Return a batch's payload, as a slice of `data`."""
        return payload_of(header, self.data, self._origin)


def advance(
    data: Readable,
    origin: Position,
    cursor: Cursor,
    *,
    payloads: bool = True,
    data_payloads: bool = True,
    see: Callable[[BatchHeader, Buffer], None] | None = None,
) -> BatchHeader | Stop:
    """Check the batch at the cursor and move the cursor behind it; return it, or why not.

    At the end of a segment: `Sealed`, while `cursor.segment` still is that segment. `begin_next`
    continues with the next one. `data_payloads=False`: check only control batches' payloads.
    `see` is called with each good batch whose payload was read, and the payload.
    """
    position, segment = cursor.position, cursor.segment
    at = position - origin
    if segment is not None and position == segment.end:
        return Sealed(position)
    head = bytes(data[at : at + HEADER_LEN])
    if head == _BLANK_HEADER[: len(head)]:
        return Blank(position)
    payload: Buffer | None = None
    try:
        header = parse_header(head)
        segment = _check_place(header, cursor)
        if payloads and (data_payloads or header.type != BatchType.DATA):
            payload = _check_payload(header, data, at, cursor)
        _check_content(header, cursor)
    except UnknownKind as unknown:
        return Fault(position, *_fault_of(unknown, data, at, whole=payloads))
    except BadBatch as bad:
        return Fault(position, bad.fault, str(bad))
    cursor.position = header.end
    cursor.prev_header_crc = header.header_crc
    cursor.epoch = header.epoch
    cursor.segment = segment
    if header.type == BatchType.DATA:
        cursor.next_offsets[header.topic_id, header.queue_id] = header.end_offset
    if see is not None and payload is not None:
        see(header, payload)
    return header


def payload_of(header: BatchHeader, data: Readable, origin: Position) -> Buffer:
    """Return the payload of a batch in `data`, whose first byte is at position `origin`."""
    at = header.position - origin + HEADER_LEN
    return data[at : at + header.payload_len]


def begin_next(cursor: Cursor) -> None:
    """Continue from the end of a segment at the next one's base: a SNAP must come."""
    if cursor.segment is not None and cursor.position == cursor.segment.end:
        cursor.segment = None


def first_nonzero(data: Readable, at: int) -> int | None:
    """Return where the first nonzero byte from `at` on is; None if all are zero."""
    for begin in range(at, len(data), _STEP):
        piece = bytes(data[begin : begin + _STEP])
        if piece != _ZEROS[: len(piece)]:
            return begin + len(piece) - len(piece.lstrip(b"\0"))
    return None


def crc_of(data: Readable, begin: int, end: int) -> int:
    """Return the CRC32C of bytes [begin, end), read in pieces."""
    crc = 0
    for at in range(begin, end, _STEP):
        crc = extend(crc, data[at : min(at + _STEP, end)])
    return crc


def check_batches(data: Buffer, cursor: Cursor) -> list[BatchHeader]:
    """Check whole batches as received, `data[0]` at the cursor; raise `BadBatch`.

    An EOF is its 96 bytes and must be the last. The cursor moves only if all are good; it then
    holds news over its `next_offsets` of before, which stay as they are: they may be a journal's
    own, with many queues, and this runs for every message.
    """
    trial = Cursor(
        cursor.position,
        cursor.prev_header_crc,
        cursor.epoch,
        cursor.segment,
        Growing(cursor.next_offsets),
        cursor.complete,
    )
    headers: list[BatchHeader] = []
    at = 0
    while at < len(data):
        if headers and headers[-1].type == BatchType.EOF:
            raise BadBatch(BatchFault.LENGTH, f"{len(data) - at} bytes follow an EOF")
        begin_next(trial)
        found = advance(data, cursor.position, trial)
        match found:
            case BatchHeader():
                headers.append(found)
                at += found.stored_len
            case Fault(at_position, BatchFault.KIND, sentence):
                raise UnknownKind(f"at position {at_position}: {sentence}")
            case Fault():
                raise BadBatch(found.fault, f"at position {found.position}: {found.sentence}")
            case _:
                raise BadBatch(BatchFault.MAGIC, f"at position {found.position}: only zeros")
    _copy(trial, cursor)
    return headers


def _copy(source: Cursor, target: Cursor) -> None:
    target.position = source.position
    target.prev_header_crc = source.prev_header_crc
    target.epoch = source.epoch
    target.segment = source.segment
    target.next_offsets = source.next_offsets
    target.complete = source.complete


def _check_place(header: BatchHeader, cursor: Cursor) -> Segment:
    """Check position, chain and the batch's place in its segment; return the segment."""
    segment = cursor.segment
    if segment is None:
        if header.type != BatchType.SNAP:
            raise BadBatch(BatchFault.TYPE, f"a segment begins with a SNAP, not {_kind(header)}")
        segment = segment_of_snap(header)
        if segment is None:
            raise BadBatch(
                BatchFault.LENGTH,
                f"SNAP states an invalid segment length of {header.base_offset} bytes",
            )
    elif header.type == BatchType.SNAP:
        raise BadBatch(BatchFault.TYPE, "a SNAP within a segment")
    if header.type == BatchType.EOF:
        if header.end != segment.end:
            raise BadBatch(
                BatchFault.LENGTH, f"EOF ends at {header.end}, its segment at {segment.end}"
            )
    elif not fits(cursor.position, header.total_len, segment.end):
        raise BadBatch(
            BatchFault.LENGTH,
            f"length {header.total_len} does not fit the segment, which ends at {segment.end}",
        )
    if header.position != cursor.position:
        raise BadBatch(BatchFault.POSITION, f"the batch states the position {header.position}")
    if cursor.prev_header_crc not in (None, header.prev_header_crc):
        raise BadBatch(
            BatchFault.CHAIN,
            f"the batch before it has CRC {cursor.prev_header_crc:#010x}, "
            f"it names {header.prev_header_crc:#010x}",
        )
    return segment


def _fault_of(
    unknown: UnknownKind, data: Readable, at: int, *, whole: bool
) -> tuple[BatchFault, str]:
    """Return the fault of a batch whose header is sound but of an unknown kind.

    A write may be torn behind the header, so with `whole` the payload is checked first: that bytes
    are missing does not depend on what they mean.
    """
    header, begin = unknown.header, at + HEADER_LEN
    if whole and header is not None:
        try:
            check_payload(header, data[begin : begin + header.payload_len])
        except BadBatch as torn:
            return torn.fault, f"kind {header.type}: {torn}"
    return unknown.fault, str(unknown)


def _check_payload(header: BatchHeader, data: Readable, at: int, cursor: Cursor) -> Buffer:
    """Check and return the payload."""
    if header.type == BatchType.EOF:
        return b""
    begin = at + HEADER_LEN
    payload_end = begin + header.payload_len
    end = at + header.total_len
    if len(data) < end:
        raise BadBatch(
            BatchFault.SHORT, f"the batch has {len(data) - at} bytes, its header states {end - at}"
        )
    payload = data[begin:payload_end]
    check_payload(header, payload)
    if payload_end != end and any(data[payload_end:end]):
        raise BadBatch(BatchFault.PAYLOAD_CRC, "the padding behind the payload is not zero")
    if header.type == BatchType.SNAP:
        _check_snap(payload, cursor)
    return payload


def _check_snap(payload: Buffer, cursor: Cursor) -> None:
    """Learn the next offsets from a SNAP, or compare it with what was counted so far."""
    try:
        snapped = snap_next_offsets(payload)
    except Malformed as error:
        raise BadBatch(BatchFault.CONTENT, str(error)) from error
    if cursor.complete and snapped != (counted := whole(cursor.next_offsets)):
        queues = sorted(
            key for key in snapped.keys() | counted.keys() if snapped.get(key) != counted.get(key)
        )
        raise BadBatch(
            BatchFault.OFFSET,
            f"SNAP disagrees with the batches before it on the next offset of (topic, queue) "
            f"{', '.join(map(str, queues[:5]))}",
        )
    cursor.next_offsets, cursor.complete = snapped, True


def _check_content(header: BatchHeader, cursor: Cursor) -> None:
    """Check offset continuity and epoch."""
    if header.type == BatchType.DATA:
        key = (header.topic_id, header.queue_id)
        expected = cursor.next_offsets.get(key)
        if expected is None and cursor.complete:
            expected = Offset(0)
        if expected is not None and header.base_offset != expected:
            raise BadBatch(
                BatchFault.OFFSET,
                f"topic {key[0]} queue {key[1]} goes on at offset {header.base_offset}, "
                f"expected {expected}",
            )
        if not header.record_count:
            raise BadBatch(BatchFault.OFFSET, "a DATA batch without records")
    epoch = cursor.epoch
    if epoch is not None and header.epoch != epoch:
        if header.epoch < epoch:
            raise BadBatch(BatchFault.EPOCH, f"epoch {header.epoch} after epoch {epoch}")
        if header.type != BatchType.EPOCH:
            raise BadBatch(
                BatchFault.EPOCH,
                f"epoch {header.epoch} after epoch {epoch} in a batch that is no EPOCH",
            )


def _kind(header: BatchHeader) -> str:
    return f"a {kind_name(header.type)}"
