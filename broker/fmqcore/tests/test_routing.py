"""Routing: epochs, order of candidates, hashing, weights."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.routing import (
    BrokerRoute,
    GroupRoute,
    Rotation,
    RouteTable,
    _fmix32,
    candidates,
    grants,
    key_hash,
    merge,
    pick_by_key,
    tag_bit,
)
from fmqcore.zk.topic import TopicConfig, TopicGroup


def group(name: str, epoch: int, mode: str = "MASTER") -> GroupRoute:
    return GroupRoute(GroupName(name), Epoch(epoch), mode)


def topic(name: str, number: int = 1) -> TopicConfig:
    return TopicConfig(name, TopicId(number), (TopicGroup(GroupName("g1"), 8),))


def groups_of(**weights: int) -> tuple[TopicGroup, ...]:
    return tuple(TopicGroup(GroupName(n), 8, w) for n, w in weights.items())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30))
def test_epoch_of_a_group_never_falls(answers: list[tuple[str, int]]) -> None:
    table, highest = RouteTable(), dict[str, int]()
    for name, epoch in answers:
        table = merge(table, [group(name, epoch)], ())
        highest[name] = max(highest.get(name, 0), epoch)
        assert {g: r.epoch for g, r in table.groups.items()} == highest


def test_route_of_an_equal_epoch_is_taken() -> None:
    table = merge(RouteTable(), [group("g1", 3, "MASTER")], ())
    assert merge(table, [group("g1", 3, "HANDOVER")], ()).groups[GroupName("g1")].mode == "HANDOVER"
    assert merge(table, [group("g1", 2, "HANDOVER")], ()).groups[GroupName("g1")].mode == "MASTER"


def test_full_answer_replaces_all_topics_partial_only_its_own() -> None:
    table = merge(RouteTable(), (), [topic("a"), topic("b", 2)])
    assert sorted(merge(table, (), [topic("b", 2)]).topics) == ["b"]
    assert sorted(merge(table, (), [], asked=("a",)).topics) == ["b"]
    assert sorted(merge(table, (), [topic("c", 3)], asked=("c",)).topics) == ["a", "b", "c"]


def test_topic_is_not_replaced_by_its_older_namesake() -> None:
    table = merge(RouteTable(), (), [topic("a", 2)])
    for asked in ((), ("a",)):
        assert merge(table, (), [topic("a", 1)], asked).topics["a"].id == 2
        assert merge(table, (), [topic("a", 3)], asked).topics["a"].id == 3


def broker(name: str, permission: Permission, *, live: bool = True) -> BrokerRoute:
    return BrokerRoute(BrokerId(name), name, permission=permission, live=live)


@pytest.mark.parametrize(
    ("needed", "order"),
    [(Permission.WRITE, ["full", "write", "read", "none"]), (Permission.READ, ["full", "read"])],
)
def test_brokers_are_tried_by_permission(needed: Permission, order: list[str]) -> None:
    brokers = tuple(broker(p.name or "", p) for p in (Permission(i) for i in (0, 2, 1, 3)))
    route = GroupRoute(GroupName("g"), Epoch(1), "MASTER", brokers)
    assert [b.id.lower() for b in candidates(route, needed)][: len(order)] == order
    assert len(candidates(route, needed)) == 4  # no broker is left out: the table may be stale


def test_a_live_broker_is_tried_before_a_dead_one() -> None:
    brokers = (broker("a", Permission.NONE, live=False), broker("b", Permission.NONE))
    route = GroupRoute(GroupName("g"), Epoch(1), "HANDOVER", brokers)
    assert [b.id for b in candidates(route, Permission.WRITE)] == ["b", "a"]
    assert not grants(route, Permission.READ)
    assert not grants(None, Permission.READ)


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
def test_rotation_is_fair_by_weight(weights: dict[str, int], start: int) -> None:
    rotation = Rotation(groups_of(**weights), start)
    writable = {GroupName(n) for n in weights}
    total = sum(weights.values())
    places = [rotation.next(writable) for _ in range(total * 8)]
    if total == 0:
        assert rotation.next(writable) is None
        return
    by_group = Counter(p[0] for p in places if p)
    assert dict(by_group) == {GroupName(n): w * 8 for n, w in weights.items() if w}
    by_queue = Counter(p for p in places if p)
    assert all(by_queue[(GroupName(n), q)] == w for n, w in weights.items() if w for q in range(8))


def test_rotation_skips_a_group_that_is_away() -> None:
    rotation = Rotation(groups_of(g1=1, g2=1))
    only = {GroupName("g2")}
    assert [rotation.next(only) for _ in range(3)] == [("g2", 0), ("g2", 1), ("g2", 2)]
    assert rotation.next(set()) is None
