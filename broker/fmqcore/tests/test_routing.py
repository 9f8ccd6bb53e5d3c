"""Route tables: epochs, topics, order of candidates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, TopicId
from fmqcore.routing import (
    BrokerRoute,
    GroupRoute,
    RouteTable,
    candidates,
    grants,
    merge,
)
from fmqcore.zk.topic import TopicConfig, TopicGroup


def group(name: str, epoch: int, mode: str = "MASTER") -> GroupRoute:
    return GroupRoute(GroupName(name), Epoch(epoch), mode)


def topic(name: str, number: int = 1) -> TopicConfig:
    return TopicConfig(name, TopicId(number), (TopicGroup(GroupName("g1"), 8),))


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
