"""Where records go: hashing, weights, turns, the queue of an ordered topic's key."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.ids import GroupName
from fmqcore.placement import ByChain, ByKey, InTurn, _fmix32, key_hash, pick_by_key, tag_bit
from fmqcore.zk.topic import TopicGroup


def groups_of(**weights: int) -> tuple[TopicGroup, ...]:
    return tuple(TopicGroup(GroupName(n), 8, w) for n, w in weights.items())


def test_key_hash_matches_the_documented_values() -> None:
    """These numbers are a contract: a change moves every key of every user."""
    assert [key_hash(k) for k in (b"", b"42", b"N14228")] == [0, 1273439891, 243704562]
    assert tag_bit(b"") == 1
    assert _fmix32(1) == 0x514E28B7  # the published value


def test_a_key_stays_in_its_place_and_moves_only_with_its_group() -> None:
    groups = groups_of(g1=1, g2=1, g3=1)
    everyone = {GroupName("g1"), GroupName("g2"), GroupName("g3")}
    for number in range(500):
        key = str(number).encode()
        place = pick_by_key(groups, everyone, key)
        assert place is not None
        assert place == pick_by_key(tuple(reversed(groups)), everyone, key)
        for gone in everyone - {place[0]}:
            assert pick_by_key(groups, everyone - {gone}, key) == place
        moved = pick_by_key(groups, everyone - {place[0]}, key)
        assert moved is not None
        assert moved[0] != place[0]
    assert pick_by_key(groups, set(), b"k") is None


def test_keys_spread_by_weight_and_evenly_over_queues() -> None:
    groups = groups_of(g1=1, g2=3, g3=0)
    everyone = {GroupName("g1"), GroupName("g2"), GroupName("g3")}
    places = [pick_by_key(groups, everyone, b"key-%d" % n) for n in range(8000)]
    by_group = Counter(p[0] for p in places if p)
    assert set(by_group) == {"g1", "g2"}
    assert 0.2 < by_group[GroupName("g1")] / 8000 < 0.3
    by_queue = Counter(p for p in places if p)
    assert all(150 < by_queue[(GroupName("g1"), q)] < 350 for q in range(8))


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), min_size=1),
    st.integers(0, 100),
)
def test_turns_is_fair_by_weight(weights: dict[str, int], start: int) -> None:
    turns = InTurn(groups_of(**weights), start)
    writable = {GroupName(n) for n in weights}
    total = sum(weights.values())
    places = [turns.place(b"", writable) for _ in range(total * 8)]
    if total == 0:
        assert turns.place(b"", writable) is None
        return
    by_group = Counter(p[0] for p in places if p)
    assert dict(by_group) == {GroupName(n): w * 8 for n, w in weights.items() if w}
    by_queue = Counter(p for p in places if p)
    assert all(by_queue[(GroupName(n), q)] == w for n, w in weights.items() if w for q in range(8))


def test_turns_skips_a_group_that_is_away() -> None:
    turns = InTurn(groups_of(g1=1, g2=1))
    only = {GroupName("g2")}
    assert [turns.place(b"", only) for _ in range(3)] == [("g2", 0), ("g2", 1), ("g2", 2)]
    assert turns.place(b"", set()) is None


@pytest.mark.parametrize("queues", [1, 2, 8])
def test_key_of_an_ordered_topic_has_one_queue_in_each_group(queues: int) -> None:
    groups = tuple(TopicGroup(GroupName(name), queues) for name in ("g1", "g2"))
    for number in range(50):
        key = b"%d" % number
        queue = ByChain(queues).queue(key)
        for group in groups:
            assert ByKey(groups).place(key, {group.group}) == (group.group, queue)
