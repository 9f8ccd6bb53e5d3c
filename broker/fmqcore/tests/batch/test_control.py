"""Control payloads round-trip; truncated, extended or invalid ones do not decode."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch import control
from fmqcore.batch.offset_entry import (
    TOMBSTONE_FLOOR,
    OffsetEntry,
    OffsetKey,
    merge,
    next_version,
    tombstone,
)
from fmqcore.errors import Malformed
from fmqcore.ids import BrokerId, Epoch, Offset, Position, TopicId
from fmqcore.properties import NONE

NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9_])?", fullmatch=True)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def entries(draw: st.DrawFn) -> OffsetEntry:
    floor, *edges = sorted(draw(st.lists(U64, min_size=1, max_size=9, unique=True)))
    ranges = zip(edges[::2], edges[1::2], strict=False)
    version = draw(U64)
    seek_number, start_number = draw(st.integers(0, version)), draw(U64)
    done = tuple((Offset(a), Offset(b)) for a, b in ranges)
    return OffsetEntry(version, Offset(floor), done, seek_number, start_number)


KEYS = st.builds(
    OffsetKey, NAMES, st.builds(TopicId, st.integers(0, 2**32 - 1)), st.integers(0, 2**16 - 1)
)
TABLES = st.dictionaries(KEYS, entries(), max_size=6)


@given(TABLES)
def test_offsets_round_trip(table: dict[OffsetKey, OffsetEntry]) -> None:
    payload = control.encode_offsets(table)
    assert control.decode_offsets(payload) == table
    again = control.encode_offsets(dict(reversed(table.items())))
    assert again == payload, "the bytes do not depend on the order of a dict"


@given(st.integers(0, 2**32 - 1), NAMES, st.integers(0, 1024))
def test_epoch_and_topic_round_trip(number: int, name: str, queues: int) -> None:
    opened = control.decode_epoch(control.encode_epoch(Epoch(number), BrokerId(name)))
    assert opened == (number, name)
    setting = control.decode_topic(control.encode_topic(TopicId(number), name, queues))
    assert setting == (number, name, queues, NONE)


def test_deliver_and_seal_round_trip() -> None:
    deliver = control.Deliver(Position(2**40), 4096, 0xFFFF_FFFF, 2**41)
    assert control.decode_deliver(control.encode_deliver(deliver)) == deliver
    seal = control.Seal(TopicId(9), 2**33, (0, 7, 2**64 - 1))
    assert control.decode_seal(control.encode_seal(seal)) == seal


KEY = OffsetKey("billing", TopicId(7), 3)
ENTRY = OffsetEntry(5, Offset(10), ((Offset(12), Offset(15)), (Offset(20), Offset(21))))
PAYLOADS: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (control.encode_epoch(Epoch(4), BrokerId("g1-0")), control.decode_epoch),
    (control.encode_offsets({KEY: ENTRY}), control.decode_offsets),
    (control.encode_offsets({KEY: ENTRY._replace(seek_number=4)}), control.decode_offsets),
    (control.encode_offsets({KEY: ENTRY._replace(start_number=3)}), control.decode_offsets),
    (control.encode_topic(TopicId(7), "orders", 8), control.decode_topic),
    (control.encode_deliver(control.Deliver(Position(1), 2, 3, 4)), control.decode_deliver),
    (control.encode_seal(control.Seal(TopicId(1), 2, (3, 4))), control.decode_seal),
]


@pytest.mark.parametrize(("payload", "decode"), PAYLOADS)
def test_truncated_or_extended_payload_is_malformed(
    payload: bytes, decode: Callable[[bytes], Any]
) -> None:
    decode(payload)
    for end in range(len(payload)):
        with pytest.raises(Malformed):
            decode(payload[:end])
    with pytest.raises(Malformed, match=r"left over|4 bytes expected, 1 left"):
        decode(payload + b"\0")


@pytest.mark.parametrize(
    "ranges",
    [((12, 11),), ((12, 15), (14, 16)), ((9, 12),), ((20, 21), (12, 15))],
)
def test_ranges_must_rise_above_the_floor(ranges: tuple[tuple[Offset, Offset], ...]) -> None:
    with pytest.raises(Malformed, match="billing in topic 7 queue 3"):
        control.encode_offsets({KEY: ENTRY._replace(ranges=ranges)})
    good = control.encode_offsets(
        {KEY: ENTRY._replace(ranges=((Offset(1 << 40), Offset(1 << 41)),))}
    )
    bad = good.replace((1 << 41).to_bytes(8, "little"), (11).to_bytes(8, "little"))
    with pytest.raises(Malformed, match="do not rise"):
        control.decode_offsets(bad)


@pytest.mark.parametrize("seek_number", [0, 6])
def test_progress_with_impossible_seek_version_is_malformed(seek_number: int) -> None:
    good = control.encode_offsets({KEY: ENTRY._replace(seek_number=4)})
    assert control.decode_offsets(good)[KEY].seek_number == 4
    with pytest.raises(Malformed, match=f"version 5 counts since seek {seek_number}"):
        control.decode_offsets(good[:-8] + seek_number.to_bytes(8, "little"))


def test_duplicate_key_is_malformed() -> None:
    one = control.encode_offsets({KEY: ENTRY})
    with pytest.raises(Malformed, match="twice"):
        control.decode_offsets((2).to_bytes(4, "little") + one[4:] * 2)


@pytest.mark.parametrize("name", ["", "a b", "../x", "ü", "x" * 129])
def test_names_are_checked_both_ways(name: str) -> None:
    with pytest.raises(Malformed):
        control.encode_topic(TopicId(1), name, 1)
    raw = name.encode()[:255]
    with pytest.raises(Malformed):
        control.decode_epoch((1).to_bytes(4, "little") + bytes([len(raw)]) + raw)


def test_unknown_config_kind_and_too_many_queues() -> None:
    payload = control.encode_topic(TopicId(7), "orders", 8)
    with pytest.raises(Malformed, match="unknown kind 2"):
        control.decode_topic(b"\x02\x00" + payload[2:])
    with pytest.raises(Malformed, match="1025 queues"):
        control.decode_topic(payload[:6] + (1025).to_bytes(2, "little") + payload[8:])
    with pytest.raises(Malformed, match="1025 queues"):
        control.encode_topic(TopicId(7), "orders", 1025)


def test_higher_version_wins_in_any_order() -> None:
    old, new = OffsetEntry(4, Offset(100)), OffsetEntry(5, Offset(7))
    for first, second in ((old, new), (new, old)):
        table: dict[OffsetKey, OffsetEntry] = {}
        merge(table, {KEY: first})
        merge(table, {KEY: second})
        assert table == {KEY: new}
    assert merge({KEY: new}, {KEY: new}) == []
    # Two changes of one version, made on both sides of a failure: the same one wins on both.
    assert merge({KEY: new}, {KEY: OffsetEntry(5, Offset(9))}) == [KEY]
    assert merge({KEY: OffsetEntry(5, Offset(9))}, {KEY: new}) == []


def test_a_later_epochs_versions_are_higher() -> None:
    master = OffsetEntry(next_version(None, Epoch(1)), Offset(0))
    for _ in range(10):
        master = master._replace(version=next_version(master, Epoch(1)))
    stale = OffsetEntry(next_version(None, Epoch(1)), Offset(0))
    assert next_version(stale, Epoch(2)) > master.version
    assert next_version(master, Epoch(1)) == master.version + 1
    assert next_version(None, Epoch(0)) == 1


def test_a_tombstone_outlives_older_records() -> None:
    gone = tombstone(8)
    assert gone.deleted
    assert gone.floor == TOMBSTONE_FLOOR
    table = {KEY: gone}
    merge(table, {KEY: OffsetEntry(7, Offset(3))})
    assert table[KEY].deleted
    merge(table, {KEY: OffsetEntry(9, Offset(3))})
    assert not table[KEY].deleted
    assert control.decode_offsets(control.encode_offsets({KEY: gone})) == {KEY: gone}


def test_the_bytes_are_those_of_the_file_format() -> None:
    """Pinned: a change here is a new version of the format."""
    assert [payload.hex(" ") for payload, _ in PAYLOADS] == [
        "04 00 00 00 04 67 31 2d 30",
        "01 00 00 00 07 62 69 6c 6c 69 6e 67 07 00 00 00 03 00 "
        "05 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 02 00 00 00 "
        "0c 00 00 00 00 00 00 00 0f 00 00 00 00 00 00 00 "
        "14 00 00 00 00 00 00 00 15 00 00 00 00 00 00 00",
        "01 00 00 00 07 62 69 6c 6c 69 6e 67 07 00 00 00 03 00 "
        "05 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 02 00 00 80 "
        "0c 00 00 00 00 00 00 00 0f 00 00 00 00 00 00 00 "
        "14 00 00 00 00 00 00 00 15 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00",
        "01 00 00 00 07 62 69 6c 6c 69 6e 67 07 00 00 00 03 00 "
        "05 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 02 00 00 40 "
        "0c 00 00 00 00 00 00 00 0f 00 00 00 00 00 00 00 "
        "14 00 00 00 00 00 00 00 15 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00",
        "01 00 07 00 00 00 08 00 06 6f 72 64 65 72 73",
        "01 00 00 00 00 00 00 00 02 00 00 00 03 00 00 00 04 00 00 00 00 00 00 00",
        "01 00 00 00 02 00 00 00 02 00 00 00 00 00 00 00 "
        "03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00",
    ]
