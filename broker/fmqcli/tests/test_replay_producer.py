"""The batches a replay sends from a place on depend only on what is noted there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fmqcli.replay_producer import BATCH_BYTES, Plan, level_of, require_ordinary
from fmqcore.batch.columns import decode
from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName, TopicId
from fmqcore.routing import pick_by_key
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import client_pb2

G1, G2 = GroupName("g1"), GroupName("g2")
TOPIC = TopicConfig("copy", TopicId(3), (TopicGroup(G1, 2, 1), TopicGroup(G2, 3, 1)))
Sent = list[tuple[str, int, int, tuple[bytes, ...]]]


@dataclass
class Row:
    value: bytes
    key: bytes | None = None
    queue: int = 0
    tag: bytes | None = None
    headers: dict[str, bytes] | None = None


ROWS = [Row(b"%d" % n, key=b"%d" % (n % 7) if n % 3 else None, queue=n % 2) for n in range(100)]


def plan(
    state: dict[str, Any] | None = None, topic: TopicConfig = TOPIC, same: bool = False
) -> Plan:
    return Plan.of(json.loads(json.dumps(state or {})), topic, 77, same)


def sent(made: Plan, rows: Sequence[Row], number: int = 0) -> list[Sent]:
    """Return (group, queue, sequence, values) of each step."""
    return [
        [
            (g, q, f.sequence, tuple(decode(f.attrs, len(f.records), f.payload).values))
            for (g, q), f in step.items()
        ]
        for step, _ in made.steps(rows, number)
    ]


def test_each_record_is_sent_once_to_the_place_of_its_key() -> None:
    (step,) = sent(plan(), ROWS)
    assert sorted(v for _, _, _, values in step for v in values) == sorted(r.value for r in ROWS)
    at = {v: (g, q) for g, q, _, values in step for v in values}
    for row in ROWS:
        if row.key:
            assert at[row.value] == pick_by_key(TOPIC.groups, [G1, G2], row.key)
    assert {at[row.value] for row in ROWS if not row.key} == {
        (G1, 0),
        (G1, 1),
        (G2, 0),
        (G2, 1),
        (G2, 2),
    }
    assert all(list(values) == sorted(values, key=int) for _, _, _, values in step)


def test_resumed_replay_sends_same_batches_with_same_sequences() -> None:
    whole = plan()
    noted = [whole.state()]
    first: list[Sent] = []
    second: list[Sent] = []
    for rows, number, into in ((ROWS[:60], 0, first), (ROWS[60:], 60, second)):
        into += sent(whole, rows, number)
        noted.append(whole.state())
    assert sent(plan(noted[0]), ROWS[:60]) == first
    again = plan(noted[1])
    assert again.producer_id == 77
    assert sent(again, ROWS[60:], 60) == second
    assert again.state() == noted[2]
    for group, queue, sequence, _ in second[0]:
        assert sequence == next(len(v) for g, q, _, v in first[0] if (g, q) == (group, queue))


def test_step_sends_one_batch_per_place_and_reports_progress() -> None:
    large = [Row(b"x" * (BATCH_BYTES // 3), key=b"k") for _ in range(8)] + [Row(b"y", key=b"z")]
    made = plan()
    counts = [count for _, count in made.steps(large, 0)]
    assert counts == [2, 4, 6, 9]
    assert [len(step) for step in sent(plan(), large)] in ([1, 1, 1, 2], [1, 1, 1, 1])
    assert sent(plan(), [Row(b"x" * (BATCH_BYTES + 1))])[0][0][3][0] == b"x" * (BATCH_BYTES + 1)


def test_resumed_replay_uses_the_noted_topic_shape() -> None:
    noted = plan().state()
    wider = replace(TOPIC, groups=(TopicGroup(G1, 8, 1), TopicGroup(G2, 8, 1)))
    assert sent(plan(noted, wider), ROWS) == sent(plan(), ROWS)
    assert sent(plan(None, wider), ROWS) != sent(plan(), ROWS)


def test_replay_note_that_no_longer_fits_is_refused() -> None:
    noted = plan().state()
    cases: list[tuple[str, dict[str, Any], TopicConfig, bool]] = [
        ("was recreated", noted, replace(TOPIC, id=TopicId(4)), False),
        ("the other setting of --same-queue", noted, TOPIC, True),
        ("does not decode", {"producer": 1}, TOPIC, False),
    ]
    for sentence, state, topic, same in cases:
        with pytest.raises(InvalidArgument, match=sentence):
            plan(state, topic, same)
    for acks in ("one_way", "some"):
        with pytest.raises(InvalidArgument, match=f"--acks {acks}: a replay waits until"):
            level_of(acks)
    assert level_of("all") == client_pb2.ALL


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer": "a"},
        {"producer": -1},
        {"producer": 2**64},
        {"producer": float("inf")},
        {"topic_id": "a"},
        {"groups": 5},
        {"groups": [["g1", 4]]},
        {"groups": [[["g1"], 4, 1]]},
        {"groups": [["g1", -4, 1]]},
        {"groups": [["g1", 4, float("inf")]]},
        {"sequences": "abc"},
        {"sequences": [["g1", 0, -1]]},
        {"sequences": [["g1", 0, 2**32]]},
        {"sequences": [["g1", 0, 1.5]]},
        {"sequences": [[[], 0, 1]]},
    ],
)
def test_impossible_replay_note_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"does not decode: .*--name"):
        plan(plan().state() | wrong)


def test_the_same_queue_is_asked_of_topics_in_one_group() -> None:
    one = replace(TOPIC, groups=TOPIC.groups[:1])
    (step,) = sent(plan(topic=one, same=True), ROWS)
    assert [(g, q, len(v)) for g, q, _, v in step] == [(G1, 0, 50), (G1, 1, 50)]
    with pytest.raises(InvalidArgument, match="needs group= too"):
        sent(plan(same=True), ROWS)


def test_ordered_topic_is_refused_with_what_to_do_instead() -> None:
    require_ordinary(TOPIC)
    with pytest.raises(InvalidArgument, match=r"is ordered: .*ordinary topic.*--same-queue"):
        require_ordinary(replace(TOPIC, ordered=True))
