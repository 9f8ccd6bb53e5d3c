"""The batch header: every bit counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    HEADER_LEN,
    SKIP_BIT,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    UnknownKind,
    aligned,
    batch_len,
    check_payload,
    encode_header,
    kind_name,
    padding,
    parse_header,
)
from fmqcore.ids import Epoch, Position

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))


def header(**fields: object) -> bytes:
    given_fields = {
        "type": BatchType.DATA,
        "position": Position(4096),
        "epoch": Epoch(3),
        "prev_header_crc": 0x1234,
        "payload_len": 100,
        "payload_crc": 0x5678,
        "store_ms": 1_700_000_000_000,
    } | fields
    return encode_header(**given_fields)[0]  # type: ignore[arg-type]


@given(
    position=U64,
    epoch=U32,
    prev_header_crc=U32,
    payload_len=st.integers(0, 2**31),
    payload_crc=U32,
    store_ms=U64,
    attrs=U16,
    queue_id=U16,
    topic_id=U32,
    record_count=U32,
    base_offset=U64,
    deliver_at_ms=U64,
    producer_id=U64,
    producer_epoch=U16,
    base_sequence=U32,
    tag_mask=U64,
)
def test_every_field_round_trips(**fields: int) -> None:
    parsed = parse_header(header(**fields))
    assert {name: getattr(parsed, name) for name in fields} == fields
    assert parsed.total_len == batch_len(fields["payload_len"])
    assert parsed.end == parsed.position + parsed.total_len


def test_fields_are_at_their_documented_places() -> None:
    raw = header(
        attrs=0x0102, queue_id=0x0304, topic_id=0x05060708, record_count=9, base_offset=10,
        deliver_at_ms=11, producer_id=12, producer_epoch=13, base_sequence=14, tag_mask=15,
    )  # fmt: skip
    places = {
        "total_len": (0, 4), "magic": (4, 2), "version": (6, 1), "type": (7, 1),
        "header_crc": (8, 4), "payload_crc": (12, 4), "position": (16, 8), "epoch": (24, 4),
        "attrs": (28, 2), "queue_id": (30, 2), "topic_id": (32, 4), "record_count": (36, 4),
        "base_offset": (40, 8), "store_ms": (48, 8), "deliver_at_ms": (56, 8),
        "producer_id": (64, 8), "producer_epoch": (72, 2), "reserved": (74, 2),
        "base_sequence": (76, 4), "prev_header_crc": (80, 4), "payload_len": (84, 4),
        "tag_mask": (88, 8),
    }  # fmt: skip
    assert set(places) == set(BatchHeader._fields)
    parsed = parse_header(raw)
    for name, (at, length) in places.items():
        assert int.from_bytes(raw[at : at + length], "little") == getattr(parsed, name), name


def test_every_flipped_bit_is_found() -> None:
    raw = header()
    for bit in range(8 * HEADER_LEN):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBatch):
            parse_header(flipped)


def test_a_short_header_is_found() -> None:
    raw = header()
    for length in range(HEADER_LEN):
        with pytest.raises(BadBatch) as caught:
            parse_header(raw[:length])
        assert caught.value.fault is BatchFault.SHORT


def _resealed(raw: bytes, at: int, value: bytes) -> bytes:
    """Change bytes and recompute the header's CRC."""
    changed = bytearray(raw)
    changed[at : at + len(value)] = value
    changed[8:12] = crc32c(bytes(changed[:8] + changed[12:])).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize(
    ("at", "value", "fault"),
    [
        (4, b"QM", BatchFault.MAGIC),
        (6, b"\x02", BatchFault.VERSION),
        (7, b"\x00", BatchFault.KIND),
        (7, b"\x09", BatchFault.KIND),
        (7, b"\x7f", BatchFault.KIND),
        (0, (192).to_bytes(4, "little"), BatchFault.LENGTH),
        (0, (207).to_bytes(4, "little"), BatchFault.LENGTH),
        (84, (90).to_bytes(4, "little"), BatchFault.LENGTH),
    ],
)
def test_invalid_fields_with_a_good_crc_are_found(at: int, value: bytes, fault: BatchFault) -> None:
    with pytest.raises(BadBatch) as caught:
        parse_header(_resealed(header(), at, value))
    assert caught.value.fault is fault


def test_kinds_by_their_bit_are_skipped_or_stop() -> None:
    """Every number of the type byte is known, skipped, or names itself and the remedy."""
    for kind in range(256):
        raw = header(type=kind)
        if kind in set(BatchType) - {BatchType.EOF}:
            assert (parse_header(raw).type, kind_name(kind)) == (kind, BatchType(kind).name)
        elif kind & SKIP_BIT:
            assert (parse_header(raw).type, kind_name(kind)) == (kind, f"KIND_{kind}")
        elif kind != BatchType.EOF:
            with pytest.raises(UnknownKind, match=f"kind {kind} .* upgrade this broker or tool"):
                parse_header(raw)
    with pytest.raises(BadBatch) as caught:  # skipped or not, its lengths must fit
        parse_header(_resealed(header(type=SKIP_BIT), 0, (192).to_bytes(4, "little")))
    assert caught.value.fault is BatchFault.LENGTH


def test_an_eof_spans_more_than_it_stores() -> None:
    eof = parse_header(header(type=BatchType.EOF, payload_len=0, total_len=8192))
    assert (eof.total_len, eof.stored_len, eof.end) == (8192, HEADER_LEN, 4096 + 8192)
    for total_len in (88, 8190):
        with pytest.raises(BadBatch):
            parse_header(header(type=BatchType.EOF, payload_len=0, total_len=total_len))


def test_payload_is_checked_against_its_crc() -> None:
    payload = bytes(range(100))
    parsed = parse_header(header(payload_crc=crc32c(payload)))
    check_payload(parsed, payload)
    for bit in range(0, 800, 7):
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBatch, match="payload CRC"):
            check_payload(parsed, changed)
    with pytest.raises(BadBatch, match="payload has 99 bytes"):
        check_payload(parsed, payload[:99])


@given(st.integers(0, 10_000))
def test_lengths_are_aligned(length: int) -> None:
    assert aligned(length) % 8 == 0
    assert length <= aligned(length) < length + 8
    assert HEADER_LEN + length + len(padding(length)) == batch_len(length)
