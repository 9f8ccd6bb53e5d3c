"""Consumers that report hand-overs: delivery counts, and credit by count."""

from pathlib import Path
from typing import Any

import pytest

from fmqbroker.consume.registry import IDLE_MS
from fmqbroker.tests.consume_harness import (
    TOPIC,
    Consumer,
    Rig,
    consuming,
    numbers,
    running,
    stored,
    until,
)
from fmqcore.consume.in_flight import QueueProgress
from fmqproto.v1 import client_pb2
from fmqproto.v1.client_pb2 import ConsumeRequest

PLENTY = 10**6


def counts(consumer: Consumer) -> dict[int, int]:
    """Return the counts of queue 0 by offset."""
    return {offset: count for queue, offset, _, count in consumer.values() if queue == 0}


def send(consumer: Consumer, **fields: Any) -> None:
    consumer.send(ConsumeRequest(**fields))


def handed(consumer: Consumer, first: int, end: int) -> client_pb2.DeliveredRange:
    return client_pb2.DeliveredRange(
        queue_id=0, generation=consumer.held[0], first_offset=first, end_offset=end
    )


def progress(rig: Rig) -> list[QueueProgress]:
    group = rig.fetch.groups.get("billing", TOPIC.id)
    assert group is not None
    return group.progress


def group_in_flight(rig: Rig) -> int:
    return sum(queue.in_flight_records for queue in progress(rig))


async def lost(rig: Rig, *, report: tuple[int, int] | None) -> None:
    """Give a consumer ten messages, report those handed to its program, and lose it."""
    async with consuming(rig, reports_delivered=True) as first:
        send(first, credit_records=PLENTY)
        await until(lambda: len(numbers(first, 0)) == 10)
        if report:
            send(first, delivered=[handed(first, *report)])
            await until(lambda: progress(rig)[0].has_seen)


async def test_dead_consumer_counts_only_handed_over_messages(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"%d" % n for n in range(10)])
        await lost(rig, report=(0, 4))
        async with consuming(rig, "s2", reports_delivered=True) as second:
            send(second, credit_records=PLENTY)
            await until(lambda: len(counts(second)) == 10)
            assert counts(second) == dict.fromkeys(range(4), 2) | dict.fromkeys(range(4, 10), 1)


async def test_consumer_dying_before_report_counts_the_next_message(tmp_path: Path) -> None:
    """Otherwise a message that kills every program always seems to be delivered first."""
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"%d" % n for n in range(10)])
        await lost(rig, report=None)
        async with consuming(rig, "s2", reports_delivered=True) as second:
            send(second, credit_records=PLENTY)
            await until(lambda: len(counts(second)) == 10)
            assert counts(second) == {0: 2} | dict.fromkeys(range(1, 10), 1)


async def test_orderly_leave_does_not_count_buffered_copies(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"%d" % n for n in range(10)])
        async with consuming(rig, reports_delivered=True) as first:
            send(first, credit_records=PLENTY)
            await until(lambda: len(numbers(first, 0)) == 10)
            send(first, leave=True)
            await until(lambda: first.over)
        async with consuming(rig, "s2", reports_delivered=True) as second:
            send(second, credit_records=PLENTY)
            await until(lambda: len(counts(second)) == 10)
            assert set(counts(second).values()) == {1}


async def test_no_more_messages_than_credit_by_count(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"%d" % n for n in range(10)])
        rig.produce(1, *[b"%d" % n for n in range(10)])
        async with consuming(rig, reports_delivered=True) as consumer:
            send(consumer, credit_records=3)
            await until(lambda: len(consumer.values()) == 3)
            send(consumer, credit_records=2)
            await until(lambda: len(consumer.values()) == 5)
            assert group_in_flight(rig) == 5, "more is under way than there is credit for"
            send(consumer, credit_records=15)
            await until(lambda: len(consumer.values()) == 20)
            assert numbers(consumer, 0) == numbers(consumer, 1) == list(range(10))


async def reported(rig: Rig, session: str) -> dict[int, tuple[int, bool]]:
    """Report all ten messages as handed over, then die; return (count, again) by offset."""
    async with consuming(rig, session, reports_delivered=True) as consumer:
        send(consumer, credit_records=PLENTY)
        await until(lambda: len(counts(consumer)) == 10)
        send(consumer, delivered=[handed(consumer, 0, 10)])
        await until(lambda: progress(rig)[0].has_seen)
        return {
            offset: (delivery.delivery_count, delivery.redelivered)
            for delivery in consumer.got
            for offset in range(delivery.first_offset, delivery.end_offset)
        }


def all_ten(count: int, *, again: bool) -> dict[int, tuple[int, bool]]:
    return dict.fromkeys(range(10), (count, again))


async def test_a_copy_is_marked_whether_or_not_it_counts(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.produce(0, *[b"%d" % n for n in range(10)])
        async with consuming(rig, reports_delivered=True) as first:
            send(first, credit_records=PLENTY)
            await until(lambda: len(numbers(first, 0)) == 10)
            assert {d.redelivered for d in first.got} == {False}
            send(first, leave=True)
            await until(lambda: first.over)
        assert await reported(rig, "s2") == all_ten(1, again=True), "no program got it"
        assert await reported(rig, "s3") == all_ten(2, again=True)


@pytest.mark.parametrize("what", ["another reader", "five minutes without members", "a seek"])
async def test_delivery_counts_restart_with_a_new_reader(tmp_path: Path, what: str) -> None:
    """Counts are kept in memory: they may be too low, never too high."""
    rig = Rig(tmp_path)
    async with running(rig):
        rig.produce(0, *[b"%d" % n for n in range(10)])
        assert await reported(rig, "s1") == all_ten(1, again=False)
        assert await reported(rig, "s2") == all_ten(2, again=True)
        await until(lambda: stored(rig, 0).floor == 0, "its progress")
        match what:
            case "a seek":
                group = rig.fetch.groups.get("billing", TOPIC.id)
                assert group is not None
                group.seek(0, group.progress[0].floor, rig.hand.monotonic_ms())
            case "five minutes without members":
                await until(lambda: not group_in_flight(rig))
                rig.hand.advance(IDLE_MS)
                await until(lambda: rig.fetch.groups.get("billing", TOPIC.id) is None)
        if what != "another reader":
            assert await reported(rig, "s3") == all_ten(1, again=False)
            return
    async with running(Rig(tmp_path), epoch=2) as rig:
        assert await reported(rig, "s3") == all_ten(1, again=False)
