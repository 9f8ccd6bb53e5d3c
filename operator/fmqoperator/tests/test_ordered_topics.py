"""Topics with `spec.ordered`: created and changed by brokers; their chain in status and Events."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ids import TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.requests import group_in_use
from fmqcore.zk.chain import Chain, ChainGroup
from fmqcore.zk.codec import Versioned
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqoperator.api.times import as_text
from fmqoperator.api.topic import Topic
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.core.topics.ordered import CreateOrdered, SetChainGroups
from fmqoperator.core.topics.plan import (
    CALM_MS,
    DeleteTopic,
    TopicSeen,
    deletion,
    plan_topic,
    still_used,
    topic_status,
)
from fmqoperator.tests.chain_samples import G1, G2, SENDER, WHOLE, chain, ended, opened, unknown
from fmqoperator.tests.chain_samples import seen as chain_seen

BOTH = [{"group": "g1"}, {"group": "g2"}]
NOW_MS = 1_800_000_000_000


def topic(*groups: Any, status: Any = None, ordered: Any = None, **spec: Any) -> Topic:
    wanted = {"groups": list(groups or BOTH)} | (ordered or {})
    body = {
        "metadata": {"name": "orders", "namespace": "shop", "generation": 4},
        "spec": {"zookeeper": {"connect": "zk:2181"}, "ordered": wanted} | spec,
    }
    return Topic.model_validate(body | ({"status": status} if status else {}))


def plain() -> Topic:
    spec = {"zookeeper": {"connect": "zk:2181"}, "groups": [{"group": "g1", "queues": 1}]}
    meta = {"name": "orders", "namespace": "shop", "generation": 4}
    return Topic.model_validate({"metadata": meta, "spec": spec})


def there(*, ordered: bool = True) -> Versioned[TopicConfig]:
    groups = tuple(TopicGroup(group, 1) for group in (G1, G2))
    return Versioned(TopicConfig("orders", TopicId(7), groups, ordered=ordered), 5)


def seen(made: Topic, found: ChainSeen | None = None, now: Any = None, **more: Any) -> TopicSeen:
    now = there() if now is None and found is not None and found.chain is not None else now
    return TopicSeen(made, NOW_MS, frozenset({"g1", "g2", "g3"}), now, chain=found, **more)


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found["conditions"]}


def changes(look: TopicSeen) -> list[Any]:
    return [a for a in plan_topic(look) if not isinstance(a, EmitEvent | Requeue)]


NOTHING = ChainSeen()


def test_missing_topic_is_created_as_declared() -> None:
    made = topic({"group": "g1", "weight": 2}, {"group": "g2"}, ordered={"leaseMs": 5000})
    groups = (ChainGroup(G1, 2), ChainGroup(G2, 1))
    assert changes(seen(made, NOTHING)) == [CreateOrdered("orders", 1, groups, False, 5000)]
    assert conditions(topic_status(seen(made, NOTHING))) == {
        "Ready": ("False", "Creating"),
        "SendAvailable": ("Unknown", "NoChain"),
        "ConsumersBlocked": ("Unknown", "NoChain"),
    }


def test_topic_that_is_not_there_needs_no_look_at_its_chain() -> None:
    (create,) = changes(seen(topic(), None))
    assert isinstance(create, CreateOrdered)


def test_interrupted_creation_is_completed() -> None:
    (create,) = changes(seen(topic(), NOTHING, there()))
    assert isinstance(create, CreateOrdered)
    assert changes(seen(topic(), None, there())) == [], "the chain is not known"


@pytest.mark.parametrize(
    ("groups", "event"),
    [
        ([{"group": "g1"}, {"group": "g3"}], "g2 leaves; g3 joins with weight 1"),
        ([{"group": "g1", "weight": 5}, {"group": "g2"}], "g1: weight 1 -> 5"),
    ],
)
def test_changed_groups_are_given_to_the_chain(groups: Any, event: str) -> None:
    look = seen(topic(*groups), chain_seen(chain(G1), SENDER))
    (change,) = changes(look)
    assert isinstance(change, SetChainGroups)
    assert {g.group: g.weight for g in change.groups} == {
        g["group"]: g.get("weight", 1) for g in groups
    }
    assert event in [e.message for e in plan_topic(look) if isinstance(e, EmitEvent)]
    assert conditions(topic_status(look))["Ready"] == ("False", "Applying")


def test_calm_topic_asks_for_nothing() -> None:
    look = seen(topic(), chain_seen(chain(G2, G1), SENDER))
    assert plan_topic(look) == [Requeue(CALM_MS)]
    assert conditions(topic_status(look)) == {
        "Ready": ("True", "AsDeclared"),
        "SendAvailable": ("True", "Open"),
        "ConsumersBlocked": ("False", "NotBlocked"),
    }


WRONG: list[tuple[Topic, bool, str, str]] = [
    (topic(), False, "NotOrdered", "declare the ordered topic under another name"),
    (plain(), True, "IsOrdered", "declare it by spec.ordered"),
]


@pytest.mark.parametrize(("made", "ordered", "reason", "words"), WRONG)
def test_topic_of_the_other_kind_is_refused(
    made: Topic, ordered: bool, reason: str, words: str
) -> None:
    look = seen(made, None, there(ordered=ordered))
    assert changes(look) == []
    assert [e.reason for e in plan_topic(look) if isinstance(e, EmitEvent)] == [reason]
    found = topic_status(look)
    assert conditions(found)["Ready"] == ("False", reason)
    assert words in found["message"]
    deleted = made.model_copy(update={"spec": made.spec.model_copy(update={"on_delete": DELETE})})
    assert deletion(deleted, there(ordered=ordered)) is None, "it is not this resource's"


DELETE = topic(onDelete="Delete").spec.on_delete


def test_what_is_fixed_at_creation_is_reported() -> None:
    look = seen(topic(ordered={"queues": 3}), chain_seen(chain(G1), SENDER))
    found = topic_status(look)
    assert conditions(found)["Ready"] == ("False", "FixedAtCreation")
    assert "queues is 1, not 3, since the topic was created" in found["message"]
    assert changes(look) == []


def test_deletion_waits_for_senders_and_removes_the_chain() -> None:
    made = topic(onDelete="Delete")
    assert deletion(made, there()) == DeleteTopic("orders", TopicId(7), ordered=True)
    assert deletion(topic(), there()) is None
    assert "sender a has ordered topic orders open" in still_used("orders", ("a", "b"))
    assert still_used("orders", ()) == ""


# ---- conditions
DEAD = GroupView(members=2)
LACKS = replace(GroupView(reachable=True, takes_writes=True, members=2), missing=("g1-1",))  # type: ignore[arg-type]
SILENT = replace(WHOLE, reachable=False)
READS = replace(WHOLE, takes_writes=False)
CLOSING = replace(chain(G1), closing="planned")
SENDS: list[tuple[str, ChainSeen, tuple[str, str]]] = [
    ("open", chain_seen(chain(G1), SENDER), ("True", "Open")),
    ("new", chain_seen(chain()), ("True", "NoSender")),
    ("a member is missing", chain_seen(chain(G1), SENDER, g1=LACKS), ("False", "GroupInTrouble")),
    ("no group", chain_seen(chain(), SENDER, g1=DEAD, g2=LACKS), ("False", "NoGroup")),
    ("ended", chain_seen(ended(chain(G1)), SENDER), ("False", "Switching")),
    ("ended, no sender", chain_seen(ended(chain(G1))), ("True", "NoSender")),
    ("another sender", chain_seen(unknown(chain(G1)), "new-0000000002"), ("False", "EndUnknown")),
    ("not known", ChainSeen(), ("Unknown", "NoChain")),
    ("does not answer", chain_seen(chain(G1), SENDER, g1=SILENT), ("False", "GroupInTrouble")),
    ("takes no writes", chain_seen(chain(G1), SENDER, g1=READS), ("False", "GroupInTrouble")),
    ("closing", chain_seen(CLOSING, SENDER, g2=DEAD), ("False", "Switching")),
    ("closing, no sender", chain_seen(CLOSING), ("False", "Switching")),
    ("closing, another sender", chain_seen(CLOSING, "new-0000000002"), ("False", "Switching")),
    ("the same sender", chain_seen(unknown(chain(G1)), SENDER), ("False", "Switching")),
]


@pytest.mark.parametrize(("found", "wanted"), [s[1:] for s in SENDS], ids=[s[0] for s in SENDS])
def test_condition_of_the_sends(found: ChainSeen, wanted: tuple[str, str]) -> None:
    status = topic_status(seen(topic(), found, there()))
    assert conditions(status)["SendAvailable"] == wanted


def test_unknown_end_blocks_consumers_and_says_what_to_do() -> None:
    look = seen(topic(), chain_seen(opened(unknown(chain(G1)), G2), SENDER))
    found = topic_status(look)
    assert conditions(found)["ConsumersBlocked"] == ("True", "EndUnknown")
    message = next(c["message"] for c in found["conditions"] if c["type"] == "ConsumersBlocked")
    assert message.startswith("app cannot read on: the end of segment 1 in g1 is not known")
    assert "fmq ordered release orders 1" in message
    assert found["ordered"]["unknownEnds"] == [1]
    assert found["ordered"]["segments"][0]["end"] == "Unknown"


def test_without_zookeeper_chain_stays_conditions_are_unknown() -> None:
    calm = topic_status(seen(topic(), chain_seen(chain(G2, G1), SENDER)))
    away = TopicSeen(topic(status=calm), NOW_MS, cause="zk:2181 does not answer")
    found = topic_status(away)
    assert found["ordered"] == calm["ordered"]
    assert conditions(found)["SendAvailable"] == ("Unknown", "ChainUnknown")
    assert {c["message"] for c in found["conditions"]} == {
        "zk:2181 does not answer: check spec.zookeeper.connect"
    }
    assert [e.reason for e in plan_topic(away) if isinstance(e, EmitEvent)] == [
        "ZooKeeperUnreachable"
    ], "no Event of the chain"


def test_chain_that_is_not_created_yet_is_no_news() -> None:
    status = topic_status(seen(topic(), chain_seen(chain(G1), SENDER)))
    look = seen(topic(status=status), NOTHING, there())
    assert [e.reason for e in plan_topic(look) if isinstance(e, EmitEvent)] == ["TopicCreated"]
    sends = next(c for c in topic_status(look)["conditions"] if c["type"] == "SendAvailable")
    assert sends["message"] == "the topic's chain is not created yet"


def test_condition_keeps_its_own_time() -> None:
    calm = seen(topic(), chain_seen(chain(G1), SENDER))
    later = replace(calm, now_ms=NOW_MS + 60_000, chain=chain_seen(CLOSING, SENDER))
    found = topic_status(replace(later, topic=topic(status=topic_status(calm))))
    times = {c["type"]: c["lastTransitionTime"] for c in found["conditions"]}
    first, second = as_text(NOW_MS), as_text(NOW_MS + 60_000)
    assert times == {"Ready": first, "SendAvailable": second, "ConsumersBlocked": first}


def test_closing_chain_shows_no_open_segment() -> None:
    found = topic_status(seen(topic(), chain_seen(CLOSING, SENDER)))["ordered"]
    assert (found.get("openSegment", 0), found.get("sendingGroup", "")) == (0, "")
    assert found["phase"] == "Closing"


def test_segment_shows_its_own_messages_and_its_end() -> None:
    made = chain(G1, G2, G1, G2)
    third = replace(made.segments[2], ended_ms=2_000)
    made = replace(made, segments=(*made.segments[:2], third, made.segments[3]))
    found = topic_status(seen(topic(), chain_seen(made, SENDER)))["ordered"]["segments"][2]
    assert (found["messages"], found["endedAt"]) == (10, "1970-01-01T00:00:02Z")


def test_subscription_is_behind_by_its_last_queue() -> None:
    made = replace(chain(G1, G2, queues=2), heads=(("app", (2, 1)),))
    found = topic_status(seen(topic(ordered={"queues": 2}), chain_seen(made, SENDER)))["ordered"]
    assert found["subscriptionsBehind"] == [{"subscription": "app", "segment": 1}]


@pytest.mark.parametrize(("count", "named"), [(3, "s0, s1, s2 c"), (4, "s0, s1, s2 and 1 more c")])
def test_three_blocked_subscriptions_are_named(count: int, named: str) -> None:
    made = replace(LOST, heads=tuple((f"s{n}", (1,)) for n in range(count)))
    found = topic_status(seen(topic(), chain_seen(made, SENDER)))
    message = next(c["message"] for c in found["conditions"] if c["type"] == "ConsumersBlocked")
    assert message.startswith(f"{named}annot read on")


def test_long_reason_of_a_switch_is_shortened() -> None:
    made = replace(chain(G1), closing="x" * 5000)
    before = topic_status(seen(topic(), chain_seen(chain(G1), SENDER)))
    look = seen(topic(status=before), chain_seen(made, SENDER))
    (event,) = [e for e in plan_topic(look) if isinstance(e, EmitEvent)]
    assert (event.reason, len(event.message)) == ("SegmentClosed", 1024)


# ---- the chain in the status
def test_chain_is_shown() -> None:
    status = topic_status(seen(topic(), chain_seen(chain(G1, G2), SENDER)))
    found = status["ordered"]
    assert status["queues"] == 1, "each spans all groups"
    assert found == {
        "phase": "Open",
        "since": "1970-01-01T00:00:01Z",
        "reason": f"{SENDER} sends into segment 2 in g2",
        "openSegment": 2,
        "sendingGroup": "g2",
        "senders": 1,
        "segmentCount": 2,
        "segmentGroups": ["g1", "g2"],
        "segments": [
            {
                "number": 1,
                "group": "g1",
                "end": "Known",
                "messages": 10,
                "openedAt": "1970-01-01T00:00:01Z",
                "endedAt": "",
            },
            {
                "number": 2,
                "group": "g2",
                "end": "Open",
                "openedAt": "1970-01-01T00:00:01Z",
                "endedAt": "",
            },
        ],
        "unknownEnds": [],
        "subscriptionsBehind": [{"subscription": "app", "segment": 1}],
        "behindCount": 1,
    }


def test_status_is_bounded_however_long_the_chain_is() -> None:
    long = chain(*[G1, G2] * 40)
    long = replace(long, heads=tuple((f"s{at:03}", (at % 80 + 1,)) for at in range(200)))
    found = topic_status(seen(topic(), chain_seen(long, SENDER)))["ordered"]
    assert (found["segmentCount"], found["behindCount"]) == (80, 198)
    assert [s["number"] for s in found["segments"]] == list(range(71, 81))
    assert len(found["subscriptionsBehind"]) == 10
    assert found["subscriptionsBehind"][0] == {"subscription": "s000", "segment": 1}


def test_groups_whose_segments_are_read_may_be_deleted() -> None:
    """As `fmq cluster remove-group` decides: an empty segment needs its group no more."""
    for made in (chain(G1), ended(chain(G2, G1)), LOST, with_empty_end(chain(G2, G1))):
        held = topic_status(seen(topic(), chain_seen(made)))["ordered"].get("segmentGroups", [])
        assert held == [g for g in (G2, G1) if group_in_use(replace(made, groups=()), g)]


def with_empty_end(made: Chain) -> Chain:
    """Return the chain with its last segment closed before a message came."""
    last = made.segments[-1]
    return replace(made, segments=(*made.segments[:-1], replace(last, end=last.start)))


# ---- Events
def reported(before: ChainSeen, after: ChainSeen) -> list[str]:
    """Return the Events between two looks."""
    status = topic_status(seen(topic(), before))
    return [
        e.reason for e in plan_topic(seen(topic(status=status), after)) if isinstance(e, EmitEvent)
    ]


LOST = unknown(chain(G1))
NEWS: list[tuple[str, Any, Any, list[str]]] = [
    ("calm", chain(G1), chain(G1), []),
    ("calm, two segments", chain(G1, G2), chain(G1, G2), []),
    ("calm, no segment", chain(), chain(), []),
    ("closed", chain(G1), replace(chain(G1), closing="planned"), ["SegmentClosed"]),
    ("still closing", LOST, LOST, []),
    ("first", chain(), chain(G1), ["SegmentOpened"]),
    ("next", chain(G1), chain(G1, G2), ["SegmentOpened"]),
    ("end unknown", chain(G1), LOST, ["SegmentClosed", "EndUnknown"]),
    ("goes on without it", LOST, opened(LOST, G2), ["SegmentOpened"]),
    ("end given", LOST, ended(replace(LOST, segments=chain(G1).segments)), ["EndGiven"]),
]


@pytest.mark.parametrize(("one", "two", "reasons"), [n[1:] for n in NEWS], ids=[n[0] for n in NEWS])
def test_switches_and_unknown_ends_are_reported_once(one: Any, two: Any, reasons: Any) -> None:
    assert reported(chain_seen(one, SENDER), chain_seen(two, SENDER)) == reasons


def test_missing_group_of_the_chain_is_reported() -> None:
    missing = replace(seen(topic(), NOTHING), groups=frozenset({"g1"}))
    assert conditions(topic_status(missing))["Ready"] == ("False", "NoSuchGroup")
    assert "no group g2" in topic_status(missing)["message"]
    assert "remove it from spec.ordered.groups" in topic_status(missing)["message"]
