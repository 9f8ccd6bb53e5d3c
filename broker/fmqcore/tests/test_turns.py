"""Progress is encoded and decoded in pieces: changes at a pause, and the work between pauses."""

import pytest

from fmqcore.batch.control import decode_offsets, decoding_offsets, encode_offsets, encoding_offsets
from fmqcore.batch.offset_entry import MIN_ENTRY_BYTES, OffsetEntry, OffsetKey, encode_entry
from fmqcore.consume.offsets.table import ProgressTable
from fmqcore.consume.offsets.takeover_record import encoding_record
from fmqcore.errors import Malformed
from fmqcore.ids import Offset, TopicId
from fmqcore.turns import PIECE, finish

MANY = 5 * PIECE


def key(queue: int, group: str = "g", topic: int = 1) -> OffsetKey:
    return OffsetKey(group, TopicId(topic), queue)


def table_of(count: int) -> ProgressTable:
    return ProgressTable({key(n): OffsetEntry(1, Offset(n)) for n in reversed(range(count))})


def test_keys_by_topic_then_each_once_by_topic_group_and_queue() -> None:
    keys = [key(q, g, t) for g in "ba" for t in (2, 1) for q in (10, 9)]
    table = ProgressTable({k: OffsetEntry(1, Offset(0)) for k in keys})
    expected = sorted(keys, key=lambda k: (k.topic_id, k.group, k.queue_id))
    assert list(table.by_topic()) == expected


@pytest.mark.parametrize("count", [0, 1, PIECE, MANY + 1])
def test_in_pieces_then_the_same_bytes_and_entries(count: int) -> None:
    table = table_of(count)
    payload = finish(encoding_offsets(table, sorted(table)))
    assert payload == encode_offsets(dict(table))
    assert finish(decoding_offsets(payload)) == table
    assert len(list(encoding_offsets(table, table))) == count // PIECE, "pauses"
    assert len(list(decoding_offsets(payload))) == count // PIECE, "pauses"


def test_many_ranges_then_more_pauses() -> None:
    ranges = tuple((Offset(2 * n), Offset(2 * n + 1)) for n in range(1, 1000))
    table = {key(n): OffsetEntry(1, Offset(0), ranges) for n in range(20)}
    assert len(list(encoding_offsets(table, table))) >= 5
    assert len(list(decoding_offsets(encode_offsets(table)))) >= 5


def test_changes_at_a_pause_then_all_other_entries_are_there() -> None:
    """A key is removed, one is added, one changes: before and after the pause."""
    table = table_of(MANY)
    before, behind = key(0), key(MANY - 1)
    work = encoding_offsets(table, table.by_topic())
    next(work)
    del table[key(1)], table[key(MANY - 2)]
    table[key(0, "a")] = table[key(0, "z")] = OffsetEntry(1, Offset(7))
    table[before] = table[behind] = OffsetEntry(2, Offset(MANY))
    found = decode_offsets(finish(work))
    stayed = [key(n) for n in range(2, MANY - 2)]
    assert {k: found[k] for k in stayed} == {k: table[k] for k in stayed}
    assert found[before].version == 1
    assert found[behind].version == 2
    assert key(MANY - 2) not in found


def test_too_many_entries_for_a_record_then_none_is_encoded() -> None:
    table = table_of(MANY)
    room = MANY * MIN_ENTRY_BYTES * 4 // 3
    work = encoding_record(table, room - 4)
    with pytest.raises(StopIteration) as done:
        next(work)
    assert done.value.value == (None, False)
    assert finish(encoding_record(table, 2 * room)).whole


def test_smallest_entry_then_its_size_is_the_constant() -> None:
    assert len(encode_entry(key(0), OffsetEntry(1, Offset(0)))) == MIN_ENTRY_BYTES


def test_cut_bytes_in_pieces_then_malformed() -> None:
    with pytest.raises(Malformed):
        finish(decoding_offsets(encode_offsets(table_of(MANY))[:-1]))
