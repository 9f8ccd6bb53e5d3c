"""Topics: changed to what is declared, and nothing removed that holds messages."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.codec import Versioned
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_from_json, topic_to_json
from fmqoperator.api.topic import Topic
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.observation import Failure
from fmqoperator.core.topics.plan import (
    CALM_MS,
    CreateTopic,
    DeleteTopic,
    PutTopic,
    TopicSeen,
    cluster_of,
    deletion,
    is_same,
    name_of,
    plan_topic,
    topic_status,
)

G1, G2 = {"group": "g1", "queues": 8}, {"group": "g2", "queues": 4, "weight": 2}


def topic(*groups: Any, status: Any = None, **spec: Any) -> Topic:
    body = {
        "metadata": {"name": "orders", "namespace": "shop", "generation": 4},
        "spec": {"zookeeper": {"connect": "zk:2181"}, "groups": list(groups or (G1,))} | spec,
    }
    return Topic.model_validate(body | ({"status": status} if status else {}))


def there(*groups: tuple[str, int, int], number: int = 7) -> Versioned[TopicConfig]:
    held = tuple(TopicGroup(GroupName(g), queues, weight) for g, queues, weight in groups)
    return Versioned(TopicConfig("orders", TopicId(number), held), 5)


def seen(made: Topic, now: Any = None, groups: Any = ("g1", "g2"), **more: Any) -> TopicSeen:
    known = None if groups is None else frozenset(groups)
    return TopicSeen(made, 1_800_000_000_000, known, now, **more)


def held(action: Any) -> list[tuple[str, int, int]]:
    return [(g.group, g.queues, g.weight) for g in action.config.groups]


def ready(found: Any) -> tuple[str, str]:
    (condition,) = found["conditions"]
    assert condition["observedGeneration"] == 4
    return condition["status"], condition["reason"]


def test_names() -> None:
    assert (name_of(topic()), cluster_of(topic())) == ("orders", "shop")
    named = topic(name="Orders_1", cluster="live")
    assert (name_of(named), cluster_of(named)) == ("Orders_1", "live")


def test_topic_is_created_once_its_groups_exist() -> None:
    made = topic(G1, G2)
    waiting = seen(made, groups=("g1",))
    assert [type(a) for a in plan_topic(waiting)] == [Requeue]
    assert ready(topic_status(waiting)) == ("False", "NoSuchGroup")
    assert "no group g2" in topic_status(waiting)["message"]
    create, event, _ = plan_topic(seen(made))
    assert isinstance(create, CreateTopic)
    assert held(create) == [("g1", 8, 1), ("g2", 4, 2)]
    assert isinstance(event, EmitEvent)


def test_a_topic_that_zookeeper_lost_asks_for_its_own_number() -> None:
    lost = seen(topic(status={"id": 7}))
    assert topic_status(lost)["id"] == 7
    create, *_ = plan_topic(lost)
    assert isinstance(create, CreateTopic)
    assert create.config.id == 7
    back = seen(topic(status=topic_status(lost)), there(("g1", 8, 1), number=9))
    assert topic_status(back)["id"] == 9


def test_topic_waiting_for_a_group_is_reported_once_and_late() -> None:
    first = seen(topic(G1, G2), groups=("g1",))
    waiting = replace(first, topic=topic(G1, G2, status=topic_status(first)))

    def event_reasons(after_ms: int) -> list[str]:
        plan = plan_topic(replace(waiting, now_ms=waiting.now_ms + after_ms))
        return [a.reason for a in plan if isinstance(a, EmitEvent)]

    assert [event_reasons(s * 1000) for s in (3, 29, 31, 59, 61)] == [
        [],
        [],
        ["NoSuchGroup"],
        ["NoSuchGroup"],
        [],
    ]


def test_as_declared() -> None:
    calm = seen(topic(G2, G1), there(("g1", 8, 1), ("g2", 4, 2)))
    assert plan_topic(calm) == [Requeue(CALM_MS)]
    found = topic_status(calm)
    assert ready(found) == ("True", "AsDeclared")
    assert (found["id"], found["queues"]) == (7, 12)


@pytest.mark.parametrize(
    ("groups", "now", "then"),
    [
        ([G1], [("g1", 4, 1)], [("g1", 8, 1)]),
        ([G1], [("g1", 8, 0)], [("g1", 8, 1)]),
        ([G1, G2], [("g1", 8, 1)], [("g1", 8, 1), ("g2", 4, 2)]),
        ([G2], [("g1", 8, 1), ("g2", 4, 2)], [("g1", 8, 0), ("g2", 4, 2)]),
        ([G1], [("g1", 16, 3)], [("g1", 16, 1)]),
    ],
    ids=["more queues", "weight", "a group more", "a group less", "fewer queues are not"],
)
def test_changes(groups: Any, now: Any, then: Any) -> None:
    put, event, _ = plan_topic(seen(topic(*groups), there(*now)))
    assert isinstance(put, PutTopic)
    assert held(put) == then
    assert (put.version, put.config.id) == (5, 7)
    assert isinstance(event, EmitEvent)
    after = seen(topic(*groups), there(*then))
    assert [a for a in plan_topic(after) if not isinstance(a, EmitEvent)] == [Requeue(CALM_MS)]


def test_kept_queues_are_reported() -> None:
    found = topic_status(seen(topic(G1), there(("g1", 16, 1))))
    assert ready(found) == ("False", "QueuesKept")
    assert "g1 keeps its 16 queues instead of 8" in found["message"]


def test_topic_state_is_unknown_without_zookeeper() -> None:
    away = seen(topic(status={"id": 7}), groups=None, cause="zk:2181 does not answer")
    assert [type(a) for a in plan_topic(away)] == [EmitEvent, Requeue]
    found = topic_status(away)
    assert ready(found) == ("Unknown", "ZooKeeperUnreachable")
    assert found["id"] == 7


def test_failed_topic_action_is_reported() -> None:
    failed = seen(topic(), failures=(Failure("topic orders", "BadVersion", "changed meanwhile"),))
    assert ready(topic_status(failed)) == ("False", "BadVersion")


def test_a_resources_name_that_is_no_topics_name() -> None:
    odd = topic()
    odd = odd.model_copy(update={"metadata": odd.metadata.model_copy(update={"name": "a."})})
    assert [type(a) for a in plan_topic(seen(odd))] == [EmitEvent, Requeue]
    assert ready(topic_status(seen(odd))) == ("False", "Invalid")


def test_the_time_stays_while_the_status_does() -> None:
    calm = seen(topic(), there(("g1", 8, 1)))
    first = topic_status(calm)
    later = TopicSeen(topic(status=first), calm.now_ms + 60_000, calm.groups, calm.there)
    assert topic_status(later) == first


def test_deleted_topic_follows_its_deletion_policy() -> None:
    now = there(("g1", 8, 1))
    assert deletion(topic(), now) is None
    gone = topic(onDelete="Delete", status={"id": 7})
    assert deletion(gone, now) == DeleteTopic("orders", TopicId(7))
    assert deletion(gone, None) is None
    assert deletion(gone, there(("g1", 8, 1), number=9)) is None


def test_topic_being_deleted_is_left_alone() -> None:
    going = topic().metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    assert plan_topic(seen(topic().model_copy(update={"metadata": going}))) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"groups": None, "cause": "no ZooKeeper answers at zk:2181"}, ["ZooKeeperUnreachable"]),
        ({"now": there(("g1", 16, 1))}, ["QueuesKept"]),
        ({"groups": ("g9",)}, []),  # about to be created
        ({"now": there(("g1", 8, 1))}, []),
        (
            {"now": there(("g1", 8, 1)), "failures": (Failure("topic orders", "No", "no"),)},
            [],
        ),
    ],
)
def test_manual_task_is_reported_until_the_status_has_it(
    change: dict[str, Any], expected: list[str]
) -> None:
    first = seen(topic(), **change)
    found = [a for a in plan_topic(first) if isinstance(a, EmitEvent) and a.type == "Warning"]
    assert [a.reason for a in found] == expected
    after = seen(topic(status=topic_status(first)), **change)
    assert not [a for a in plan_topic(after) if isinstance(a, EmitEvent)]


# ---- several resources of one topic


def twin(at: str, namespace: str = "other", **spec: Any) -> Topic:
    """Return a Topic that declares `orders` of cluster `shop`, created at that time."""
    made = topic(G2, cluster="shop", **spec)
    meta = {"namespace": namespace, "uid": f"u-{at}", "creation_timestamp": at}
    return made.model_copy(update={"metadata": made.metadata.model_copy(update=meta)})


def test_older_of_two_declarations_of_a_topic_counts() -> None:
    """Each would set the other's groups to weight 0, again and again."""
    now = there(("g1", 8, 1))
    first, second = twin("2026-01-01T00:00:00Z", "shop"), twin("2026-01-02T00:00:00Z")
    assert isinstance(plan_topic(seen(first, now, others=(second,)))[0], PutTopic)
    refused = seen(second, now, others=(first,))
    assert [type(a) for a in plan_topic(refused)] == [EmitEvent, Requeue]
    found = topic_status(refused)
    assert ready(found) == ("False", "NameTaken")
    assert "is also declared by the older Topic shop/orders" in found["message"]
    assert (found["id"], found["queues"]) == (0, 0)
    going = first.metadata.model_copy(update={"deletion_timestamp": "2026-01-03T00:00:00Z"})
    gone = first.model_copy(update={"metadata": going})
    assert isinstance(plan_topic(seen(second, now, others=(gone,)))[0], PutTopic)


def test_topic_declared_elsewhere_is_not_deleted() -> None:
    """As when a Topic is moved to another namespace: the new one first, then the old one goes."""
    now, old = there(("g1", 8, 1)), topic(onDelete="Delete", status={"id": 7})
    assert deletion(old, now) is not None
    assert deletion(old, now, (twin("2026-01-02T00:00:00Z"),)) is None
    second = twin("2026-01-02T00:00:00Z", onDelete="Delete")
    first = twin("2026-01-01T00:00:00Z", "shop")
    status = topic_status(seen(second, now, others=(first,)))
    refused = second.model_copy(update={"status": second.status.model_validate(status)})
    assert deletion(refused, now) is None, "it never was its own"


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        ({}, True),
        ({"zookeeper": {"connect": "zk2:2181,zk:2181/"}}, True),
        ({"zookeeper": {"connect": "zk:2181/fmq"}}, False),
        ({"zookeeper": {"connect": "another:2181"}}, False),
        ({"name": "bills"}, False),
        ({"cluster": "other"}, False),
    ],
)
def test_declarations_of_one_topic_are_found(spec: Any, same: bool) -> None:
    made = twin("2026-01-02T00:00:00Z")
    changed = made.spec.model_validate(made.spec.as_json() | spec)
    assert is_same(topic(), made.model_copy(update={"spec": changed})) is same


def test_changed_topic_keeps_properties_of_a_next_version() -> None:
    """ZooKeeper's node through the operator's read and write; its own share too."""
    raw = (
        b'{"groups":[{"group":"g1","queues":4,"tier":"ssd","weight":1},'
        b'{"group":"g3","queues":2,"tier":"hdd","weight":3}],"id":7,"name":"orders","keyed":true}'
    )
    node = Versioned(topic_from_json(raw), 5)
    put, *_ = plan_topic(seen(topic(G1, G2), node))
    assert isinstance(put, PutTopic)
    assert json.loads(topic_to_json(put.config)) == {
        "name": "orders",
        "id": 7,
        "keyed": True,
        "groups": [
            {"group": "g1", "queues": 8, "weight": 1, "tier": "ssd"},
            {"group": "g2", "queues": 4, "weight": 2},
            {"group": "g3", "queues": 2, "weight": 0, "tier": "hdd"},
        ],
    }
    after = Versioned(put.config, 6)
    assert plan_topic(seen(topic(G1, G2), after)) == [Requeue(CALM_MS)]


def test_status_keeps_fields_of_a_newer_operator() -> None:
    calm = seen(topic(G2, G1, status={"id": 7, "lagMs": {"g1": 3}}), there(("g1", 8, 1)))
    found = topic_status(calm)
    assert found["lagMs"] == {"g1": 3}
    assert topic_status(replace(calm, topic=topic(G2, G1, status=found))) == found
