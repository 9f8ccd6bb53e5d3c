"""A queue buffer alone: which batches may be sent, and the order of returned ones (L1 to L5)."""

from typing import Any

from fmqclient.producer.batches import InFlightBatch, PendingBatch
from fmqclient.producer.queue_buffer import MAX_FLIGHTS, QueueBuffer
from fmqcore.ids import GroupName, TopicId
from fmqcore.journal.producers import KEPT_BATCHES


class Topic:
    held = False

    def place_again(self) -> None:
        self.held = True


def buffer() -> QueueBuffer:
    return QueueBuffer(Topic(), GroupName("g1"), TopicId(1), 0)


def pending_batch(*values: bytes) -> PendingBatch:
    made = PendingBatch(10_000, 0)
    records: list[Any] = [(value, b"", b"", b"", None, False, 0) for value in values]
    made.records = records
    return made


def depart(of: QueueBuffer, *values: bytes) -> InFlightBatch:
    return of.depart(pending_batch(*values))


def values(pending: Any) -> list[bytes]:
    return [record[0] for each in pending for record in each.records]


def test_sequences_continue_after_the_last_sent() -> None:
    one = buffer()
    assert [depart(one, b"a", b"b").sequence, depart(one, b"c").sequence] == [0, 2]
    assert one.next_sequence == 3


def test_only_one_flight_until_one_is_accepted() -> None:
    one = buffer()
    first = depart(one, b"a")
    assert not one.may_send(0)
    one.accepted(first)
    for _ in range(MAX_FLIGHTS):
        assert one.may_send(0)
        depart(one, b"b")
    assert not one.may_send(0)


def test_no_send_beside_an_unknown_outcome() -> None:
    one = buffer()
    one.accepted(depart(one, b"a"))
    batch = depart(one, b"b")
    assert one.may_send(0)
    batch.unknown = True
    assert not one.may_send(0)
    one.accepted(batch)
    assert one.may_send(0)


def test_refused_batches_go_first_in_order_with_their_sequences() -> None:
    one = buffer()
    one.accepted(depart(one, b"a"))
    refused, after = depart(one, b"b"), depart(one, b"c", b"d")
    one.pending.append(pending_batch(b"e"))
    one.refused(refused)
    assert not one.may_send(0), "what was sent after it has not been answered"
    one.refused(after)
    assert one.may_send(0)
    assert values(one.pending) == [b"b", b"c", b"d", b"e"]
    assert one.next_sequence == 1


def test_abandoned_flight_blocks_sends_until_a_new_session() -> None:
    """It may be stored: its sequence, reused, would be taken for a retry."""
    one = buffer()
    one.accepted(depart(one, b"a"))
    one.abandoned(depart(one, b"b"))
    assert not one.may_send(0)
    one.renewed()
    assert one.may_send(0)
    assert one.next_sequence == 0


def test_a_broker_knows_as_many_batches_as_there_are_flights() -> None:
    """Otherwise a retry of the oldest is refused as out of sequence, though it is stored."""
    assert MAX_FLIGHTS <= KEPT_BATCHES


def test_refused_batches_are_resent_in_send_order() -> None:
    one = buffer()
    one.accepted(depart(one, b"a"))
    in_flight = [depart(one, b"b"), depart(one, b"c"), depart(one, b"d")]
    for at in (2, 0, 1):
        one.refused(in_flight[at])
    assert values(one.pending) == [b"b", b"c", b"d"]


def test_permanent_refusal_explains_later_sequence_errors() -> None:
    one = buffer()
    one.accepted(depart(one, b"a"))
    bad, after = depart(one, b"b"), depart(one, b"c")
    one.dropped(bad)
    assert one.broken_at is not None
    assert not one.may_send(0)
    one.refused(after)
    assert one.may_send(0)
    assert one.next_sequence == 1


def test_batch_refused_behind_a_kept_one_is_pinned() -> None:
    """It is older than batches now going to another group, and must not come here after them."""
    one = buffer()
    one.accepted(depart(one, b"a"))
    stays, refused = depart(one, b"b"), depart(one, b"c")
    one.refused(refused)
    stays.stays = True
    assert one.take_unsent() == []
    one.accepted(stays)
    (pending_batch,) = one.take_unsent()
    assert [(record[0], record[5]) for record in pending_batch.records] == [(b"c", True)], (
        "pinned here"
    )


def test_new_session_has_no_state_of_the_previous() -> None:
    """One batch in flight until the first is accepted; sequences from 0, even after a refusal."""
    one = buffer()
    one.accepted(depart(one, b"a"))
    one.abandoned(depart(one, b"b"))
    one.renewed()
    first = depart(one, b"c")
    assert not one.may_send(0), "the first batch of a session is alone (L4)"
    one.refused(first)
    assert one.next_sequence == 0, "nothing of this session is stored"


def test_refusal_explains_nothing_once_followers_are_answered() -> None:
    """A later sequence error has another reason: the table has evicted the producer."""
    one = buffer()
    one.accepted(depart(one, b"a"))
    one.refused(depart(one, b"b"))
    assert one.broken_at is None
    depart(one, b"b")
    assert one.may_send(0), "batches are in flight beside each other again"


def test_expired_batch_takes_no_more_records() -> None:
    one = buffer()
    given_up = one.begin(pending_batch(b"a"))
    assert one.expire(given_up.deadline_ms) == ([given_up], [])
    assert one.open is None


def test_overdue_batch_is_abandoned_at_any_place() -> None:
    """Returned batches wait for others; moved ones may stand behind younger ones."""
    one = buffer()
    one.accepted(depart(one, b"a"))
    refused, under_way = depart(one, b"b"), depart(one, b"c")
    under_way.deadline_ms = 10 * refused.deadline_ms
    one.refused(refused)
    young, old = one.begin(pending_batch(b"d")), one.begin(pending_batch(b"e"))
    young.deadline_ms = 10 * old.deadline_ms
    pending, in_flight = one.expire(old.deadline_ms)
    assert [p.records[0][0] for p in pending] == [b"b", b"e"]
    assert in_flight == []
    assert (one.turned_back, list(one.pending), one.open) == ([], [young], None)
