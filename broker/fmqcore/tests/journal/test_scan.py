"""The scan kernel finds all damage, and names each kind."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import (
    HEADER_LEN,
    BadBatch,
    BatchFault,
    BatchHeader,
    BatchType,
    encode_header,
)
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.ids import Epoch, Offset, Position, TopicId
from fmqcore.journal.scan import (
    Blank,
    Cursor,
    Fault,
    Scan,
    Sealed,
    Stop,
    begin_next,
    check_batches,
    first_nonzero,
    whole,
)
from fmqcore.journal.segments import MIN_SEGMENT, eof_batch, snap_batch
from fmqcore.tests.journal.writer import JournalWriter, sample


def scanned(
    data: Any, base: int = 0, cursor: Cursor | None = None, **options: Any
) -> tuple[list[BatchHeader], Stop]:
    scan = Scan(data, Position(base), cursor or Cursor(Position(base), 0), **options)
    headers = list(scan)
    assert scan.stop is not None
    return headers, scan.stop


def small() -> JournalWriter:
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(4):
        writer.data(7, n % 2, [b"v" * (n + 1), b""])
    return writer


def padded(writer: JournalWriter) -> bytes:
    data = bytes(writer.segments[writer.last_base])
    return data + bytes(MIN_SEGMENT - len(data))


def test_a_good_journal_is_read_whole_segment_by_segment() -> None:
    writer = sample()
    assert len(writer.segments) >= 2
    cursor, seen = Cursor(Position(0), 0), []
    for base, data in writer.segments.items():
        begin_next(cursor)
        headers, stop = scanned(bytes(data) + bytes(MIN_SEGMENT - len(data)), base, cursor)
        seen += headers
        last = base == writer.last_base
        assert stop == (Blank(writer.end) if last else Sealed(Position(base + MIN_SEGMENT)))
    assert seen == writer.headers
    assert cursor.next_offsets == writer.state.next_offsets
    assert (cursor.position, cursor.prev_header_crc) == (writer.end, writer.prev_crc)


def test_any_flipped_header_bit_or_changed_byte_stops_the_scan() -> None:
    writer = small()
    good = padded(writer)
    for header in writer.headers:
        bits = {
            8 * at + (bit if at < header.position + HEADER_LEN else at % 8)
            for at in range(header.position, header.end)
            for bit in range(8)
        }
        for bit in bits:
            damaged = bytearray(good)
            damaged[bit // 8] ^= 1 << bit % 8
            headers, stop = scanned(damaged)
            assert isinstance(stop, Fault), bit
            assert stop.position == header.position
            assert headers == [h for h in writer.headers if h.position < header.position]


def test_truncation_at_every_byte_of_the_last_batches() -> None:
    writer = small()
    assert writer.open_epoch(2).payload_len % 8, "its padding is cut too"
    good = padded(writer)
    for header in writer.headers[-3:]:
        before = [h for h in writer.headers if h.position < header.position]
        for end in range(header.position, header.end):
            headers, stop = scanned(good[:end])
            assert headers == before
            assert stop.position == header.position
            at_boundary = end == header.position
            assert isinstance(stop, Blank if at_boundary else Fault)
            if isinstance(stop, Fault):
                assert stop.fault is BatchFault.SHORT
            zeroed = good[:end] + bytes(len(good) - end)
            headers, stop = scanned(zeroed)
            if zeroed == good or any(good[end : header.end]) is False:
                assert stop.position >= header.end  # only padding was lost, and it is zeros
            else:
                assert headers == before
                assert isinstance(stop, Blank if at_boundary else Fault)


def resealed(data: bytes, position: int, **changes: bytes) -> bytes:
    """Change header bytes (`at_<n>`) and recompute its CRC; the chain behind it breaks."""
    changed = bytearray(data)
    for name, value in changes.items():
        at = position + int(name.removeprefix("at_"))
        changed[at : at + len(value)] = value
    head = changed[position : position + HEADER_LEN]
    crc = crc32c(bytes(head[:8] + head[12:]))
    changed[position + 8 : position + 12] = crc.to_bytes(4, "little")
    return bytes(changed)


def u(value: int, length: int) -> bytes:
    return value.to_bytes(length, "little")


CASES: list[tuple[str, dict[str, bytes], BatchFault]] = [
    ("another position", {"at_16": u(4096, 8)}, BatchFault.POSITION),
    ("another chain", {"at_80": u(77, 4)}, BatchFault.CHAIN),
    ("a gap in the offsets", {"at_40": u(3, 8)}, BatchFault.OFFSET),
    ("offsets go back", {"at_40": u(1, 8)}, BatchFault.OFFSET),
    ("another queue", {"at_30": u(2, 2)}, BatchFault.OFFSET),
    ("no records", {"at_36": u(0, 4)}, BatchFault.OFFSET),
    ("an epoch that falls", {"at_24": u(0, 4)}, BatchFault.EPOCH),
    ("an epoch that was not opened", {"at_24": u(2, 4)}, BatchFault.EPOCH),
    ("SNAP in the middle", {"at_7": u(BatchType.SNAP, 1)}, BatchFault.TYPE),
    ("a payload of another CRC", {"at_12": u(1, 4)}, BatchFault.PAYLOAD_CRC),
    (
        "longer than the segment",
        {"at_0": u(96 + 8 * 9000, 4), "at_84": u(8 * 9000, 4)},
        BatchFault.LENGTH,
    ),
]


@pytest.mark.parametrize(("what", "changes", "fault"), CASES, ids=[case[0] for case in CASES])
def test_invalid_batches_with_right_checksums(
    what: str, changes: dict[str, bytes], fault: BatchFault
) -> None:
    writer = small()
    victim = writer.headers[4]  # topic 7 queue 0, offset 2
    assert (victim.queue_id, victim.base_offset) == (0, 2)
    data = resealed(padded(writer), victim.position, **changes)
    headers, stop = scanned(data)
    assert isinstance(stop, Fault)
    assert (stop.position, stop.fault) == (victim.position, fault), stop.sentence
    assert headers == writer.headers[:4]


def test_an_epoch_batch_does_not_go_back_either() -> None:
    writer = small()
    writer.open_epoch(3)
    writer.open_epoch(2)
    _, stop = scanned(padded(writer))
    assert isinstance(stop, Fault)
    assert (stop.fault, stop.position) == (BatchFault.EPOCH, writer.headers[-1].position)


def test_padding_that_is_not_zero() -> None:
    writer = small()
    victim = next(h for h in writer.headers if h.payload_len % 8)
    data = bytearray(padded(writer))
    data[victim.end - 1] = 1
    _, stop = scanned(data)
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.PAYLOAD_CRC
    assert "padding" in stop.sentence


def snap(base: int = 0, segment_bytes: int = MIN_SEGMENT, **fields: Any) -> bytes:
    return snap_batch(
        base=Position(base),
        segment_bytes=segment_bytes,
        epoch=Epoch(0),
        prev_header_crc=fields.pop("prev", 0),
        payload=fields.pop("payload", JournalWriter().state.to_snap(0)),
        store_ms=1,
    )[0]


@pytest.mark.parametrize("length", [0, MIN_SEGMENT - 8, MIN_SEGMENT + 1, 2**32 + 8])
def test_snap_must_hold_a_valid_segment_length(length: int) -> None:
    _, stop = scanned(snap(segment_bytes=length))
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.LENGTH


def test_a_snap_that_does_not_decode() -> None:
    _, stop = scanned(snap(payload=b"\x01\0" + bytes(9)))
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.CONTENT


def test_segment_starts_with_a_snap() -> None:
    writer = small()
    header = writer.headers[2]
    data = bytes(writer.segments[Position(0)])[header.position :]
    _, stop = scanned(data, header.position)
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.TYPE
    assert "begins with a SNAP" in stop.sentence


@pytest.mark.parametrize("off", [-8, 8, -4096])
def test_an_eof_must_end_where_its_segment_does(off: int) -> None:
    writer = small()
    eof, _ = eof_batch(
        position=writer.end,
        segment_end=Position(MIN_SEGMENT + off),
        epoch=writer.epoch,
        prev_header_crc=writer.prev_crc,
        store_ms=9,
    )
    data = bytes(writer.segments[Position(0)]) + eof
    _, stop = scanned(data + bytes(MIN_SEGMENT - len(data)))
    assert isinstance(stop, Fault)
    assert (stop.fault, stop.position) == (BatchFault.LENGTH, writer.end)


def test_a_batch_must_leave_room_for_an_eof_or_nothing() -> None:
    for free, good in ((0, True), (96, True), (8, False), (88, False)):
        writer = JournalWriter()
        room = MIN_SEGMENT - writer.end - HEADER_LEN - free
        payload = bytes(room)
        header_end = writer.end + HEADER_LEN + room
        raw = _batch_by_force(writer, payload)
        data = bytes(writer.segments[Position(0)]) + raw
        _, stop = scanned(data + bytes(MIN_SEGMENT - len(data)))
        if not good:
            assert isinstance(stop, Fault)
            assert stop.fault is BatchFault.LENGTH
        elif free == 0:
            assert stop == Sealed(Position(MIN_SEGMENT))
        else:
            assert stop == Blank(Position(header_end))


def _batch_by_force(writer: JournalWriter, payload: bytes) -> bytes:
    raw, _ = encode_header(
        type=BatchType.DATA,
        position=writer.end,
        epoch=writer.epoch,
        prev_header_crc=writer.prev_crc,
        payload_len=len(payload),
        payload_crc=crc32c(payload),
        store_ms=1,
        record_count=1,
        topic_id=7,
    )
    return raw + payload


def test_chain_starts_at_zero_and_at_any_position_after_reset() -> None:
    _, stop = scanned(snap(prev=5))
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.CHAIN
    base = Position(3 * MIN_SEGMENT)
    raw = snap(base, prev=5)
    headers, stop = scanned(raw, base, Cursor(base))
    assert (len(headers), stop) == (1, Blank(Position(base + len(raw))))


def test_chain_continues_across_segments() -> None:
    writer = sample()
    first, second = list(writer.segments)[:2]
    cursor = Cursor(first, 0)
    scanned(bytes(writer.segments[first]), first, cursor)
    begin_next(cursor)
    cursor.prev_header_crc = 1
    _, stop = scanned(bytes(writer.segments[second]), second, cursor)
    assert isinstance(stop, Fault)
    assert (stop.fault, stop.position) == (BatchFault.CHAIN, second)


def test_snap_is_checked_against_earlier_batches() -> None:
    writer = sample()
    first, second = list(writer.segments)[:2]
    cursor = Cursor(first, 0)
    scanned(bytes(writer.segments[first]), first, cursor)
    begin_next(cursor)
    cursor.next_offsets[TopicId(7), 2] = Offset(999)
    _, stop = scanned(bytes(writer.segments[second]), second, cursor)
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.OFFSET
    assert "(7, 2)" in stop.sentence


class _Guarded:
    """Bytes of which only some may be read."""

    def __init__(self, data: bytes, allowed: set[int]) -> None:
        self._data = data
        self._allowed = allowed

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, piece: slice) -> bytes:
        touched = set(range(*piece.indices(len(self._data))))
        assert touched <= self._allowed, "a payload byte was read"
        return self._data[piece]


def test_a_headers_only_scan_touches_no_payload() -> None:
    writer = small()
    places = [*(h.position for h in writer.headers), writer.end]
    allowed = {at for p in places for at in range(p, p + HEADER_LEN)}
    guarded = _Guarded(padded(writer), allowed)
    headers, stop = scanned(guarded, payloads=False)
    assert (headers, stop) == (writer.headers, Blank(writer.end))
    with pytest.raises(AssertionError, match="payload byte"):
        scanned(guarded)


def test_scan_until_a_position_ignores_later_bytes() -> None:
    writer = small()
    cut = writer.headers[3].position
    headers, stop = scanned(padded(writer), until=cut)
    assert (headers, stop) == (writer.headers[:3], Blank(cut))


def test_first_nonzero_byte_is_found() -> None:
    data = bytearray(3 * 1024 * 1024)
    assert first_nonzero(data, 0) is None
    data[2_500_000] = 1
    assert first_nonzero(data, 0) == 2_500_000
    assert first_nonzero(data, 2_500_000) == 2_500_000
    assert first_nonzero(data, 2_500_001) is None


# ---- batches a replica receives
def chunk(writer: JournalWriter, first: int, last: int) -> tuple[bytes, Cursor]:
    """Return batches [first, last) as sent, and the receiver's cursor before them."""
    cursor = Cursor(Position(0), 0)
    sent = b""
    for number, header in enumerate(writer.headers[:last]):
        base = max(b for b in writer.segments if b <= header.position)
        at = header.position - base
        raw = bytes(writer.segments[base][at : at + header.stored_len])
        if number < first:
            check_batches(raw, cursor)
        else:
            sent += raw
    return sent, cursor


def test_batches_received_one_by_one_or_all_to_the_eof() -> None:
    writer = sample()
    _, cursor = chunk(writer, len(writer.headers), len(writer.headers))
    assert cursor.position == writer.end
    assert whole(cursor.next_offsets) == writer.state.next_offsets
    eof = next(n for n, h in enumerate(writer.headers) if h.type == BatchType.EOF)
    sent, cursor = chunk(writer, 0, eof + 1)
    assert check_batches(sent, cursor) == writer.headers[: eof + 1]
    assert cursor.position == MIN_SEGMENT
    sent, _ = chunk(writer, 0, eof + 2)
    with pytest.raises(BadBatch, match="follow an EOF"):
        check_batches(sent, Cursor(Position(0), 0))


def test_an_exactly_full_segment_needs_no_eof() -> None:
    writer = JournalWriter()
    room = MIN_SEGMENT - writer.end - HEADER_LEN
    writer.append(BatchType.DELIVER, bytes(room))
    writer.data(7, 0, [b"a"])
    assert [h.type for h in writer.headers] == [8, 6, 8, 1]
    sent, cursor = chunk(writer, 0, 4)
    assert check_batches(sent, cursor) == writer.headers
    _, stop = scanned(bytes(writer.segments[Position(0)]))
    assert stop == Sealed(Position(MIN_SEGMENT))


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw + bytes(96),
        lambda raw: raw[:-200] + bytes(200),
        lambda raw: raw[:120] + b"\xff" + raw[121:],
        lambda raw: raw[96:],
    ],
)
def test_invalid_batch_leaves_the_cursor_unmoved(damage: Callable[[bytes], bytes]) -> None:
    writer = small()
    sent, cursor = chunk(writer, 2, 6)
    offsets = dict(whole(cursor.next_offsets))
    before = (cursor.position, cursor.prev_header_crc, offsets, cursor.epoch)
    with pytest.raises(BadBatch, match="at position"):
        check_batches(damage(sent), cursor)
    assert before == (
        cursor.position,
        cursor.prev_header_crc,
        whole(cursor.next_offsets),
        cursor.epoch,
    )
    assert check_batches(sent, cursor) == writer.headers[2:]


class Uncopied(dict[QueueKey, Offset]):
    """A journal's own next offsets: a message may look up its queues, and no more."""

    def __iter__(self) -> Iterator[QueueKey]:
        raise AssertionError("each message walks over all queues")

    def keys(self) -> NoReturn:
        raise AssertionError("each message walks over all queues")

    def __setitem__(self, key: QueueKey, offset: Offset) -> None:
        raise AssertionError("what was received is checked here, not applied")


def test_received_batches_leave_the_journals_offsets_alone() -> None:
    """A journal may know a million queues; one message is about a few."""
    writer = small()
    sent, cursor = chunk(writer, 3, len(writer.headers))
    own = Uncopied(whole(cursor.next_offsets))
    cursor.next_offsets = own
    some = len(sent) - writer.headers[-1].stored_len
    check_batches(sent[:some], cursor)
    check_batches(sent[some:], cursor)
    assert cursor.position == writer.end
    assert len(own) < len(writer.state.next_offsets)
    for queue, offset in writer.state.next_offsets.items():
        assert cursor.next_offsets.get(queue) == offset


def test_snap_behind_data_of_the_same_message_counts_its_queues() -> None:
    """An exactly full segment has no EOF, so what follows may come with it."""
    writer = JournalWriter()
    writer.data(7, 0, [b"a"])
    writer.append(BatchType.DELIVER, bytes(MIN_SEGMENT - writer.end - HEADER_LEN))
    writer.data(7, 0, [b"b"])
    sent, cursor = chunk(writer, 1, len(writer.headers))
    assert [h.type for h in writer.headers] == [8, 1, 6, 8, 1]
    assert check_batches(sent, cursor) == writer.headers[1:]
    assert whole(cursor.next_offsets) == writer.state.next_offsets
