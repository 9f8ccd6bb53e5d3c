"""ZooKeeper nodes as JSON: they round-trip, and invalid ones are refused by name."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fmqcore.errors import Malformed
from fmqcore.ids import BrokerId, Epoch, GroupName, Offset, Permission, Position, TopicId
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts, mark_of
from fmqcore.properties import Properties
from fmqcore.zk import group_state
from fmqcore.zk.group_config import (
    GroupConfig,
    KeptOut,
    Member,
    Removal,
    config_from_json,
    config_to_json,
)
from fmqcore.zk.group_state import (
    GroupState,
    Mode,
    acting,
    begin_again_state,
    state_from_json,
    state_to_json,
)
from fmqcore.zk.live_broker import LiveBroker, live_from_json, live_to_json
from fmqcore.zk.removed_groups import removed_from_json, removed_to_json
from fmqcore.zk.sender_place import PlaceReport, place_report_from_json, place_report_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup, topic_from_json, topic_to_json

names = st.sampled_from(["a", "g1", "g1-0", "orders.eu", "A_b-C.9_", "x" * 128])
brokers = names.map(BrokerId)
texts = st.text(max_size=40)
numbers = st.integers(0, 2**63)

policies = st.builds(
    AckPolicy,
    flush=st.sampled_from(Flush),
    flush_interval_ms=st.integers(0, 10**6),
    counts=st.sampled_from(SlaveCounts),
    how_many=st.sampled_from(HowMany),
    strict=st.booleans(),
)
members = st.builds(
    Member, id=brokers, address=texts, zone=texts, permission=st.sampled_from(list(Permission))
)
configs = st.builds(
    lambda found, **other: GroupConfig(master=found[0].id, members=tuple(found), **other),
    st.lists(members, min_size=1, max_size=4, unique_by=lambda m: m.id),
    group=names.map(GroupName),
    policy=policies,
    strict_takeover=st.booleans(),
    declared_lost=brokers,
    removal=st.sampled_from(Removal),
    kept_out=st.none() | st.builds(KeptOut, texts, numbers),
)
STATE: dict[str, Any] = {
    "mode": st.sampled_from(Mode),
    "epoch": numbers.map(Epoch),
    "master": brokers,
    "reader": brokers,
    "isr": st.frozensets(brokers, max_size=4),
    "offsets": texts,
    "offsets_final": st.booleans(),
    "degraded": st.booleans(),
    "reason": texts,
    "write_token": texts,
    "max_delivered_position": numbers.map(Position),
    "successor_incarnation": texts,
    "required_epoch": numbers.map(Epoch),
    "declared_lost": brokers,
    "last_opened_epoch": numbers.map(Epoch),
}
states = st.builds(GroupState, **STATE)
lives = st.builds(
    LiveBroker,
    id=brokers,
    incarnation=texts,
    address=texts,
    epoch=numbers.map(Epoch),
    end=numbers.map(Position),
    clean=st.booleans(),
    supports_switchover=st.booleans(),
)
topics = st.builds(
    TopicConfig,
    name=names,
    id=numbers.map(TopicId),
    groups=st.lists(
        st.builds(
            TopicGroup,
            group=names.map(GroupName),
            queues=st.integers(0, 1024),
            weight=st.integers(0, 100),
        ),
        max_size=4,
    ).map(tuple),
    properties=st.dictionaries(texts.map("x{}".format), texts).map(
        lambda found: Properties.unknown(found, ())
    ),
)

CODECS: list[tuple[Any, Any, Any]] = [
    (configs, config_to_json, config_from_json),
    (states, state_to_json, state_from_json),
    (lives, live_to_json, live_from_json),
    (topics, topic_to_json, topic_from_json),
    (st.frozensets(names.map(GroupName), min_size=1), removed_to_json, removed_from_json),
]


@pytest.mark.parametrize(("values", "encode", "decode"), CODECS)
def test_nodes_round_trip(values: Any, encode: Any, decode: Any) -> None:
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(values)
    def check(value: Any) -> None:
        raw = encode(value)
        assert decode(raw) == value
        assert encode(decode(raw)) == raw
        newer = json.dumps(json.loads(raw) | {"from_a_newer_version": [1]}).encode()
        known = decode(newer)
        if isinstance(value, TopicConfig):  # it keeps what it does not know
            assert known.properties["from_a_newer_version"] == [1]
            known = replace(known, properties=value.properties)
        assert known == value

    check()


def test_group_state_round_trips_with_all_fields() -> None:
    """A forgotten field would be lost at the next change of any other field."""
    assert set(STATE) == {field.name for field in fields(GroupState)}


def test_a_group_without_state_has_no_term() -> None:
    assert (GroupState().mode, GroupState().epoch) == (Mode.NEW, 0)


MINIMAL: list[tuple[Any, dict[str, Any], list[str]]] = [
    (config_from_json, {"group": "g", "master": "m", "members": [{"id": "m", "address": "h:1"}]},
     ["group", "master", "members"]),
    (state_from_json, {"mode": "MASTER", "epoch": 3}, ["mode", "epoch"]),
    (live_from_json, {"id": "m", "incarnation": "i", "address": "h", "epoch": 1, "end": 2},
     ["id", "incarnation", "address", "epoch", "end"]),
    (topic_from_json, {"name": "t", "id": 1, "groups": [{"group": "g", "queues": 4}]},
     ["name", "id", "groups"]),
]  # fmt: skip


@pytest.mark.parametrize(("decode", "document", "needed"), MINIMAL)
def test_missing_or_wrong_fields_are_refused(
    decode: Any, document: dict[str, Any], needed: list[str]
) -> None:
    decode(json.dumps(document).encode())
    for field in needed:
        for wrong in ({k: v for k, v in document.items() if k != field}, document | {field: None}):
            with pytest.raises(Malformed):
                decode(json.dumps(wrong).encode())
    for garbage in (b"", b"\xff", b"[]", b"7", b'"x"', b"null", b"{"):
        with pytest.raises(Malformed):
            decode(garbage)


def test_names_and_members_are_checked() -> None:
    good = MINIMAL[0][1]
    member = good["members"][0]
    bad: list[dict[str, Any]] = [
        {"group": "../other"},
        {"group": 7},
        {"master": "x"},
        {"members": []},
        {"members": [member, member]},
        {"members": [member | {"id": "a b"}]},
        {"members": [member | {"permission": "MOST"}]},
        {"members": [member | {"address": 9876}]},
        {"policy": {"flush": "sometimes"}},
        {"policy": 3},
    ]
    for change in bad:
        with pytest.raises(Malformed, match="group config does not decode"):
            config_from_json(json.dumps(good | change).encode())


def test_an_older_writers_documents() -> None:
    config = config_from_json(json.dumps(MINIMAL[0][1]).encode())
    assert config.policy == AckPolicy()
    assert config.members[0].permission is Permission.FULL
    assert not config.strict_takeover
    state = state_from_json(json.dumps(MINIMAL[1][1]).encode())
    assert state == GroupState(Mode.MASTER, Epoch(3))
    assert topic_from_json(json.dumps(MINIMAL[3][1]).encode()).groups[0].weight == 1


STATE_VALUES = {
    "max_delivered_position": 7, "successor_incarnation": "i", "required_epoch": 2,
    "last_opened_epoch": 3, "declared_lost": "b", "offsets_final": True, "reason": "r",
    "write_token": "t",
}  # fmt: skip
FORMER: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (config_from_json, MINIMAL[0][1], {"lost": ("declared_lost", "b")}),
    (state_from_json, MINIMAL[1][1],
     {old: (new, STATE_VALUES.pop(new)) for old, new in group_state._FORMER_NAMES.items()}),
    (live_from_json, MINIMAL[2][1], {"moves": ("supports_switchover", True)}),
]  # fmt: skip


@pytest.mark.parametrize(("decode", "document", "former"), FORMER)
def test_former_names_of_fields_are_read_and_new_ones_win(
    decode: Any, document: dict[str, Any], former: dict[str, Any]
) -> None:
    assert not STATE_VALUES, "each has a former name"
    for old, (new, value) in former.items():
        found = decode(json.dumps(document | {old: value}).encode())
        assert getattr(found, new) == value
        both = decode(json.dumps(document | {old: value, new: type(value)()}).encode())
        assert getattr(both, new) == type(value)()


def test_words_of_a_group_are_parsed() -> None:
    a, b = (Member(BrokerId(n), f"{n}:1") for n in "ab")
    config = GroupConfig(GroupName("g"), BrokerId("a"), (a, b))
    assert config.member(BrokerId("b")) == b
    assert config.member(BrokerId("x")) is None
    assert config.slaves == (b,)
    topic = TopicConfig("t", TopicId(1), (TopicGroup(GroupName("g"), 8),))
    assert topic.queues_in(GroupName("g")) == 8
    assert topic.queues_in(GroupName("h")) == 0


def test_queues_before_a_group_are_those_of_groups_listed_first() -> None:
    groups = tuple(TopicGroup(GroupName(n), q) for n, q in (("a", 4), ("b", 2), ("c", 1)))
    topic = TopicConfig("t", TopicId(1), groups)
    assert [topic.queues_before(GroupName(n)) for n in "abc"] == [0, 4, 6]
    alone = TopicConfig("t", TopicId(1), (groups[0], TopicGroup(GroupName("b"), 0)))
    assert alone.queues_before(GroupName("a")) is None


@pytest.mark.parametrize("master", ["", "g1-0", "g1-1", "g1-2"])
def test_all_members_but_the_acting_master_are_slaves(master: str) -> None:
    """F18: the mark holds their zones, so that only brokers that were asked are counted."""
    ids = [BrokerId(f"g1-{n}") for n in range(3)]
    found = tuple(Member(broker, "a:1", zone=f"z-{broker}") for broker in ids)
    config = GroupConfig(GroupName("g1"), ids[1], found)
    now = acting(config, GroupState(master=BrokerId(master)))
    leads = master or "g1-1"
    assert now.master == leads
    assert [m.id for m in now.slaves] == [broker for broker in ids if broker != leads]
    zones = [f"z-{broker}" for broker in ids if broker != leads]
    assert now.policy_mark == mark_of(config.policy, zones)
    assert len({mark_of(config.policy, z) for z in (zones, [*zones, f"z-{leads}"])}) == 2


def test_group_that_begins_again_keeps_only_epoch_and_master() -> None:
    """As if no term had been opened: whatever else the state says was of journals that are gone."""
    full = GroupState(
        Mode.HANDOVER, Epoch(7), BrokerId("a"), BrokerId("b"), frozenset({BrokerId("b")}), "x",
        True, True, "w", "t", Position(9), "h", Epoch(6), BrokerId("c"), Epoch(5),
    )  # fmt: skip
    again = begin_again_state(full)
    assert again == GroupState(epoch=Epoch(7), master=BrokerId("a"), reason=again.reason)
    assert "a person" in again.reason


def test_report_in_a_senders_place_is_read_back() -> None:
    report = PlaceReport(7, (Offset(3), Offset(9)))
    assert place_report_from_json(place_report_to_json(report), 2) == report
    assert place_report_from_json(b"", 2) is None, "an older broker made the node, or none is due"
    for raw in (b"x", b"[]", b"{}", b'{"segment":7,"unacked":[1]}', b'{"unacked":[1,2]}'):
        with pytest.raises(Malformed, match="place of a sender does not decode"):
            place_report_from_json(raw, 2)
