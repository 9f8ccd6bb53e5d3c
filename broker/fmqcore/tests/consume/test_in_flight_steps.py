"""A queue's progress in steps that the random `consume/test_in_flight.py` seldom meets."""

from fmqcore.consume.in_flight import Lease, QueueProgress
from fmqcore.ids import Offset

O = Offset  # noqa: E741


def leased(up_to: int) -> QueueProgress:
    """Return progress with everything below `up_to` in flight, as one range."""
    progress = QueueProgress(O(0))
    assert progress.peek(O(up_to)) == (0, up_to)
    progress.lease(O(0), O(up_to), 100)
    return progress


def test_each_seek_has_a_version_above_the_previous() -> None:
    """A consumer that was away learns from it that its earlier acks are void."""
    progress = QueueProgress(O(0), seek_number=5)
    for reported, becomes in ((9, 9), (7, 10), (10, 11), (0, 12), (99, 99)):
        progress.seek(O(3), reported)
        assert progress.seek_number == becomes


def test_each_nack_delay_is_waited_for() -> None:
    """Otherwise a nacked record waits until something else is due: in a queue at rest, for ever."""
    progress = leased(4)
    progress.nack(O(0), O(1), 50, 0)
    progress.nack(O(1), O(2), 90, 0)
    progress.ack(O(2), O(4))
    assert progress.expire(50)
    assert progress.wake_ms == 90
    assert progress.expire(90)
    assert progress.peek(O(4)) == (0, 1)
    assert progress.waiting_records == 2


def test_retention_reports_unacked_records() -> None:
    progress = leased(10)
    progress.ack(O(3), O(5))
    assert progress.skip_to(O(8)) == [(0, 3), (5, 8)]
    assert progress.skip_to(O(8)) == []
    assert progress.skip_to(O(4)) == []
    assert progress.skip_to(O(20)) == [(8, 20)], "nor what was never delivered"
    assert (progress.floor, progress.next, progress.in_flight_records) == (20, 20, 0)


def test_retention_up_to_acked_ranges_raises_the_floor() -> None:
    for begins in (5, 6):
        progress = leased(10)
        progress.ack(O(5), O(8))
        assert progress.skip_to(O(begins)) == [(0, 5)]
        assert (progress.floor, progress.acked) == (8, ())
        progress.check()


def test_redelivery_stops_at_the_commit_end() -> None:
    """C4: a new reader's commit end may be lower than what its consumers have seen."""
    progress = leased(10)
    progress.session_gone(0)
    assert progress.peek(O(4)) == (0, 4)
    assert progress.peek(O(0)) is None
    progress.ack(O(0), O(6))
    assert progress.peek(O(6)) is None
    assert progress.peek(O(7)) == (6, 7)


def test_leased_but_unsent_records_are_not_counted() -> None:
    progress = leased(4)
    progress.unlease(O(2), O(4), 0)
    assert progress.lease(O(2), O(4), 100) == [Lease(O(2), O(4), 1)]
    progress.nack(O(2), O(4), 0, 0)
    progress.lease(O(2), O(4), 100)
    progress.unlease(O(2), O(4), 0)
    assert progress.lease(O(2), O(4), 100) == [Lease(O(2), O(4), 2)]


def test_ack_of_returned_record_counts_before_and_after_delay() -> None:
    for now in (10, 50):
        progress = leased(4)
        progress.nack(O(1), O(3), 50, 0)
        progress.expire(now)
        assert progress.ack(O(0), O(4))
        assert (progress.floor, progress.waiting_records) == (4, 0)
        assert progress.peek(O(4)) is None
        progress.check()
