"""What a sender is sent about the chain, and how long a report counts. Without I/O."""

from dataclasses import replace

import pytest

from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.tests.ordered_harness import G1, G2, chain, topic
from fmqcore.errors import Malformed, SenderFenced
from fmqcore.ordered.evidence import SenderReport
from fmqcore.ordered.senders import Standing
from fmqcore.zk.chain import Segment, Sender
from fmqproto.v1.client_pb2 import SenderReport as Report

T = topic()
A, B = "one-a1", "two-b1"
AT_A, AT_B = f"{A}-c1-0000000000", f"{B}-d1-0000000001"
EMPTY = chain(T)
OPEN = replace(EMPTY, segments=(Segment(1, G1, 1, (1,), (5,)),), sender=Sender(A, 1))
CLOSING = replace(OPEN, closing="g1 lacks g1-1")
MOVED = replace(OPEN, segments=(replace(OPEN.segments[0], end=(9,)), Segment(2, G2, 1, (4,), (0,))))
FENCED = replace(
    OPEN,
    segments=(replace(OPEN.segments[0], end=(9,)), Segment(2, G2, 2, (5,), (0,))),
    sender=Sender(B, 2),
)


def standing(place: str = AT_A) -> SenderStanding:
    made = SenderStanding(T, EMPTY, place)
    made.adopt(EMPTY, (AT_A, AT_B))
    return made


def test_states_from_the_first_segment_to_the_next() -> None:
    sender = standing()
    state = sender.state()
    assert (state.active, state.chain_segment, state.sender_epoch) == (False, 0, 0)
    sender.adopt(OPEN, (AT_A, AT_B))
    state = sender.state()
    assert (state.active, state.chain_segment, state.group) == (True, 1, "g1")
    assert (dict(state.first_sequence), state.reason) == ({0: 1}, "")
    sender.adopt(CLOSING, (AT_A, AT_B))
    assert sender.state().closing_reason == sender.state().reason == "g1 lacks g1-1"
    sender.deciding = "waits for g1 to give the end of segment 1"
    assert sender.state().reason == "waits for g1 to give the end of segment 1"
    sender.adopt(MOVED, (AT_A, AT_B))
    state = sender.state()
    assert (state.chain_segment, state.closing_reason, state.reason) == (2, "", "")
    assert dict(state.first_sequence) == {0: 4}


def test_sender_in_line_learns_for_whom_it_waits_and_no_place() -> None:
    sender = standing(AT_B)
    sender.adopt(OPEN, (AT_A, AT_B))
    state = sender.state()
    assert state.reason == f"sender {A} is first in line, 1 before this one"
    assert (state.active, dict(state.first_sequence)) == (False, {})
    for line in ((), (AT_A,)):
        sender.adopt(OPEN, line)
        assert sender.state().reason == "its place in the line is gone"


def test_report_counts_for_one_closing_only() -> None:
    sender = standing()
    sender.adopt(CLOSING, (AT_A, AT_B))
    sender.note_report(Report(chain_segment=1, first_unacked={0: 4}))
    assert sender.report == SenderReport(A, 1, (4,))
    sender.adopt(CLOSING, (AT_A,))
    assert sender.report is not None
    sender.adopt(MOVED, (AT_A, AT_B))
    assert sender.report is None


def test_report_without_a_queue_is_refused() -> None:
    sender = standing()
    with pytest.raises(Malformed, match="names queues \\[\\]: topic changes-1 has queues 0 to 0"):
        sender.note_report(Report(chain_segment=1))
    assert sender.report is None


def test_sender_that_another_replaced_is_fenced() -> None:
    sender = standing()
    sender.adopt(OPEN, (AT_A, AT_B))
    sender.require_place()
    sender.adopt(FENCED, (AT_B,))
    assert sender.standing is Standing.FENCED
    with pytest.raises(SenderFenced, match="is active in changes-1 with epoch 2, this one had 1"):
        sender.require_place()
    state = sender.state()  # asked for before its session has ended
    assert (state.active, state.reason) == (False, f"sender {B} has taken over the role")


AGAIN = f"{A}-e1-0000000002"
"""The place that sender A took at another broker, behind B."""


def test_sender_without_its_broker_keeps_the_role_elsewhere() -> None:
    again = standing(AGAIN)
    for places, watched in (((AT_A, AT_B, AGAIN), (AT_A,)), ((AT_B, AGAIN), ())):
        again.adopt(OPEN, places)
        assert (again.standing, again.epoch, again.line) == (Standing.ACTIVE, 1, (A, B))
        assert again.places_to_watch() == watched
    lost = standing(AT_A)
    lost.adopt(OPEN, (AT_B, AGAIN))
    assert lost.standing is Standing.LOST, "its own node is gone: that session ends"


def test_waiter_watches_the_oldest_place_of_the_sender_before_it() -> None:
    waiter = standing(AT_B)
    waiter.adopt(OPEN, (AT_A, AT_B, AGAIN))
    assert waiter.places_to_watch() == (AT_A,)
    waiter.adopt(OPEN, (AT_B,))
    assert (waiter.standing, waiter.places_to_watch()) == (Standing.NEXT, ())


def test_waiter_that_moves_watches_its_own_older_place() -> None:
    """When that goes, it moves behind others: its count of those before it changes."""
    moved = standing(f"{B}-d2-0000000003")
    moved.adopt(OPEN, (AT_A, AT_B, moved.place))
    assert moved.places_to_watch() == (AT_A, AT_B)
    moved.adopt(OPEN, (AT_A, moved.place))
    assert moved.places_to_watch() == (AT_A,)


def test_waiters_that_move_at_once_never_wait_for_each_other() -> None:
    """A broker that stops moves all its senders: the order of their new places may be another."""
    third = "three-e1"
    moved = [f"{third}-e2-0000000003", f"{third}-e3-0000000004", f"{B}-d2-0000000005"]
    both = [AT_A, AT_B, *moved]
    waiting = [standing(moved[1]), standing(moved[2])]
    for waiter in waiting:
        waiter.adopt(OPEN, tuple(both))
    watched = [waiter.places_to_watch()[0] for waiter in waiting]
    left = (moved[1], moved[2])  # their earlier places go, and so does the active sender
    woken = [w for w, place in zip(waiting, watched, strict=True) if place not in left]
    for waiter in woken:
        waiter.adopt(OPEN, left)
    assert [w.id for w in woken if w.standing is Standing.NEXT] == [third]


def test_sender_whose_role_another_took_waits_in_its_new_place() -> None:
    again = standing(AGAIN)
    again.adopt(FENCED, (AT_B, AGAIN))
    assert (again.standing, again.epoch) == (Standing.WAITING, 0)
