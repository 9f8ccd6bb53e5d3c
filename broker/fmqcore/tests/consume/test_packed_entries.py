"""Progress as SNAP holds it: the same bytes as encoding all entries in order."""

import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets import packed_entries
from fmqcore.consume.offsets.packed_entries import PAGE_ENTRIES, PackedOffsets
from fmqcore.ids import TopicId
from fmqcore.turns import FREED

KEYS = st.builds(
    OffsetKey,
    st.sampled_from(["a", "b", "billing"]),
    st.sampled_from([TopicId(1), TopicId(2), TopicId(300)]),
    st.integers(0, 3),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["take", "drop", "pop"]), KEYS, st.just(b"")),
    ),
    max_size=40,
)
ENTRIES = 3000


@pytest.mark.parametrize("page_entries", [1, 2, 5, PAGE_ENTRIES])
@given(STEPS)
def test_any_changes_then_the_same_bytes_as_a_sorted_table(
    page_entries: int, steps: list[tuple[str, OffsetKey, bytes]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_entries, "PAGE_ENTRIES", page_entries)
        packed, table = PackedOffsets(), dict[OffsetKey, bytes]()
        for step, key, raw in steps:
            if step == "put":
                assert packed.put(key, raw) is (key not in table)
                table[key] = raw
            elif step == "take":
                assert packed.take(key) == table.pop(key, None)
            elif step == "drop":
                packed.drop((key.group, key.topic_id))
                table = {other: raw for other, raw in table.items() if other[:2] != key[:2]}
            elif table:
                (group, topic), queues = packed.pop_block()
                gone = [other for other in table if other[:2] == (group, topic)]
                assert sorted(queues) == sorted(
                    table.pop(other) and other.queue_id for other in gone
                )
            require_same(packed, table)


def require_same(packed: PackedOffsets, table: dict[OffsetKey, bytes]) -> None:
    assert (packed.count, packed.size) == (len(table), sum(map(len, table.values())))
    assert b"".join(packed.parts()) == b"".join(table[key] for key in sorted(table))
    assert all(packed.parts())
    for group in ("a", "b", "billing"):
        for topic in (TopicId(1), TopicId(2), TopicId(300)):
            queues = [q for g, t, q in table if (g, t) == (group, topic)]
            assert packed.first_queue((group, topic)) == min(queues, default=None)


def key_of(number: int) -> OffsetKey:
    return OffsetKey(f"g{number % 2}", TopicId(1 + number % 11), number)


def test_ascending_entries_then_full_pages() -> None:
    packed = PackedOffsets()
    for number in range(ENTRIES):
        packed.put(OffsetKey("g", TopicId(1), number), b"x")
    assert list(map(len, packed.parts()))[:-1] == [PAGE_ENTRIES] * (ENTRIES // PAGE_ENTRIES)


def test_entries_in_any_order_then_half_full_pages() -> None:
    packed, numbers = PackedOffsets(), list(range(ENTRIES))
    Random(1).shuffle(numbers)
    for number in numbers:
        packed.put(key_of(number), b"x")
    assert len(packed.parts()) <= 2 * (ENTRIES // PAGE_ENTRIES + 1)


def test_most_entries_taken_then_pages_are_joined() -> None:
    packed, numbers = PackedOffsets(), list(range(ENTRIES))
    Random(1).shuffle(numbers)
    for number in numbers:
        packed.put(key_of(number), b"x")
    for number in numbers[ENTRIES // 20 :]:
        packed.take(key_of(number))
    assert len(packed.parts()) <= 2 + 2 * ENTRIES // 20 // (PAGE_ENTRIES // 2)


def test_large_entries_then_a_change_copies_few_of_them() -> None:
    packed = PackedOffsets()
    for number in range(100):
        packed.put(key_of(number), bytes(5000))
    assert max(map(len, packed.parts())) <= 16 * 1024
    packed.put(key_of(50), bytes(100_000))
    assert sorted(map(len, packed.parts()))[-2] <= 16 * 1024 + 5000


def test_all_entries_changed_then_earlier_parts_stay() -> None:
    """A SNAP is of one moment, also if its parts are joined later."""
    packed = PackedOffsets()
    for number in range(ENTRIES):
        packed.put(key_of(number), b"old")
    parts = packed.parts()
    for number in range(ENTRIES):
        packed.put(key_of(number), b"newer")
    assert b"".join(parts) == b"old" * ENTRIES


def test_many_entries_freed_then_in_pieces_of_some_pages() -> None:
    packed = PackedOffsets()
    for number in range(5 * FREED):
        packed.put(OffsetKey("g", TopicId(1), number), b"x")
    assert len(list(packed.freeing())) == 4


def test_first_queue_of_a_wide_group_costs_no_more() -> None:
    """Each tombstone asks for it: a deleted group of a wide topic would hold the loop."""

    def lines_for(queues: int) -> int:
        packed, lines = PackedOffsets(), 0
        for queue in range(queues):
            packed.put(OffsetKey("a", TopicId(2), queue), b"entry")

        def count(*_: Any) -> Any:
            nonlocal lines
            lines += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            found = [packed.first_queue(("a", TopicId(topic))) for topic in (1, 2, 3)]
        finally:
            sys.settrace(before)
        assert found == [None, 0, None]
        return lines

    assert lines_for(100 * PAGE_ENTRIES) <= lines_for(3 * PAGE_ENTRIES)
