"""Commit tokens alone (L7): the acks a token covers, and the waiters its answer wakes."""

from types import SimpleNamespace

import pytest

from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.commits import TOKEN_EVERY_MS, Commits
from fmqcore.errors import StaleAssignment, Unavailable

E = 1


def commits_at(now_ms: int = 0) -> tuple[Commits, SimpleNamespace]:
    clock = SimpleNamespace(now_ms=now_ms)
    clock.monotonic_ms = lambda: clock.now_ms
    return Commits(clock), clock


def sent_acks(*offsets: int, tracker: AckTracker | None = None) -> AckTracker:
    """Make acks and send them to the broker."""
    if tracker is None:
        tracker = AckTracker("g1", 0)
        tracker.assigned(1)
    for offset in offsets:
        tracker.ack(offset, tracker.term, E)
    tracker.take_fresh()
    return tracker


async def test_one_commit_token_covers_all_acks_sent_before_it() -> None:
    commits, _ = commits_at()
    tracker = sent_acks(0)
    first = commits.wait()
    assert commits.wanted([tracker], now=False)
    token = commits.next([tracker])
    sent_acks(1, tracker=tracker)
    second = commits.wait()
    assert not commits.wanted([tracker], now=True), "its answer would be taken for both"
    commits.answered(token, [tracker])
    assert first.done()
    assert not second.done()
    assert not tracker.is_done(0, tracker.term, E), "stored: forgotten"
    assert tracker.is_done(1, tracker.term, E)
    assert commits.wanted([tracker], now=False)
    commits.answered(commits.next([tracker]), [tracker])
    assert second.done()
    commits.again()
    assert not commits.waiting, "who was answered asks for no more"


async def test_waiting_commit_reports_lost_acks_once() -> None:
    commits, _ = commits_at()
    tracker = sent_acks(0)
    waiters = [commits.wait(), commits.wait()]
    waiters[0].cancel()
    token = commits.next([tracker])
    waiters += [commits.wait(), commits.wait()]
    waiters[2].cancel()
    tracker.came_too_late(1)
    tracker.session_lost()
    commits.answered(token, [tracker])
    for waiter in (waiters[1], waiters[3]):  # whichever of them made those acks
        with pytest.raises(StaleAssignment, match="g1/0"):
            waiter.result()
    assert not commits.waiting, "no caller waits any more"
    later = commits.wait()
    commits.answered(commits.next([tracker]), [tracker])
    assert later.result() is None, "once"


async def test_lost_acks_are_reported_to_the_next_commit() -> None:
    """The token was requested by itself: no caller waits for a report."""
    commits, _ = commits_at()
    tracker = sent_acks(0)
    token = commits.next([tracker])
    tracker.came_too_late(1)
    tracker.session_lost()
    commits.answered(token, [tracker])
    later = commits.wait()
    commits.answered(commits.next([tracker]), [tracker])
    with pytest.raises(StaleAssignment, match="g1/0"):
        later.result()


async def test_commit_token_is_sent_periodically_for_new_acks() -> None:
    commits, clock = commits_at(TOKEN_EVERY_MS)
    tracker = sent_acks()
    assert not commits.wanted([tracker], now=False)
    sent_acks(0, tracker=tracker)
    assert commits.wanted([tracker], now=False)
    commits.answered(commits.next([tracker]), [tracker])
    sent_acks(1, tracker=tracker)
    assert not commits.wanted([tracker], now=False)
    clock.now_ms += TOKEN_EVERY_MS
    assert commits.wanted([tracker], now=False)


async def test_waiting_commit_survives_a_lost_stream() -> None:
    commits, _ = commits_at()
    tracker = sent_acks(0)
    waiter = commits.wait()
    commits.next([tracker])
    commits.stream_lost()
    assert not waiter.done()
    assert commits.wanted([tracker], now=False), "the next stream is asked"
    commits.answered(commits.next([tracker]), [tracker])
    assert waiter.done()


async def test_commit_on_an_ended_consumer_fails_at_once() -> None:
    commits, _ = commits_at()
    before = commits.wait()
    commits.give_up(Unavailable("ended"))
    for waiter in (before, commits.wait()):
        assert waiter.done()
        assert isinstance(waiter.exception(), Unavailable)
