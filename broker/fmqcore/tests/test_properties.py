"""Properties that only a next version knows: kept by whatever this version writes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqbroker.cluster.routes import topic_route
from fmqcore.batch.control import decode_topic, encode_topic
from fmqcore.errors import Malformed
from fmqcore.ids import GroupName, TopicId
from fmqcore.journal.kinds import kind_of
from fmqcore.journal.state import JournalState, disagreement
from fmqcore.properties import MAX_BYTES, NONE, TOPIC_GROUP, Properties
from fmqcore.tests.journal.test_kinds import replayed
from fmqcore.tests.journal.writer import JournalWriter
from fmqcore.zk.topic import TopicConfig, topic_from_json, topic_to_json
from fmqcore.zk.topic_changes import GroupChange, altered, closed, restored, without

G1, G2, G3 = (GroupName(name) for name in ("g1", "g2", "g3"))
T7 = TopicId(7)
NODE: dict[str, Any] = {
    "name": "orders",
    "id": 7,
    "groups": [
        {"group": "g1", "queues": 4, "weight": 2, "tier": "ssd"},
        {"group": "g2", "queues": 8},
    ],
    "compacted": True,
    "retain": {"hours": [1, 2.5], "of": "größe"},
}
UNKNOWN = Properties.unknown(NODE, (), "name", "id", "groups")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def node() -> TopicConfig:
    return topic_from_json(json.dumps(NODE).encode())


def test_unknown_keys_of_a_node_are_its_properties() -> None:
    topic = node()
    assert dict(topic.properties) == {"compacted": True, "retain": NODE["retain"]}
    assert [dict(g.properties) for g in topic.groups] == [{"tier": "ssd"}, {}]
    assert [g.weight for g in topic.groups] == [2, 1]
    assert len({topic, node()}) == 1
    kept = json.loads(topic_to_json(topic))
    assert kept == NODE | {"groups": [NODE["groups"][0], NODE["groups"][1] | {"weight": 1}]}


def test_a_node_without_unknown_keys_keeps_its_bytes() -> None:
    raw = b'{"groups":[{"group":"g1","queues":4,"weight":1}],"id":7,"name":"orders"}'
    assert topic_to_json(topic_from_json(raw)) == raw
    assert topic_from_json(raw).properties == NONE


@pytest.mark.parametrize(
    "changed",
    [
        lambda t: altered(t, 9, [], (G1, G2)),
        lambda t: altered(t, 0, [GroupChange(G1, 5, 0), GroupChange(G3)], (G1, G2, G3)),
        lambda t: restored(t, G1, 6),
        lambda t: restored(t, G3, 6),
        lambda t: closed(t, G1),
        lambda t: without(t, G2),
    ],
)
def test_every_change_keeps_unknown_properties(changed: Any) -> None:
    after = json.loads(topic_to_json(changed(node())))
    assert (after["compacted"], after["retain"]) == (NODE["compacted"], NODE["retain"])
    assert after["groups"][0]["tier"] == "ssd"


@given(st.dictionaries(st.text(max_size=8), values, max_size=4))
def test_properties_round_trip_through_config_batches(data: dict[str, Any]) -> None:
    properties = Properties.unknown(data, ())
    assert Properties.decode(properties.encode()) == properties
    setting = decode_topic(encode_topic(T7, "orders", 8, properties))
    assert setting == (T7, "orders", 8, properties)
    assert dict(setting.properties) == data


def test_config_without_properties_keeps_its_bytes() -> None:
    assert encode_topic(T7, "orders", 8, NONE) == b"\x01\0\x07\0\0\0\x08\0\x06orders"
    for wrong in (b"\x02\0\0\0{", b"\x02\0\0\0[]", b"\x01\0\0\0{", b"\0", b"\x02\0\0\0{}x"):
        with pytest.raises(Malformed):
            decode_topic(encode_topic(T7, "orders", 8) + wrong)
    with pytest.raises(Malformed, match=f"at most {MAX_BYTES}"):
        encode_topic(T7, "orders", 8, Properties.unknown({"x": "y" * MAX_BYTES}, ()))


@pytest.mark.parametrize(
    ("unknown", "shared"),
    [
        ({"x": "y" * MAX_BYTES}, {}),
        ({f"{n:04}": n for n in range(2000)}, {}),
        ({"\udc80": 1, "tier": "\ud800"}, {"tier": "\ud800"}),
        ({"x": "y" * (MAX_BYTES - 300)}, {"x": "y" * (MAX_BYTES - 300)}),
    ],
    ids=["large", "many", "half a surrogate pair", "just small enough"],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_odd_properties_stay_in_the_node_and_break_nothing(
    unknown: dict[str, Any], shared: dict[str, Any], *, ordered: bool
) -> None:
    """A topic whose CONFIG cannot be encoded is not writable; a route, and no client has routes."""
    node = NODE | {"compacted": 1} | unknown | ({"ordered": True} if ordered else {})
    node = {k: v for k, v in node.items() if k not in {"compacted", "retain"}}
    node["groups"] = [{"group": "g1", "queues": 4, "weight": 1, **unknown}]
    topic = topic_from_json(json.dumps(node).encode())
    assert json.loads(topic_to_json(topic)) == node
    setting = decode_topic(encode_topic(T7, "orders", 4, topic.noted_properties))
    assert dict(setting.properties) == shared | ({"ordered": True} if ordered else {})
    route = topic_route(topic)
    for properties in (route.properties, route.groups[0].properties):
        assert {name: json.loads(text) for name, text in properties.items()} == shared


def test_a_node_nested_too_deeply_does_not_decode() -> None:
    deep = b'{"groups":[],"id":7,"name":"orders","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(Malformed, match="topic does not decode"):
        topic_from_json(deep)


def test_state_and_snap_hold_properties_until_the_topic_goes() -> None:
    writer = JournalWriter()
    plain = writer.state.to_snap(writer.now_ms)
    writer.append(5, encode_topic(T7, "orders", 4, UNKNOWN))
    writer.data(7, 1, [b"a"], producer_id=5)
    for _ in range(2):
        writer.roll()
    state, _ = replayed(writer)
    assert state.topic_properties == {T7: UNKNOWN}
    again = JournalState.from_snap(state.to_snap(writer.now_ms))
    assert again == state
    assert disagreement(state, again) == ""
    again.topic_properties.clear()
    assert disagreement(state, again) == "properties of topics differ"
    writer.topic(7, "orders", 5)
    assert writer.state.topic_properties == {}
    writer.append(5, encode_topic(T7, "orders", 5, UNKNOWN))
    writer.topic(7, "orders", 0)
    assert writer.state.topic_properties == {}
    assert plain[2:4] == b"\0\0"


def test_dump_shows_properties_only_where_there_are_any() -> None:
    header = JournalWriter().headers[0]
    show = kind_of(5).show
    assert set(show(header, encode_topic(T7, "orders", 4))) == {"topic_id", "name", "queues"}
    assert show(header, encode_topic(T7, "orders", 4, UNKNOWN))["properties"] == dict(UNKNOWN)


def test_each_row_has_bounds_around_its_default() -> None:
    for row in TOPIC_GROUP:
        assert row.minimum <= row.default <= row.maximum
        assert row.text.endswith(".")


def test_ordered_is_known_and_noted_in_config_batches() -> None:
    raw = b'{"groups":[],"id":7,"name":"changes","ordered":true,"tier":"ssd"}'
    topic = topic_from_json(raw)
    assert topic.ordered
    assert dict(topic.properties) == {"tier": "ssd"}
    assert topic_to_json(topic) == raw
    noted = topic.noted_properties
    assert decode_topic(encode_topic(T7, "changes", 1, noted))[3] == noted
    assert dict(noted) == {"tier": "ssd", "ordered": True}
    ordinary = topic_from_json(b'{"groups":[],"id":7,"name":"orders","ordered":false}')
    assert not ordinary.ordered
    assert b"ordered" not in topic_to_json(ordinary)
