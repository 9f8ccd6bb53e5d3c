"""Commit tokens alone (L7): the acks a token covers, and the waiters its answer wakes."""

from types import SimpleNamespace

import pytest

from fmqclient.consumer.ack_tracker import Track
from fmqclient.consumer.commits import TOKEN_EVERY_MS, Commits
from fmqcore.errors import StaleAssignment, Unavailable

E = 1


def commits_at(now_ms: int = 0) -> tuple[Commits, SimpleNamespace]:
    clock = SimpleNamespace(now_ms=now_ms)
    clock.monotonic_ms = lambda: clock.now_ms
    return Commits(clock), clock


def said(*offsets: int, track: Track | None = None) -> Track:
    """Make acks and send them to the broker."""
    if track is None:
        track = Track("g1", 0)
        track.assigned(1)
    for offset in offsets:
        track.ack(offset, track.term, E)
    track.take_fresh()
    return track


async def test_one_commit_token_covers_all_acks_sent_before_it() -> None:
    commits, _ = commits_at()
    track = said(0)
    first = commits.wait()
    assert commits.wanted([track], now=False)
    token = commits.next([track])
    said(1, track=track)
    second = commits.wait()
    assert not commits.wanted([track], now=True), "its answer would be taken for both"
    commits.answered(token, [track])
    assert first.done()
    assert not second.done()
    assert not track.is_done(0, track.term, E), "stored: forgotten"
    assert track.is_done(1, track.term, E)
    assert commits.wanted([track], now=False)
    commits.answered(commits.next([track]), [track])
    assert second.done()
    commits.again()
    assert not commits.waiting, "who was answered asks for no more"


async def test_waiting_commit_reports_lost_acks_once() -> None:
    commits, _ = commits_at()
    track = said(0)
    waiters = [commits.wait(), commits.wait()]
    waiters[0].cancel()
    token = commits.next([track])
    waiters += [commits.wait(), commits.wait()]
    waiters[2].cancel()
    track.came_too_late(1)
    track.session_lost()
    commits.answered(token, [track])
    for waiter in (waiters[1], waiters[3]):  # whichever of them made those acks
        with pytest.raises(StaleAssignment, match="g1/0"):
            waiter.result()
    assert not commits.waiting, "nobody waits any more"
    later = commits.wait()
    commits.answered(commits.next([track]), [track])
    assert later.result() is None, "once"


async def test_lost_acks_are_reported_to_the_next_commit() -> None:
    """The token was requested by itself: no caller waits for a report."""
    commits, _ = commits_at()
    track = said(0)
    token = commits.next([track])
    track.came_too_late(1)
    track.session_lost()
    commits.answered(token, [track])
    later = commits.wait()
    commits.answered(commits.next([track]), [track])
    with pytest.raises(StaleAssignment, match="g1/0"):
        later.result()


async def test_commit_token_is_sent_periodically_for_new_acks() -> None:
    commits, clock = commits_at(TOKEN_EVERY_MS)
    track = said()
    assert not commits.wanted([track], now=False)
    said(0, track=track)
    assert commits.wanted([track], now=False)
    commits.answered(commits.next([track]), [track])
    said(1, track=track)
    assert not commits.wanted([track], now=False)
    clock.now_ms += TOKEN_EVERY_MS
    assert commits.wanted([track], now=False)


async def test_waiting_commit_survives_a_lost_stream() -> None:
    commits, _ = commits_at()
    track = said(0)
    waiter = commits.wait()
    commits.next([track])
    commits.stream_lost()
    assert not waiter.done()
    assert commits.wanted([track], now=False), "the next stream is asked"
    commits.answered(commits.next([track]), [track])
    assert waiter.done()


async def test_commit_on_an_ended_consumer_fails_at_once() -> None:
    commits, _ = commits_at()
    before = commits.wait()
    commits.give_up(Unavailable("ended"))
    for waiter in (before, commits.wait()):
        assert waiter.done()
        assert isinstance(waiter.exception(), Unavailable)
