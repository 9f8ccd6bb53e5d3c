"""What counts as a delivery: a hand-over to a program, not a copy in a consumer's buffer."""

from fmqcore.consume.in_flight import Lease, QueueProgress
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


def test_a_lost_session_counts_what_its_program_got() -> None:
    progress = leased()
    progress.handed(*at(0, 3))
    progress.session_gone()
    assert again(progress) == [Lease(*at(0, 3), 2), Lease(*at(3, 10), 1)]


def test_a_buffered_copy_given_back_does_not_count() -> None:
    progress = leased()
    progress.nack(*at(0, 4), 0, 0, unseen=True)
    progress.nack(*at(4, 10), 0, 0)
    assert again(progress) == [Lease(*at(0, 4), 1), Lease(*at(4, 10), 2)]


def test_an_overdue_copy_counts_only_if_seen() -> None:
    progress = leased()
    progress.handed(*at(5, 10))
    assert progress.expire(LATER)
    assert again(progress) == [Lease(*at(0, 5), 1), Lease(*at(5, 10), 2)]


def test_each_hand_over_counts_once() -> None:
    progress = leased(1)
    counts = []
    for _ in range(3):
        progress.handed(*at(0, 1))
        progress.session_gone()
        counts += [lease.deliveries for lease in again(progress, 1)]
    assert counts == [2, 3, 4]


def test_what_was_acked_is_not_handed_again() -> None:
    progress = leased()
    progress.ack(*at(0, 6))
    progress.handed(*at(0, 10))
    progress.check()
    assert (progress.floor, progress.in_flight_records) == (6, 4)


def test_a_holder_that_reports_nothing_counts_each_lease() -> None:
    """A client of an earlier version."""
    progress = QueueProgress(Offset(0))
    progress.lease(*at(0, 2), LATER)
    progress.session_gone()
    assert again(progress, 2) == [Lease(*at(0, 2), 2)]
