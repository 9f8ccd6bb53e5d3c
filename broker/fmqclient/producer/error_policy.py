"""How a producer handles a refused batch: by the retry action of the error (`error_spec`).

"Not appended" counts only if it is true of every attempt. Once an attempt may have been stored
(`batch.unknown`), a refusal of a later one proves nothing, and the batch is retried unchanged;
unless the master reports that no attempt was ever appended (`never_appended_in`). Then it may move,
and an error is certain if all attempts were in that term (`InFlightBatch.note_never_appended`).

The batches of a fixed identity (`FixedIdentity`) have one place, one sequence and one outcome: an
error that does not pass ends them, any other is retried until their deadline.
"""

from collections.abc import Callable
from typing import Final, assert_never

from fmqclient.net.routes import STRANGE_MS
from fmqclient.producer.batches import InFlightBatch
from fmqclient.producer.protocols import BufferSource
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqcore.error_spec import RetryAction, spec_of_code
from fmqcore.errors import DeliveryUnknown, FmqError
from fmqcore.ids import Epoch
from fmqport.clock import Clock

RETRY_MS: Final = 100


class ErrorPolicy:
    """Handles the refusals of one sender."""

    def __init__(
        self,
        clock: Clock,
        accumulator: BufferSource,
        avoid: Callable[[], None],
        renew: Callable[[], None],
        want_routes: Callable[[], None],
        *,
        fixed: bool = False,
    ) -> None:
        self._clock = clock
        self._accumulator = accumulator
        self._avoid = avoid
        self._renew = renew
        self._want_routes = want_routes
        self._fixed = fixed

    def apply(
        self,
        buffer: QueueBuffer,
        batch: InFlightBatch,
        error: FmqError,
        *,
        never_appended_in: Epoch | None = None,
    ) -> bool:
        """Handle one refusal; return True if the session is to be left.

        `never_appended_in`: the master of this term has no attempt of the batch in its journal.
        """
        if never_appended_in is not None:
            batch.note_never_appended(never_appended_in)
        action = (
            self._judge_fixed(batch, error) if self._fixed else self._judge(buffer, batch, error)
        )
        match action:
            case RetryAction.RESEND_SAME:
                batch.unknown = True
                batch.due_ms = self._later_ms(3 * RETRY_MS)
                self._avoid()
            case RetryAction.SWITCH_BROKER:
                if not batch.unknown:
                    buffer.refused(batch)
            case RetryAction.RETRY:
                self._retry_later(buffer, batch)
            case RetryAction.REROUTE:
                self._retry_later(buffer, batch)
                self._avoid()
            case RetryAction.REFRESH_ROUTES:
                self._retry_unknown_topic(buffer, batch, error)
            case RetryAction.SPLIT if len(batch.records) > 1:
                buffer.split(batch)
            case RetryAction.SPLIT | RetryAction.FAIL:
                self._drop(buffer, batch, error)
            case RetryAction.AFTER_EARLIER:
                raise AssertionError("judged before")
            case RetryAction.FAIL_UNKNOWN:
                buffer.abandoned(batch)
                self._renew()
                unknown = DeliveryUnknown(f"it may be stored or not: {error}")
                self._accumulator.fail((batch,), unknown)
            case _:
                assert_never(action)
        return action is RetryAction.SWITCH_BROKER

    def _judge(self, buffer: QueueBuffer, batch: InFlightBatch, error: FmqError) -> RetryAction:
        action = spec_of_code(error.code).retry
        if action is RetryAction.AFTER_EARLIER:
            if batch.unknown and buffer.explains(batch):
                # A batch before this one was refused, so this one was refused too when it first
                # arrived, as certainly. No sequence may be used again: a late copy could fit (L5).
                batch.doubtful = batch.doubtful or buffer.doubtful
                buffer.poisoned = True
                self._renew()
                return RetryAction.RETRY
            if batch.unknown:
                # Earlier ones first; for the first, the broker cannot know the outcome any more.
                return (
                    RetryAction.FAIL_UNKNOWN
                    if buffer.in_flight[0] is batch
                    else RetryAction.RESEND_SAME
                )
            if not buffer.explains(
                batch
            ):  # no earlier refusal explains it: the broker has forgotten this producer
                self._renew()
            return RetryAction.RETRY
        if (
            batch.unknown
            and action is RetryAction.REFRESH_ROUTES
            and self._accumulator.is_gone(buffer)
        ):
            return (
                RetryAction.FAIL_UNKNOWN
            )  # no broker can answer any more, and others wait for its end
        if batch.unknown and action is not RetryAction.SWITCH_BROKER:
            return RetryAction.RESEND_SAME
        return action

    def _judge_fixed(self, batch: InFlightBatch, error: FmqError) -> RetryAction:
        spec = spec_of_code(error.code)
        if not spec.transient:
            return RetryAction.FAIL
        if spec.retry is RetryAction.REFRESH_ROUTES:
            self._want_routes()
        if spec.retry is RetryAction.SWITCH_BROKER:
            return spec.retry
        certain = not (batch.unknown or spec.appended)
        return RetryAction.RETRY if certain else RetryAction.RESEND_SAME

    def _retry_later(self, buffer: QueueBuffer, batch: InFlightBatch) -> None:
        buffer.hold_until_ms = self._later_ms(RETRY_MS)
        buffer.refused(batch)

    def _retry_unknown_topic(
        self, buffer: QueueBuffer, batch: InFlightBatch, error: FmqError
    ) -> None:
        """Retry, because the broker may not have learned of the topic or queue yet."""
        self._want_routes()
        now_ms = self._clock.monotonic_ms()
        buffer.strange_since_ms = buffer.strange_since_ms or now_ms
        pinned = all(record[5] for record in batch.records)
        elsewhere = not pinned and self._accumulator.has_elsewhere(buffer)
        if now_ms - buffer.strange_since_ms > STRANGE_MS and not elsewhere:
            self._drop(buffer, batch, error)
        else:
            self._retry_later(buffer, batch)
            if elsewhere:
                self._avoid()

    def _drop(self, buffer: QueueBuffer, batch: InFlightBatch, error: FmqError) -> None:
        buffer.dropped(batch)
        self._accumulator.fail((batch,), error)

    def _later_ms(self, most_ms: int) -> int:
        return self._clock.monotonic_ms() + int(self._clock.uniform(most_ms / 2, most_ms))
