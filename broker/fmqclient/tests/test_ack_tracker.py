"""A consumer's progress in one queue (L7), without a broker."""

import pytest

from fmqclient.consumer.ack_tracker import AckTracker
from fmqcore.batch.offset_entry import next_version
from fmqcore.ids import Epoch

E = 1  # the epoch, where it does not matter


def held() -> AckTracker:
    tracker = AckTracker("g1", 0)
    tracker.assigned(1)
    return tracker


def acked(*offsets: int) -> AckTracker:
    """Hold the queue and ack these; the acks are sent to the broker."""
    tracker = held()
    for offset in offsets:
        tracker.ack(offset, tracker.term, E)
    tracker.take_fresh()
    return tracker


def sent(tracker: AckTracker) -> list[tuple[int, int]]:
    """Return the acks that are sent now."""
    return [(first, end) for first, end, _ in tracker.take_fresh()]


def moved_away(tracker: AckTracker) -> None:
    """Move the queue to another member; the broker has heard nothing since."""
    tracker.taken()
    tracker.came_too_late(tracker.generation)


def lost_while_moving(tracker: AckTracker) -> None:
    tracker.taken()
    tracker.session_lost()


def test_acks_without_a_session_are_sent_later() -> None:
    tracker = held()
    tracker.ack(0, tracker.term, E)
    assert sent(tracker) == [(0, 1)]
    tracker.session_lost()
    tracker.ack(1, tracker.term, E)
    tracker.ack(5, tracker.term, E)
    assert sent(tracker) == [], "no broker listens"
    assert tracker.unstored
    tracker.assigned(1)
    assert sent(tracker) == [(0, 2), (5, 6)]
    assert tracker.not_done(0, 8, tracker.term, E) == [(2, 5), (6, 8)]


def test_new_reader_is_not_a_seek() -> None:
    """Its progress may predate another member's last acks: no seek, all acks count."""
    tracker = held()
    tracker.ack(34, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(1)
    assert sent(tracker) == [(34, 35)]
    assert tracker.not_done(28, 36, tracker.term, E) == [(28, 34), (35, 36)]


def test_acks_before_a_seek_are_void() -> None:
    tracker = held()
    term = tracker.term
    tracker.ack(5, term, E)
    tracker.session_lost()
    tracker.ack(4, term, E)
    tracker.assigned(1, seek_number=9)
    assert not tracker.ack(7, term, E)
    assert sent(tracker) == []
    assert tracker.not_done(2, 8, tracker.term, E) == [(2, 8)]
    assert tracker.not_done(2, 8, term, E) == [], "a copy from before it"
    assert not tracker.unstored
    tracker.ack(6, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(2, seek_number=9)
    assert sent(tracker) == [(6, 7)], "the same seek"


def test_unsent_acks_before_a_seek_are_void() -> None:
    """Sent under the new generation, it would undo the seek."""
    tracker = held()
    for offset in (3, 7, 9):
        tracker.ack(offset, tracker.term, E)
    tracker.assigned(2, seek_number=9)
    assert sent(tracker) == []
    assert tracker.not_done(0, 12, tracker.term, E) == [(0, 12)]


def test_seek_lost_with_its_reader_voids_no_ack() -> None:
    """It was announced before it was stored; the current reader does not know it."""
    tracker = held()
    tracker.assigned(1, seek_number=9)
    tracker.ack(100, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(1, seek_number=5)
    assert tracker.unstored
    assert sent(tracker) == [(100, 101)]
    for newer in (7, 12):
        tracker.ack(101, tracker.term, E)
        assert tracker.unstored
        tracker.assigned(2, seek_number=newer)
        assert not tracker.unstored, "it is asked again, and is another one"


def _in_term(term: int, number: int = 0) -> int:
    """Return the version of a seek in that term."""
    return next_version(None, Epoch(term)) + number


def test_returning_seek_voids_no_later_ack() -> None:
    """Its reader went, the next did not know it, and the first is back with it."""
    tracker = held()
    tracker.assigned(1, _in_term(2), 2)
    tracker.ack(100, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(1, 0, 5)
    tracker.ack(101, tracker.term, E)
    tracker.session_lost()
    term = tracker.term
    tracker.assigned(1, _in_term(2), 7)
    assert tracker.term == term
    assert sent(tracker) == [(100, 102)]
    assert not tracker.stale


@pytest.mark.parametrize("made_in", [5, 6, 7])
def test_seek_newer_than_its_reader_voids_earlier_acks(made_in: int) -> None:
    """Even with a number announced before: that seek was lost before it was stored."""
    tracker = held()
    tracker.assigned(1, _in_term(made_in, 1), 5)
    tracker.assigned(1, 0, 5)
    tracker.ack(101, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(1, _in_term(made_in, 1), 7)
    assert sent(tracker) == []
    assert not tracker.unstored
    assert not tracker.stale


def test_unknown_older_seek_marks_acks_stale() -> None:
    """Whether the ack came before or after the seek is unknown: it is not stored, at least."""
    tracker = held()
    tracker.assigned(1, 0, 5)
    tracker.ack(101, tracker.term, E)
    tracker.session_lost()
    tracker.assigned(1, _in_term(2), 7)
    assert sent(tracker) == []
    assert tracker.stale
    tracker.assigned(2, _in_term(2), 7)
    assert tracker.stale, "until it was reported"
    assert tracker.unstored
    tracker.stale_reported()
    assert not tracker.stale
    assert not tracker.unstored
    tracker.session_lost()
    tracker.assigned(1, 0, 8)
    tracker.session_lost()
    tracker.assigned(1, _in_term(3), 9)
    assert not tracker.stale, "nothing was acked"


@pytest.mark.parametrize("gone", ["no", "taken", "lost"])
def test_paused_queue_stays_paused_while_held(gone: str) -> None:
    """A seek only moves it; a member that regains it starts again, as the broker does."""
    tracker = held()
    tracker.paused = True
    if gone == "taken":
        tracker.taken()
    elif gone == "lost":
        tracker.session_lost()
    tracker.assigned(2)
    assert tracker.paused is (gone == "no")


def test_a_seek_of_a_queue_that_is_held() -> None:
    tracker = acked(0, 1)
    tracker.token_sent()
    tracker.assigned(2, seek_number=1)
    tracker.token_answered()
    assert not tracker.unstored
    assert tracker.not_done(0, 2, tracker.term, E) == [(0, 2)]


def test_copy_is_not_returned_while_its_ack_is_unsent() -> None:
    tracker = held()
    for offset in (0, 1, 4, 7):
        tracker.ack(offset, tracker.term, E)
    assert tracker.not_done(0, 9, tracker.term, E) == [(2, 4), (5, 7), (8, 9)]
    assert tracker.not_done(2, 4, tracker.term, E) == [(2, 4)]
    assert tracker.is_done(1, tracker.term, E)
    assert not tracker.is_done(2, tracker.term, E)
    assert sent(tracker) == [(0, 2), (4, 5), (7, 8)]
    tracker.ack(2, tracker.term, E)
    assert tracker.not_done(0, 9, tracker.term, E) == [(3, 4), (5, 7), (8, 9)]


@pytest.mark.parametrize("gone", [AckTracker.session_lost, lost_while_moving, moved_away])
def test_acks_of_a_revoked_queue_are_reported_once_and_resent(gone) -> None:  # type: ignore[no-untyped-def]
    tracker = acked(0, 1)
    gone(tracker)
    assert tracker.stale
    assert tracker.unstored, "a commit must ask"
    assert sent(tracker) == []
    tracker.stale_reported()
    assert not tracker.stale
    assert not tracker.unstored, "no caller waits for acks that the program knows are lost"
    assert not tracker.has_unconfirmed
    tracker.assigned(2)
    assert not tracker.stale
    assert sent(tracker) == [(0, 2)]
    assert tracker.unstored
    assert tracker.not_done(0, 3, tracker.term, E) == [(2, 3)]


@pytest.mark.parametrize("gone", [AckTracker.session_lost, lost_while_moving, moved_away])
def test_token_proves_nothing_for_queues_not_held(gone) -> None:  # type: ignore[no-untyped-def]
    """A reopened session is asked before the queue is back: it stored none of the acks."""
    tracker = acked(0, 1)
    gone(tracker)
    tracker.token_sent()
    tracker.token_answered()
    tracker.assigned(2)
    assert sent(tracker) == [(0, 2)]


def test_token_sent_before_a_revocation_proves_nothing() -> None:
    tracker = acked(0, 1)
    tracker.taken()
    tracker.token_sent()
    tracker.came_too_late(1)
    tracker.token_answered()
    assert tracker.stale
    assert tracker.not_done(0, 2, tracker.term, E) == []


def test_acks_made_after_a_revocation_are_reported() -> None:
    tracker = held()
    moved_away(tracker)
    assert not tracker.stale
    tracker.ack(0, tracker.term, E)
    assert tracker.stale
    assert tracker.unstored


def test_next_token_covers_acks_of_a_draining_queue() -> None:
    tracker = held()
    tracker.ack(0, tracker.term, E)
    tracker.taken()
    tracker.ack(1, tracker.term, E)
    assert sent(tracker) == [(0, 2)]
    assert tracker.has_unconfirmed
    tracker.token_sent()
    tracker.token_answered()
    assert not tracker.unstored
    assert not tracker.stale


def test_unsent_acks_are_sent_when_the_queue_returns() -> None:
    tracker = held()
    tracker.ack(0, tracker.term, E)
    tracker.taken()
    tracker.assigned(2)
    assert sent(tracker) == [(0, 1)]
    tracker.came_too_late(1)
    assert not tracker.stale, "sent again since"
    heard = acked(0)
    heard.taken()
    heard.assigned(2)
    assert heard.unstored, "the broker has heard them in time, and may not have stored them"
    heard.token_sent()
    heard.token_answered()
    assert not heard.unstored


def test_reused_offset_is_another_message() -> None:
    """The first message was acked, but was never on a disk: the second has a later epoch."""
    tracker = held()
    tracker.ack(0, tracker.term, 1)
    tracker.ack(2, tracker.term, 1)
    tracker.session_lost()
    tracker.assigned(1)
    assert tracker.take_fresh() == [(0, 1, 1), (2, 3, 1)]
    tracker.token_sent()
    assert tracker.not_done(0, 2, tracker.term, 1) == [(1, 2)], "a copy"
    assert tracker.not_done(2, 4, tracker.term, 4) == [(2, 4)]
    tracker.ack(2, tracker.term, 4)
    assert tracker.take_fresh() == [(2, 3, 4)]
    tracker.token_answered()
    assert tracker.unstored, "the token was sent for the first one"
    assert tracker.not_done(2, 4, tracker.term, 4) == [(3, 4)], "a copy of the second"


def test_ack_of_a_lost_message_is_not_sent_for_its_replacement() -> None:
    """The program still held the first message when the second came."""
    tracker = held()
    tracker.session_lost()
    tracker.assigned(2)
    tracker.ack(1, tracker.term, 3)
    tracker.ack(2, tracker.term, 1)
    assert tracker.not_done(2, 4, tracker.term, 3) == [(2, 4)]
    assert tracker.not_done(2, 4, tracker.term, 1) == [(3, 4)]
    tracker.ack(3, tracker.term, 3)
    assert tracker.take_fresh() == [(1, 2, 3), (2, 3, 1), (3, 4, 3)]
    tracker.session_lost()
    tracker.assigned(3)
    assert tracker.take_fresh() == [(2, 3, 1), (1, 2, 3), (3, 4, 3)]


def test_former_holder_may_get_copies_of_acked_messages() -> None:
    for lose in (AckTracker.taken, AckTracker.session_lost):
        tracker = acked(0)
        assert not tracker.renewed
        lose(tracker)
        assert tracker.renewed


def test_queue_moved_to_another_member_is_not_requested_again() -> None:
    """The new holder requests it, too: it would move again, with all its messages in flight."""
    tracker = held()
    tracker.session_lost()
    assert tracker.ours
    tracker.assigned(2)
    tracker.taken()
    tracker.session_lost()
    assert not tracker.ours


def test_late_acks_of_an_older_generation_end_nothing() -> None:
    """The queue came back since, and drains again: new acks still count."""
    tracker = held()
    tracker.taken()
    tracker.assigned(2)
    tracker.taken()
    tracker.came_too_late(1)
    tracker.ack(5, tracker.term, E)
    assert sent(tracker) == [(5, 6)]
