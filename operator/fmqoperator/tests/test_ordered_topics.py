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
from fmqoperator.tests.chain_samples import G1, G2, SENDER, chain, ended, opened, unknown
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
SENDS: list[tuple[str, ChainSeen, tuple[str, str]]] = [
    ("open", chain_seen(chain(G1), SENDER), ("True", "Open")),
    ("new", chain_seen(chain()), ("True", "NoSender")),
    ("a member is missing", chain_seen(chain(G1), SENDER, g1=LACKS), ("False", "GroupInTrouble")),
    ("no group", chain_seen(chain(), SENDER, g1=DEAD, g2=LACKS), ("False", "NoGroup")),
    ("ended", chain_seen(ended(chain(G1)), SENDER), ("False", "Switching")),
    ("ended, no sender", chain_seen(ended(chain(G1))), ("True", "NoSender")),
    ("another sender", chain_seen(unknown(chain(G1)), "new-0000000002"), ("False", "EndUnknown")),
    ("not known", ChainSeen(), ("Unknown", "NoChain")),
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
