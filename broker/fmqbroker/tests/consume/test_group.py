"""A consumer group in memory: notices to its sessions, and the timers that drive it."""

import asyncio
from functools import partial
from typing import Any

from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.service import FetchService
from fmqbroker.consume.session import Session
from fmqbroker.runtime.timers import Timers
from fmqbroker.tests.consume_harness import HandClock, until
from fmqcore.consume.delivery_policy import Removal
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.ids import Epoch, Offset, TopicId
from fmqproto.v1 import client_pb2

DRAIN_MS = 100
END = Offset(10)


def group_of(queues: int = 4, newest: int = 1) -> ConsumerGroup:
    progress = [QueueProgress(Offset(0)) for _ in range(queues)]
    journal = (lambda _t, _q: END), (lambda: Epoch(newest))
    return ConsumerGroup("billing", "orders", TopicId(1), progress, DRAIN_MS, *journal)


def session_of(name: str) -> Session:
    return Session(name, "test", 1000, 0, lambda: None)


def reported(session: Session) -> tuple[list[int], list[int]]:
    """Return (assigned, revoked) queues as the next message would name them, then forget them."""
    revoked, assigned = session.take_moves()
    return [m.queue_id for m, *_ in assigned], [m.queue_id for m in revoked]


def deliver(group: ConsumerGroup, queue: int) -> None:
    want = group.progress[queue].peek(END)
    assert want is not None
    group.progress[queue].lease(*want, 1000)


def test_older_stream_of_a_session_ends_without_releasing_queues() -> None:
    """The consumer dialled again; the network drops the old stream much later."""
    group, old, new = group_of(), session_of("a"), session_of("a")
    group.join(old, 0)
    assert group.join(new, 0) is old
    assert reported(new) == ([0, 1, 2, 3], [])
    group.leave(old, 0)
    assert [group.holder(queue) for queue in range(4)] == [new] * 4
    assert all(group.delivering(new, queue) for queue in range(4))


def test_what_the_delivery_policy_drops_is_stored_as_done() -> None:
    """Whichever way it comes back: overdue, given back, unsent, or with a lost session."""
    for way in ("overdue", "nack", "unsent", "left"):
        group, session = group_of(1), session_of("a")
        group.progress[0] = QueueProgress(Offset(0), policy=lambda _: Removal.DROP)
        group.join(session, 0)
        generation = group.delivering(session, 0)
        deliver(group, 0)
        assert not group.dirty
        if way == "overdue":
            group.on_timer(5000)
        elif way == "nack":
            group.nack(session, 0, generation, Offset(0), END, 0, 0)
        elif way == "unsent":
            group.give_back(0, generation, Offset(0), END, 0)
        else:
            group.leave(session, 0)
        assert (list(group.dirty), group.progress[0].floor) == ([0], END), way


def test_acks_and_pauses_of_a_departed_member_are_ignored() -> None:
    group, session = group_of(1), session_of("a")
    group.join(session, 0)
    generation = group.delivering(session, 0)
    deliver(group, 0)
    group.leave(session, 0)
    group.ack(session, 0, generation, Offset(0), END, 0)
    group.pause(session, 0, generation, paused=True)
    assert session.ignored == {(0, generation)}
    assert group.progress[0].floor == 0
    other = session_of("b")
    group.join(other, 0)
    assert group.delivering(other, 0), "it was not paused for whoever comes next"


def test_queue_lost_before_its_notice_is_not_announced() -> None:
    group, a, b = group_of(), session_of("a"), session_of("b")
    group.join(a, 0)
    group.join(b, 0)
    assert reported(a) == ([0, 1], [])
    assert reported(b) == ([2, 3], [])
    assert sorted(a.ready) == [0, 1]
    group.leave(b, 0)
    assert reported(a) == ([2, 3], [])
    group.seek(0, Offset(3), 0)
    group.seek(0, Offset(5), 0)
    ((move, begins, seek_number),) = a.assigned.values()
    assert (move.queue_id, move.generation, begins, seek_number) == (0, 3, 5, 2)


def test_queue_lost_before_its_seek_notice_is_announced_lost() -> None:
    """Otherwise the session keeps the queue for ever and takes uncounted acks for stored."""
    group, a = group_of(2), session_of("a")
    group.join(a, 0)
    assert reported(a) == ([0, 1], [])
    group.seek(1, Offset(3), 0)
    group.join(session_of("b"), 0)
    ((queue, _, generation),) = a.revoked
    assert (queue, generation) == (1, 1), "as it knows it"
    assert reported(a) == ([], [1])


def test_late_ack_is_reported_to_holder_that_regained_the_queue() -> None:
    """It hears neither of the loss nor of the return, so every ack would seem stored."""
    group, a, b = group_of(2), session_of("a"), session_of("b")
    group.join(a, 0)
    assert reported(a) == ([0, 1], [])
    group.join(b, 0)
    assert reported(a) == ([], [1])
    group.leave(b, 0)
    deliver(group, 1)  # in flight, with the notice of the assignment
    group.join(session_of("c"), 0)
    assert reported(a) == ([], [])
    group.ack(a, 1, 1, Offset(0), Offset(1), 0)
    assert a.ignored == {(1, 1)}


def test_notices_are_sent_once() -> None:
    group, a = group_of(2), session_of("a")
    group.join(a, 0)
    reported(a)
    group.join(session_of("b"), 0)
    group.seek(0, Offset(3), 0)
    a.tokens, a.skipped, a.ignored = [7], [(0, (Offset(1), Offset(3)))], {(1, 1)}
    service: Any = None
    replies = [client_pb2.ConsumeReply(), client_pb2.ConsumeReply()]
    for reply in replies:
        FetchService._add_news(service, a, reply)
    assert [(m.queue_id, m.generation) for m in replies[0].revoked] == [(1, 1)]
    assert [(m.queue_id, m.generation) for m in replies[0].assigned] == [(0, 2)]
    assert [(s.first_offset, s.end_offset) for s in replies[0].skipped] == [(1, 3)]
    assert [(m.queue_id, m.generation) for m in replies[0].stale_assignments] == [(1, 1)]
    assert list(replies[0].committed_tokens) == [7]
    assert replies[1] == client_pb2.ConsumeReply()
    assert not a.has_news


def test_ack_of_older_epoch_does_not_count_for_later_epoch() -> None:
    group, a = group_of(1, newest=4), session_of("a")
    group.epoch_ends[0, 1] = Offset(3)
    group.join(a, 0)
    group.ack(a, 0, 1, Offset(0), Offset(5), 0, 1)
    assert (group.progress[0].floor, group.progress[0].next) == (3, 3)
    group.ack(a, 0, 1, Offset(3), Offset(5), 0, 1)
    assert group.progress[0].floor == 3
    deliver(group, 0)
    group.ack(a, 0, 1, Offset(3), Offset(4), 0, 1)
    assert group.progress[0].floor == 3, "delivered or not"
    group.ack(a, 0, 1, Offset(3), Offset(4), 0, 4)
    group.ack(a, 0, 1, Offset(4), Offset(5), 0)
    assert group.progress[0].floor == 5


def test_a_seek_ends_a_drain_at_once() -> None:
    group, a, b = group_of(2), session_of("a"), session_of("b")
    group.join(a, 0)
    deliver(group, 1)
    reported(a)
    group.join(b, 0)
    assert (reported(a), reported(b)) == (([], [1]), ([], []))
    assert group.next_due_ms() == DRAIN_MS
    group.seek(1, Offset(0), 1)
    assert reported(b) == ([1], [])


def test_a_newer_stream_of_the_holder_ends_a_drain() -> None:
    """Its older stream's records are not in flight any more: nothing is left to wait for."""
    group, a, b = group_of(2), session_of("a"), session_of("b")
    group.join(a, 0)
    deliver(group, 0)
    deliver(group, 1)
    reported(a)
    group.join(b, 0)
    assert (reported(a), reported(b)) == (([], [1]), ([], []))
    newer = session_of("a")
    group.join(newer, 1)
    assert (reported(newer), reported(b)) == (([0], []), ([1], []))


def test_pause_lasts_only_for_its_holder() -> None:
    group, a, b = group_of(1), session_of("a"), session_of("b")
    group.join(a, 0)
    group.pause(a, 0, 1, True)
    assert group.delivering(a, 0) == 0
    group.join(b, 0)
    group.leave(a, 0)
    assert group.delivering(b, 0) == 2
    group.pause(a, 0, 1, True)
    assert group.delivering(b, 0) == 2, "what an older generation says is ignored"


def test_returned_lease_counts_for_its_own_generation_only() -> None:
    """A seek came during the disk read, and the same range is in flight a second time."""
    group, a = group_of(1), session_of("a")
    group.join(a, 0)
    deliver(group, 0)
    group.seek(0, Offset(0), 0)
    deliver(group, 0)
    group.give_back(0, 1, Offset(0), END, 0)
    assert group.progress[0].in_flight_records == END
    group.give_back(0, 2, Offset(0), END, 0)
    assert group.progress[0].in_flight_records == 0


async def test_timers_call_in_order_and_wake_for_an_earlier_one() -> None:
    clock, called = HandClock(), []
    timers = Timers(clock)
    start = clock.monotonic_ms()
    running = asyncio.create_task(timers.run())
    timers.at(start + 100, lambda: called.append("late"))
    timers.at(start + 100, lambda: called.append("later"))
    await asyncio.sleep(0)
    timers.at(start + 10, lambda: called.append("early"))
    await until(lambda: clock.sleeps_until(start + 10))
    clock.advance(10)
    await until(lambda: called)
    assert called == ["early"]
    timers.at(start - 5, lambda: called.append("at once"))
    await until(lambda: len(called) == 2 and clock.sleeps_until(start + 100))
    clock.advance(90)
    await until(lambda: len(called) == 4)
    assert called == ["early", "at once", "late", "later"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_many_calls_due_at_once_then_others_have_turns_between() -> None:
    clock, called = HandClock(), list[str]()
    timers = Timers(clock)
    for n in range(3):
        timers.at(clock.monotonic_ms(), partial(called.append, f"call {n}"))
    running = asyncio.create_task(timers.run())
    while "call 2" not in called:
        await asyncio.sleep(0)
        called.append("other")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert called[:5] == ["call 0", "other", "call 1", "other", "call 2"]


async def test_a_call_that_takes_long_then_the_next_one_is_not_late() -> None:
    """The time that the first call took is not waited for again."""
    clock, called = HandClock(), list[str]()
    timers, start = Timers(clock), clock.monotonic_ms()
    timers.at(start, lambda: clock.advance(50))
    timers.at(start + 50, lambda: called.append("next"))
    running = asyncio.create_task(timers.run())
    await until(lambda: called)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
