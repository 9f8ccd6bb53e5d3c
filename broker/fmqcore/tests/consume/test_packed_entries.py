"""Progress as SNAP holds it: the same bytes as encoding all entries in order."""

from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.packed_entries import PackedOffsets
from fmqcore.ids import TopicId

KEYS = st.builds(
    OffsetKey,
    st.sampled_from(["a", "b", "billing"]),
    st.sampled_from([TopicId(1), TopicId(2), TopicId(300)]),
    st.integers(0, 3),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(min_size=1, max_size=3)),
        st.tuples(st.just("remove"), KEYS, st.just(b"")),
        st.tuples(st.just("join"), KEYS, st.just(b"")),
        st.tuples(st.just("drop"), KEYS, st.just(b"")),
    ),
    max_size=40,
)


@given(STEPS, st.sets(KEYS))
def test_any_changes_then_the_same_bytes_as_a_sorted_table(
    steps: list[tuple[str, OffsetKey, bytes]], without: set[OffsetKey]
) -> None:
    packed, table = PackedOffsets(), dict[OffsetKey, bytes]()
    for step, key, raw in steps:
        if step == "put":
            packed.put(key, raw)
            table[key] = raw
        elif step == "remove":
            packed.remove([key])
            table.pop(key, None)
        elif step == "drop":
            packed.drop((key.group, key.topic_id), {key.queue_id, 2})
            table.pop(key, None)
            table.pop(key._replace(queue_id=2), None)
        else:
            packed.parts()
    assert (packed.count, packed.size) == (len(table), sum(map(len, table.values())))
    assert set(packed) == set(table)
    assert all(key in packed for key in table)
    kept = [table[key] for key in sorted(table) if key not in without]
    out: dict[tuple[str, TopicId], set[int]] = {}
    for group, topic, queue in without:
        out.setdefault((group, topic), set()).add(queue)
    assert b"".join(packed.parts(out)) == b"".join(kept)
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
