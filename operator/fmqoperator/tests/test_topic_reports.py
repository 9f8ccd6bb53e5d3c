"""A Topic's status and Events: bounds, times, and what is reported again or not."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.codec import Versioned
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqoperator.api.times import as_text
from fmqoperator.api.topic import Topic
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Failure
from fmqoperator.core.topics.plan import (
    PutTopic,
    TopicSeen,
    deletion,
    plan_topic,
    topic_status,
)
from fmqoperator.tests.test_topics import G1, G2, ready, seen, there, topic, twin

KEPT = there(("g1", 16, 1))


def reported(look: TopicSeen) -> list[tuple[str, str]]:
    """Return the warnings of one look, each with its message."""
    events = [a for a in plan_topic(look) if isinstance(a, EmitEvent)]
    return [(e.reason, e.message) for e in events if e.type == "Warning"]


def condition(found: Any, kind: str = "Ready") -> Any:
    return next(c for c in found["conditions"] if c["type"] == kind)


def test_long_cause_is_shortened_and_reported_once() -> None:
    """The API server would refuse a longer text, and with it every later status."""
    away = seen(topic(), groups=None, cause="x" * 5000)
    found = topic_status(away)
    assert (len(found["message"]), len(condition(found)["message"])) == (1024, 2048)
    assert len(reported(away)) == 1
    assert reported(replace(away, topic=topic(status=found))) == []


def test_status_has_its_generation_and_new_times_for_a_new_state() -> None:
    calm = seen(topic(), there(("g1", 8, 1)))
    first = topic_status(calm)
    assert first["observedGeneration"] == 4
    later = replace(calm, now_ms=calm.now_ms + 60_000, there=KEPT, topic=topic(status=first))
    changed = condition(topic_status(later))
    assert (changed["status"], changed["lastTransitionTime"]) == ("False", as_text(later.now_ms))


def test_problem_that_changes_is_reported_again() -> None:
    first = seen(topic(), KEPT)
    assert [reason for reason, _ in reported(first)] == ["QueuesKept"]
    status = topic_status(first)
    other = replace(first, topic=topic(status=status), there=there(("g1", 12, 1)))
    assert [message for _, message in reported(other)] == [
        "g1 keeps its 12 queues instead of 8: queues hold messages, declare as many"
    ]
    status["conditions"].insert(0, {**condition(status), "type": "Other", "message": ""})
    assert reported(replace(first, topic=topic(status=status))) == [], "in any order"


def test_failure_hides_no_problem() -> None:
    failed = seen(topic(), KEPT, failures=(Failure("topic orders", "No", "no"),))
    assert [reason for reason, _ in reported(failed)] == ["QueuesKept"]


def test_group_missing_after_another_problem_is_reported_late() -> None:
    before = seen(topic(G1, G2), there(("g1", 16, 1), ("g2", 4, 2)))
    status = topic_status(before)
    later = replace(before, topic=topic(G1, G2, status=status), now_ms=before.now_ms + 40_000)
    assert reported(replace(later, groups=frozenset({"g1"}))) == []


CAUSES = [
    ({"cause": "no route"}, "Unknown", "no route: check spec.zookeeper.connect"),
    ({}, "Unknown", "zk:2181 does not answer: check spec.zookeeper.connect"),
    (
        {"cause": "/fmq/t is not JSON", "bad": True},
        "False",
        "zk:2181 answers, but /fmq/t is not JSON: restore that node from a backup",
    ),
]


@pytest.mark.parametrize(("change", "status", "message"), CAUSES)
def test_topic_not_read_then_the_cause_is_shown(
    change: dict[str, Any], status: str, message: str
) -> None:
    found = condition(topic_status(seen(topic(), groups=None, **change)))
    assert (found["status"], found["message"]) == (status, message)


@pytest.mark.parametrize(
    ("groups", "now", "message"),
    [
        ([G1], [("g1", 4, 1)], "g1: queues 4 -> 8, weight 1 -> 1"),
        ([G1, G2], [("g1", 8, 1)], "g2: 4 queues, weight 2"),
        (
            [G2],
            [("g1", 8, 1), ("g2", 2, 2)],
            "g1: queues 8 -> 8, weight 1 -> 0; g2: queues 2 -> 4, weight 2 -> 2",
        ),
    ],
)
def test_change_of_a_topic_names_what_differs(groups: Any, now: Any, message: str) -> None:
    put, event, _ = plan_topic(seen(topic(*groups), there(*now)))
    assert isinstance(put, PutTopic)
    assert isinstance(event, EmitEvent)
    assert event.message == message


def test_of_two_topics_of_one_second_the_maker_counts() -> None:
    """The uid alone would let the other take over, and give it back, as objects come and go."""
    at = "2026-01-01T00:00:00Z"
    one, other = twin(at, "a"), twin(at, "b")
    made = one.status.model_copy(update={"id": 7})
    for maker, refused in ((one, other), (other, one)):
        maker = maker.model_copy(update={"status": made})
        assert ready(topic_status(seen(refused, KEPT, others=(maker,))))[1] == "NameTaken"
        assert ready(topic_status(seen(maker, KEPT, others=(refused,))))[1] != "NameTaken"


def test_topic_deleted_before_its_status_is_written_goes() -> None:
    assert deletion(topic(onDelete="Delete"), there(("g1", 8, 1))) is not None
    assert deletion(topic(onDelete="Delete", status={"id": 1}), there(("g1", 8, 1))) is None


@pytest.mark.parametrize(("queues", "shown"), [((2, 3), 3), ((), 0)])
def test_queues_of_an_ordered_topic_span_its_groups(queues: tuple[int, ...], shown: int) -> None:
    groups = tuple(TopicGroup(GroupName(f"g{n}"), count) for n, count in enumerate(queues, 1))
    node = Versioned(TopicConfig("orders", TopicId(7), groups, ordered=True), 5)
    spec = {
        "zookeeper": {"connect": "zk:2181"},
        "ordered": {"groups": [{"group": "g1"}, {"group": "g2"}]},
    }
    meta = {"name": "orders", "namespace": "shop", "generation": 4}
    declared = Topic.model_validate({"metadata": meta, "spec": spec})
    assert topic_status(seen(declared, node)).get("queues", 0) == shown
