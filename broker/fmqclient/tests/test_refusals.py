"""The outcome of refused batches: verdicts that simple runs do not reach."""

from typing import Any

import pytest

from fmqadapters.process.clock import SystemClock
from fmqclient.net.routes import STRANGE_MS
from fmqclient.producer.batches import InFlightBatch, PendingBatch
from fmqclient.producer.error_policy import ErrorPolicy
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqcore.error_spec import RetryAction, spec_of_code
from fmqcore.errors import (
    ErrorCode,
    FmqError,
    NotEnoughReplicas,
    OutOfSequence,
    Overloaded,
    TooLarge,
    UnknownTopic,
    error_of,
)
from fmqcore.ids import Epoch, GroupName, TopicId


class Topic:
    held = False

    def place_again(self) -> None:
        self.held = True


class Accumulator:
    def __init__(self) -> None:
        self.failed: list[tuple[list[bytes], FmqError]] = []

    def is_gone(self, buffer: QueueBuffer) -> bool:
        return False

    elsewhere = False

    def has_elsewhere(self, buffer: QueueBuffer) -> bool:
        return self.elsewhere

    def fail(self, pending: Any, error: FmqError) -> None:
        self.failed += [([r[0] for r in pending_batch.records], error) for pending_batch in pending]


class Clock(SystemClock):
    """A clock that stands until set."""

    now_ms = 1

    def monotonic_ms(self) -> int:
        return self.now_ms


class Case:
    """A queue buffer with one batch accepted, then some in flight."""

    def __init__(self) -> None:
        self.buffer = QueueBuffer(Topic(), GroupName("g1"), TopicId(1), 0)
        self.accumulator = Accumulator()
        self.renewed = self.avoided = self.wanted = 0
        accumulator: Any = self.accumulator
        self.clock = Clock()
        self.error_policy = ErrorPolicy(
            self.clock, accumulator, self._avoid, self._renew, self._want
        )
        self.buffer.accepted(self.depart(b"first"))

    def depart(self, *values: bytes) -> InFlightBatch:
        pending_batch = PendingBatch(10_000, 0)
        records: list[Any] = [(v, b"", b"", b"", None, False, 0) for v in values]
        pending_batch.records = records
        return self.buffer.depart(pending_batch)

    def _avoid(self) -> None:
        self.avoided += 1

    def _renew(self) -> None:
        self.renewed += 1

    def _want(self) -> None:
        self.wanted += 1

    def again(self) -> InFlightBatch:
        """Return the batches that go first now."""
        return self.buffer.depart(self.buffer.pending.popleft())

    def lost(self, *values: bytes, term: int) -> InFlightBatch:
        """Return a batch whose stream broke in that term."""
        batch = self.depart(*values)
        batch.terms.add(Epoch(term))
        batch.unknown = True
        return batch

    def take(self, batch: InFlightBatch, error: FmqError, term: int, *, never: bool) -> None:
        """Let the master of the term refuse a batch that was sent again."""
        batch.terms.add(Epoch(term))
        never_in = Epoch(term) if never else None
        self.error_policy.apply(self.buffer, batch, error, never_appended_in=never_in)

    def doubtful(self) -> list[bool]:
        return [pending_batch.doubtful for pending_batch in self.buffer.pending]

    def unsent(self) -> list[bytes]:
        return [r[0] for pending_batch in self.buffer.pending for r in pending_batch.records]


def test_batch_after_a_refused_one_is_not_stored() -> None:
    """No sequence is reused: a late copy could fit behind the batch that takes it."""
    case = Case()
    refused, lost = case.depart(b"a"), case.depart(b"b")
    case.error_policy.apply(case.buffer, refused, Overloaded(""))
    lost.unknown = True  # the stream broke
    case.error_policy.apply(case.buffer, lost, OutOfSequence(""))
    assert case.unsent() == [b"a", b"b"]
    assert case.buffer.poisoned
    assert case.renewed == 1
    assert case.accumulator.failed == []


@pytest.mark.parametrize("term", [1, 3])
def test_never_appended_is_certain_for_attempts_of_its_term(term: int) -> None:
    """A broker may have shown the attempt of term 1 from a journal that term 3 left behind."""
    case = Case()
    batch, follower = case.lost(b"a", term=term), case.lost(b"b", term=term)
    case.take(batch, NotEnoughReplicas(""), 3, never=True)
    case.take(follower, OutOfSequence(""), 3, never=False)
    assert case.unsent() == [b"a", b"b"]
    assert case.doubtful() == [term != 3] * 2


def test_an_attempt_of_a_term_between_makes_a_batch_doubtful() -> None:
    case = Case()
    batch = case.lost(b"a", term=3)
    case.take(batch, Overloaded(""), 2, never=False)
    case.take(batch, Overloaded(""), 3, never=True)
    assert case.doubtful() == [True]


def test_doubt_lasts_over_later_certain_refusals() -> None:
    case = Case()
    case.take(case.lost(b"a", b"b", term=1), TooLarge(""), 3, never=True)
    for _ in range(2):
        case.take(case.again(), Overloaded(""), 5, never=True)
    assert case.unsent() == [b"a", b"b"]
    assert case.doubtful() == [True, True]


def test_follower_of_a_doubtful_dropped_batch_is_doubtful() -> None:
    case = Case()
    dropped, follower = case.lost(b"a", term=1), case.lost(b"b", term=1)
    case.take(dropped, TooLarge(""), 3, never=True)
    case.take(follower, OutOfSequence(""), 3, never=False)
    assert [values for values, _ in case.accumulator.failed] == [[b"a"]]
    assert (case.unsent(), case.doubtful()) == ([b"b"], [True])
    case.buffer.renewed()
    case.take(case.lost(b"c", term=3), Overloaded(""), 3, never=True)
    assert case.doubtful() == [False, True], "doubt is over with what it was about"


def test_later_refusal_explains_no_earlier_sequence_error() -> None:
    """The earlier batch was sent first: a master that lost it cannot know its outcome."""
    case = Case()
    unknown, refused = case.lost(b"a", term=1), case.depart(b"b")
    case.take(refused, NotEnoughReplicas(""), 1, never=False)
    case.take(unknown, OutOfSequence(""), 3, never=False)
    ((values, error),) = case.accumulator.failed
    assert (values, error.code) == ([b"a"], ErrorCode.DELIVERY_UNKNOWN)
    assert (case.unsent(), case.doubtful()) == ([b"b"], [False])
    assert case.buffer.poisoned


def test_unexplained_gap_takes_a_new_session() -> None:
    case = Case()
    case.error_policy.apply(case.buffer, case.depart(b"a"), OutOfSequence(""))
    assert case.unsent() == [b"a"]
    assert case.renewed == 1


def test_out_of_sequence_batch_waits_for_earlier_or_is_abandoned() -> None:
    case = Case()
    first, second = case.depart(b"a"), case.depart(b"b")
    first.unknown = second.unknown = True
    case.error_policy.apply(case.buffer, second, OutOfSequence(""))
    assert second.due_ms > 0
    case.error_policy.apply(case.buffer, first, OutOfSequence(""))
    assert [values for values, _ in case.accumulator.failed] == [[b"a"]]
    assert case.accumulator.failed[0][1].code is ErrorCode.DELIVERY_UNKNOWN
    assert case.buffer.poisoned
    assert case.renewed == 1, "it sends nothing more without a new session (L5)"


@pytest.mark.parametrize("code", [c for c in ErrorCode if c is not ErrorCode.OK])
def test_possibly_stored_batch_is_not_moved_or_failed_by_refusal(code: ErrorCode) -> None:
    case = Case()
    before, batch = case.depart(b"x"), case.depart(b"a")
    before.unknown = batch.unknown = True
    leave = case.error_policy.apply(case.buffer, batch, error_of(code, ""))
    assert batch in case.buffer.in_flight
    assert case.unsent() == []
    assert case.accumulator.failed == []
    assert leave is (code is ErrorCode.NO_PERMISSION)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_codes_not_known_as_refusals_leave_outcome_unknown(code: ErrorCode) -> None:
    """Unknown codes, too: a newer broker may send others."""
    certain = {
        ErrorCode.NO_PERMISSION,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_QUEUE,
        ErrorCode.TOO_LARGE,
        ErrorCode.BAD_CRC,
        ErrorCode.MALFORMED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OVERLOADED,
        ErrorCode.OUT_OF_SEQUENCE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.STORAGE_FULL,
        ErrorCode.UNSUPPORTED,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.SENDER_FENCED,
    }
    assert spec_of_code(code).appended == (code not in certain)
    assert spec_of_code(999).retry is RetryAction.RESEND_SAME


def test_broker_lacking_the_topic_gets_its_wait_each_time() -> None:
    """It knew the topic since: if it lacks it now, after a move, say, it will learn it again."""
    case = Case()
    case.error_policy.apply(case.buffer, case.depart(b"a"), UnknownTopic(""))
    case.buffer.accepted(case.again())
    case.clock.now_ms += 10 * STRANGE_MS
    case.error_policy.apply(case.buffer, case.depart(b"b"), UnknownTopic(""))
    assert case.unsent() == [b"b"]
    case.clock.now_ms += STRANGE_MS
    case.error_policy.apply(case.buffer, case.again(), UnknownTopic(""))
    assert (case.unsent(), case.accumulator.failed) == ([b"b"], [])
    case.clock.now_ms += 1
    case.error_policy.apply(case.buffer, case.again(), UnknownTopic(""))
    assert [values for values, _ in case.accumulator.failed] == [[b"b"]]


def test_record_goes_to_another_group_when_one_lacks_the_topic() -> None:
    case = Case()
    case.accumulator.elsewhere = True
    case.error_policy.apply(case.buffer, case.depart(b"a"), UnknownTopic(""))
    case.clock.now_ms += 10 * STRANGE_MS
    case.error_policy.apply(case.buffer, case.again(), UnknownTopic(""))
    assert (case.unsent(), case.accumulator.failed) == ([b"a"], [])
    assert case.avoided == 2
