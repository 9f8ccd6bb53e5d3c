"""What a consumer knows of its progress in one queue (L7), without a broker."""

from fmqclient.track import Track
from fmqcore.words import Offset


def held(begins_at: int = 0) -> Track:
    track = Track("g1", 0)
    track.assigned(1, Offset(begins_at))
    return track


def test_what_is_acked_while_no_session_is_open_is_said_and_not_shown_again() -> None:
    track = held()
    track.ack(0, track.term)
    assert track.take_fresh() == [(0, 1)]
    track.session_lost()
    track.ack(1, track.term)
    track.ack(5, track.term)
    assert track.take_fresh() == [], "nobody listens"
    assert track.unstored
    track.assigned(1, Offset(0))
    assert track.take_fresh() == [(0, 2), (5, 6)]
    assert track.not_done(0, 8, track.term) == [(2, 5), (6, 8)]


def test_what_is_acked_meanwhile_is_void_if_the_group_was_moved_back() -> None:
    track = held(4)
    term = track.term
    track.session_lost()
    track.ack(4, term)
    track.assigned(1, Offset(2))
    assert not track.ack(5, term)
    assert track.take_fresh() == []
    assert track.not_done(2, 8, track.term) == [(2, 8)]


def test_a_copy_is_not_shown_though_the_ack_of_the_first_has_not_been_said_yet() -> None:
    track = held()
    for offset in (0, 1, 4, 7):
        track.ack(offset, track.term)
    assert track.not_done(0, 9, track.term) == [(2, 4), (5, 7), (8, 9)]
    assert track.not_done(2, 4, track.term) == [(2, 4)]
    assert track.take_fresh() == [(0, 2), (4, 5), (7, 8)]
    track.ack(2, track.term)
    assert track.not_done(0, 9, track.term) == [(3, 4), (5, 7), (8, 9)]


def test_acks_that_are_lost_with_the_session_while_the_queue_moves_away_are_told() -> None:
    """Nobody says them again: the next commit must not say that all is stored."""
    track = held()
    track.ack(0, track.term)
    assert track.take_fresh() == [(0, 1)]
    track.taken()
    track.session_lost()
    assert not track.unstored
    assert track.lost_acks


def test_acks_of_a_queue_that_moved_away_are_lost_with_the_session_and_it_is_told() -> None:
    track = held()
    track.ack(0, track.term)
    track.take_fresh()
    track.taken()
    track.session_lost()
    assert track.stale
    track.assigned(2, Offset(0))
    assert track.stale, "it came back, its acks did not"
    assert track.not_done(0, 1, track.term) == [(0, 1)]
    track.told_stale()
    assert not track.stale


def test_acks_not_said_before_a_queue_came_back_are_lost_and_it_is_told() -> None:
    track = held()
    track.ack(0, track.term)
    track.taken()
    track.assigned(2, Offset(0))
    assert track.stale
    said = held()
    said.ack(0, said.term)
    said.take_fresh()
    said.taken()
    said.assigned(2, Offset(1))
    assert not said.stale, "the broker has heard them in time"


def test_acks_that_are_said_again_are_not_lost() -> None:
    track = held()
    track.ack(0, track.term)
    track.take_fresh()
    track.session_lost()
    assert track.stale, "as long as nobody has given the queue back to us"
    track.assigned(1, Offset(0))
    assert not track.stale


def test_acks_that_came_too_late_are_told() -> None:
    track = held()
    track.ack(0, track.term)
    track.take_fresh()
    track.taken()
    track.came_too_late(1)
    assert track.stale
    assert not track.unstored
    assert not track.ack(1, 0), "nor do more of them count"
