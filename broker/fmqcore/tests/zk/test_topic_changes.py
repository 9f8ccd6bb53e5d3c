"""Permitted topic changes: a topic grows, and queues with messages stay."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.ids import MAX_QUEUES, GroupName, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqcore.zk.topic_changes import (
    GroupChange,
    altered,
    closed,
    restored,
    with_chain_groups,
    without,
)

G1, G2, G3 = map(GroupName, ("g1", "g2", "g3"))
KNOWN = (G1, G2, G3)
TOPIC = TopicConfig("orders", TopicId(7), (TopicGroup(G1, 4, 2), TopicGroup(G2, 8)))


@pytest.mark.parametrize(
    ("queues", "changes", "groups"),
    [
        (0, [], [(G1, 4, 2), (G2, 8, 1)]),
        (8, [], [(G1, 8, 2), (G2, 8, 1)]),
        (MAX_QUEUES, [], [(G1, MAX_QUEUES, 2), (G2, MAX_QUEUES, 1)]),
        (0, [GroupChange(G1)], [(G1, 4, 2), (G2, 8, 1)]),
        (0, [GroupChange(G1, weight=0)], [(G1, 4, 0), (G2, 8, 1)]),
        (0, [GroupChange(G1, 5)], [(G1, 5, 2), (G2, 8, 1)]),
        (0, [GroupChange(G3)], [(G1, 4, 2), (G2, 8, 1), (G3, 8, 1)]),
        (0, [GroupChange(G3, 1, 5)], [(G1, 4, 2), (G2, 8, 1), (G3, 1, 5)]),
        (9, [GroupChange(G3, weight=0)], [(G1, 9, 2), (G2, 9, 1), (G3, 9, 0)]),
    ],
)
def test_a_topic_grows(
    queues: int, changes: list[GroupChange], groups: list[tuple[GroupName, int, int]]
) -> None:
    after = altered(TOPIC, queues, changes, KNOWN)
    assert (after.name, after.id) == ("orders", 7)
    assert after.groups == tuple(TopicGroup(*group) for group in groups)
    assert altered(after, queues, changes, KNOWN) == after, "asked twice it is done once"


@pytest.mark.parametrize(
    ("queues", "changes", "reason"),
    [
        (7, [], "8 queues in group g2, and never fewer"),
        (0, [GroupChange(G1, 3)], "4 queues in group g1, and never fewer"),
        (MAX_QUEUES + 1, [], "1 to"),
        (0, [GroupChange(G3, 0)], "1 to"),
        (0, [GroupChange(GroupName("g9"))], "there is no group 'g9'; the groups are g1, g2, g3"),
        (0, [GroupChange(G1), GroupChange(G1, 9)], "named twice"),
        (0, [GroupChange(G1, weight=0), GroupChange(G2, weight=0)], "weight above 0"),
    ],
)
def test_topic_change_that_loses_messages_is_refused(
    queues: int, changes: list[GroupChange], reason: str
) -> None:
    with pytest.raises((InvalidArgument, NotFound), match=reason):
        altered(TOPIC, queues, changes, KNOWN)


def test_a_group_is_closed_and_leaves() -> None:
    assert closed(TOPIC, G2).groups == (TopicGroup(G1, 4, 2), TopicGroup(G2, 8, 0))
    assert without(closed(TOPIC, G2), G2).groups == (TopicGroup(G1, 4, 2),)
    assert without(TOPIC, G3) == closed(TOPIC, G3) == TOPIC


def test_topic_without_groups_gets_one_queue_if_any_is_known() -> None:
    bare = TopicConfig("orders", TopicId(7))
    assert altered(bare, 0, [GroupChange(G1)], KNOWN).groups == (TopicGroup(G1, 1),)
    with pytest.raises(NotFound, match="the groups are none"):
        altered(bare, 0, [GroupChange(G1)], ())


def test_queue_of_weight_one_takes_over_from_a_leaving_group() -> None:
    topic = TopicConfig("orders", TopicId(7), (TopicGroup(G1, 4, 2), TopicGroup(G2, 1)))
    assert closed(topic, G1).groups == (TopicGroup(G1, 4, 0), TopicGroup(G2, 1))
    assert without(topic, G1).groups == (TopicGroup(G2, 1),)


@pytest.mark.parametrize("change", [closed, without])
@pytest.mark.parametrize("other", [(), (TopicGroup(G1, 4, 0),), (TopicGroup(G1, 0),)])
def test_the_only_group_that_takes_messages_stays(
    change: Callable[[TopicConfig, GroupName], TopicConfig], other: tuple[TopicGroup, ...]
) -> None:
    topic = TopicConfig("orders", TopicId(7), (*other, TopicGroup(G2, 8)))
    with pytest.raises(InvalidArgument, match="orders has no group besides g2 that takes"):
        change(topic, G2)


@pytest.mark.parametrize(
    ("group", "queues", "groups"),
    [
        (G1, 3, [(G1, 4, 2), (G2, 8, 1)]),
        (G1, 4, [(G1, 4, 2), (G2, 8, 1)]),
        (G1, 5, [(G1, 5, 2), (G2, 8, 1)]),
        (G3, 0, [(G1, 4, 2), (G2, 8, 1)]),
        (G3, 2, [(G1, 4, 2), (G2, 8, 1), (G3, 2, 0)]),  # read, and it gets no new ones
    ],
)
def test_a_topic_gets_back_the_queues_that_a_journal_holds(
    group: GroupName, queues: int, groups: list[tuple[GroupName, int, int]]
) -> None:
    after = restored(TOPIC, group, queues)
    assert (after.name, after.id) == ("orders", 7)
    assert after.groups == tuple(TopicGroup(*each) for each in groups)


ORDERED = TopicConfig("changes", TopicId(8), (TopicGroup(G1, 2), TopicGroup(G2, 2)), ordered=True)


@pytest.mark.parametrize(
    ("queues", "changes"), [(3, []), (0, [GroupChange(G1, weight=0)]), (0, [GroupChange(G3)])]
)
def test_ordered_topic_is_changed_by_its_chain_only(
    queues: int, changes: list[GroupChange]
) -> None:
    with pytest.raises(InvalidArgument, match=r"changes is ordered.*alter changes --groups"):
        altered(ORDERED, queues, changes, KNOWN)


def test_chain_groups_come_with_queues_and_leave_with_weight_0() -> None:
    after = with_chain_groups(ORDERED, {G2: 3, G3: 1})
    assert after.groups == (TopicGroup(G1, 2, 0), TopicGroup(G2, 2, 3), TopicGroup(G3, 2))
    assert with_chain_groups(after, {G2: 3, G3: 1}) == after
    back = with_chain_groups(after, {G1: 1, G2: 1})
    assert back == replace(ORDERED, groups=(*ORDERED.groups, TopicGroup(G3, 2, 0)))


def test_chain_group_comes_with_queues_of_a_restored_group() -> None:
    """All groups of a chain have as many queues as the largest."""
    after = with_chain_groups(restored(ORDERED, G2, 5), {G1: 1, G2: 1, G3: 1})
    assert [after.queues_in(group) for group in (G1, G2, G3)] == [2, 5, 5]
