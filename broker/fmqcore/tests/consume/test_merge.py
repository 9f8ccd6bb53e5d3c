"""Merging progress entries: any order and number of times, the newest wins; the side file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.control import encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, merge, next_version, tombstone
from fmqcore.consume.offsets.merge import (
    cut_up,
    merged,
    news_for,
    shortened,
    size_of,
    thinned,
    within,
)
from fmqcore.consume.offsets.side_journal import HEAD_LEN, decode, encode_frame, encode_head
from fmqcore.consume.offsets.takeover_record import decode_record, encode_record
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Offset, TopicId

_ENTRY = st.builds(
    lambda version, floor, first, length: OffsetEntry(
        version,
        Offset(floor),
        ((Offset(floor + first), Offset(floor + first + length)),) if length else (),
    ),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(1, 3),
    st.integers(0, 2),
)
_KEY = st.builds(
    lambda group, queue: OffsetKey(group, TopicId(1), queue),
    st.sampled_from(["a", "b", "c.d"]),
    st.integers(0, 2),
)
_TABLE = st.dictionaries(_KEY, _ENTRY, max_size=5)


@given(_TABLE, _TABLE, _TABLE)
def test_merging_is_commutative_associative_and_idempotent(
    a: dict[OffsetKey, OffsetEntry],
    b: dict[OffsetKey, OffsetEntry],
    c: dict[OffsetKey, OffsetEntry],
) -> None:
    assert merged(a, b, c) == merged(c, b, a) == merged(merged(a, c), b) == merged(a, b, c, b, a)
    assert list(merged(a, b)) == sorted({*a, *b})


@given(_ENTRY, _ENTRY)
def test_one_of_two_different_entries_wins_by_version_then_floor(
    a: OffsetEntry, b: OffsetEntry
) -> None:
    key = OffsetKey("g", TopicId(1), 0)
    won = merged({key: a}, {key: b})[key]
    if a.version != b.version:
        assert won == max(a, b, key=lambda e: e.version)
    elif a.floor != b.floor:
        assert won == max(a, b, key=lambda e: e.floor)


@given(_TABLE, _TABLE)
def test_news_are_the_entries_a_merge_would_change(
    table: dict[OffsetKey, OffsetEntry], more: dict[OffsetKey, OffsetEntry]
) -> None:
    news = news_for(table, more)
    after = dict(table)
    merge(after, news)
    assert after == merged(table, more)
    assert all(table.get(key) != entry for key, entry in news.items())
    assert news_for(after, more) == {}


def test_later_epoch_wins_and_whole_entry_beats_thinned() -> None:
    of_master = OffsetEntry(next_version(None, Epoch(4)) + 1000, Offset(900))
    of_taker = OffsetEntry(next_version(OffsetEntry(3, Offset(1)), Epoch(5)), Offset(500))
    key = OffsetKey("g", TopicId(1), 0)
    assert merged({key: of_master}, {key: of_taker}) == {key: of_taker}
    whole = {key: OffsetEntry(7, Offset(5), ((Offset(8), Offset(9)),))}
    assert merged(thinned(whole), whole) == whole
    assert merged(whole, {key: tombstone(8)})[key].deleted


@given(_TABLE, st.integers(1, 400))
def test_split_parts_hold_all_entries_within_the_bound(
    table: dict[OffsetKey, OffsetEntry], most: int
) -> None:
    parts = list(cut_up(table.items(), most))
    together = {key: entry for part in parts for key, entry in part.items()}
    assert together == table
    assert all(parts)
    for part in parts:
        assert len(part) == 1 or sum(size_of(*item) for item in part.items()) <= most
    for key, entry in table.items():
        assert len(encode_offsets({key: entry})) <= size_of(key, entry)


_PAYLOADS = st.lists(st.binary(min_size=1, max_size=20), max_size=4)


def _file(payloads: list[bytes]) -> bytes:
    return encode_head(Epoch(7)) + b"".join(map(encode_frame, payloads))


@given(_PAYLOADS, st.integers(0, 24))
def test_side_file_returns_its_payloads_and_ignores_zeros(
    payloads: list[bytes], zeros: int
) -> None:
    found = decode(_file(payloads) + bytes(zeros))
    assert found == (Epoch(7), payloads, len(_file(payloads)), 0)


def test_side_file_truncated_at_any_byte_keeps_whole_frames() -> None:
    payloads = [b"one", b"twelve bytes", b"x" * 24]
    data = _file(payloads)
    ends = [len(_file(payloads[:count])) for count in range(4)]
    unpadded = [ends[0], *(ends[i] + 8 + len(payloads[i]) for i in range(3))]
    for cut in range(HEAD_LEN, len(data) + 1):
        found = decode(data[:cut])
        whole = max(i for i in range(4) if unpadded[i] <= cut)
        assert found.payloads == payloads[:whole]
        assert found.end == min(ends[whole], cut)


def test_a_flipped_bit_ends_a_side_file_there() -> None:
    payloads = [b"one", b"twelve bytes", b"x" * 24]
    data = _file(payloads)
    for byte in range(len(_file(payloads[:1])), len(_file(payloads[:2]))):
        for bit in range(8):
            bad = bytearray(data)
            bad[byte] ^= 1 << bit
            found = decode(bytes(bad))
            padding = found.payloads == payloads
            assert padding or (found.payloads == payloads[:1] and found.torn > 0)
    for byte in range(HEAD_LEN):
        bad = bytearray(data)
        bad[byte] ^= 1
        with pytest.raises(Malformed):
            decode(bytes(bad))
    with pytest.raises(Malformed, match="too few"):
        decode(b"FMQT")


@given(_TABLE, st.integers(0, 300))
def test_a_record_holds_all_or_the_floors_or_nothing(
    table: dict[OffsetKey, OffsetEntry], most: int
) -> None:
    record, whole = encode_record(table, most)
    if record is None:
        assert not whole
        return
    assert len(record) <= most
    assert decode_record(record) == (table if whole else thinned(table))
    assert whole or len(encode_record(table).text or "") > most


def test_undecodable_record_is_reported() -> None:
    assert decode_record("") == {}
    for bad in ("%%%", "AAAA"):
        with pytest.raises(Malformed):
            decode_record(bad)


@pytest.mark.parametrize(
    ("floor", "ranges", "end", "becomes"),
    [
        (5, (), 5, (5, ())),
        (5, ((7, 9),), 9, (5, ((7, 9),))),
        (6, (), 5, (5, ())),
        (5, ((7, 9),), 8, (5, ((7, 8),))),
        (5, ((7, 9), (11, 12)), 7, (5, ())),
        (5, ((7, 9), (11, 12)), 11, (5, ((7, 9),))),
        (5, ((7, 9),), 0, (0, ())),
    ],
)
def test_progress_over_missing_records_is_void(
    floor: int,
    ranges: tuple[tuple[int, int], ...],
    end: int,
    becomes: tuple[int, tuple[tuple[int, int], ...]],
) -> None:
    """The next records at those offsets must be delivered."""
    key = OffsetKey("g", TopicId(1), 0)
    entry = OffsetEntry(7, Offset(floor), tuple((Offset(a), Offset(b)) for a, b in ranges))
    offsets = {(key.topic_id, key.queue_id): Offset(end)} if end else {}
    found = within({key: entry}, offsets, Epoch(3))[key]
    assert (found.floor, found.ranges) == becomes
    assert found.version == 3 << 32, "newer than all from before this term"
    assert found.seek_number == found.version, "acks from before are void, as after a seek"
    assert within({key: found}, offsets, Epoch(3))[key] == found
    gone = {key: tombstone(4)}
    assert within(gone, offsets, Epoch(3)) == gone


@pytest.mark.parametrize(
    ("floor", "ranges", "end", "becomes"),
    [
        (5, (), 4, (4, ())),
        (5, ((7, 9),), 8, (5, ((7, 8),))),
        (5, ((7, 9), (11, 12)), 11, (5, ((7, 9),))),
        (5, ((7, 9),), 0, (0, ())),
    ],
)
def test_progress_beyond_a_shorter_journal_is_void(
    floor: int,
    ranges: tuple[tuple[int, int], ...],
    end: int,
    becomes: tuple[int, tuple[tuple[int, int], ...]],
) -> None:
    """Progress at or below its end stays as it is: its messages are there, and acked."""
    key, there = OffsetKey("g", TopicId(1), 0), OffsetKey("g", TopicId(1), 1)
    entry = OffsetEntry(7, Offset(floor), tuple((Offset(a), Offset(b)) for a, b in ranges))
    ends = {(TopicId(1), 0): Offset(end), (TopicId(1), 1): Offset(12)}
    table = {key: entry, there: entry, OffsetKey("x", TopicId(1), 0): tombstone(4)}
    found = shortened(table, ends, Epoch(3))
    assert (found[key].floor, found[key].ranges) == becomes
    assert found[key].version == found[key].seek_number == 3 << 32
    assert {**found, key: entry} == table
    assert shortened(found, ends, Epoch(3)) == found


def test_progress_of_the_same_term_over_missing_records_is_void() -> None:
    """It gets a new version, or it would lose to the entry it replaces."""
    key, term = OffsetKey("g", TopicId(1), 0), Epoch(3)
    made = next_version(None, term) + 5
    for seek_number in (0, 2 << 32):
        entry = OffsetEntry(made, Offset(9), (), seek_number, 7)
        found = within({key: entry}, {(key.topic_id, 0): Offset(4)}, term)[key]
        assert found == OffsetEntry(made + 1, Offset(4), (), made + 1, 7)
        assert merged({key: entry}, {key: found}) == {key: found}


def test_thinned_entry_keeps_its_last_seek() -> None:
    """Otherwise acks from before the seek, repeated to a new reader, count as done."""
    key, ranges = OffsetKey("g", TopicId(1), 0), tuple((Offset(n), Offset(n + 1)) for n in (7, 9))
    table = {key: OffsetEntry(9, Offset(5), ranges, 6, 2)}
    without = {key: OffsetEntry(9, Offset(5), (), 6, 2)}
    assert thinned(table) == without
    record = encode_record(table, len(encode_record(table).text or "") - 1)
    assert not record.whole
    assert decode_record(record.text or "") == without
