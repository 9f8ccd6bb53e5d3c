"""The batch: N records of one queue under one 96-byte header, the unit of storage.

Layout, little-endian (the table is in `docs/reference/file-format.md`):

     0 u32 total_len (8-aligned)   4 u16 magic   6 u8 version   7 u8 type
     8 u32 header_crc (of bytes 0-8 and 12-96)   12 u32 payload_crc
    16 u64 position        24 u32 epoch          28 u16 attrs            30 u16 queue_id
    32 u32 topic_id        36 u32 record_count   40 u64 base_offset      48 u64 store_ms
    56 u64 deliver_at_ms   64 u64 producer_id    72 u16 producer_epoch   74 u16 zero
    76 u32 base_sequence   80 u32 prev_header_crc  84 u32 payload_len    88 u64 tag_mask
    96 payload, zero pad

Not here: the payload's columns (`columns.py`) and the control payloads (`control.py`).
An EOF batch spans the segment's rest (`total_len`) but only its 96 bytes are written or sent.
"""

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from fmqcore.batch.crc import Buffer, crc32c
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.version import VERSION as FMQ_VERSION

MAGIC: Final = 0x514D  # "MQ"
VERSION: Final = 1
HEADER_LEN: Final = 96
ALIGN: Final = 8
MAX_PAYLOAD: Final = 1024 * 1024 - 4096
"""Most bytes of a producer's payload: with its header it fits a replication message of 1 MiB."""
MAX_RECORDS: Final = 100_000
"""Most records of one batch."""
MAX_PRODUCER_EPOCH: Final = 0xFFFF

_HEADER: Final = struct.Struct("<IHBBIIQIHHIIQQQQHHIIIQ")
_CRC_AT: Final = 8
_U32: Final = struct.Struct("<I")
assert _HEADER.size == HEADER_LEN


class BatchType(IntEnum):
    """The kind of a batch: its number, in the byte `type`. The rows are in `journal/kinds.py`.

    A number from `SKIP_BIT` on is a kind that a version which does not know it skips: such a batch
    is checked, stored and replicated like all others, and changes nothing. A version that does not
    know a number below `SKIP_BIT` stops there (`UnknownKind`).
    """

    DATA = 1
    EOF = 2
    EPOCH = 3
    OFFSETS = 4
    CONFIG = 5
    DELIVER = 6
    SNAP = 8
    SEAL = 0x87


SKIP_BIT: Final = 0x80
"""The bit of `type` that lets a version skip a kind that it does not know (ADR 0061)."""

_NAMES: Final = {int(kind): kind.name for kind in BatchType}


class Attrs(IntFlag):
    """Bits of `attrs`: the low three are the codec (0 = none, the only one so far)."""

    CODEC_MASK = 0x0007
    KEY = 0x0008
    TAG = 0x0010
    HEADERS = 0x0020
    BORN = 0x0040


KNOWN_ATTRS: Final = int(Attrs.KEY | Attrs.TAG | Attrs.HEADERS | Attrs.BORN)


class BatchHeader(NamedTuple):
    """A parsed header; field order is the order on disk. Cheap: one object per batch."""

    total_len: int
    magic: int
    version: int
    type: int
    header_crc: int
    payload_crc: int
    position: Position
    epoch: Epoch
    attrs: int
    queue_id: int
    topic_id: TopicId
    record_count: int
    base_offset: Offset
    store_ms: int
    deliver_at_ms: int
    producer_id: int
    producer_epoch: int
    reserved: int
    base_sequence: int
    prev_header_crc: int
    payload_len: int
    tag_mask: int

    @property
    def end(self) -> Position:
        """Position one past this batch."""
        return Position(self.position + self.total_len)

    @property
    def end_offset(self) -> Offset:
        """Offset one past the last record."""
        return Offset(self.base_offset + self.record_count)

    @property
    def framed_for(self) -> Epoch:
        """SNAP, EOF: the term that was being opened when this frame was written; 0 = none."""
        return Epoch(self.base_sequence)

    @property
    def corrected_from_ms(self) -> int:
        """SNAP: the newest store time before, if the times continue lower here; 0 = they do not."""
        return self.deliver_at_ms

    @property
    def last_correction(self) -> Position:
        """SNAP: the base of the last segment before whose SNAP lowers the store times; 0 = none."""
        return Position(self.tag_mask)

    @property
    def stored_len(self) -> int:
        """Bytes that are actually stored: only the header for an EOF, else all."""
        return HEADER_LEN if self.type == BatchType.EOF else self.total_len


class BatchFault(IntEnum):
    """Why bytes are not a good batch, in the order of the checks."""

    SHORT = 1  # fewer bytes than the header or `total_len` says
    MAGIC = 2
    VERSION = 3
    HEADER_CRC = 4
    LENGTH = 5
    TYPE = 6
    POSITION = 7
    CHAIN = 8
    PAYLOAD_CRC = 9
    OFFSET = 10
    EPOCH = 11
    CONTENT = 12  # a control payload that does not decode
    KIND = 13  # sound, but of a kind that this version neither knows nor may skip


class BadBatch(ValueError):
    """Bytes that are not a good batch; `fault` says why."""

    def __init__(self, fault: BatchFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class UnknownKind(BadBatch):
    """A sound header of a kind that this version does not know and must not skip."""

    def __init__(self, message: str, header: BatchHeader | None = None) -> None:
        super().__init__(BatchFault.KIND, message)
        self.header = header


def kind_name(kind: int) -> str:
    """Return the name of a kind; "KIND_145" for one that this version does not know."""
    return _NAMES.get(kind) or f"KIND_{kind}"


def aligned(length: int) -> int:
    """Round up to a multiple of 8 bytes, to which every batch is aligned."""
    return (length + ALIGN - 1) & -ALIGN


def batch_len(payload_len: int) -> int:
    """Return the total length of a batch with `payload_len` bytes of payload."""
    return aligned(HEADER_LEN + payload_len)


def encode_header(  # one flat call: it runs once per batch on the hot path
    *,
    type: BatchType,
    position: Position,
    epoch: Epoch,
    prev_header_crc: int,
    payload_len: int,
    payload_crc: int,
    store_ms: int,
    attrs: int = 0,
    queue_id: int = 0,
    topic_id: int = 0,
    record_count: int = 0,
    base_offset: int = 0,
    deliver_at_ms: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    tag_mask: int = 0,
    total_len: int = 0,
) -> tuple[bytes, int]:
    """Encode a header; return it with its CRC. `total_len` is given for an EOF only."""
    raw = bytearray(
        _HEADER.pack(
            total_len or batch_len(payload_len),
            MAGIC,
            VERSION,
            type,
            0,
            payload_crc,
            position,
            epoch,
            attrs,
            queue_id,
            topic_id,
            record_count,
            base_offset,
            store_ms,
            deliver_at_ms,
            producer_id,
            producer_epoch,
            0,
            base_sequence,
            prev_header_crc,
            payload_len,
            tag_mask,
        )
    )
    crc = _header_crc(bytes(raw))
    _U32.pack_into(raw, _CRC_AT, crc)
    return bytes(raw), crc


def seal_header(header: tuple[int, ...]) -> tuple[bytes, BatchHeader]:
    """Return the bytes, and the header as stored, of all fields in order; `header_crc` is ignored.

    Like `encode_header` with positional fields: for the one caller that appends.
    """
    raw = _HEADER.pack(*header)
    crc = _header_crc(raw)
    raw = raw[:_CRC_AT] + _U32.pack(crc) + raw[_CRC_AT + 4 :]
    return raw, BatchHeader._make((*header[:4], crc, *header[5:]))


def padding(payload_len: int) -> bytes:
    """Return the zero bytes that follow `payload_len` bytes of payload."""
    return bytes(batch_len(payload_len) - HEADER_LEN - payload_len)


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Parse and check the header at byte `at` of `data`; raise `BadBatch`.

    Checks what the header alone shows: magic, version, CRC, kind and lengths. The caller
    (`fmqcore.journal.scan`) knows what came before and checks position, chain, offsets and epoch.
    """
    if len(data) - at < HEADER_LEN:
        raise BadBatch(BatchFault.SHORT, f"{len(data) - at} bytes are too few for a header")
    header = BatchHeader._make(_HEADER.unpack_from(data, at))
    if header.magic != MAGIC:
        raise BadBatch(BatchFault.MAGIC, f"magic is {header.magic:#06x}, not {MAGIC:#06x}")
    if header.version != VERSION:
        raise BadBatch(
            BatchFault.VERSION, f"version is {header.version}, this program reads {VERSION}"
        )
    crc = _header_crc(bytes(data[at : at + HEADER_LEN]))
    if header.header_crc != crc:
        raise BadBatch(
            BatchFault.HEADER_CRC, f"header CRC is {header.header_crc:#010x}, computed {crc:#010x}"
        )
    if header.type not in _NAMES and not header.type & SKIP_BIT:
        raise UnknownKind(
            f"FMQ {FMQ_VERSION} does not know batches of kind {header.type} and must not skip "
            "them: upgrade this broker or tool to the version that wrote this one",
            header,
        )
    _check_lengths(header)
    return header


def _check_lengths(header: BatchHeader) -> None:
    if header.type == BatchType.EOF:
        good = header.payload_len == 0 and header.total_len >= HEADER_LEN
    else:
        good = header.total_len == batch_len(header.payload_len)
    if not good or header.total_len % ALIGN:
        raise BadBatch(
            BatchFault.LENGTH,
            f"total length {header.total_len} does not fit payload length {header.payload_len}",
        )


def check_payload(header: BatchHeader, payload: Buffer) -> None:
    """Raise `BadBatch` unless `payload` (exactly `payload_len` bytes) matches its CRC."""
    if len(payload) != header.payload_len:
        raise BadBatch(
            BatchFault.SHORT,
            f"payload has {len(payload)} bytes, its header states {header.payload_len}",
        )
    crc = crc32c(payload)
    if crc != header.payload_crc:
        raise BadBatch(
            BatchFault.PAYLOAD_CRC,
            f"payload CRC is {header.payload_crc:#010x}, computed {crc:#010x}",
        )


def _header_crc(raw: bytes) -> int:
    # One call over a copy: cheaper than extending, the header is short.
    return crc32c(raw[:_CRC_AT] + raw[_CRC_AT + 4 :])
