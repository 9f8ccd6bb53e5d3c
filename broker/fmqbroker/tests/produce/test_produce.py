"""Produce sessions on a real journal; commit end, gate and topics are moved by hand."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.pipes import BrokerEnd, Pipe
from fmqbroker.tests.produce_harness import (
    FAR,
    G1,
    ORDERS,
    WINDOW,
    Bench,
    batch,
    bench,
)
from fmqcore.batch.header import MAX_PAYLOAD
from fmqcore.errors import ErrorCode, Malformed
from fmqcore.ids import Permission, Position, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqport.tests.call_context import CALL
from fmqproto.v1 import client_pb2 as wire

# ---- opening


async def test_opening_returns_limits_and_epoch(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        assert not s.opened.HasField("error")
        assert s.opened.max_batch_bytes == MAX_PAYLOAD
        assert s.opened.window_bytes == WINDOW


@pytest.mark.parametrize(
    ("permission", "topic", "epoch", "code"),
    [
        (Permission.READ, "orders", 0, ErrorCode.NO_PERMISSION),
        (Permission.FULL, "nonsense", 0, ErrorCode.UNKNOWN_TOPIC),
        (Permission.FULL, "elsewhere", 0, ErrorCode.UNKNOWN_TOPIC),
        (Permission.FULL, "orders", 1 << 16, ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_refused_open_gives_typed_error_and_ends_the_stream(
    tmp_path: Path, permission: Permission, topic: str, epoch: int, code: ErrorCode
) -> None:
    async with bench(tmp_path) as b:
        b.gate.grant(permission, "because")
        async with b.session(5, epoch, topic) as s:
            assert ErrorCode(int(s.opened.error.code)) == code
            assert s.opened.error.message
            await asyncio.sleep(0.01)
        assert s.task_done
        assert s.ended_with is None


async def test_session_starts_with_exactly_one_open(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        pipe = Pipe()
        pipe.requests.put_nowait(wire.ProduceRequest(batches=[batch()]))
        with pytest.raises(Malformed, match="open"):
            await b.service.serve(CALL, BrokerEnd(pipe))
        async with b.session() as s:
            await s.put(wire.ProduceRequest(open=wire.ProduceOpen()))
            await asyncio.sleep(0.01)
            assert b.service.admission.waiting_bytes == 0
        assert isinstance(s.ended_with, Malformed), "a typed error, no group"


async def test_a_topic_just_made_elsewhere_is_asked_for_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(topic_id=9), batch(topic_id=9))
        assert [(await s.ack()).code for _ in range(2)] == [ErrorCode.UNKNOWN_TOPIC] * 2
        assert b.view.refreshed == 1
        new = TopicConfig("new", TopicId(10), (TopicGroup(G1, 4),))
        b.view.there = (ORDERS, new)
        await s.send(batch(topic_id=10))
        await until(lambda: b.journal.state.topics.get(TopicId(10)))
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.OK
        await s.send(batch(topic_id=9))
        assert (await s.ack()).code == ErrorCode.UNKNOWN_TOPIC
        assert b.view.refreshed == 2, "not again for the same one"


# ---- acks


async def test_ok_leaves_only_when_the_commit_end_has_passed(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(3), batch(2, sequence=3))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 5)
        assert await s.silent(), "durable here, but the policy does not hold"
        first_end = (await b.journal.find(TopicId(1), 2, 0, 1))[0]  # type: ignore[arg-type]
        b.commit.advance(Position(first_end.position + first_end.total_len), Position(0))
        ack = await s.ack()
        assert (ack.code, ack.base_offset) == (ErrorCode.OK, 0)
        assert ack.store_ms > 0
        assert await s.silent()
        b.commit_all()
        assert (await s.ack()).base_offset == 3
        assert b.service.admission.waiting_bytes == 0


async def test_due_acks_share_one_message(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        batches = [batch(sequence=n) for n in range(50)]
        for each in batches:
            await s.send(each)
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 50)
        b.commit_all()
        assert [(await s.ack()).correlation for _ in batches] == [x.correlation for x in batches]
        assert s.messages == 1


LEVELS = [
    (wire.RECEIVED, lambda b: None),
    (wire.PERSISTED, lambda b: None),  # the session asks for the fsync itself
    (wire.REPLICATED, lambda b: b.commit.advance(b.journal.end, Position(0))),
    (wire.ALL, lambda b: b.commit.advance(Position(0), b.journal.end)),
]


@pytest.mark.parametrize(("level", "fulfil"), LEVELS)
async def test_each_level_waits_for_its_own_end(
    tmp_path: Path, level: int, fulfil: Callable[[Bench], None]
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        b.journal.set_flush(sync=False, interval_ms=0)
        await s.send(batch(ack=level))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        if level in (wire.PERSISTED, wire.ALL):
            await until(lambda: b.journal.durable_end == b.journal.end, "it asks for it itself")
        if level in (wire.REPLICATED, wire.ALL):
            b.commit.advance(
                *((Position(0), FAR) if level == wire.REPLICATED else (FAR, Position(0)))
            )
            assert await s.silent()
        b.commit.commit_end = b.commit.all_end = Position(0)
        fulfil(b)
        assert (await s.ack()).code == ErrorCode.OK
        if level == wire.RECEIVED:
            assert b.journal.durable_end < b.journal.end


async def test_one_way_gets_no_answer_good_or_bad(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(ack=wire.ONE_WAY), batch(ack=wire.ONE_WAY, queue_id=99, sequence=1))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        b.commit_all()
        assert await s.silent()
        assert b.service.admission.waiting_bytes == 0


async def test_acks_keep_batch_order_across_levels(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        batches = [batch(), batch(sequence=1, ack=wire.RECEIVED), batch(queue_id=99)]
        await s.send(*batches)
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        assert await s.silent()
        b.commit_all()
        assert [(await s.ack()).correlation for _ in batches] == [x.correlation for x in batches]


# ---- refusals

REFUSED = [
    ({"queue_id": 4}, ErrorCode.UNKNOWN_QUEUE),
    ({"topic_id": 2}, ErrorCode.UNKNOWN_TOPIC),
    ({"payload_crc": 1}, ErrorCode.BAD_CRC),
    ({"payload": bytes(MAX_PAYLOAD + 1)}, ErrorCode.TOO_LARGE),
    ({"record_count": 100_001}, ErrorCode.TOO_LARGE),
    ({"record_count": 0}, ErrorCode.MALFORMED),
    ({"record_count": 1000}, ErrorCode.MALFORMED),
    ({"payload": b""}, ErrorCode.MALFORMED),
    ({"attrs": 0x8000}, ErrorCode.MALFORMED),
    ({"attrs": 0x10000}, ErrorCode.MALFORMED),
    ({"attrs": 0x0001}, ErrorCode.UNSUPPORTED),
    ({"deliver_at_ms": 1}, ErrorCode.UNSUPPORTED),
    ({"ack": 77}, ErrorCode.UNSUPPORTED),
]


@pytest.mark.parametrize(("wrong", "code"), REFUSED)
async def test_bad_batch_gets_typed_error_and_the_stream_continues(
    tmp_path: Path, wrong: dict[str, Any], code: ErrorCode
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        bad, good = batch(**wrong), batch()
        await s.send(bad)
        ack = await s.ack()
        assert (ack.correlation, ack.code) == (bad.correlation, code)
        assert ack.message
        assert not b.journal.state.next_offsets
        await s.send(good)
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.OK


async def test_not_enough_replicas_refuses_only_policy_level_batches(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        b.commit.refuse("no slave is in sync", Position(0))
        await s.send(batch(), batch(ack=wire.ALL), batch(ack=wire.PERSISTED))
        acks = [await s.ack() for _ in range(3)]
        assert [a.code for a in acks] == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.OK,
        ]
        assert "no slave is in sync" in acks[0].message
        b.commit.accept()
        await s.send(batch(sequence=1))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.OK


async def test_overloaded_when_twice_the_window_waits(tmp_path: Path) -> None:
    async with bench(tmp_path, total_window_bytes=WINDOW) as b, b.session() as s:
        size = 700_000
        await s.send(*(batch(size=size, sequence=n) for n in range(4)))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 3)
        b.commit_all()
        codes = [(await s.ack()).code for _ in range(4)]
        assert codes == [ErrorCode.OK] * 3 + [ErrorCode.OVERLOADED]


# ---- idempotence


async def test_a_retry_gets_the_original_offset_and_is_stored_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with b.session() as s:
            await s.send(batch(3), batch(2, sequence=3))
            await until(lambda: b.journal.next_offset(TopicId(1), 2) == 5)
        end = b.journal.end
        async with b.session() as again:
            await again.send(batch(3), batch(2, sequence=3))
            assert await again.silent(), "the original is not committed yet"
            b.commit_all()
            assert [(await again.ack()).base_offset for _ in range(2)] == [0, 3]
            assert b.journal.end == end
            await again.send(batch(sequence=5))
            await until(lambda: b.journal.end > end)


async def test_gaps_and_older_sessions_are_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session(5, 1) as s, b.session(5, 0) as old:
        await s.send(batch(2), batch(2, sequence=7))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        b.commit_all()
        assert [(await s.ack()).code for _ in range(2)] == [
            ErrorCode.OK,
            ErrorCode.OUT_OF_SEQUENCE,
        ]
        await old.send(batch(sequence=2))
        assert (await old.ack()).code == ErrorCode.PRODUCER_FENCED


async def test_late_batch_of_older_session_is_refused(
    tmp_path: Path,
) -> None:
    """P7: it came over a stalled connection. The producer may have sent nothing newer yet."""
    async with bench(tmp_path) as b, b.session(5, 0) as old, b.session(5, 0) as again:
        await old.send(batch(ack=wire.ONE_WAY), batch(sequence=1))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        async with b.session(5, 1) as newest:
            for late in (old, again):
                await late.send(batch(sequence=2, ack=wire.ONE_WAY), batch(sequence=2))
            b.commit_all()
            assert (await old.ack()).code == ErrorCode.OK
            assert (await old.ack()).code == ErrorCode.PRODUCER_FENCED
            assert (await again.ack()).code == ErrorCode.PRODUCER_FENCED
            async with b.session(6, 0) as other:
                await other.send(batch(ack=wire.ONE_WAY))
                await until(lambda: b.journal.next_offset(TopicId(1), 2) == 3)
            await newest.send(batch(ack=wire.ONE_WAY, sequence=7), batch())
            await until(lambda: b.journal.next_offset(TopicId(1), 2) == 5)
            async with b.session(5, 0) as late:  # its opening had stalled, too
                await late.send(batch(sequence=1))
                assert (await late.ack()).code == ErrorCode.PRODUCER_FENCED
            b.commit_all()
            assert (await newest.ack()).code == ErrorCode.OK
        await old.send(batch(sequence=2, ack=wire.ONE_WAY), batch(sequence=2))
        assert (await old.ack()).code == ErrorCode.PRODUCER_FENCED
        assert b.journal.next_offset(TopicId(1), 2) == 5
    assert not b.service.sessions


async def test_without_a_producer_id_everything_is_new(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session(0) as s:
        await s.send(batch(), batch())
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        b.commit_all()
        assert [(await s.ack()).base_offset for _ in range(2)] == [0, 1]


# ---- never OK when the outcome is unknown


async def test_out_of_time_is_unknown_never_ok(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(timeout_ms=50))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        assert await s.silent()
        b.clock.advance(51)
        assert (await s.ack()).code == ErrorCode.DELIVERY_UNKNOWN
        b.commit_all()
        assert await s.silent()


async def test_lost_role_fails_waiting_sends_and_refuses_new_sends(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        b.gate.grant(Permission.READ, "somebody else writes")
        assert (await s.ack()).code == ErrorCode.DELIVERY_UNKNOWN
        await s.send(batch(sequence=1))
        ack = await s.ack()
        assert (ack.code, "somebody else writes" in ack.message) == (ErrorCode.NO_PERMISSION, True)
        b.gate.grant(Permission.FULL, "serving")
        b.commit_all()
        await s.send(batch())
        assert (await s.ack()).code == ErrorCode.OK, "the retry finds it stored"


async def test_expired_lease_fails_waiting_sends(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.gate._lease_until_ms = b.clock.monotonic_ms() + 1000
        async with b.session() as s:
            await s.send(batch())
            await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
            b.clock.advance(1000)
            assert (await s.ack()).code == ErrorCode.DELIVERY_UNKNOWN


async def test_lost_replicas_fail_sends_waiting_for_policy(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        b.commit.refuse("g1-1 is gone", b.journal.end)
        ack = await s.ack()
        assert (ack.code, "g1-1 is gone" in ack.message) == (ErrorCode.DELIVERY_UNKNOWN, True)
        b.commit.accept()
        await s.send(batch())  # a retry, below `failed_below`, that may hope again
        assert await s.silent()
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.OK


async def test_no_ok_over_an_epochs_end(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        b.journal.append(journal_kit.epoch(3))
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.DELIVERY_UNKNOWN


async def test_a_producer_too_many_is_refused_and_pushes_none_out(tmp_path: Path) -> None:
    """64 KiB segments: a quarter of one holds 91 producers."""
    async with bench(tmp_path, segment_bytes=64 * 1024) as b:
        b.clock.wall_ms = journal_kit.Clock().wall_ms  # type: ignore[method-assign]
        for producer in range(1, 92):
            first = {"producer_id": producer, "base_sequence": 0}
            b.journal.append(journal_kit.data(b"v", queue=2, **first))
        stored = b.journal.next_offset(journal_kit.TOPIC, 2)
        async with b.session(500) as s:
            await s.send(batch())
            ack = await s.ack()
            assert ack.code is ErrorCode.OVERLOADED
            assert "at most 91 are remembered" in ack.message
        async with b.session(91) as s:
            await s.send(batch(sequence=7, topic_id=1))
            b.commit_all()
            assert (await s.ack()).code is ErrorCode.OVERLOADED, "the queue of another topic"
            assert b.journal.next_offset(journal_kit.TOPIC, 2) == stored


# ---- ordered topics


CHANGES = TopicConfig("changes", TopicId(3), (TopicGroup(G1, 1),), ordered=True)


async def test_ordinary_producer_on_an_ordered_topic_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.view.there = (*b.view.there, CHANGES)
        async with b.session(5, 0, "changes") as s:
            assert ErrorCode(int(s.opened.error.code)) is ErrorCode.INVALID_ARGUMENT
            assert "topic changes is ordered" in s.opened.error.message
            assert "`ordered_producer`" in s.opened.error.message
        async with b.session() as s:  # opened for another topic
            end = b.journal.end
            await s.send(batch(topic_id=CHANGES.id, queue_id=0))
            ack = await s.ack()
            assert ack.code is ErrorCode.INVALID_ARGUMENT
            assert "topic changes is ordered" in ack.message
            assert b.journal.end == end, "not even the topic's CONFIG is appended"


@pytest.mark.parametrize(
    ("topic", "topic_id", "code", "message"),
    [
        ("orders", 0, ErrorCode.INVALID_ARGUMENT, "orders is not ordered: use an ordinary"),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC, "there is no topic 'nowhere'"),
        ("changes", 0, ErrorCode.UNSUPPORTED, "ordered topic changes"),
        ("changes", CHANGES.id, ErrorCode.UNSUPPORTED, "ordered topic changes"),
        ("changes", CHANGES.id - 1, ErrorCode.UNKNOWN_TOPIC, "deleted and created again"),
    ],
)
async def test_refused_ordered_producer_names_the_reason(
    tmp_path: Path, topic: str, topic_id: int, code: ErrorCode, message: str
) -> None:
    async with bench(tmp_path) as b:
        b.view.there = (*b.view.there, CHANGES)
        sender = wire.SenderOpen(topic=topic, name="copier", topic_id=topic_id)
        async with b.session(sender=sender) as s:
            assert ErrorCode(int(s.opened.error.code)) is code
            assert message in s.opened.error.message
