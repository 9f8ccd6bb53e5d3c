"""The batches a replay sends from a place on depend only on what is noted there."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import fmqclient
from fmqcli.replay_producer import BATCH_BYTES, GroupSenders, Plan, level_of
from fmqclient.producer.batches import InFlightBatch, PendingBatch
from fmqclient.tests.double import ClusterDouble, cluster
from fmqclient.tests.memory import MemoryTransport, SeededClock, VirtualLoop
from fmqcore.batch.columns import decode
from fmqcore.errors import DeliveryUnknown, ErrorCode, FmqError, InvalidArgument, NoPermission
from fmqcore.ids import GroupName, Permission, TopicId
from fmqcore.placement import pick_by_key
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
        [(g, q, batch.sequence, values_of(batch)) for (g, q), batch in step.items()]
        for step, _ in made.steps(rows, number)
    ]


def values_of(batch: PendingBatch) -> tuple[bytes, ...]:
    """Return the values as they are encoded in the batch that is sent."""
    sent_as = InFlightBatch(batch, batch.sequence)
    return tuple(decode(sent_as.attrs, len(sent_as.records), sent_as.payload).values)


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
    assert again.state() == {**noted[2], "run": 2}, "the next run of the same replay"
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
        ("cannot be decoded", {"producer": 1}, TOPIC, False),
        ("is ordered, not ordinary", noted | {"kind": "ordered"}, TOPIC, False),
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
    with pytest.raises(InvalidArgument, match=r"cannot be decoded .*--name"):
        plan(plan().state() | wrong)


def test_the_same_queue_is_asked_of_topics_in_one_group() -> None:
    one = replace(TOPIC, groups=TOPIC.groups[:1])
    (step,) = sent(plan(topic=one, same=True), ROWS)
    assert [(g, q, len(v)) for g, q, _, v in step] == [(G1, 0, 50), (G1, 1, 50)]
    with pytest.raises(InvalidArgument, match="needs group= too"):
        sent(plan(same=True), ROWS)


Scene = Callable[[ClusterDouble, Plan, Callable[[], GroupSenders]], Awaitable[None]]


def played(scene: Scene) -> None:
    """Play a scene with a replay into topic orders, of two groups, in virtual time."""

    async def play() -> None:
        transport = MemoryTransport(0)
        async with cluster(2, queues=1, transport=transport) as double:
            client = fmqclient.connect(double.url, transport=transport, clock=SeededClock(0))
            async with client:
                wire = client._wire
                topic = await wire[1].topic("orders")
                made = plan(topic=topic)
                await scene(double, made, lambda: GroupSenders(wire, topic, made, "replicated"))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


def drain_after(double: ClusterDouble, how: str, *, failover: bool = False) -> None:
    """Lose the stream of g2 with its next batch, stored ("lose") or not ("drop"), and drain g2."""
    broker = double.brokers["g2-0"]

    def script(_: object) -> str:
        broker.script = lambda batch: None
        broker.permission, broker.settles = Permission.READ, True
        broker.group.epoch += failover
        return how

    broker.script = script


def test_drained_group_confirms_the_step_that_it_has() -> None:
    async def scene(
        double: ClusterDouble, made: Plan, new_senders: Callable[[], GroupSenders]
    ) -> None:
        drain_after(double, "lose")
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as senders:
            await senders.store(step)
        records = double.brokers["g2-0"].group.values()
        assert len(records) == sum(len(f.records) for (g, _), f in step.items() if g == G2)

    played(scene)


@pytest.mark.parametrize("doubt", ["", "failover", "earlier run"])
def test_step_that_a_drained_group_lacks_is_not_stored(doubt: str) -> None:
    """Of an attempt in another term, or of an earlier run, only the present is certain."""

    async def scene(
        double: ClusterDouble, made: Plan, new_senders: Callable[[], GroupSenders]
    ) -> None:
        drain_after(double, "drop", failover=doubt == "failover")
        made.run += doubt == "earlier run"
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as senders:
            with pytest.raises(ExceptionGroup) as failed:
                await senders.store(step)
        count = sum(len(f.records) for (g, _), f in step.items() if g == G2)
        (error,) = failed.value.exceptions
        assert isinstance(error, DeliveryUnknown if doubt else NoPermission)
        assert f"the next {count:,} records are not stored" in str(error)
        assert ("before a failover" in str(error)) is bool(doubt)

    played(scene)


def test_streams_of_a_later_run_supersede_earlier_ones() -> None:
    async def scene(
        double: ClusterDouble, made: Plan, new_senders: Callable[[], GroupSenders]
    ) -> None:
        broker, lost, before = double.brokers["g1-0"], iter(["lose"]), made.state()
        broker.script = lambda _: next(lost, None)
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as first:
            await first.store(step)
        again = Plan.of(before, made.topic, 0, False)
        made.run, made.sequences = again.run, again.sequences
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as later:
            await later.store(step)
        attempts = [opening.attempt for opening in broker.openings]
        assert attempts == sorted(set(attempts))
        assert len(attempts) == 3
        assert attempts[0] > 0
        assert [opening.settle for opening in broker.openings] == [False, True, True]
        assert len({opening.producer_id for opening in broker.openings}) == 1
        assert len(double.values()) == len(ROWS), "the later run sent what was stored: once"

    played(scene)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.TOO_LARGE, "topic orders queue 0 of group g2: TOO_LARGE"),
        (ErrorCode.OUT_OF_SEQUENCE, "queue 0 of group g2 does not end where this replay left it"),
    ],
)
def test_lasting_refusal_ends_the_step_and_names_the_queue(code: ErrorCode, sentence: str) -> None:
    async def scene(
        double: ClusterDouble, made: Plan, new_senders: Callable[[], GroupSenders]
    ) -> None:
        broker = double.brokers["g2-0"]
        broker.script = lambda _: code
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as senders:
            with pytest.raises(ExceptionGroup) as failed:
                await senders.store(step)
        (error,) = failed.value.exceptions
        assert isinstance(error, FmqError)
        assert error.code is code
        assert sentence in str(error)
        assert len(broker.requests) == 1, "neither split nor sent again"

    played(scene)


@pytest.mark.parametrize("run", [1, 2])
@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC])
def test_passing_refusal_is_retried_unchanged(code: ErrorCode, run: int) -> None:
    """For longer than a producer retries where another group could take the records."""

    async def scene(
        double: ClusterDouble, made: Plan, new_senders: Callable[[], GroupSenders]
    ) -> None:
        broker, refusals = double.brokers["g2-0"], iter([code] * 100)
        broker.script = lambda _: next(refusals, None)
        made.run = run
        ((step, _),) = made.steps(ROWS, 0)
        async with new_senders() as senders:
            await senders.store(step)
        sent = [batch for request in broker.requests for batch in request.batches]
        assert len(sent) == 101
        assert len({(batch.base_sequence, batch.payload) for batch in sent}) == 1
        assert {opening.producer_epoch for opening in broker.openings} == {0}
        assert len(double.values()) == len(ROWS)

    played(scene)
