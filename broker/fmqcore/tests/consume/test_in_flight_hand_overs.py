"""A delivery is a hand-over to a program, not a copy in a consumer's buffer."""

from fmqcore.consume.in_flight import Lease, Limits, QueueProgress
from fmqcore.ids import Offset

LATER = 1000


def at(first: int, end: int) -> tuple[Offset, Offset]:
    return Offset(first), Offset(end)


def leased(end: int = 10, number: int = 1) -> QueueProgress:
    progress = QueueProgress(Offset(0))
    progress.lease(*at(0, end), LATER, seen=False, number=number)
    return progress


def again(progress: QueueProgress, end: int = 10) -> list[Lease]:
    return progress.lease(*at(0, end), 2 * LATER, seen=False, number=9)


def test_lost_session_counts_handed_over_records() -> None:
    progress = leased()
    progress.note_handed_over(*at(0, 3))
    progress.session_gone(0)
    assert again(progress) == [Lease(*at(0, 3), 2), Lease(*at(3, 10), 1)]


def test_a_buffered_copy_given_back_does_not_count() -> None:
    progress = leased()
    progress.nack(*at(0, 4), 0, 0, unseen=True)
    progress.nack(*at(4, 10), 0, 0)
    assert again(progress) == [Lease(*at(0, 4), 1), Lease(*at(4, 10), 2)]


def test_an_overdue_copy_counts_only_if_seen() -> None:
    progress = leased()
    progress.note_handed_over(*at(5, 10))
    assert progress.expire(LATER)
    assert again(progress) == [Lease(*at(0, 5), 1), Lease(*at(5, 10), 2)]


def test_each_hand_over_counts_once() -> None:
    progress = leased(1)
    counts = []
    for _ in range(3):
        progress.note_handed_over(*at(0, 1))
        progress.session_gone(0)
        counts += [lease.deliveries for lease in again(progress, 1)]
    assert counts == [2, 3, 4]


def test_acked_records_are_not_redelivered() -> None:
    progress = leased()
    progress.ack(*at(0, 6))
    progress.note_handed_over(*at(0, 10))
    progress.check()
    assert (progress.floor, progress.in_flight_records) == (6, 4)


def test_a_holder_that_reports_nothing_counts_each_lease() -> None:
    """A client of an earlier version."""
    progress = QueueProgress(Offset(0))
    progress.lease(*at(0, 2), LATER)
    progress.session_gone(0)
    assert again(progress, 2) == [Lease(*at(0, 2), 2)]


def test_buffered_part_of_a_holder_begins_with_its_oldest_lease() -> None:
    """The broker gives up on a holder that does not hand over what it got first."""
    progress = leased(4, number=7)
    progress.lease(*at(4, 8), LATER, seen=False, number=3)
    assert progress.first_unseen() == (3, 4)
    assert not progress.has_seen
    progress.note_handed_over(*at(0, 6))
    assert progress.has_seen
    assert progress.first_unseen() == (3, 6)
    progress.note_handed_over(*at(6, 8))
    assert progress.first_unseen() is None
    progress.ack(*at(0, 8))
    assert not progress.has_seen


def test_one_entry_stores_all_that_is_acked_above_the_floor() -> None:
    """More would be called stored and be lost; what raises the floor counts always."""
    progress = QueueProgress(Offset(0), limits=Limits(most_acked=2))
    progress.lease(*at(0, 10), LATER)
    assert progress.ack(*at(1, 2))
    assert not progress.is_full
    assert progress.ack(*at(3, 4))
    assert progress.is_full
    assert not progress.ack(*at(5, 6))
    assert progress.acked == (at(1, 2), at(3, 4))
    assert progress.ack(*at(0, 1))
    assert (progress.floor, progress.is_full) == (2, False)
    assert progress.ack(*at(5, 6))
    progress.check()
