"""Consumer sessions on a real journal: deliveries, acks, redeliveries and starts."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fmqbroker.consume import delivery
from fmqbroker.consume.delivery import UNTOUCHED
from fmqbroker.tests.consume_harness import (
    ACK_TIMEOUT_MS,
    TOPIC,
    Rig,
    commit_held,
    consuming,
    key,
    numbers,
    running,
    stored,
    until,
)
from fmqbroker.tests.longest_turn import MOST_LINES, turns_counted
from fmqcore.batch.header import parse_header
from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import Offset
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest

# ---- delivering


async def test_only_committed_records_are_delivered_byte_for_byte(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        assert consumer.opened is not None
        assert (consumer.opened.topic_id, consumer.opened.queues) == (TOPIC.id, 4)
        await until(lambda: len(consumer.held) == 4)
        rig.produce(0, b"a", b"b")
        rig.produce(3, b"c")
        await until(lambda: len(consumer.got) == 2)
        found = sorted(consumer.values())
        assert found == [(0, 0, b"a", 1), (0, 1, b"b", 1), (3, 0, b"c", 1)]
        with commit_held(rig):
            rig.produce(0, b"d")
            await until(lambda: rig.journal.durable_end == rig.journal.end)
            rig.commit.changed.notify()
            await asyncio.sleep(0.01)
            assert len(consumer.got) == 2, "R4"
        await until(lambda: len(consumer.got) == 3)
        batch = consumer.got[-1].batch
        at = parse_header(batch).position
        assert await rig.journal.read(at, len(batch)) == batch


async def test_pending_deliveries_share_one_message(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        for number in range(300):
            rig.produce(number % 4, b"%d" % number)
        await rig.committed()
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.got) == 300)
            assert consumer.pipe is not None
            for queue in range(4):
                assert numbers(consumer, queue) == list(range(75))
        replies: list[client_pb2.ConsumeReply] = []
        async with consuming(rig, "s2", group="other", credit=0) as consumer:
            consumer.take = replies.append  # type: ignore[assignment,method-assign]
            consumer.send(ConsumeRequest(credit_bytes=10_000_000))
            await until(lambda: sum(len(r.deliveries) for r in replies) == 300)
            assert sum(1 for r in replies if r.deliveries) == 1  # the assignment may come alone


async def test_many_small_batches_are_delivered_in_short_turns(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        for number in range(3000):
            rig.produce(number % 2, b"%d" % number)
        await rig.committed()
        with turns_counted() as turns:
            async with consuming(rig) as consumer:
                await until(lambda: len(consumer.got) == 3000)
        assert 0 < turns.longest <= MOST_LINES, turns.where
        for queue in range(2):
            assert numbers(consumer, queue) == list(range(1500))


async def test_credit_bounds_deliveries(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        for _ in range(20):
            rig.produce(0, bytes(1000))
        await rig.committed()
        async with consuming(rig, credit=0) as consumer:
            await until(lambda: len(consumer.held) == 4)
            assert not consumer.got
            consumer.send(ConsumeRequest(credit_bytes=1))
            await until(lambda: len(consumer.got) == 1)  # one may exceed it, or none comes
            size = len(consumer.got[0].batch)
            consumer.send(ConsumeRequest(credit_bytes=2 * size - 1))
            await until(lambda: len(consumer.got) == 2)
            consumer.send(ConsumeRequest(credit_bytes=3 * size))
            await until(lambda: len(consumer.got) == 5)
            await asyncio.sleep(0.01)
            assert len(consumer.got) == 5


async def test_large_batches_are_split_into_bounded_messages(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path, segment_bytes=8 * 1024 * 1024)) as rig:
        for number in range(24):
            rig.produce(number % 4, bytes(400_000))
        rig.produce(0, bytes(1_000_000))
        await rig.committed()
        sizes = []
        async with consuming(rig, credit=0) as consumer:
            take = consumer.take

            def measured(reply: client_pb2.ConsumeReply) -> None:
                sizes.append(reply.ByteSize())
                take(reply)

            consumer.take = measured  # type: ignore[method-assign]
            consumer.send(ConsumeRequest(credit_bytes=100_000_000))
            await until(lambda: len(consumer.got) == 25)
        assert max(sizes) < delivery.MESSAGE_BYTES + 10_000
        for queue in range(4):
            offsets = numbers(consumer, queue)
            assert offsets == list(range(len(offsets)))


async def test_lagging_group_needs_few_reads(tmp_path: Path) -> None:
    """Old data is read from files, with other topics and segment ends in between."""
    rig = Rig(tmp_path, segment_bytes=256 * 1024, tail_cache_bytes=1024 * 1024)
    other = TOPIC.id + 1
    async with running(rig):
        sent: dict[int, list[bytes]] = {q: [] for q in range(4)}
        for number in range(3000):
            value = b"%06d" % number * 40
            rig.produce(number % 4, value)
            sent[number % 4].append(value)
            if number % 7 == 0:
                rig.produce(0, bytes(2000), topic=type(TOPIC.id)(other))
            if number % 200 == 0:
                await rig.committed()
        await rig.committed()
        reads = []
        read = rig.journal.read_sound

        async def counted(position, length):  # type: ignore[no-untyped-def]
            reads.append(length)
            return await read(position, length)

        rig.journal.read_sound = counted  # type: ignore[method-assign]
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.got) == 3000)
            for queue in range(4):
                assert [v for q, _, v, _ in consumer.values() if q == queue] == sent[queue]
        assert len(reads) < 60, "many batches a read"
        assert max(reads) <= 4 * 1024 * 1024


# ---- acks and progress


async def test_acks_are_stored_and_a_token_is_answered_after(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b", b"c")
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            await rig.fetch.groups.stored()  # the start
            with commit_held(rig):
                consumer.ack_range(0, 0, 2, token=77)
                await until(lambda: stored(rig, 0).floor == 2)
                assert not consumer.tokens, "stored is committed, not only appended"
            await until(lambda: consumer.tokens == [77])
            consumer.send(ConsumeRequest(commit_token=78))
            await until(lambda: consumer.tokens == [77, 78])
    async with running(Rig(tmp_path), epoch=2) as rig, consuming(rig) as consumer:
        await until(lambda: consumer.got)
        assert consumer.begins[0] == 2
        assert consumer.values() == [(0, 2, b"c", 1)]


async def test_acks_out_of_order_survive_a_restart_as_ranges(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *(b"%d" % n for n in range(10)))
        async with consuming(rig) as consumer:
            await until(lambda: consumer.got)
            consumer.ack_range(0, 2, 4)
            consumer.ack_range(0, 6, 7, token=1)
            await until(lambda: consumer.tokens)
    async with running(Rig(tmp_path), epoch=2) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.values()) == 7)
        assert numbers(consumer, 0) == [0, 1, 4, 5, 7, 8, 9]
        assert len({d.batch for d in consumer.got}) == 1


async def test_repeated_acks_of_an_earlier_reader_prevent_delivery(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *(b"%d" % n for n in range(10)))
        await rig.committed()
        async with consuming(rig, credit=0) as consumer:
            await until(lambda: consumer.held)
            consumer.ack_range(0, 2, 5)
            consumer.ack_range(0, 8, 1000)
            consumer.send(ConsumeRequest(credit_bytes=10**6))
            await until(lambda: len(consumer.values()) == 5)
            assert consumer.values()[0] == (0, 0, b"0", 1)
            assert numbers(consumer, 0) == [0, 1, 5, 6, 7]
            rig.produce(0, b"new")
            await until(lambda: numbers(consumer, 0)[-1] == 10)  # no consumer acks records to come


async def test_repeated_acks_count_before_commit_end_returns(tmp_path: Path) -> None:
    """They were delivered before; a restarted master commits nothing until its slave is back."""
    async with running(Rig(tmp_path)) as rig:
        async with consuming(rig) as consumer:
            consumer.send(ConsumeRequest(commit_token=1))
            await until(lambda: consumer.held and consumer.tokens == [1], "its begin is stored")
            with commit_held(rig):
                rig.produce(0, *(b"%d" % n for n in range(10)))
                consumer.ack_range(0, 0, 7, token=2)
                await until(lambda: stored(rig, 0).floor == 7)
                assert consumer.tokens == [1]  # only committed progress is stored
            await until(lambda: consumer.tokens == [1, 2])
            await until(lambda: consumer.values())
            assert numbers(consumer, 0) == [7, 8, 9]


async def test_nacked_records_are_redelivered_with_count_after_delay(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        rig.produce(0, b"a", b"b")
        await until(lambda: consumer.got)
        consumer.ack_range(0, 1, 2)
        consumer.nack(consumer.got[0], delay_ms=10_000)
        rig.produce(1, b"other")
        await until(lambda: len(consumer.got) == 2)
        rig.hand.advance(9_999)
        rig.produce(1, b"more")
        await until(lambda: len(consumer.got) == 3)
        assert numbers(consumer, 0) == [0, 1]
        rig.hand.advance(1)
        await until(lambda: len(consumer.got) == 4)
        assert list(consumer.values(since=3)) == [(0, 0, b"a", 2)]
        consumer.nack(consumer.got[3])
        await until(lambda: len(consumer.got) == 5)
        assert list(consumer.values(since=4)) == [(0, 0, b"a", 3)]


async def test_overdue_records_are_redelivered_and_late_acks_count(tmp_path: Path) -> None:
    rig = Rig(tmp_path, consumer_dead_after_ms=10**9)
    async with running(rig), consuming(rig) as consumer:
        rig.produce(0, b"a", b"b")
        await until(lambda: consumer.got)
        rig.hand.advance(ACK_TIMEOUT_MS - 1)
        consumer.ack_range(0, 1, 2, token=1)
        await until(lambda: consumer.tokens)
        assert len(consumer.got) == 1
        rig.hand.advance(ACK_TIMEOUT_MS)
        await until(lambda: len(consumer.got) == 2)
        assert list(consumer.values(since=1)) == [(0, 0, b"a", 2)]
        rig.hand.advance(ACK_TIMEOUT_MS)
        await until(lambda: len(consumer.got) == 3)
        assert list(consumer.values(since=2)) == [(0, 0, b"a", 3)]
        consumer.ack_range(0, 0, 1)
        await until(lambda: stored(rig, 0).floor == 2)
        rig.hand.advance(2 * ACK_TIMEOUT_MS)
        rig.produce(0, b"c")
        await until(lambda: len(consumer.got) == 4)
        assert list(consumer.values(since=3)) == [(0, 2, b"c", 1)]


async def test_slow_consumer_gets_no_copy_of_its_buffered_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path, consumer_dead_after_ms=10**9)
    async with running(rig), consuming(rig) as consumer:
        rig.produce(0, *(b"%d" % n for n in range(20)))
        rig.produce(3, b"last in the buffer")
        await until(lambda: len(consumer.got) == 2)
        for offset in range(8):
            rig.hand.advance(ACK_TIMEOUT_MS - 1)
            consumer.ack_range(0, offset, offset + 1, token=offset + 1)
            await until(partial(consumer.tokens.__contains__, offset + 1))
        assert len(consumer.got) == 2
        rig.hand.advance(ACK_TIMEOUT_MS)  # now it is stuck
        await until(lambda: len(consumer.got) == 4)
        assert numbers(consumer, 0, since=2) == list(range(8, 20))


async def test_buffered_records_of_a_busy_consumer_expire_in_the_end(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, consumer_dead_after_ms=10**9)
    async with running(rig), consuming(rig) as consumer:
        rig.produce(3, b"lost by the program")
        rig.produce(0, *(b"%d" % n for n in range(30)))
        await until(lambda: len(consumer.got) == 2)
        steps = 0
        while not numbers(consumer, 3, since=2):
            rig.hand.advance(ACK_TIMEOUT_MS // 2)
            steps += 1
            consumer.ack_range(0, steps - 1, steps, token=steps)
            await until(partial(consumer.tokens.__contains__, steps))
            if steps == 2 * UNTOUCHED:
                await until(lambda: numbers(consumer, 3, since=2))
        assert steps == 2 * UNTOUCHED


async def test_a_session_may_ask_for_its_own_ack_timeout(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig, ack_timeout_ms=50) as consumer:
        rig.produce(0, b"a")
        await until(lambda: consumer.got)
        rig.hand.advance(50)
        await until(lambda: len(consumer.got) == 2)


async def test_a_full_window_waits_for_acks(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_in_flight_records=5)
    async with running(rig), consuming(rig) as consumer:
        rig.produce(0, *(b"%d" % n for n in range(12)))
        await until(lambda: consumer.got)
        assert numbers(consumer, 0) == [0, 1, 2, 3, 4]
        consumer.ack_range(0, 0, 3)
        await until(lambda: len(consumer.got) == 2)
        assert numbers(consumer, 0) == [0, 1, 2, 3, 4, 5, 6, 7]


async def test_a_paused_queue_is_not_delivered(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        await until(lambda: len(consumer.held) == 4)

        def control(**what: bool) -> ConsumeRequest:
            queue = client_pb2.QueueControl(queue_id=0, generation=consumer.held[0], **what)
            return ConsumeRequest(controls=[queue])

        consumer.send(control(pause=True))
        consumer.send(ConsumeRequest(commit_token=1))
        await until(lambda: consumer.tokens)
        rig.produce(0, b"held back")
        rig.produce(1, b"goes on")
        await until(lambda: consumer.got)
        assert [d.queue_id for d in consumer.got] == [1]
        consumer.send(control(resume=True))
        await until(lambda: len(consumer.got) == 2)


# ---- starts


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (client_pb2.START_EARLIEST, 0),
        (client_pb2.START_LATEST, 3),
        (client_pb2.START_TIME, 2),
    ],
)
async def test_new_group_starts_where_it_asks_and_keeps_that_place(
    tmp_path: Path, start: client_pb2.StartAt, first: int
) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b")
        await rig.committed()
        at_ms = rig.clock.wall_ms() + 1
        await until(lambda: rig.clock.wall_ms() > at_ms)
        rig.produce(0, b"c")
        await rig.committed()
        async with consuming(rig, start=start, start_ms=at_ms, credit=0) as consumer:
            await until(lambda: consumer.held)
            assert consumer.begins[0] == first
            await until(lambda: stored(rig, 0) == OffsetEntry(1 << 32, Offset(first)))
        rig.produce(0, b"d")
        await rig.committed()
    async with running(Rig(tmp_path), epoch=2) as rig:
        async with consuming(rig, start=client_pb2.START_LATEST) as consumer:
            await until(lambda: consumer.got)
            assert numbers(consumer, 0) == list(range(first, 4))


async def test_progress_below_log_start_jumps_to_log_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segment_bytes=64 * 1024, retention_ms=1)
    async with running(rig):
        async with consuming(rig, credit=1) as consumer:
            rig.produce(0, b"first")
            await until(lambda: consumer.got)
            for _ in range(40):
                rig.produce(0, bytes(10_000))
            await rig.committed()
            await rig.journal.retire(rig.journal.end, rig.clock.wall_ms() + 10_000)
            begin = rig.journal.begin_offset(TOPIC.id, 0)
            assert begin > 1
            consumer.send(ConsumeRequest(credit_bytes=10**8))
            await until(lambda: numbers(consumer, 0)[-1:] == [40])
            assert numbers(consumer, 0) == [0, *range(begin, 41)]
            assert consumer.skipped == [(0, 0, begin)]
            await until(lambda: stored(rig, 0).floor == begin)


async def test_progress_above_the_end_waits(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.offsets.put({key(0): OffsetEntry(1 << 32, Offset(2))})
        async with consuming(rig) as consumer:
            await until(lambda: consumer.held)
            rig.produce(0, b"a")
            rig.produce(0, b"b", b"c", b"d")
            await until(lambda: consumer.got)
            assert numbers(consumer, 0) == [2, 3]
