"""Segments: the rooms of their SNAPs, what fits, and which lengths and names are valid."""

import pytest

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    ALIGN,
    HEADER_LEN,
    BatchType,
    batch_len,
    encode_header,
    parse_header,
)
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.damage_note import decode_suspect, encode_suspect
from fmqcore.journal.segments import (
    MAX_SEGMENT,
    MIN_SEGMENT,
    Segment,
    eof_batch,
    fits,
    index_base,
    index_name,
    max_payload,
    producer_room,
    progress_room,
    segment_base,
    segment_name,
    segment_of_snap,
    snap_batch,
    snap_room,
    usual_snap,
)

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("segment_bytes", "producers", "progress"),
    [
        (64 * 1024, 16 * 1024, 16 * 1024),
        (12 * MIB, 3 * MIB, 3 * MIB),
        (16 * MIB, 3 * MIB, 4 * MIB),
        (64 * MIB, 3 * MIB, 16 * MIB),
        (128 * MIB, 3 * MIB, 16 * MIB),
    ],
)
def test_each_table_has_its_room_and_half_is_left_for_batches(
    segment_bytes: int, producers: int, progress: int
) -> None:
    assert producer_room(segment_bytes) == producers
    assert progress_room(segment_bytes) == progress
    assert usual_snap(segment_bytes) == producers + progress <= segment_bytes // 2
    assert snap_room(segment_bytes) == (segment_bytes // 2, producers)


def test_a_batch_leaves_nothing_or_room_for_an_eof() -> None:
    end = 4096
    fitting = [length for length in range(end + 1) if fits(1000, length, end)]
    assert fitting == [*range(3096 - HEADER_LEN + 1), 3096]


def test_the_largest_payload_fits_behind_its_snap() -> None:
    for snap in (0, 1, 1000):
        most = max_payload(MIN_SEGMENT, snap)
        assert fits(batch_len(snap), batch_len(most), MIN_SEGMENT)
        assert not fits(batch_len(snap), batch_len(most + 1), MIN_SEGMENT)
    assert max_payload(MIN_SEGMENT, MIN_SEGMENT) < 0


@pytest.mark.parametrize(
    ("length", "valid"),
    [
        (64 * 1024, True),
        (64 * 1024 - ALIGN, False),
        (64 * 1024 + ALIGN, True),
        (64 * 1024 + ALIGN - 1, False),
        (4096 * MIB, True),
        (4096 * MIB + ALIGN, False),
    ],
)
def test_a_snap_opens_a_segment_of_a_valid_length(length: int, valid: bool) -> None:
    raw, _ = encode_header(
        type=BatchType.SNAP,
        position=Position(4096),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=0,
        payload_crc=0,
        store_ms=0,
        base_offset=length,
    )
    found = segment_of_snap(parse_header(raw))
    assert found == (Segment(Position(4096), Position(4096 + length)) if valid else None)


@pytest.mark.parametrize("payload", [b"", b"12345678", b"12345"])
def test_snap_batch_is_header_payload_and_padding(payload: bytes) -> None:
    batch, crc = snap_batch(
        base=Position(4096),
        segment_bytes=MIN_SEGMENT,
        epoch=Epoch(3),
        prev_header_crc=7,
        payload=payload,
        store_ms=9,
        framed_for=Epoch(2),
        corrected_from_ms=8,
        last_correction=Position(64),
    )
    header = parse_header(batch)
    assert batch[HEADER_LEN:] == payload + b"\0" * (-len(payload) % ALIGN)
    assert (header.type, header.position, header.epoch) == (BatchType.SNAP, 4096, 3)
    assert (header.total_len, header.payload_len) == (len(batch), len(payload))
    assert (header.prev_header_crc, header.payload_crc) == (7, crc32c(payload))
    assert (header.store_ms, header.base_offset, header.base_sequence) == (9, MIN_SEGMENT, 2)
    assert (header.deliver_at_ms, header.tag_mask) == (8, 64)
    assert header.header_crc == crc


def test_eof_reaches_the_end_of_the_longest_segment() -> None:
    """Its length is a u32, and a SNAP stands before it."""
    raw, crc = eof_batch(
        position=Position(4096 + HEADER_LEN),
        segment_end=Position(4096 + MAX_SEGMENT),
        epoch=Epoch(3),
        prev_header_crc=7,
        store_ms=9,
        framed_for=Epoch(2),
    )
    header = parse_header(raw)
    assert len(raw) == HEADER_LEN
    assert (header.type, header.position, header.epoch) == (BatchType.EOF, 4096 + HEADER_LEN, 3)
    assert header.position + header.total_len == 4096 + MAX_SEGMENT
    assert (header.payload_len, header.payload_crc) == (0, 0)
    assert (header.prev_header_crc, header.store_ms, header.base_sequence) == (7, 9, 2)
    assert header.header_crc == crc


def test_only_its_own_kind_of_file_names_a_base() -> None:
    last = Position(2**64 - 1 - MAX_SEGMENT)
    for base in (Position(0), Position(4096), last):
        assert segment_base(segment_name(base)) == index_base(index_name(base)) == base
        assert segment_base(index_name(base)) is index_base(segment_name(base)) is None
    for name in (segment_name(Position(last + 1)), "1.journal", segment_name(last) + "x"):
        assert segment_base(name) is None


@pytest.mark.parametrize("garbage", [b"", b"x", b"1x\n", b"1.5", b"\0" * 8, b"\xff"])
def test_a_note_on_a_damaged_segment_names_its_base(garbage: bytes) -> None:
    assert decode_suspect(encode_suspect(Position(4096))) == 4096
    with pytest.raises(Malformed, match="is no number"):
        decode_suspect(garbage)
