"""A consumer's progress in one queue (L7), without a broker."""

import pytest

from fmqclient.consumer.ack_tracker import Track
from fmqcore.batch.offset_entry import next_version
from fmqcore.ids import Epoch

E = 1  # the epoch, where it does not matter


def held() -> Track:
    track = Track("g1", 0)
    track.assigned(1)
    return track


def acked(*offsets: int) -> Track:
    """Hold the queue and ack these; the acks are sent to the broker."""
    track = held()
    for offset in offsets:
        track.ack(offset, track.term, E)
    track.take_fresh()
    return track


def said(track: Track) -> list[tuple[int, int]]:
    """Return the acks that are sent now."""
    return [(first, end) for first, end, _ in track.take_fresh()]


def moved_away(track: Track) -> None:
    """Move the queue to another member; the broker has heard nothing since."""
    track.taken()
    track.came_too_late(track.generation)


def lost_while_moving(track: Track) -> None:
    track.taken()
    track.session_lost()


def test_acks_without_a_session_are_sent_later() -> None:
    track = held()
    track.ack(0, track.term, E)
    assert said(track) == [(0, 1)]
    track.session_lost()
    track.ack(1, track.term, E)
    track.ack(5, track.term, E)
    assert said(track) == [], "nobody listens"
    assert track.unstored
    track.assigned(1)
    assert said(track) == [(0, 2), (5, 6)]
    assert track.not_done(0, 8, track.term, E) == [(2, 5), (6, 8)]


def test_new_reader_is_not_a_seek() -> None:
    """Its progress may predate another member's last acks: no seek, all acks count."""
    track = held()
    track.ack(34, track.term, E)
    track.session_lost()
    track.assigned(1)
    assert said(track) == [(34, 35)]
    assert track.not_done(28, 36, track.term, E) == [(28, 34), (35, 36)]


def test_acks_before_a_seek_are_void() -> None:
    track = held()
    term = track.term
    track.ack(5, term, E)
    track.session_lost()
    track.ack(4, term, E)
    track.assigned(1, sought=9)
    assert not track.ack(7, term, E)
    assert said(track) == []
    assert track.not_done(2, 8, track.term, E) == [(2, 8)]
    assert track.not_done(2, 8, term, E) == [], "a copy from before it"
    assert not track.unstored
    track.ack(6, track.term, E)
    track.session_lost()
    track.assigned(2, sought=9)
    assert said(track) == [(6, 7)], "the same seek"


def test_unsent_acks_before_a_seek_are_void() -> None:
    """Sent under the new generation, it would undo the seek."""
    track = held()
    for offset in (3, 7, 9):
        track.ack(offset, track.term, E)
    track.assigned(2, sought=9)
    assert said(track) == []
    assert track.not_done(0, 12, track.term, E) == [(0, 12)]


def test_seek_lost_with_its_reader_voids_no_ack() -> None:
    """It was announced before it was stored; the current reader does not know it."""
    track = held()
    track.assigned(1, sought=9)
    track.ack(100, track.term, E)
    track.session_lost()
    track.assigned(1, sought=5)
    assert track.unstored
    assert said(track) == [(100, 101)]
    for newer in (7, 12):
        track.ack(101, track.term, E)
        assert track.unstored
        track.assigned(2, sought=newer)
        assert not track.unstored, "it is asked again, and is another one"


def _in_term(term: int, number: int = 0) -> int:
    """Return the version of a seek in that term."""
    return next_version(None, Epoch(term)) + number


def test_returning_seek_voids_no_later_ack() -> None:
    """Its reader went, the next did not know it, and the first is back with it."""
    track = held()
    track.assigned(1, _in_term(2), 2)
    track.ack(100, track.term, E)
    track.session_lost()
    track.assigned(1, 0, 5)
    track.ack(101, track.term, E)
    track.session_lost()
    term = track.term
    track.assigned(1, _in_term(2), 7)
    assert track.term == term
    assert said(track) == [(100, 102)]
    assert not track.stale


@pytest.mark.parametrize("made_in", [5, 6, 7])
def test_seek_newer_than_its_reader_voids_earlier_acks(made_in: int) -> None:
    """Even with a number announced before: that seek was lost before it was stored."""
    track = held()
    track.assigned(1, _in_term(made_in, 1), 5)
    track.assigned(1, 0, 5)
    track.ack(101, track.term, E)
    track.session_lost()
    track.assigned(1, _in_term(made_in, 1), 7)
    assert said(track) == []
    assert not track.unstored
    assert not track.stale


def test_unknown_older_seek_marks_acks_stale() -> None:
    """Whether the ack came before or after the seek is unknown: it is not stored, at least."""
    track = held()
    track.assigned(1, 0, 5)
    track.ack(101, track.term, E)
    track.session_lost()
    track.assigned(1, _in_term(2), 7)
    assert said(track) == []
    assert track.stale
    track.assigned(2, _in_term(2), 7)
    assert track.stale, "until it was told"
    assert track.unstored
    track.told_stale()
    assert not track.stale
    assert not track.unstored
    track.session_lost()
    track.assigned(1, 0, 8)
    track.session_lost()
    track.assigned(1, _in_term(3), 9)
    assert not track.stale, "nothing was acked"


@pytest.mark.parametrize("gone", ["no", "taken", "lost"])
def test_paused_queue_stays_paused_while_held(gone: str) -> None:
    """A seek only moves it; a member that regains it starts again, as the broker does."""
    track = held()
    track.paused = True
    if gone == "taken":
        track.taken()
    elif gone == "lost":
        track.session_lost()
    track.assigned(2)
    assert track.paused is (gone == "no")


def test_a_seek_of_a_queue_that_is_held() -> None:
    track = acked(0, 1)
    track.token_sent()
    track.assigned(2, sought=1)
    track.token_answered()
    assert not track.unstored
    assert track.not_done(0, 2, track.term, E) == [(0, 2)]


def test_copy_is_not_returned_while_its_ack_is_unsent() -> None:
    track = held()
    for offset in (0, 1, 4, 7):
        track.ack(offset, track.term, E)
    assert track.not_done(0, 9, track.term, E) == [(2, 4), (5, 7), (8, 9)]
    assert track.not_done(2, 4, track.term, E) == [(2, 4)]
    assert track.is_done(1, track.term, E)
    assert not track.is_done(2, track.term, E)
    assert said(track) == [(0, 2), (4, 5), (7, 8)]
    track.ack(2, track.term, E)
    assert track.not_done(0, 9, track.term, E) == [(3, 4), (5, 7), (8, 9)]


@pytest.mark.parametrize("gone", [Track.session_lost, lost_while_moving, moved_away])
def test_acks_of_a_revoked_queue_are_reported_once_and_resent(gone) -> None:  # type: ignore[no-untyped-def]
    track = acked(0, 1)
    gone(track)
    assert track.stale
    assert track.unstored, "a commit must ask"
    assert said(track) == []
    track.told_stale()
    assert not track.stale
    assert not track.unstored, "nobody waits for what the program knows is lost"
    assert not track.said
    track.assigned(2)
    assert not track.stale
    assert said(track) == [(0, 2)]
    assert track.unstored
    assert track.not_done(0, 3, track.term, E) == [(2, 3)]


@pytest.mark.parametrize("gone", [Track.session_lost, lost_while_moving, moved_away])
def test_token_proves_nothing_for_queues_not_held(gone) -> None:  # type: ignore[no-untyped-def]
    """A reopened session is asked before the queue is back: it stored none of the acks."""
    track = acked(0, 1)
    gone(track)
    track.token_sent()
    track.token_answered()
    track.assigned(2)
    assert said(track) == [(0, 2)]


def test_token_sent_before_a_revocation_proves_nothing() -> None:
    track = acked(0, 1)
    track.taken()
    track.token_sent()
    track.came_too_late(1)
    track.token_answered()
    assert track.stale
    assert track.not_done(0, 2, track.term, E) == []


def test_acks_made_after_a_revocation_are_reported() -> None:
    track = held()
    moved_away(track)
    assert not track.stale
    track.ack(0, track.term, E)
    assert track.stale
    assert track.unstored


def test_next_token_covers_acks_of_a_draining_queue() -> None:
    track = held()
    track.ack(0, track.term, E)
    track.taken()
    track.ack(1, track.term, E)
    assert said(track) == [(0, 2)]
    assert track.said
    track.token_sent()
    track.token_answered()
    assert not track.unstored
    assert not track.stale


def test_unsent_acks_are_sent_when_the_queue_returns() -> None:
    track = held()
    track.ack(0, track.term, E)
    track.taken()
    track.assigned(2)
    assert said(track) == [(0, 1)]
    track.came_too_late(1)
    assert not track.stale, "said again since"
    heard = acked(0)
    heard.taken()
    heard.assigned(2)
    assert heard.unstored, "the broker has heard them in time, and may not have stored them"
    heard.token_sent()
    heard.token_answered()
    assert not heard.unstored


def test_reused_offset_is_another_message() -> None:
    """The first message was acked, but was never on a disk: the second has a later epoch."""
    track = held()
    track.ack(0, track.term, 1)
    track.ack(2, track.term, 1)
    track.session_lost()
    track.assigned(1)
    assert track.take_fresh() == [(0, 1, 1), (2, 3, 1)]
    track.token_sent()
    assert track.not_done(0, 2, track.term, 1) == [(1, 2)], "a copy"
    assert track.not_done(2, 4, track.term, 4) == [(2, 4)]
    track.ack(2, track.term, 4)
    assert track.take_fresh() == [(2, 3, 4)]
    track.token_answered()
    assert track.unstored, "the token was sent for the first one"
    assert track.not_done(2, 4, track.term, 4) == [(3, 4)], "a copy of the second"


def test_ack_of_a_lost_message_is_not_sent_for_its_replacement() -> None:
    """The program still held the first message when the second came."""
    track = held()
    track.session_lost()
    track.assigned(2)
    track.ack(1, track.term, 3)
    track.ack(2, track.term, 1)
    assert track.not_done(2, 4, track.term, 3) == [(2, 4)]
    assert track.not_done(2, 4, track.term, 1) == [(3, 4)]
    track.ack(3, track.term, 3)
    assert track.take_fresh() == [(1, 2, 3), (2, 3, 1), (3, 4, 3)]
    track.session_lost()
    track.assigned(3)
    assert track.take_fresh() == [(2, 3, 1), (1, 2, 3), (3, 4, 3)]


def test_former_holder_may_get_copies_of_acked_messages() -> None:
    for lose in (Track.taken, Track.session_lost):
        track = acked(0)
        assert not track.renewed
        lose(track)
        assert track.renewed


def test_queue_moved_to_another_member_is_not_requested_again() -> None:
    """The new holder requests it, too: it would move again, with all its messages in flight."""
    track = held()
    track.session_lost()
    assert track.ours
    track.assigned(2)
    track.taken()
    track.session_lost()
    assert not track.ours


def test_late_acks_of_an_older_generation_end_nothing() -> None:
    """The queue came back since, and drains again: new acks still count."""
    track = held()
    track.taken()
    track.assigned(2)
    track.taken()
    track.came_too_late(1)
    track.ack(5, track.term, E)
    assert said(track) == [(5, 6)]
