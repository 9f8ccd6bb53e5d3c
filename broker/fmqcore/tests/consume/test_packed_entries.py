"""Progress as SNAP holds it: the same bytes as encoding all entries in order."""

from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.packed_entries import PackedOffsets
from fmqcore.ids import TopicId
from fmqcore.turns import Turns

KEYS = st.builds(
    OffsetKey,
    st.sampled_from(["a", "b", "billing"]),
    st.sampled_from([TopicId(1), TopicId(2), TopicId(300)]),
    st.integers(0, 3),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["take", "join", "prepare", "drop", "pop"]), KEYS, st.just(b"")),
    ),
    max_size=40,
)


@given(STEPS)
def test_any_changes_then_the_same_bytes_as_a_sorted_table(
    steps: list[tuple[str, OffsetKey, bytes]],
) -> None:
    packed, table = PackedOffsets(), dict[OffsetKey, bytes]()
    preparing: Turns[None] | None = None
    for step, key, raw in steps:
        if step == "put":
            assert packed.put(key, raw) is (key not in table)
            table[key] = raw
        elif step == "take":
            assert packed.take(key) == table.pop(key, None)
        elif step == "drop":
            packed.drop((key.group, key.topic_id))
            table = {other: raw for other, raw in table.items() if other[:2] != key[:2]}
        elif step == "pop" and table:
            (group, topic), queues = packed.pop_block()
            gone = [other for other in table if other[:2] == (group, topic)]
            assert sorted(queues) == sorted(table.pop(other) and other.queue_id for other in gone)
        elif step == "prepare":
            preparing = preparing or packed.joining()
            if next(preparing, "at its end") is not None:
                preparing = None
        else:
            packed.parts()
    assert (packed.count, packed.size) == (len(table), sum(map(len, table.values())))
    assert all(key in packed for key in table)
    for group, topic, _ in table:
        found = packed.queues_of((group, topic))
        assert sorted(found) == sorted(q for g, t, q in table if (g, t) == (group, topic))
    assert b"".join(packed.parts()) == b"".join(table[key] for key in sorted(table))


def test_one_changed_entry_then_one_block_is_joined_again() -> None:
    packed = PackedOffsets()
    for group in ("a", "b"):
        for queue in range(3):
            packed.put(OffsetKey(group, TopicId(1), queue), b"%d" % queue)
    first = packed.parts()
    packed.put(OffsetKey("b", TopicId(1), 1), b"x")
    second = packed.parts()
    assert first[0] is second[0]
    assert second == [b"012", b"0x2"]
