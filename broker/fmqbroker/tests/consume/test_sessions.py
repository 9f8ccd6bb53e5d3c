"""Consumer sessions on a real journal: they share queues, join, leave, and are refused."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from fmqbroker.consume import registry, service
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Rig,
    at,
    commit_held,
    consuming,
    numbers,
    open_request,
    running,
    stored,
    until,
)
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.assignment import REJOIN_MS
from fmqcore.errors import ErrorCode
from fmqcore.ids import GroupName, Offset, Permission, Position, TopicId
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest


# ---- sessions share
async def test_two_sessions_share_evenly_a_third_joins_and_leaves(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        await until(lambda: len(a.held) == 4)
        async with consuming(rig, "b") as b:
            await until(lambda: len(a.held) == len(b.held) == 2)
            assert not set(a.held) & set(b.held)
            kept = (set(a.held), set(b.held))
            async with consuming(rig, "c") as c:
                await until(lambda: c.held)
                assert sorted(len(x.held) for x in (a, b, c)) == [1, 1, 2]
                c.send(ConsumeRequest(leave=True))
                await until(lambda: c.left)
                await until(lambda: c.over)
            await until(lambda: len(a.held) == len(b.held) == 2)
            assert len(kept[0] & set(a.held)) + len(kept[1] & set(b.held)) >= 3
        await until(lambda: len(a.held) == 4)


async def test_killed_sessions_records_move_in_order_with_their_count(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        async with consuming(rig, "b") as b:
            await until(lambda: len(a.held) == len(b.held) == 2)
            queue = min(b.held)
            rig.produce(queue, b"0", b"1")
            rig.produce(queue, b"2", b"3")
            await until(lambda: len(b.got) == 2)
            b.ack_range(queue, 1, 2, token=1)
            await until(lambda: b.tokens)
        await until(lambda: len(a.values()) == 3)
        assert a.values() == [(queue, 0, b"0", 2), (queue, 2, b"2", 2), (queue, 3, b"3", 2)]
        b.ack_range(queue, 0, 4, generation=1)


async def test_moving_queue_is_drained_without_redelivery(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        await until(lambda: len(a.held) == 4)
        for queue in range(4):
            rig.produce(queue, b"x", b"y")
        await until(lambda: len(a.values()) == 8)
        generations = dict(a.held)
        async with consuming(rig, "b") as b:
            await until(lambda: len(a.held) == 2)
            moving = sorted(set(range(4)) - set(a.held))
            assert not b.held
            rig.produce(moving[0], b"z")
            a.ack_range(moving[0], 0, 2, generation=generations[moving[0]])
            await until(lambda: b.got)
            assert b.values() == [(moving[0], 2, b"z", 1)]
            assert set(b.held) == {moving[0]}
            rig.hand.advance(rig.settings.consumer_drain_ms)
            await until(lambda: len(b.values()) == 3)
            assert b.values()[1:] == [(moving[1], 0, b"x", 2), (moving[1], 1, b"y", 2)]
            a.ack_range(moving[1], 0, 2, generation=generations[moving[1]], token=5)
            await until(lambda: a.tokens)
            assert stored(rig, moving[1]).floor == 0, "an ack of an older generation is ignored"
            assert a.ignored == [(moving[1], generations[moving[1]])], "and that is reported"


async def test_record_nacked_while_draining_goes_to_next_holder(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        rig.produce(3, b"x", b"y")
        await until(lambda: a.got)
        async with consuming(rig, "b") as b:
            await until(lambda: len(a.held) == 2)
            a.nack(a.got[0])
            await until(lambda: b.got)
            assert b.values() == [(3, 0, b"x", 2), (3, 1, b"y", 2)]


async def test_reopened_session_keeps_its_queues(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as old:
        rig.produce(0, b"x")
        await until(lambda: old.got)
        async with consuming(rig, "b") as b:
            await until(lambda: len(b.held) == 2)
            async with consuming(rig, "a") as new:
                await until(lambda: new.got)
                assert new.values() == [(0, 0, b"x", 2)]
                await until(lambda: old.error)
                assert old.error is not None
                assert old.error.code == client_pb2.STALE_ASSIGNMENT
                assert len(new.held) == len(b.held) == 2


async def test_sessions_that_lost_their_reader_get_their_queues_back(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        async with consuming(rig, "x", held_queues=[0, 1]) as x:
            await until(lambda: sorted(x.held) == [0, 1])
            async with consuming(rig, "a", held_queues=[2, 3]) as a:
                await until(lambda: sorted(a.held) == [2, 3])
    async with running(Rig(tmp_path / "2")) as rig:
        async with consuming(rig, "x", held_queues=[0, 1]) as x:
            rig.produce(3, b"v")
            await until(lambda: sorted(x.held) == [0, 1])
            rig.hand.advance(REJOIN_MS)
            await until(lambda: x.got)


async def test_more_sessions_than_queues_leave_some_idle_until_needed(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        others = [consuming(rig, name) for name in "abcd"]
        async with AsyncExitStack() as stack:
            for other in others:
                await stack.enter_async_context(other)
            async with consuming(rig, "e") as idle:
                rig.produce(0, b"x")
                idle.send(ConsumeRequest(commit_token=1))
                await until(lambda: idle.tokens)
                assert not idle.held
                await stack.aclose()
                await until(lambda: len(idle.held) == 4)
                await until(lambda: idle.got)


async def test_groups_do_not_see_each_other(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"x")
        async with consuming(rig, group="one") as one, consuming(rig, group="two") as two:
            await until(lambda: one.got and two.got)
            one.ack(one.got[0], token=1)
            await until(lambda: one.tokens)
            assert rig.journal.state.offsets[OffsetKey("two", TOPIC.id, 0)].floor == 0


# ---- refusals
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC),
        ({"group": "../x"}, ErrorCode.INVALID_ARGUMENT),
        ({"session": ""}, ErrorCode.INVALID_ARGUMENT),
        ({"session": "x" * 300}, ErrorCode.INVALID_ARGUMENT),
        ({"start": 9}, ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_a_bad_open_is_refused_with_a_typed_error(
    tmp_path: Path, fields: dict[str, str], code: ErrorCode
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, **fields) as consumer:
        assert consumer.opened is not None
        assert int(consumer.opened.error.code) == code
        assert consumer.opened.error.message


async def test_a_topic_just_made_elsewhere_is_asked_for_once(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.cluster.unheard = [replace(TOPIC, name="fresh", id=TopicId(7))]
        async with consuming(rig, topic="fresh") as consumer:
            await until(lambda: len(consumer.held) == 4)


async def test_a_stream_that_does_not_begin_with_open_is_refused(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        async with consuming(rig) as consumer:
            consumer.ack_range(9, 0, 1, generation=1)
            await until(lambda: consumer.error)
            assert consumer.error is not None
            assert consumer.error.code == client_pb2.UNKNOWN_QUEUE
        assert open_request().HasField("open")


async def test_grown_topic_is_followed_and_deleted_topic_ends_sessions(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)
        groups = (replace(TOPIC.groups[0], queues=6),)
        rig.cluster.set(replace(TOPIC, groups=groups))
        await until(lambda: len(consumer.held) == 6)
        await until(lambda: stored(rig, 5).version, "it is stored where they begin")
        rig.produce(5, b"x")
        await until(lambda: consumer.got)
        rig.cluster.set()
        await until(lambda: consumer.error)
        assert consumer.error is not None
        assert consumer.error.code == client_pb2.UNKNOWN_TOPIC
        assert rig.fetch.groups.get("billing", TOPIC.id) is None


async def test_the_odd_queue_is_whose_turn_it_is_by_the_groups_before(tmp_path: Path) -> None:
    """Otherwise one session would hold the odd queues of all groups, and another none."""
    own = replace(TOPIC.groups[0], queues=1)
    async with running(Rig(tmp_path)) as rig:
        rig.cluster.set(replace(TOPIC, groups=(own,)))
        async with consuming(rig, "a") as a, consuming(rig, "b") as b:
            await until(lambda: a.held)
            other = replace(own, group=GroupName("g0"), queues=3)
            rig.cluster.set(replace(TOPIC, groups=(other, own)))
            await until(lambda: b.held and not a.held)
            rig.cluster.set(replace(TOPIC, groups=(own, other)))
            await until(lambda: a.held and not b.held)
            rig.produce(0, b"x")
            await until(lambda: a.got)
            assert not b.got


GROWN = replace(TOPIC, groups=(replace(TOPIC.groups[0], queues=6),))


async def test_queue_new_to_this_reader_continues_at_stored_progress(tmp_path: Path) -> None:
    """The previous reader knew that the topic had grown; this one learns it late."""
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put(at(rig, 2, queue=5))
        rig.produce(5, b"0", b"1", b"2")
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.held) == 4)
            rig.cluster.set(GROWN)
            await until(lambda: consumer.got)
            assert consumer.begins[5] == 2
            assert numbers(consumer, 5) == [2]
            assert stored(rig, 5).floor == 2


@pytest.mark.parametrize("gone", [False, True])
async def test_a_topic_that_changes_while_a_beginning_is_looked_for(
    tmp_path: Path, gone: bool
) -> None:
    async with running(Rig(tmp_path)) as rig:
        find, asked, may = rig.journal.find_time, asyncio.Event(), asyncio.Event()

        async def slow(topic_id: TopicId, queue_id: int, wall_ms: int) -> Offset:
            asked.set()
            await may.wait()
            return await find(topic_id, queue_id, wall_ms)

        rig.journal.find_time = slow  # type: ignore[method-assign]

        async def change() -> None:
            await asked.wait()
            rig.cluster.set(*() if gone else (GROWN,))
            for _ in range(9):
                await asyncio.sleep(0)
            may.set()

        changing = asyncio.create_task(change())
        async with consuming(rig, start=client_pb2.START_TIME, start_ms=1) as consumer:
            await changing
            assert consumer.opened is not None
            code = consumer.opened.error.code
            assert code == (client_pb2.UNKNOWN_TOPIC if gone else client_pb2.OK)
            await until(lambda: gone or len(consumer.held) == 6)


async def test_orderly_stop_stores_acks(tmp_path: Path) -> None:
    rig = Rig(tmp_path, offsets_interval_ms=20)
    async with running(rig), consuming(rig) as consumer:
        rig.produce(0, b"x", b"y")
        await until(lambda: consumer.got)
        await until(lambda: stored(rig, 0).version)
        consumer.ack_range(0, 0, 2)
        group = rig.fetch.groups.get("billing", TOPIC.id)
        assert group is not None
        await until(lambda: group.progress[0].floor == 2)
        await rig.fetch.drain(10.0)
        assert stored(rig, 0).floor == 2
        await until(lambda: consumer.error)
        async with consuming(rig, "late") as late:
            assert late.opened is not None
            assert late.opened.error.code == client_pb2.NO_PERMISSION


async def test_stopping_slave_logs_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves no consumers, so no acks can be left."""
    logger = CapturingLogger()
    async with running(Rig(tmp_path), lead=False) as rig:
        monkeypatch.setattr(service, "_log", logger)
        await rig.fetch.drain(10.0)
        assert not logger.calls


# ---- everything at once
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_record_is_acked_under_random_sessions(seed: int) -> None:
    """Sessions come, go, ack, nack and are killed; in the end every record is acked.

    It has its own seed: the choices depend on timing.
    """

    async def play() -> None:
        with tempfile.TemporaryDirectory() as path:
            async with running(Rig(Path(path), max_in_flight_records=7)) as rig:
                await churn(rig, Random(seed))

    asyncio.run(play())


async def churn(rig: Rig, dice: Random) -> None:
    total = 0
    for _ in range(dice.randint(1, 6)):
        async with consuming(rig, dice.choice("ab")) as one:
            async with consuming(rig, "c") as two:
                for _ in range(dice.randint(1, 4)):
                    records = dice.randint(1, 5)
                    rig.produce(dice.randint(0, 3), *[b"v"] * records)
                    total += records
                await rig.committed()
                for consumer in (one, two):
                    for delivery in list(consumer.got)[: dice.randint(0, 3)]:
                        if dice.random() < 0.5:
                            consumer.ack(delivery)
                        else:
                            consumer.nack(delivery)
    ends = [rig.journal.next_offset(TOPIC.id, q) for q in range(4)]
    async with consuming(rig, "last") as last:
        acked = 0

        def ack_all() -> bool:
            nonlocal acked
            for delivery in last.got[acked:]:
                last.ack(delivery)
            acked = len(last.got)
            return [stored(rig, q).floor for q in range(4)] == ends

        await until(ack_all)
    assert sum(ends) == total


@pytest.mark.parametrize(
    ("ends", "start"),
    [
        ("stored", client_pb2.START_LATEST),
        ("stored", client_pb2.START_TIME),
        ("away", client_pb2.START_LATEST),
    ],
)
async def test_group_at_latest_opens_after_its_start_is_stored(
    tmp_path: Path, ends: str, start: int
) -> None:
    """Otherwise the next reader starts at its own end, and records in between are skipped."""
    async with running(Rig(tmp_path)) as rig, AsyncExitStack() as stack:
        rig.produce(0, b"before")
        await rig.committed()
        fields = {"start": start, "start_ms": rig.clock.wall_ms() + 3_600_000}
        entering = [consuming(rig, name, **fields) for name in ("a", "b")]
        with commit_held(rig):
            end = rig.journal.end
            opening = [asyncio.create_task(stack.enter_async_context(each)) for each in entering]
            await until(lambda: rig.journal.end > end, "its beginning is written")
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(each.done() for each in opening), "written, and not committed"
            if ends == "away":
                rig.gate.grant(Permission.NONE, "another reads")
                await until(lambda: not rig.fetch.groups.get("billing", TOPIC.id))
                rig.permit(Permission.FULL)
        if ends == "stored":
            a, b = [await each for each in opening]
            assert stored(rig, 0).floor == 1
            rig.produce(0, b"after")
            await until(lambda: [v for c in (a, b) for _, _, v, _ in c.values()] == [b"after"])
        else:
            for each in opening:
                consumer = await each
                assert consumer.opened is not None
                assert consumer.opened.error.code == client_pb2.NO_PERMISSION


async def test_opening_says_why_its_start_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a consumer that starts at the latest message waits for a slave without a word."""
    monkeypatch.setattr(registry, "_START_S", 0.05)
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"before")
        await rig.committed()
        with commit_held(rig):
            rig.commit.refuse("0 of 1 slaves in sync", Position(0))
            async with consuming(rig, "a", start=client_pb2.START_LATEST) as refused:
                assert refused.opened is not None
                assert refused.opened.error.code == client_pb2.UNAVAILABLE
                assert "starts on orders is not stored yet: 0 of 1" in refused.opened.error.message
            assert not rig.fetch.groups._writer._waiters, "who gave up waits no more"
            rig.produce(0, b"after")
        rig.commit.accept()
        async with consuming(rig, "a", start=client_pb2.START_LATEST) as consumer:
            await until(lambda: consumer.got)
            assert [v for _, _, v, _ in consumer.values()] == [b"after"], "it starts where it would"
