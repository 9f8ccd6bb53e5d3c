"""The pure state of an ordered producer: what follows from each event."""

from dataclasses import dataclass
from typing import Any

import pytest

from fmqclient.producer.ordered_state import (
    LEFT_OUT_MS,
    OWN_ROLE_MS,
    SLOW_RETRY,
    OrderedState,
    per_queue,
)
from fmqclient.producer.ordered_values import (
    Acknowledged,
    Action,
    Batch,
    Connect,
    Failed,
    Report,
    Role,
)
from fmqcore.error_spec import ERRORS, RetryAction
from fmqcore.errors import (
    BadCrc,
    DeliveryUnknown,
    FmqError,
    Malformed,
    NoPermission,
    OutOfSequence,
    Overloaded,
    SegmentClosed,
    SenderFenced,
    TooLarge,
    Unavailable,
)
from fmqcore.ids import GroupName, Offset

G1, G2 = GroupName("g1"), GroupName("g2")


@dataclass(frozen=True)
class Count:
    """Content that is nothing but its number of records."""

    count: int
    size: int = 10

    def halves(self) -> "tuple[Count, Count]":
        return Count(self.count // 2), Count(self.count - self.count // 2)


def role(segment: int = 1, epoch: int = 1, first: tuple[int, ...] = (1,), **more: Any) -> Role:
    group = more.pop("group", G1 if segment % 2 else G2)
    return Role(more.pop("active", True), epoch, segment, group, first, **more)


def opened(queues: int = 1) -> OrderedState:
    """A state with the role of segment 1 and an open stream."""
    state = OrderedState()
    state.session_opened()
    assert state.apply_role(role(first=(1,) * queues)) == [Connect(G1)]
    state.stream_opened()
    return state


def sent(state: OrderedState, *counts: int, queue: int = 0) -> list[tuple[int, Batch]]:
    """Add batches of so many records and send all that may leave."""
    for count in counts:
        state.add(queue, Count(count))
    return sent_again(state)


def sent_again(state: OrderedState, now_ms: int = 0) -> list[tuple[int, Batch]]:
    taken = []
    while (entry := state.take(now_ms)) is not None:
        taken.append(entry)
    return taken


def sequences(batches: list[tuple[int, Batch]]) -> list[int]:
    return [batch.sequence for _, batch in batches]


def refuse(
    state: OrderedState, correlation: int, error: FmqError, expected: int = 0
) -> list[Action]:
    return state.refused(correlation, error, expected, 1000, 100)


# ---- the role


def test_sender_waits_until_a_state_is_active() -> None:
    state = OrderedState()
    assert state.apply_role(role(0, 0, (), active=False, reason="a is first in line")) == []
    assert (state.epoch, state.active, state.reason) == (0, False, "a is first in line")
    assert state.apply_role(role(3, 2, (7,))) == [Connect(G1)]
    assert (state.epoch, state.segment, state.unacked) == (2, 3, (7,))


def test_closing_freezes_and_reports_once() -> None:
    state = opened()
    (one, _), (two, _) = sent(state, 2, 3)
    assert len(state.acknowledged(one, Offset(0))) == 1
    closing = role(closing="planned")
    assert state.apply_role(closing) == [Report(1, (3,))]
    assert state.apply_role(closing) == []
    assert state.acknowledged(two, Offset(2)) == []  # it counts no more (L12)
    assert state.unacked == (3,)
    state.add(0, Count(1))
    assert state.take(0) is None


def test_next_segment_gets_all_without_an_ack_cut_as_before() -> None:
    state = opened()
    (one, _), *_ = before = sent(state, 2, 3, 1)
    state.acknowledged(one, Offset(0))
    state.apply_role(role(closing="planned"))
    state.add(0, Count(4))
    assert state.apply_role(role(2, first=(3,))) == [Connect(G2)]
    assert state.take(0) is None  # no stream is open
    state.stream_opened()
    again = sent_again(state)
    assert sequences(again) == [3, 6, 7]
    assert [batch for _, batch in again][:2] == [batch for _, batch in before[1:]]
    (stored,) = state.acknowledged(again[0][0], Offset(50))
    assert stored == Acknowledged(again[0][1], G2, 2, Offset(50))


def test_segment_that_leaves_a_gap_or_repeats_ends_the_sender() -> None:
    for first in (2, 4):
        state = opened()
        sent(state, 2)
        state.apply_role(role(closing="planned"))
        actions = state.apply_role(role(2, first=(first,)))
        assert isinstance(actions[0], Failed)
        assert isinstance(actions[0].error, OutOfSequence)
        assert state.take(0) is None


def test_segment_that_is_closing_already_is_reported_at_once() -> None:
    state = opened()
    state.apply_role(role(closing="planned"))
    assert state.apply_role(role(2, closing="g2 is silent")) == [Connect(G2), Report(2, (1,))]


@pytest.mark.parametrize("old", [role(1), role(1, closing="x"), role(2, epoch=0), role(0)])
def test_older_description_changes_nothing(old: Role) -> None:
    state = opened()
    state.apply_role(role(closing="planned"))
    state.apply_role(role(2))
    state.stream_opened()
    assert state.apply_role(old) == []
    assert (state.segment, state.frozen, state.is_open) == (2, False, True)


def test_chain_that_stays_without_the_segment_ends_the_sender() -> None:
    """ZooKeeper was restored from a backup: the chain's last segment is an earlier one."""
    state = opened()
    state.apply_role(role(closing="planned"))
    state.apply_role(role(2))
    state.add(0, Count(1))
    state.apply_role(role(1), in_line=False)
    assert state.tick(0) == state.tick(LEFT_OUT_MS) == [], "a master may have read an older one"
    state.apply_role(role(1))
    assert state.tick(1000) == state.tick(999 + LEFT_OUT_MS) == []
    state.apply_role(role(2))
    assert state.tick(2 * LEFT_OUT_MS) == [], "the broker was behind for a moment"
    state.apply_role(role(1))
    assert state.tick(2 * LEFT_OUT_MS) == []
    state.session_lost()
    assert state.tick(3 * LEFT_OUT_MS) == [], "that broker keeps the place no more"
    state.apply_role(role(1, closing="restored"))
    assert state.tick(3 * LEFT_OUT_MS) == []
    (failed,) = state.tick(4 * LEFT_OUT_MS)
    assert isinstance(failed, Failed)
    assert "the chain has lost segment 2" in str(failed.error)


def test_report_goes_over_the_session_that_keeps_the_place() -> None:
    state = opened()
    closing = role(closing="planned")
    assert state.apply_role(closing, in_line=False) == []
    assert state.frozen
    assert state.apply_role(closing) == [Report(1, (1,))]


@pytest.mark.parametrize("unsure", [False, True])
def test_own_later_epoch_goes_on_only_with_nothing_in_doubt(unsure: bool) -> None:
    state = opened()
    ((one, _),) = sent(state, 1)
    state.acknowledged(one, Offset(0))
    if unsure:
        sent(state, 1)
    state.session_opened()
    assert state.apply_role(role(0, 0, (), active=False)) == []
    assert not state.active
    actions = state.apply_role(role(2, 2, (3,) if unsure else (2,)))
    if unsure:
        assert isinstance(actions[0], Failed)
        assert isinstance(actions[0].error, SenderFenced)
    else:
        assert actions == [Connect(G2)]
        assert (state.epoch, state.active) == (2, True)


def test_own_epoch_after_another_senders_fences() -> None:
    """The other one accepted an unknown end, and used the same sequences."""
    state = opened()
    ((one, _),) = sent(state, 1)
    state.acknowledged(one, Offset(0))
    state.session_opened()
    assert isinstance(state.apply_role(role(3, 3, (2,)))[0], Failed)
    assert isinstance(state.error, SenderFenced)


def test_later_epoch_of_another_fences() -> None:
    state = opened()
    assert isinstance(state.apply_role(role(2, 2, active=False))[0], Failed)
    assert isinstance(state.error, SenderFenced)
    assert state.apply_role(role(3, 3)) == []  # final (L13)


def test_sender_that_has_rejoined_waits_for_its_own_later_epoch() -> None:
    state = opened()
    ((one, _),) = sent(state, 1)
    state.session_opened()
    assert refuse(state, one, SenderFenced("epoch 2")) == []
    assert state.take(0) is None
    assert state.tick(1000 + OWN_ROLE_MS - 1) == []
    assert isinstance(state.tick(1000 + OWN_ROLE_MS)[0], Failed)


def test_later_own_epoch_with_a_batch_in_doubt_fences_the_sender() -> None:
    state = opened()
    ((one, _),) = sent(state, 1)
    state.acknowledged(one, Offset(10))
    state.add(0, Count(1))
    state.session_opened()
    assert state.apply_role(role(2, 2, (2,))) == [Connect(G2)]  # no batch without an ack has left
    state.stream_opened()
    assert state.take(0) is not None
    state.session_opened()
    failed = state.apply_role(role(3, 3, (2,)))[0]  # segment 2 may have no known end
    assert isinstance(failed, Failed)
    assert isinstance(state.error, SenderFenced)


def test_later_own_epoch_goes_on_after_a_certain_refusal() -> None:
    state = opened()
    (one, refused), (two, _) = sent(state, 1, 1)
    refuse(state, one, Overloaded("not now"))
    refuse(state, two, OutOfSequence("gap"), 1)
    state.session_opened()
    assert state.apply_role(role(2, 2)) == [Connect(G2)]
    state.stream_opened()
    assert sent_again(state, 2000)[0][1] is refused


# ---- answers


def test_refused_batch_is_certain_only_without_an_open_attempt() -> None:
    state = opened()
    (one, refused), _ = sent(state, 1, 1)
    refuse(state, one, Overloaded("not now"))
    assert refused.open_attempts == 0
    (_, lost), _ = sent_again(state, 1100)
    assert lost is refused
    state.stream_lost()
    state.stream_opened()
    (three, _), _ = sent_again(state)
    (failed,) = refuse(state, three, BadCrc("x"))
    assert isinstance(failed, Failed)
    assert (failed.batch, refused.open_attempts) == (refused, 1)


@pytest.mark.parametrize("error", [DeliveryUnknown("x"), SegmentClosed("x"), Unavailable("x")])
def test_answer_that_may_be_of_a_stored_batch_leaves_it_open(error: FmqError) -> None:
    state = opened()
    ((one, batch),) = sent(state, 1)
    refuse(state, one, error)
    assert batch.open_attempts == 1


def test_refusal_while_frozen_closes_its_attempt() -> None:
    state = opened()
    (one, refused), (two, stored) = sent(state, 1, 1)
    state.apply_role(role(closing="planned"))
    refuse(state, one, Overloaded("x"))
    state.acknowledged(two, Offset(7))  # stored, though it does not count (L12)
    assert (refused.open_attempts, stored.open_attempts) == (0, 1)


def test_halves_of_a_batch_may_be_stored_as_a_whole_already() -> None:
    """A group of the chain may take larger batches than the next one."""
    state = opened()
    sent(state, 2)
    state.stream_lost()
    state.stream_opened()
    ((two, _),) = sent_again(state)
    refuse(state, two, TooLarge("2 records"))
    assert [batch.open_attempts for batch in state.batches] == [1, 1]


def test_ack_stands_for_all_before_it() -> None:
    state = opened()
    (_, first), (two, second) = sent(state, 2, 3)
    assert state.acknowledged(two, Offset(12)) == [
        Acknowledged(first, G1, 1, Offset(10)),
        Acknowledged(second, G1, 1, Offset(12)),
    ]
    assert state.unacked == (6,)


def test_gap_goes_back_to_what_is_expected_once() -> None:
    state = opened()
    (one, _), (two, _), (three, _) = sent(state, 1, 1, 1)
    assert refuse(state, one, Overloaded("not now")) == []
    assert sequences(sent_again(state, 1100)) == [1, 2, 3]
    assert refuse(state, two, OutOfSequence("gap"), 1) == []
    assert refuse(state, three, OutOfSequence("gap"), 1) == []
    assert sent_again(state, 1100) == []  # those refusals are of before the rewind


def test_gap_of_lost_batches_goes_back_without_a_pause() -> None:
    state = opened()
    _, _, (three, _) = sent(state, 1, 1, 1)
    refuse(state, three, OutOfSequence("gap"), 2)
    assert sequences(sent_again(state, 1000)) == [2, 3]


@pytest.mark.parametrize(("expected", "kind"), [(2, Malformed), (9, Malformed)])
def test_gap_where_no_batch_starts_ends_the_sender(expected: int, kind: type[FmqError]) -> None:
    state = opened()
    _, (two, batch) = sent(state, 3, 3)
    (failed,) = refuse(state, two, OutOfSequence("gap"), expected)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, kind)
    assert failed.batch is batch


def test_group_that_lost_acknowledged_records_is_tried_slowly() -> None:
    state = opened()
    (one, _), (two, _) = sent(state, 1, 1)
    state.acknowledged(one, Offset(0))
    assert refuse(state, two, OutOfSequence("gap"), 1) == []
    assert "has lost records; `fmq ordered status` shows" in state.reason
    assert state.next_retry_ms(1000) == 1000 + SLOW_RETRY * 100


def test_answers_of_a_lost_stream_count_no_more() -> None:
    state = opened()
    (one, _), _ = sent(state, 1, 1)
    state.stream_lost()
    assert state.acknowledged(one, Offset(0)) == []
    assert state.take(0) is None
    state.stream_opened()
    assert sequences(sent_again(state)) == [1, 2]


def test_batch_too_large_is_cut_in_two() -> None:
    state = opened()
    (one, _), _ = sent(state, 5, 1)
    assert refuse(state, one, TooLarge("5 records")) == []
    again = sent_again(state)
    assert [(b.sequence, b.content.count) for _, b in again] == [(1, 2), (3, 3), (6, 1)]
    single = opened()
    ((one, batch),) = sent(single, 1)
    assert refuse(single, one, TooLarge("huge")) == [Failed(single.error, batch)]  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", ERRORS, ids=lambda s: s.kind.__name__)
def test_each_error_has_one_consequence(spec: Any) -> None:
    """It ends the sender, leads to another broker, or the batch is sent again in its order."""
    state = opened()
    (one, batch), _ = sent(state, 1, 1)
    actions = refuse(state, one, spec.kind("no"))
    if spec.retry in (RetryAction.FAIL, RetryAction.FAIL_UNKNOWN, RetryAction.SPLIT):
        assert isinstance(actions[0], Failed)
        assert actions[0].batch is (None if spec.kind is SenderFenced else batch)
    elif spec.retry is RetryAction.SWITCH_BROKER:
        assert actions == [Connect(G1)]
    else:
        assert actions == []
        assert sent_again(state, 1000) == []
        assert sequences(sent_again(state, 1000 + SLOW_RETRY * 100)) == [1, 2]


@pytest.mark.parametrize(
    ("error", "pause_ms"),
    [
        (Overloaded("x"), 100),
        (DeliveryUnknown("x"), 100),
        (Unavailable("x"), 100),
        (SegmentClosed("x"), SLOW_RETRY * 100),
    ],
)
def test_pause_before_the_same_batch(error: FmqError, pause_ms: int) -> None:
    state = opened()
    ((one, _),) = sent(state, 1)
    refuse(state, one, error)
    assert state.next_retry_ms(1000) == 1000 + pause_ms


@pytest.mark.parametrize("error", [Overloaded("x"), NoPermission("x"), BadCrc("x")])
def test_refusal_while_frozen_changes_nothing(error: FmqError) -> None:
    state = opened()
    ((one, _),) = sent(state, 1)
    state.apply_role(role(closing="planned"))
    assert refuse(state, one, error) == []
    assert state.error is None


def test_after_an_error_nothing_is_sent_and_no_ack_counts() -> None:
    state = opened()
    (one, _), (two, _) = sent(state, 1, 1)
    refuse(state, one, BadCrc("x"))
    assert state.acknowledged(two, Offset(1)) == []
    state.stream_opened()
    assert state.take(0) is None
    assert state.unacked == (1,)


def test_queues_take_turns() -> None:
    state = opened(queues=2)
    for queue in (0, 0, 1, 1):
        state.add(queue, Count(1))
    assert [batch.queue for _, batch in sent_again(state)] == [0, 1, 0, 1]
    assert state.in_flight_bytes == 40


def test_queues_of_a_state_count_from_0() -> None:
    assert per_queue({1: 7, 0: 5}) == (5, 7)
    with pytest.raises(Malformed, match=r"\[1\]"):
        per_queue({1: 7})
