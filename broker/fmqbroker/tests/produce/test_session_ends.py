"""Produce sessions: back-pressure, and the ends of sessions and of the broker."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.produce import pending_acks
from fmqbroker.produce.pending_acks import AckQueue, PendingAck
from fmqbroker.tests import journal_kit
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.pipes import BrokerEnd
from fmqbroker.tests.produce_harness import (
    G1,
    ORDERS,
    WINDOW,
    Session,
    batch,
    bench,
)
from fmqcore.batch.header import BatchType
from fmqcore.errors import ErrorCode
from fmqcore.ids import Epoch, Permission, Position, TopicId
from fmqcore.journal.segments import eof_batch
from fmqcore.zk.topic import TopicGroup
from fmqport.tests.call_context import CALL
from fmqport.transport import TransportError
from fmqproto.v1 import client_pb2 as wire

# ---- back-pressure


async def test_session_over_its_window_is_not_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        for number in range(6):
            await s.send(batch(size=400_000, sequence=number))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 3)
        assert await s.silent()
        assert s.pipe.requests.qsize() == 3
        assert b.service.admission.waiting_bytes < 2 * WINDOW
        b.commit_all()
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 6)
        b.commit_all()
        assert [(await s.ack()).base_offset for _ in range(6)] == list(range(6))
        assert b.service.admission.waiting_bytes == 0


async def test_a_producer_that_reads_no_refusals_is_not_read(tmp_path: Path) -> None:
    """An answer takes room too, even for a batch that took none."""
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(topic_id=9))
        assert (await s.ack()).code == ErrorCode.UNKNOWN_TOPIC
        s.pipe.full = True
        for _ in range(100):
            await s.send(*(batch(topic_id=9) for _ in range(100)))
        held = 0
        while held != b.service.admission.waiting_bytes or not held:  # until it stands still
            held = b.service.admission.waiting_bytes
            await asyncio.sleep(0.05)
        assert s.pipe.requests.qsize() > 20
        assert WINDOW < held < 2 * WINDOW
    await until(lambda: b.service.admission.waiting_bytes == 0)


async def test_full_broker_window_stops_reads_until_a_producer_ends(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, total_window_bytes=WINDOW) as b, b.session(6) as other:
        async with b.session() as s:
            await s.send(batch(size=1_000_000), batch(size=100_000, sequence=1))
            await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
            await other.send(batch(queue_id=0))
            await other.send(batch(queue_id=0, sequence=1))
            assert await other.silent()
            assert b.journal.next_offset(TopicId(1), 0) == 1
        await until(lambda: b.journal.next_offset(TopicId(1), 0) == 2)


# ---- the rest


async def test_sends_waiting_for_the_disk_also_fill_the_window(tmp_path: Path) -> None:
    """One-way batches wait for no ack: with a stalled disk they would fill the memory."""
    async with bench(tmp_path, total_window_bytes=WINDOW) as b, b.session() as s:
        async with b.journal._flusher.turn:  # one slow write
            before = b.journal.end
            for sequence in range(20):
                await s.send(batch(sequence=sequence, size=WINDOW // 4, ack=wire.ONE_WAY))
            await until(b.service.admission.is_full)
            for _ in range(50):
                await asyncio.sleep(0)
            assert b.service.admission.waiting_bytes == 0, "no ack is waited for"
            assert b.journal.end - before < 2 * WINDOW, "no more was taken in"
        await until(lambda: b.journal.end - before > 20 * (WINDOW // 4))


async def test_topic_config_is_journaled_before_its_first_batch(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch(), batch(sequence=1))
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 2)
        wider = replace(ORDERS, groups=(TopicGroup(G1, 8),))
        b.view.set(wider)
        await s.send(batch(queue_id=7))
        await until(lambda: b.journal.next_offset(TopicId(1), 7) == 1)
        kinds = [
            BatchType(h.type) for h in journal_kit.headers(await journal_kit.everything(b.journal))
        ]
    assert kinds == [
        BatchType.SNAP,
        BatchType.EPOCH,
        BatchType.CONFIG,
        BatchType.DATA,
        BatchType.DATA,
        BatchType.CONFIG,
        BatchType.DATA,
    ]


async def test_truncated_topic_config_is_written_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        before = b.journal.end
        await s.send(batch())
        await until(lambda: TopicId(1) in b.journal.state.topics)
        await b.journal.truncate(before)
        assert TopicId(1) not in b.journal.state.topics
        b.journal.append(journal_kit.epoch(3))
        await s.send(batch())
        await until(lambda: TopicId(1) in b.journal.state.topics)


async def test_half_closed_stream_still_gets_its_acks_then_ends(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        await s.put(None)
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        assert await s.silent()
        b.commit_all()
        assert (await s.ack()).code == ErrorCode.OK
        await asyncio.sleep(0.01)
    assert s.task_done
    assert s.ended_with is None


async def test_draining_refuses_new_sends_and_waits_for_pending_sends(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        await until(lambda: b.journal.next_offset(TopicId(1), 2) == 1)
        draining = asyncio.create_task(b.service.drain(20))
        await s.send(batch(sequence=1))
        assert await s.silent()
        assert not draining.done()
        b.commit_all()
        assert [(await s.ack()).code for _ in range(2)] == [ErrorCode.OK, ErrorCode.NO_PERMISSION]
        await draining


async def test_truncated_batch_is_never_ok_under_frames_of_a_new_term(
    tmp_path: Path,
) -> None:
    """P2: the master is another's slave by now, and its producer read nothing meanwhile.

    The new master opened its term where its segment had no room (ADR 0020): first comes an EOF of
    the old epoch's number, as long as the rest of the segment.
    """
    async with bench(tmp_path) as b:
        journal, line = b.journal, AckQueue(b.journal, b.commit, b.gate, b.clock)
        start = journal.end
        for level in (wire.REPLICATED, wire.PERSISTED, wire.ALL):
            end = journal.append(journal_kit.data(bytes(10))).end
            line.add(PendingAck(1, int(level), end, deadline_ms=1 << 60, epoch=journal.epoch))
        await journal.truncate(start)
        eof, _ = eof_batch(
            position=start,
            segment_end=Position(8 << 20),
            epoch=journal.epoch,
            prev_header_crc=journal.last_header_crc,
            store_ms=b.clock.wall_ms(),
            framed_for=Epoch(3),
        )
        journal.append_replica(start, eof)
        await journal.wait_durable(journal.end)
        b.commit.advance(journal.end, journal.end)
        assert [ack.code for ack in line.take_due()] == 3 * [wire.DELIVERY_UNKNOWN]


async def test_a_session_ends_with_the_term_in_which_it_was_opened(tmp_path: Path) -> None:
    """P8: the broker was deposed and is master again; its producer has moved on."""
    async with bench(tmp_path) as b, b.session(5, 0) as old:
        await old.send(batch(ack=wire.RECEIVED))
        assert (await old.ack()).code == ErrorCode.OK
        b.gate.grant(Permission.NONE, "deposed")
        b.gate.epoch = Epoch(3)
        b.gate.grant(Permission.FULL, "again")
        await old.send(batch(sequence=1, ack=wire.ONE_WAY), batch(sequence=1, ack=wire.RECEIVED))
        assert (await old.ack()).code == ErrorCode.NO_PERMISSION
        assert b.journal.next_offset(TopicId(1), 2) == 1
        async with b.session(5, 0) as again:
            await again.send(batch(sequence=1, ack=wire.RECEIVED))
            assert (await again.ack()).code == ErrorCode.OK


class Gone(BrokerEnd):
    """The producer is gone before it is answered."""

    async def send(self, message: Any) -> None:
        raise TransportError("gone")


async def test_sessions_that_end_leave_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        s = Session(b)
        await s.put(wire.ProduceRequest(open=wire.ProduceOpen(producer_id=5, topics=["orders"])))
        await b.service.serve(CALL, Gone(s.pipe))
        assert not b.service.sessions
        async with b.session(5, 0), b.session(5, 0), b.session(5, 1), b.session(6, 0):
            assert len(b.service.sessions) == 4
        assert not b.service.sessions


@pytest.mark.parametrize("what", ["flushed", "committed", "deposed", "a lease ran out"])
async def test_ack_waiter_is_woken_by_the_deciding_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Not by the next check of the lease, which is for events that wake no task."""
    monkeypatch.setattr(pending_acks, "_LEASE_CHECK_S", 0.01 if "lease" in what else 3600.0)
    async with bench(tmp_path) as b:
        line = AckQueue(b.journal, b.commit, b.gate, b.clock)
        end = b.journal.append(journal_kit.data(bytes(10))).end
        level = wire.PERSISTED if what == "flushed" else wire.REPLICATED
        line.add(PendingAck(1, int(level), end, deadline_ms=1 << 60, epoch=b.journal.epoch))
        if what != "flushed":
            await b.journal.wait_durable(end)
        waits = asyncio.ensure_future(line.wait())
        await asyncio.sleep(0)
        match what:
            case "flushed":
                await b.journal.wait_durable(end)
            case "committed":
                b.commit.advance(end, end)
            case "deposed":
                b.gate.grant(Permission.NONE, "deposed")
        async with asyncio.timeout(10):
            await waits
