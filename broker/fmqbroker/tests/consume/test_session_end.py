"""Consumer sessions on a real journal: heartbeats, loss of READ, hand-over of acks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from fmqbroker.tests.consume_harness import (
    ME,
    TOPIC,
    Rig,
    consuming,
    key,
    running,
    stored,
    until,
)
from fmqcore.batch.control import decode_offsets
from fmqcore.ids import Offset, Permission, Position
from fmqcore.zk.group_state import Mode
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest


# ---- heartbeats and the end
async def test_heartbeats_are_sent_when_there_is_nothing_else(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: consumer.held)

        def beaten(seen: int) -> bool:
            return consumer.heartbeats > seen

        for _ in range(3):
            seen = consumer.heartbeats
            rig.hand.advance(rig.settings.consumer_heartbeat_ms)
            await until(partial(beaten, seen))


@pytest.mark.parametrize("stuck", [False, True])
async def test_a_silent_session_loses_its_queues(tmp_path: Path, stuck: bool) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as silent:
        await until(lambda: len(silent.held) == 4)
        assert silent.pipe is not None
        silent.pipe.full = stuck
        rig.produce(0, b"x")
        rig.hand.advance(rig.settings.consumer_dead_after_ms - 1)
        async with consuming(rig, "b") as b:
            await until(lambda: len(b.held) == 2)
            assert not silent.over
            rig.hand.advance(1)
            await until(lambda: silent.over)
            await until(lambda: len(b.held) == 4)
            await until(lambda: b.got)


async def test_ended_session_that_reads_nothing_loses_its_queues(tmp_path: Path) -> None:
    """Its connection may last for ever: the last message to it cannot be sent."""
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as wrong:
        await until(lambda: len(wrong.held) == 4)
        group = rig.fetch.groups.get("billing", TOPIC.id)
        assert group is not None
        assert wrong.pipe is not None
        wrong.pipe.full = True
        wrong.ack_range(9, 0, 1, generation=1)  # there is no such queue
        await until(lambda: group.sessions["a"].over)
        async with consuming(rig, "b") as b:
            await until(lambda: len(b.held) == 2)
            rig.produce(0, b"x")
            rig.hand.advance(rig.settings.consumer_heartbeat_ms)  # both are looked at
            await until(lambda: b.heartbeats)
            rig.hand.advance(1)
            b.send(ConsumeRequest())
            now_ms = rig.hand.monotonic_ms()
            await until(lambda: group.sessions["b"].received_ms == now_ms)
            rig.hand.advance(rig.settings.consumer_dead_after_ms - 1)
            await until(lambda: wrong.over)
            await until(lambda: len(b.held) == 4)


async def test_expired_lease_ends_sessions_that_read_nothing(tmp_path: Path) -> None:
    """The check of one session is the first to see it; that one must not stay for ever."""
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a, consuming(rig, "b") as b:
        await until(lambda: len(a.held) == len(b.held) == 2)
        group = rig.fetch.groups.get("billing", TOPIC.id)
        assert group is not None
        sessions = list(group.sessions.values())
        assert a.pipe is not None
        assert b.pipe is not None
        a.pipe.full = b.pipe.full = True
        rig.gate._lease_until_ms = 0  # time passed without a notice
        rig.hand.advance(rig.settings.consumer_heartbeat_ms)
        await until(lambda: all(session.over for session in sessions))
        torn_ms = rig.hand.monotonic_ms() + rig.settings.consumer_dead_after_ms
        await until(lambda: rig.hand.sleeps_until(torn_ms))
        rig.hand.advance(rig.settings.consumer_dead_after_ms)
        await until(lambda: all(session.gone for session in sessions))


async def test_unsendable_heartbeat_is_not_retried_every_millisecond(
    tmp_path: Path,
) -> None:
    """The consumer reads nothing and still sends heartbeats, perhaps for long."""
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)
        assert consumer.pipe is not None
        consumer.pipe.full = True
        group = rig.fetch.groups.get("billing", TOPIC.id)
        assert group is not None
        session, beat_ms = group.sessions["s1"], rig.settings.consumer_heartbeat_ms
        credit = session.credit_bytes
        rig.produce(0, b"x")
        await until(lambda: session.credit_bytes < credit, "it leaves, and stands")
        rig.hand.advance(beat_ms)
        await until(lambda: session.heartbeat)
        now_ms = rig.hand.monotonic_ms()
        await until(lambda: rig.hand.sleeps_until(now_ms + beat_ms))


async def test_heartbeat_is_due_one_interval_after_the_last_send(tmp_path: Path) -> None:
    """Checked half an interval later, it is due in half an interval, not a whole one."""
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)
        beat_ms = rig.settings.consumer_heartbeat_ms
        rig.hand.advance(beat_ms // 2)
        sent_ms = rig.hand.monotonic_ms()
        rig.produce(0, b"x")
        await until(lambda: consumer.got)
        rig.hand.advance(beat_ms - beat_ms // 2)
        await until(lambda: rig.hand.sleeps_until(sent_ms + beat_ms))


async def test_losing_read_ends_every_session_and_forgets_the_groups(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        rig.produce(0, b"x", b"y")
        await until(lambda: a.got)
        async with consuming(rig, group="other") as other:
            await until(lambda: other.got)
            a.ack_range(0, 0, 1)
            await until(lambda: stored(rig, 0).floor == 1)
            rig.gate.grant(Permission.NONE, "fenced by the test")
            for consumer in (a, other):
                await until(partial(getattr, consumer, "error"))
                assert consumer.error is not None
                assert consumer.error.code == client_pb2.NO_PERMISSION
                assert "epoch 1" in consumer.error.message
                assert "fenced by the test" in consumer.error.message
        # only stored progress is remembered
        await until(lambda: a.over)
        assert rig.fetch.groups.get("billing", TOPIC.id) is None
        async with consuming(rig, "b") as refused:
            assert refused.opened is not None
            assert refused.opened.error.code == client_pb2.NO_PERMISSION
        rig.permit(Permission.FULL, epoch=3)
        async with consuming(rig, "b") as b:
            await until(lambda: b.got)
            assert b.values() == [(0, 1, b"y", 1)]


async def test_expired_lease_is_noticed_at_next_pull_and_ack(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        async with consuming(rig, "a") as a:
            rig.produce(0, b"x")
            await until(lambda: a.got)
            rig.gate._lease_until_ms = 0  # time passed without a notice
            a.ack_range(0, 0, 1)
            await until(lambda: a.error)
            assert stored(rig, 0).floor == 0
        rig.permit(Permission.READ)
        async with consuming(rig, "b") as b:
            await until(lambda: b.got)
            rig.gate._lease_until_ms = 0
            rig.produce(0, b"y")
            await until(lambda: b.error)
            assert len(b.got) == 1


async def test_a_new_epoch_ends_sessions_even_if_read_stayed(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: consumer.held)
        rig.gate.epoch = type(rig.gate.epoch)(4)
        rig.gate.changed.notify()
        await until(lambda: consumer.error)
        assert consumer.error is not None
        assert consumer.error.code == client_pb2.NO_PERMISSION


async def test_slave_consume_serves_below_commit_end_and_returns_acks(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"x", b"y")
        rig.produce(0, b"z")
        await rig.committed()
    rig = Rig(tmp_path)
    rig.hold_commit = True
    async with running(rig, lead=False):
        rig.group.become(Mode.SLAVE_CONSUME, 2, reader=ME)
        rig.commit.advance(rig.journal.durable_end, Offset(0))  # type: ignore[arg-type]
        await rig.offsets.become_taker("", rig.journal.end)
        rig.permit(Permission.READ, epoch=2)
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 3)
            consumer.ack_range(0, 0, 1)
            consumer.ack_range(0, 2, 3)
            consumer.send(ConsumeRequest(commit_token=1))
            await until(lambda: consumer.tokens)
            consumer.ack_range(0, 1, 2)  # accepted, perhaps not stored yet when the freeze comes
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            await until(lambda: group.progress[0].floor == 3)
            rig.gate.grant(Permission.NONE, "handing over")
            entries = decode_offsets(await rig.offsets.freeze())
            assert entries[key(0)].floor == 3
            await until(lambda: consumer.error)


@pytest.mark.parametrize("epoch", [0, 1])
async def test_reader_lacking_acked_records_reports_no_ack_stored(
    tmp_path: Path, epoch: int
) -> None:
    """A lagging slave took over; the acks are sent again to the master (C5)."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"x", b"y")
        await rig.committed()
    rig = Rig(tmp_path)
    async with running(rig, lead=False):
        rig.group.become(Mode.SLAVE_CONSUME, 2, reader=ME)
        rig.gate.mode = Mode.SLAVE_CONSUME
        await rig.offsets.become_taker("", rig.journal.end)
        rig.permit(Permission.READ, epoch=2)
        async with consuming(rig, "a") as able, consuming(rig, "b") as lost:
            await until(lambda: len(able.held) == len(lost.held) == 2)
            own, other = min(able.held), min(lost.held)
            able.ack_range(own, 0, 2 if own == 0 else 0, token=1, epoch=1)
            lost.ack_range(other, 0, 9, token=1, epoch=epoch)
            await until(lambda: able.tokens == [1])
            lost.send(ConsumeRequest(commit_token=2))
            able.send(ConsumeRequest(commit_token=2))
            await until(lambda: able.tokens == [1, 2])
            assert not lost.tokens


async def test_master_answers_acks_of_lost_records(tmp_path: Path) -> None:
    """It has all records there are: a client that acked lost ones would wait for ever."""
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        rig.gate.mode = Mode.MASTER
        await until(lambda: len(consumer.held) == 4)
        consumer.ack_range(0, 0, 9, token=1)
        await until(lambda: consumer.tokens)


@pytest.mark.parametrize("dropped_first", [False, True])
async def test_accepted_unstored_acks_are_handed_over(tmp_path: Path, dropped_first: bool) -> None:
    rig = Rig(tmp_path, offsets_interval_ms=60_000)  # nothing is written before the freeze
    async with running(rig):
        rig.produce(0, b"x", b"y")
        await rig.committed()
        rig.group.become(Mode.SLAVE_CONSUME, 2)
        await rig.offsets.become_taker("", rig.journal.end)
        rig.permit(Permission.READ, epoch=2)
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            consumer.ack_range(0, 0, 1)
            await until(lambda: group.progress[0].floor == 1)
            rig.gate.grant(Permission.NONE, "handing over")
            if dropped_first:
                await until(lambda: consumer.error)
            assert decode_offsets(await rig.offsets.freeze())[key(0)].floor == 1


async def test_accepted_acks_survive_a_short_lease_loss(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, offsets_interval_ms=60_000)
    async with running(rig):
        rig.produce(0, b"x", b"y")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            consumer.ack_range(0, 0, 1)
            await until(lambda: group.progress[0].floor == 1)
            rig.gate.grant(Permission.NONE, "a moment")
            await until(lambda: consumer.error)
        rig.permit(Permission.FULL)
        async with consuming(rig, "again") as consumer:
            await until(lambda: consumer.got)
            assert consumer.values() == [(0, 1, b"y", 1)]


@asynccontextmanager
async def read_held(rig: Rig) -> AsyncIterator[asyncio.Event]:
    """Hold the journal's reads until the event is set, at the latest at the end."""
    read, may = rig.journal.read_sound, asyncio.Event()
    waiting = asyncio.Event()

    async def held(position: Position, max_bytes: int) -> bytes:
        waiting.set()
        await may.wait()
        return await read(position, max_bytes)

    rig.journal.read_sound = held  # type: ignore[method-assign]
    rig.produce(0, b"x", b"y")
    await until(waiting.is_set)
    try:
        yield may
    finally:
        may.set()
        rig.journal.read_sound = read  # type: ignore[method-assign]


async def test_a_lease_lost_while_the_disk_was_read_delivers_nothing(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: consumer.held)
        async with read_held(rig) as may:
            rig.gate._lease_until_ms = 0
            may.set()
            await until(lambda: consumer.error)
        assert not consumer.got


async def test_queue_moved_during_disk_read_is_not_sent_to_old_holder(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, "b") as old:
        await until(lambda: len(old.held) == 4)
        async with read_held(rig) as may:
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            group.seek(0, Offset(1), rig.hand.monotonic_ms())  # another generation
            may.set()
            await until(lambda: old.got)
            assert old.values() == [(0, 1, b"y", 1)]


async def test_queue_paused_during_disk_read_is_delivered_uncounted(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)
        async with read_held(rig) as may:
            group = rig.fetch.groups.get("billing", TOPIC.id)
            assert group is not None
            session = group.sessions["s1"]
            group.pause(session, 0, consumer.held[0], True)
            may.set()
            await until(lambda: group.progress[0].in_flight_records == 0)
            assert not consumer.got
            group.pause(session, 0, consumer.held[0], False)
            await until(lambda: consumer.got)
            assert consumer.values() == [(0, 0, b"x", 1), (0, 1, b"y", 1)]
