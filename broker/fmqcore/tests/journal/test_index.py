"""The segment index against a plain list of headers."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.index import ENTRY_LEN, IndexEntry, SegmentIndex
from fmqcore.journal.segments import (
    MIN_SEGMENT,
    fits,
    index_base,
    index_name,
    max_payload,
    segment_base,
    segment_name,
)
from fmqcore.tests.journal.writer import JournalWriter

T7 = TopicId(7)


def built(headers: list[BatchHeader]) -> SegmentIndex:
    index = SegmentIndex(Position(0))
    for header in headers:
        index.add(header)
    return index


def entry(header: BatchHeader) -> IndexEntry:
    return IndexEntry(
        header.base_offset,
        header.position,
        header.total_len,
        header.record_count,
        header.store_ms,
        header.tag_mask,
    )


def written(batches: list[tuple[int, int]]) -> list[BatchHeader]:
    writer = JournalWriter(1 << 20)
    writer.open_epoch(1)
    for queue, count in batches:
        writer.data(7, queue, [b"v"] * count, tag_mask=2**64 - 1 - count)
    return writer.headers


BATCHES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=25)


@given(BATCHES, st.integers(0, 40), st.integers(1, 5))
@settings(deadline=None)
def test_lookups_agree_with_a_list(batches: list[tuple[int, int]], offset: int, limit: int) -> None:
    headers = written(batches)
    index = built(headers)
    for queue in range(3):
        key = (T7, queue)
        own = [h for h in headers if h.type == BatchType.DATA and h.queue_id == queue]
        assert index.entries(key) == [entry(h) for h in own]
        assert index.first(key) == (entry(own[0]) if own else None)
        assert index.last(key) == (entry(own[-1]) if own else None)
        wanted = [entry(h) for h in own if h.end_offset > offset][:limit]
        assert index.find(key, Offset(offset), limit) == wanted
        for h in headers:
            for at in (h.position, h.end, h.end - 1):
                below = [m for m in own if m.end <= at]
                last = entry(below[-1]) if below else None
                assert index.last_below(key, Position(at)) == last
                end = last.end_offset if last else None
                assert index.end_offset_below(key, Position(at)) == end
            later = [m for m in own if m.store_ms >= h.store_ms]
            assert index.find_time(key, h.store_ms) == (entry(later[0]) if later else None)
        assert index.find_time(key, 2**63) is None


@given(BATCHES, st.integers(0, 30))
@settings(deadline=None)
def test_truncating_equals_never_having_added(batches: list[tuple[int, int]], keep: int) -> None:
    headers = written(batches)
    index = built(headers)
    kept = headers[:keep]
    end = kept[-1].end if kept else Position(0)
    index.truncate(end)
    assert index.encode() == built(kept).encode()
    assert index.queues() == built(kept).queues()


@given(BATCHES)
@settings(deadline=None)
def test_two_builders_give_equal_bytes_that_round_trip(batches: list[tuple[int, int]]) -> None:
    headers = written(batches)
    raw = built(headers).encode()
    assert raw == built(list(headers)).encode()
    again = SegmentIndex.decode(raw)
    assert again.encode() == raw
    assert (again.base, again.end) == (0, headers[-1].end)
    assert len(again) == len(batches)
    for header in headers:
        if header.type == BatchType.DATA:
            again.add(header)  # it is a live index, not a frozen one


def test_the_order_in_which_queues_come_does_not_show() -> None:
    headers = [h for h in written([(2, 1), (0, 1), (1, 1)]) if h.type == BatchType.DATA]
    forth, back = built(headers), built([])
    for header in sorted(headers, key=lambda h: h.queue_id):
        back.add(header)
    forth.end = back.end = Position(1000)
    assert forth.encode() == back.encode()


def test_index_entry_has_forty_bytes_as_documented() -> None:
    headers = written([(1, 3)])
    raw = built(headers).encode()
    body = raw[-ENTRY_LEN:]
    header = headers[-1]
    words = [int.from_bytes(body[a:b], "little") for a, b in pairwise((0, 8, 16, 20, 24, 32, 40))]
    assert words == list(entry(header))
    assert len(raw) == 40 + 16 + ENTRY_LEN


def test_every_damaged_byte_of_the_file_is_found() -> None:
    raw = built(written([(0, 1), (1, 2)])).encode()
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x40
        with pytest.raises(Malformed):
            SegmentIndex.decode(damaged)
        with pytest.raises(Malformed):
            SegmentIndex.decode(raw[:at])


def test_names_of_files() -> None:
    base = Position(2**63)
    assert segment_name(Position(4096)) == "00000000000000004096.journal"
    assert segment_base(segment_name(base)) == base
    assert index_base(index_name(base)) == base
    assert segment_base(index_name(base)) is None
    beyond = f"{2**64 - 4096:020d}.journal"  # its end has no representable position
    for name in ("checkpoint", "4096.journal", "0000000000000000409x.journal", "lock", "", beyond):
        assert segment_base(name) is None
        assert index_base(name.replace("journal", "index")) is None


def test_batch_that_fits_leaves_room_for_an_eof_or_none() -> None:
    assert fits(0, 1000, 1000)
    assert fits(0, 904, 1000)
    assert not fits(0, 912, 1000)
    assert not fits(0, 1008, 1000)


@pytest.mark.parametrize("snap_len", [0, 1, 999, MIN_SEGMENT // 4])
def test_the_largest_payload_fits_behind_the_snap(snap_len: int) -> None:
    room = max_payload(MIN_SEGMENT, snap_len)
    position = 96 + (snap_len + 7 & -8)
    assert fits(position, 96 + room, MIN_SEGMENT)
    assert not fits(position, 96 + room + 8, MIN_SEGMENT)
    for less in range(0, 400, 8):  # smaller ones are accepted, so it must not leave a few bytes
        assert fits(position, 96 + room - less, MIN_SEGMENT)
