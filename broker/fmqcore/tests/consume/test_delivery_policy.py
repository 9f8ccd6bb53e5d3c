"""A delivery policy that gives up, planted in a queue's progress."""

import pytest

from fmqcore.consume.delivery_policy import (
    Cause,
    RedeliverAt,
    Removal,
    Removed,
    Returned,
    Verdict,
    redeliver,
)
from fmqcore.consume.in_flight import Lease, QueueProgress
from fmqcore.ids import Offset

NOW_MS, TIMEOUT_MS, BACKOFF_MS = 1000, 30, 500


def at(first: int, end: int) -> tuple[Offset, Offset]:
    return Offset(first), Offset(end)


class Patience:
    """Gives up after two deliveries; backs off after a lost holder."""

    def __init__(self, removal: Removal) -> None:
        self.removal = removal
        self.returned: list[Returned] = []

    def __call__(self, returned: Returned) -> Verdict:
        self.returned.append(returned)
        if returned.deliveries >= 2:
            return self.removal
        if returned.cause is Cause.HOLDER_GONE:
            return RedeliverAt(returned.now_ms + BACKOFF_MS)
        return redeliver(returned)


def leased(policy: Patience, end: int = 10) -> QueueProgress:
    progress = QueueProgress(Offset(0), policy=policy)
    progress.lease(*at(0, end), NOW_MS + TIMEOUT_MS)
    return progress


def again(progress: QueueProgress) -> list[Lease]:
    found = progress.lease(*at(0, 10), NOW_MS + TIMEOUT_MS)
    progress.check()
    return found


def test_each_way_back_asks_the_policy_with_its_cause() -> None:
    policy = Patience(Removal.DROP)
    progress = leased(policy)
    progress.unlease(*at(0, 2), NOW_MS)
    progress.nack(*at(2, 4), NOW_MS + 7, NOW_MS)
    progress.note_handed_over(*at(4, 6))
    progress.ack(*at(4, 6))
    assert progress.expire(NOW_MS + TIMEOUT_MS)
    again(progress)
    progress.session_gone(NOW_MS + 40)
    found = [(r.first, r.end, r.cause, r.now_ms, r.not_before_ms) for r in policy.returned]
    late_ms, gone_ms = NOW_MS + TIMEOUT_MS, NOW_MS + 40
    assert found == [
        (0, 2, Cause.UNSENT, NOW_MS, 0),
        (2, 4, Cause.NACKED, NOW_MS, NOW_MS + 7),
        (6, 10, Cause.OVERDUE, late_ms, 0),
        (0, 2, Cause.HOLDER_GONE, gone_ms, 0),
        (2, 4, Cause.HOLDER_GONE, gone_ms, 0),
        (6, 10, Cause.HOLDER_GONE, gone_ms, 0),
    ]
    assert [r.deliveries for r in policy.returned] == [0, 1, 1, 1, 2, 2]


def test_a_dropped_range_is_done_and_reported_once() -> None:
    progress = leased(Patience(Removal.DROP))
    progress.nack(*at(0, 4), 0, NOW_MS)
    again(progress)
    progress.nack(*at(0, 4), 0, NOW_MS)
    progress.check()
    assert (progress.floor, progress.waiting_records) == (4, 0)
    assert progress.take_removed() == [Removed(*at(0, 4), 2, Removal.DROP)]
    assert progress.take_removed() == []


def test_a_dead_letter_waits_for_the_ack_of_its_copy() -> None:
    progress = leased(Patience(Removal.DEAD_LETTER))
    progress.nack(*at(0, 4), 0, NOW_MS)
    again(progress)
    progress.nack(*at(0, 4), 0, NOW_MS)
    assert again(progress) == []
    assert not progress.expire(NOW_MS + 1)
    progress.ack(*at(4, 10))
    assert (progress.floor, progress.acked) == (0, (at(4, 10),)), "a restart delivers it again"
    (removed,) = progress.take_removed()
    assert progress.ack(removed.first, removed.end)
    progress.check()
    assert progress.floor == 10


@pytest.mark.parametrize("way", ["seek", "retention"])
def test_a_dead_letter_goes_with_a_seek_or_retention(way: str) -> None:
    progress = leased(Patience(Removal.DEAD_LETTER))
    progress.nack(*at(0, 4), 0, NOW_MS)
    again(progress)
    progress.nack(*at(0, 4), 0, NOW_MS)
    if way == "seek":
        progress.seek(Offset(2))
    else:
        progress.skip_to(Offset(10))
    progress.check()
    assert progress.floor == (2 if way == "seek" else 10)


def test_a_back_off_wakes_its_queue_in_time() -> None:
    progress = QueueProgress(Offset(0), policy=Patience(Removal.DROP))
    progress.lease(*at(0, 10), NOW_MS + 10 * BACKOFF_MS)
    progress.session_gone(NOW_MS)
    assert again(progress) == []
    assert progress.wake_ms <= NOW_MS + BACKOFF_MS
    assert not progress.expire(NOW_MS + BACKOFF_MS - 1)
    assert progress.expire(NOW_MS + BACKOFF_MS)
    assert again(progress) == [Lease(*at(0, 10), 2)]
