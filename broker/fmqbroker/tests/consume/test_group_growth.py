"""Consumer groups with many ranges, large batches, or growing topics."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.tests.admin.test_admin import admin_of
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Consumer,
    Rig,
    commit_held,
    consuming,
    numbers,
    running,
    stored,
    take_over,
    until,
)
from fmqcore.batch.offset_entry import MAX_RANGES, OffsetEntry, OffsetKey, encode_entry
from fmqcore.consume.in_flight import Limits, QueueProgress
from fmqcore.ids import Offset, Permission, TopicId
from fmqproto.v1.admin_pb2 import SeekRequest
from fmqproto.v1.client_pb2 import AckRange, ConsumeRequest

MANY = 2 * MAX_RANGES + 10


def group_of(rig: Rig, name: str = "billing") -> ConsumerGroup:
    group = rig.fetch.groups.get(name, TOPIC.id)
    assert group is not None
    return group


def one_by_one(consumer: Consumer, offsets: Iterable[int]) -> ConsumeRequest:
    """Ack offsets of queue 0 one by one."""
    generation = consumer.held[0]
    acks = [
        AckRange(queue_id=0, generation=generation, first_offset=n, end_offset=n + 1)
        for n in offsets
    ]
    return ConsumeRequest(acks=acks)


@pytest.mark.parametrize("in_flight", [20_000, 200_000])
def test_progress_can_always_be_stored(in_flight: int) -> None:
    """An entry has a size limit however scattered its acks are; acks left out are redelivered."""
    progress = QueueProgress(Offset(0), (), Limits(in_flight))
    lease = progress.peek(Offset(in_flight))
    assert lease is not None
    progress.lease(*lease, 1000)
    for n in range(1, in_flight, 2):
        progress.ack(Offset(n), Offset(n + 1), Offset(MANY))
    progress.ack(Offset(MANY - 1), Offset(MANY), Offset(MANY))
    for n in range(in_flight + 1, MANY - 1, 2):
        progress.ack(Offset(n), Offset(n + 1), Offset(MANY))
    progress.check()
    encode_entry(OffsetKey("g", TopicId(1), 0), OffsetEntry(1, progress.floor, progress.acked))


def test_acks_that_raise_the_floor_count_at_the_range_limit() -> None:
    progress = QueueProgress(Offset(0), (), Limits(100, 100, most_acked=3))
    progress.lease(Offset(0), Offset(20), 1000)
    for n in (2, 4, 6):
        assert progress.ack(Offset(n), Offset(n + 1))
    assert progress.is_full
    assert not progress.ack(Offset(8), Offset(9)), "it is delivered again"
    assert progress.in_flight_records == 17
    assert progress.ack(Offset(0), Offset(4))
    assert (progress.floor, progress.is_full) == (5, False)
    assert progress.ack(Offset(8), Offset(9))
    progress.check()


async def _fill(rig: Rig) -> None:
    for _ in range(2):
        rig.produce(0, *[b""] * (MANY // 2 + 1))
    rig.produce(1, b"x", b"y")
    await rig.committed()


async def _acks_in_pieces(rig: Rig) -> None:
    """Ack the newest message as the member of another group, then every other message."""
    async with consuming(rig, "odd", group="odd", credit=0) as odd:
        await until(lambda: len(odd.held) == 4)
        odd.send(one_by_one(odd, [MANY - 1, *range(1, MANY - 1, 2)]))
        progress = group_of(rig, "odd").progress[0]
        await until(lambda: progress.is_full)
        odd.send(ConsumeRequest(commit_token=5))
        await asyncio.sleep(0.5)
        assert not odd.tokens, "not all that it acked counts (C5)"


async def test_acks_in_pieces_do_not_stop_others_from_being_stored(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, segment_bytes=16 << 20)) as rig:
        await _fill(rig)
        async with consuming(rig, "good") as good:
            await until(lambda: numbers(good, 1) == [0, 1])
            await _acks_in_pieces(rig)
            good.ack_range(1, 0, 2, token=1)
            await until(lambda: good.tokens == [1])


async def test_acks_in_pieces_do_not_end_the_reader(tmp_path: Path) -> None:
    """An error raised by the offset store would end the broker, and this test."""
    async with running(Rig(tmp_path, segment_bytes=16 << 20)) as rig:
        await _fill(rig)
    rig = Rig(tmp_path, segment_bytes=16 << 20)
    async with running(rig, lead=False):
        await take_over(rig, 2)
        rig.permit(Permission.READ, epoch=2)
        await _acks_in_pieces(rig)


async def test_acks_in_any_order_fit_the_smallest_segments(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, segment_bytes=1 << 16)) as rig:
        for _ in range(40):
            rig.produce(0, *[b""] * 500)
        rig.produce(1, b"x")
        await rig.committed()
        async with consuming(rig, "s") as c, consuming(rig, "o", group="other") as other:
            await until(lambda: sum(d.end_offset - d.first_offset for d in c.got) == 20_001)
            c.send(one_by_one(c, range(1, 20_000, 2)))
            await until(lambda: len(other.held) == 4 and other.got)
            other.ack_range(1, 0, 1, token=1)
            await until(lambda: other.tokens == [1])


@pytest.mark.parametrize("once", [False, True])
async def test_large_batches_come_beside_a_backlog_of_small_ones(
    tmp_path: Path, once: bool
) -> None:
    async with running(Rig(tmp_path, segment_bytes=32 << 20, tail_cache_bytes=64 << 20)) as rig:
        for _ in range(1200):
            rig.produce(0, bytes(10_000))
        for _ in range(3):
            rig.produce(1, bytes(700_000))
        await rig.committed()
        async with consuming(rig, accepts_omitted_batch=once) as consumer:
            await until(lambda: len(consumer.got) == 1203)
            places = [n for n, d in enumerate(consumer.got) if d.queue_id == 1]
        assert places[-1] < 600, places


async def test_token_is_not_answered_for_acks_of_a_deleted_topic(tmp_path: Path) -> None:
    """The node was deleted and restored: confirmed messages are not redelivered (C5)."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, b"a", b"b", b"c")
        async with consuming(rig) as consumer:
            await until(lambda: len(consumer.values()) == 3)
            await rig.fetch.groups.stored()
            group = group_of(rig)
            with commit_held(rig):
                consumer.ack_range(0, 0, 1)
                await until(lambda: stored(rig, 0).floor == 1, "written, not committed")
                last = one_by_one(consumer, [1])
                last.commit_token, last.leave = 7, True
                consumer.send(last)
                await until(lambda: group.progress[0].floor == 2)
                rig.cluster.set()
                await until(lambda: rig.fetch.groups.get("billing", TOPIC.id) is None)
            await until(lambda: consumer.left)
            reported = list(consumer.tokens)
        rig.cluster.set(TOPIC)
        async with consuming(rig, "next") as after:
            await until(lambda: after.got)
            assert reported != [7] or numbers(after, 0)[0] == 2


async def test_seek_moves_queues_just_added_to_the_topic(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig, consuming(rig) as consumer:
        admin = admin_of(rig)
        await until(lambda: len(consumer.held) == 4)
        rig.cluster.set(replace(TOPIC, groups=(replace(TOPIC.groups[0], queues=6),)))
        request = SeekRequest(group="billing", topic=TOPIC.name, by_offset=True, offset=0)
        assert len((await admin.seek(request)).queues) == 6


async def test_queue_lost_during_a_lookup_is_not_kept_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no share of later messages."""
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a", credit=0) as a:
        await until(lambda: len(a.held) == 4)
        for queue in range(4):
            rig.produce(queue, b"x")
        await rig.committed()
        session = group_of(rig).sessions["a"]
        find, may, asked = rig.journal.find, asyncio.Event(), asyncio.Event()

        async def slow(*args: Any) -> Any:
            asked.set()
            await may.wait()
            return await find(*args)

        monkeypatch.setattr(rig.journal, "find", slow)
        a.send(ConsumeRequest(credit_bytes=10**6))
        await asked.wait()
        async with consuming(rig, "b") as b:
            may.set()
            await until(lambda: len(b.held) == 2)
            await until(lambda: a.got)
            await asyncio.sleep(0.1)
            assert not set(session.ready) - set(a.held)


async def test_queue_moved_during_lookup_is_not_leased_to_old_holder(
    tmp_path: Path,
) -> None:
    """Otherwise the new holder gets the leased records only after the ack timeout."""
    async with running(Rig(tmp_path)) as rig, consuming(rig, "a") as a:
        await until(lambda: len(a.held) == 4)
        async with consuming(rig, "b") as b:
            await until(lambda: len(b.held) == len(a.held) == 2)
            queue, find = min(a.held), rig.journal.find

            async def meanwhile(*asked: Any) -> Any:
                rig.journal.find = find  # type: ignore[method-assign]
                found = await find(*asked)
                group = group_of(rig)
                group.leave(group.sessions["a"], rig.hand.monotonic_ms())
                return found

            rig.journal.find = meanwhile  # type: ignore[method-assign,assignment]
            rig.produce(queue, b"x")
            await until(lambda: b.got)
            assert b.values() == [(queue, 0, b"x", 1)]
