"""The nodes of ordered topics: they round-trip, keep unknown keys, and refuse what is invalid."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fmqcore.errors import Malformed
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.zk.chain import Chain, ChainGroup, Floor, RecordPlace, Segment, Sender
from fmqcore.zk.chain_json import chain_from_json
from fmqcore.zk.chain_json import chain_to_json as to_json
from fmqcore.zk.closed_chains import LastClosing, closing_from_json, closing_to_json
from fmqcore.zk.layout import chain_node, chains_node, senders_node

G1, G2 = GroupName("g1"), GroupName("g2")
FULL = Chain(
    topic="changes",
    queues=2,
    groups=(ChainGroup(G1, 3), ChainGroup(G2)),
    segments=(
        Segment(4, G1, 2, (5, 7), (10, 20), end=(12, 20), passed=(("app", (8, 8)),), loss=True),
        Segment(5, G2, 2, (7, 7), (0, 0), end_unknown=True, opened_ms=1_000, ended_ms=2_000),
        Segment(6, G1, 3, (9, 9), (13, 22)),
    ),
    closing="planned",
    closing_class="request",
    closing_since_ms=3_000,
    sender=Sender("copier-0000000007", 3),
    heads=(("app", (4, 5)), ("audit", (5, 5)), ("copy", (5, 4))),
    start_numbers=(("app", (3, 3)), ("copy", (2, 4))),
    start_offsets=(("app", (0, 21)),),
    temporary=frozenset({"copy"}),
    last_start=4,
    floor=Floor(3, 2, (4, 6), (("app", (5, 6)),), (None, RecordPlace(1, 6, 2, G2, Offset(9)))),
    lease_ms=3_000,
    allow_single=True,
    topic_id=TopicId(7),
)


def test_chain_round_trips_with_all_fields() -> None:
    assert chain_from_json(to_json(FULL)) == FULL
    bare = Chain("t", 1, (ChainGroup(G1), ChainGroup(G2)))
    assert chain_from_json(to_json(bare)) == bare


def test_json_is_as_the_design_has_it() -> None:
    data = json.loads(to_json(FULL))
    first, second, third = data["segments"]
    assert first["end"] == {"0": 12, "1": 20}
    assert first["last_sequence"] == {"0": 6, "1": 6}
    assert (second["end"], third["end"]) == ("unknown", None)
    app = {"0": 4, "1": 5, "start_number": 3, "start_offset": {"1": 21}}
    assert data["heads"]["app"] == app
    assert data["heads"]["audit"] == {"0": 5, "1": 5}
    assert data["heads"]["copy"]["start_number"] == {"0": 2, "1": 4}
    assert [name for name, place in data["heads"].items() if "temporary" in place] == ["copy"]


def test_unknown_keys_are_written_back() -> None:
    data = json.loads(to_json(FULL))
    data["later"] = {"b": [1, None], "a": "ä"}
    data["segments"][1]["also"] = 7
    chain = chain_from_json(json.dumps(data).encode())
    changed = json.loads(to_json(replace(chain, closing="another reason")))
    assert changed == data | {"closing": "another reason"}


WRONG: list[dict[str, Any]] = [
    {"queues": 0},
    {"queues": None},
    {"topic": "a/b"},
    {"groups": [{"group": "../x"}]},
    {"heads": {"app": {"0": 1}}},
    {"heads": {"app": {"0": 1, "1": 1, "start_offset": {"2": 1}}}},
    {"heads": {"app": {"0": 1, "1": 1, "start_number": {"0": 1}}}},
    {"closing": 7},
    {"closing_class": 7},
    {"lease_ms": float("inf")},
    {"segments": [{"k": 1}]},
    {"floor": {"last_sequence": {"0": 1}}},
    {"floor": {"last_records": {"0": [1, 6]}}},
    {"floor": {"last_records": {"0": [1, 6, 2, "../x", 9]}}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=[f"{n}-{next(iter(w))}" for n, w in enumerate(WRONG)])
def test_invalid_chains_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="ordered topic's chain"):
        chain_from_json(json.dumps(json.loads(to_json(FULL)) | wrong).encode())


def test_last_closing_round_trips_and_keeps_unknown_keys() -> None:
    closing = LastClosing("changes", 6, "g1 lacks g1-1")
    assert closing_from_json(closing_to_json(closing)) == closing
    assert closing_from_json(b"") == LastClosing()
    newer = closing_from_json(b'{"topic":"t","segment":1,"reason":"r","later":[1]}')
    assert json.loads(closing_to_json(newer))["later"] == [1]


def test_nodes_have_their_places() -> None:
    assert chain_node("dev", "changes") == "/fmq/dev/ordered/changes"
    assert senders_node("dev", "changes") == "/fmq/dev/ordered/changes/senders"
    assert chains_node("dev", G1) == "/fmq/dev/groups/g1/chains"


def test_ends_are_due_of_closing_and_unknown_segments() -> None:
    def due(chain: Chain, group: GroupName) -> list[int]:
        return [segment.number for segment in chain.due_ends(group)]

    assert (due(FULL, G1), due(FULL, G2)) == ([6], [5])
    assert due(replace(FULL, closing=None), G1) == [], "it is open"
    assert [segment.has_ended for segment in FULL.segments] == [True, True, False]
