"""A producer's accumulator alone: batch limits, deadlines, and outcomes at the end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.producer.accumulator import Accumulator
from fmqclient.producer.batches import Record, SendResult, record_bytes, resolve
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqclient.producer.topic_buffers import HOLD_MS, Topic
from fmqclient.settings import ProducerSettings
from fmqcore.errors import (
    BadCrc,
    DeliveryUnknown,
    FmqError,
    NoPermission,
    NotEnoughReplicas,
    Overloaded,
    StorageFull,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.zk.topic import TopicConfig, TopicGroup

G1, G2 = GroupName("g1"), GroupName("g2")
ORDERS = TopicConfig("orders", TopicId(1), (TopicGroup(G1, 1), TopicGroup(G2, 1)))


class Clock(SystemClock):
    """A clock that stands until set."""

    now_ms = 1000
    ahead_ms = 0  # of the wall clock

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class Carrier:
    """A sender that carries nothing."""

    reason = ""
    error: FmqError | None = None
    usable = True
    renewed = 0

    def offer(self, buffer: QueueBuffer) -> None:
        buffer.ready = True

    def renew(self) -> None:
        self.renewed += 1


class Case:
    """An accumulator with one topic of two groups, of which only the first takes records."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.carriers = {G1: Carrier(), G2: Carrier()}
        self.carriers[G2].usable = False
        self.accumulator = Accumulator(
            ProducerSettings(**settings), self.clock, self.carriers.__getitem__, lambda: None
        )
        self.topic: Topic = self.accumulator.new_topic("orders")
        self.accumulator.set_config(self.topic, ORDERS)
        self.settle()

    def settle(self) -> None:
        """Let pending records move."""
        self.clock.now_ms += HOLD_MS
        self.accumulator.lift()

    def put(self, value: bytes) -> "asyncio.Future[Any]":
        """Add one record of the only key."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number = self.accumulator.outstanding_records = self.accumulator.outstanding_records + 1
        record: Record = (value, b"key", b"", b"", future, False, number)
        buffer = self.topic.buffer_for(b"key")
        assert buffer is not None
        self.accumulator.put(buffer, record, record_bytes(record))
        return future

    def buffer(self, group: GroupName) -> QueueBuffer:
        """Return the queue buffer of the only queue."""
        return self.topic.buffers[group, 0]


async def test_batch_stays_within_limits_when_sent_at_once() -> None:
    """It is one message: brokers refuse larger ones, and the wire does not carry them."""
    by_bytes = Case(max_batch_bytes=1000)
    by_count = Case(max_batch_records=3)
    for case in (by_bytes, by_count):
        for _ in range(50):
            case.put(bytes(100))
    assert max(pending_batch.bytes for pending_batch in by_bytes.buffer(G1).pending) <= 1000
    assert [len(pending_batch.records) for pending_batch in by_count.buffer(G1).pending] == [
        3
    ] * 16 + [2]


async def test_narrower_limit_of_two_brokers_counts() -> None:
    """Unsent records may go to either."""
    case = Case()
    case.accumulator.limit(500, 2)
    case.accumulator.limit(1000, 50)
    for _ in range(20):
        case.put(bytes(100))
    assert [len(pending_batch.records) for pending_batch in case.buffer(G1).pending] == [2] * 10
    for _ in range(20):
        case.put(bytes(400))
    assert {len(pending_batch.records) for pending_batch in list(case.buffer(G1).pending)[10:]} == {
        1
    }


async def test_record_waits_its_full_time_behind_older_ones() -> None:
    """They share a deadline: a batch takes records for a moment only, sent or not."""
    case = Case(delivery_timeout_s=60)
    first = case.put(b"first")
    case.clock.now_ms += 30_000
    case.accumulator.tick(case.clock.now_ms)
    later = case.put(b"later")
    case.clock.now_ms += 30_001
    case.accumulator.tick(case.clock.now_ms)
    assert isinstance(first.exception(), Unavailable)
    assert not later.done()


async def test_record_moved_to_another_group_keeps_its_deadline() -> None:
    """It counts from the send call, since when the program waits."""
    case = Case(delivery_timeout_s=60)
    future = case.put(b"a")
    case.clock.now_ms += 50_000
    case.carriers[G1].usable, case.carriers[G2].usable = False, True
    case.accumulator.remap()
    case.settle()
    assert [r[0] for pending_batch in case.buffer(G2).pending for r in pending_batch.records] == [
        b"a"
    ]
    case.clock.now_ms += 10_000
    case.accumulator.tick(case.clock.now_ms)
    assert isinstance(future.exception(), Unavailable)


async def test_records_moved_together_keep_their_own_deadlines() -> None:
    """The younger does not expire with the older."""
    case = Case(delivery_timeout_s=60)
    older = case.put(b"older")
    case.clock.now_ms += 30_000
    case.accumulator.tick(case.clock.now_ms)
    younger = case.put(b"younger")
    case.carriers[G1].usable, case.carriers[G2].usable = False, True
    case.accumulator.remap()
    case.settle()
    case.clock.now_ms += 30_000
    case.accumulator.tick(case.clock.now_ms)
    assert isinstance(older.exception(), Unavailable)
    assert not younger.done()


async def test_silence_of_a_group_names_the_next_step() -> None:
    case = Case()
    sent = case.put(b"sent")
    buffer = case.buffer(G1)
    buffer.depart(buffer.pending.popleft())
    case.clock.now_ms += 1_000_000
    case.accumulator.tick(case.clock.now_ms)
    text = str(sent.exception())
    assert text.startswith("group g1 queue 0 did not confirm in time (no answer: see `fmq status`)")


async def test_close_reports_in_flight_unknown_and_the_rest_not_stored() -> None:
    case = Case()
    sent = case.put(b"sent")
    buffer = case.buffer(G1)
    buffer.depart(buffer.pending.popleft())
    buffer.open = None
    waits = case.put(b"waits")
    case.accumulator.close()
    assert isinstance(sent.exception(), DeliveryUnknown)
    assert isinstance(waits.exception(), Unavailable)


async def test_moved_records_keep_their_age_across_batches() -> None:
    """Its deadline and, if requested, its creation time."""
    case = Case(delivery_timeout_s=60, max_batch_records=3, born_time=True)
    before_ms = case.clock.wall_ms()
    for _ in range(8):
        case.put(b"v")
    deadlines = {pending_batch.deadline_ms for pending_batch in case.buffer(G1).pending}
    after_ms = case.clock.wall_ms()
    case.clock.now_ms += 30_000
    case.clock.ahead_ms = 30_000
    case.carriers[G1].usable, case.carriers[G2].usable = False, True
    case.accumulator.remap()
    case.settle()
    moved = case.buffer(G2).pending
    assert [len(pending_batch.records) for pending_batch in moved] == [3, 3, 2]
    assert {pending_batch.deadline_ms for pending_batch in moved} == deadlines
    assert all(before_ms <= pending_batch.born_ms <= after_ms for pending_batch in moved)


def end_by_deadline(case: Case) -> None:
    case.clock.now_ms += 60_000
    case.accumulator.tick(case.clock.now_ms)


def end_by_closing(case: Case) -> None:
    case.accumulator.close()


def end_by_deletion(case: Case) -> None:
    case.accumulator.forget(case.topic, UnknownTopic("deleted"))


def end_by_routes(case: Case) -> None:
    """The topic has no group that takes messages any more."""
    case.accumulator.set_config(case.topic, replace(ORDERS, groups=(TopicGroup(G1, 1, 0),)))
    case.settle()


def end_by_refusal(case: Case) -> None:
    """The next broker refuses it for good."""
    buffer = case.buffer(G1)
    batch = buffer.depart(buffer.pending.popleft())
    buffer.dropped(batch)
    case.accumulator.fail((batch,), BadCrc("bad"))


@pytest.mark.parametrize("doubtful", [True, False])
@pytest.mark.parametrize(
    "end", [end_by_deadline, end_by_closing, end_by_deletion, end_by_routes, end_by_refusal]
)
async def test_doubtful_batch_ends_as_unknown_however_it_ends(
    end: Callable[[Case], None], doubtful: bool
) -> None:
    case = Case(delivery_timeout_s=60)
    future = case.put(b"a")
    (batch,) = case.buffer(G1).pending
    batch.doubtful = doubtful
    end(case)
    assert isinstance(future.exception(), DeliveryUnknown) is doubtful


async def test_doubt_moves_with_its_records_and_with_no_other() -> None:
    case = Case(delivery_timeout_s=60)
    doubtful = case.put(b"doubtful")
    (batch,) = case.buffer(G1).pending
    batch.doubtful, case.buffer(G1).open = True, None
    certain = case.put(b"certain")
    case.carriers[G1].usable, case.carriers[G2].usable = False, True
    case.accumulator.remap()
    case.settle()
    later = case.put(b"later")
    assert len(case.buffer(G2).pending) == 3
    end_by_deadline(case)
    assert isinstance(doubtful.exception(), DeliveryUnknown)
    assert type(certain.exception()) is Unavailable
    assert type(later.exception()) is Unavailable


async def test_doubtful_batch_that_is_stored_in_the_end_is_ok() -> None:
    case = Case()
    future = case.put(b"a")
    buffer = case.buffer(G1)
    buffer.pending[0].doubtful = True
    batch = buffer.depart(buffer.pending.popleft())
    buffer.accepted(batch)
    resolve(batch.records, G1, 0, 7)
    assert future.result() == SendResult(G1, 0, Offset(7))


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (None, Unavailable),
        (TooLarge("that one was"), Unavailable),
        (NoPermission("not the master"), Unavailable),
        (NotEnoughReplicas("one of two"), NotEnoughReplicas),
        (StorageFull("no space"), StorageFull),
        (Overloaded("later"), Overloaded),
    ],
)
async def test_timed_out_waiter_gets_no_outcome_of_another(
    refusal: FmqError | None, expected: type[FmqError]
) -> None:
    case = Case(delivery_timeout_s=60)
    future = case.put(b"a")
    case.carriers[G1].error = refusal
    case.clock.now_ms += 60_000
    case.accumulator.tick(case.clock.now_ms)
    assert type(future.exception()) is expected
