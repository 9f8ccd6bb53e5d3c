"""How a producer handles a refused batch: by the retry action of the error (`error_spec`).

"Not appended" counts only if it is true of every attempt. Once an attempt may have been stored
(`flight.unknown`), a refusal of a later one proves nothing, and the batch is retried unchanged.
"""

from collections.abc import Callable
from typing import Final, assert_never

from fmqclient.net.routes import STRANGE_MS
from fmqclient.producer.accumulator import Outbox
from fmqclient.producer.batches import Flight
from fmqclient.producer.queue_buffer import Lane
from fmqcore.error_spec import RetryAction, spec_of_code
from fmqcore.errors import DeliveryUnknown, FmqError
from fmqport.clock import Clock

RETRY_MS: Final = 100


class Refusals:
    """Handles the refusals of one link."""

    def __init__(
        self,
        clock: Clock,
        outbox: Outbox,
        avoid: Callable[[], None],
        renew: Callable[[], None],
        want_routes: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._outbox = outbox
        self._avoid = avoid
        self._renew = renew
        self._want_routes = want_routes

    def take(self, lane: Lane, flight: Flight, error: FmqError) -> bool:
        """Handle one refusal; return True if the session is to be left."""
        action = self._judge(lane, flight, error)
        match action:
            case RetryAction.RESEND_SAME:
                flight.unknown = True
                flight.due_ms = self._later_ms(3 * RETRY_MS)
                self._avoid()
            case RetryAction.SWITCH_BROKER:
                if not flight.unknown:
                    lane.refused(flight)
            case RetryAction.RETRY:
                self._again(lane, flight)
            case RetryAction.REROUTE:
                self._again(lane, flight)
                self._avoid()
            case RetryAction.REFRESH_ROUTES:
                self._strange(lane, flight, error)
            case RetryAction.SPLIT if len(flight.records) > 1:
                lane.split(flight)
            case RetryAction.SPLIT | RetryAction.FAIL:
                self._drop(lane, flight, error)
            case RetryAction.AFTER_EARLIER:
                raise AssertionError("judged before")
            case RetryAction.FAIL_UNKNOWN:
                lane.abandoned(flight)
                self._renew()
                unknown = DeliveryUnknown(f"it may be stored or not: {error}")
                self._outbox.fail((flight,), unknown)
            case _:
                assert_never(action)
        return action is RetryAction.SWITCH_BROKER

    def _judge(self, lane: Lane, flight: Flight, error: FmqError) -> RetryAction:
        action = spec_of_code(error.code).retry
        if action is RetryAction.AFTER_EARLIER:
            if flight.unknown and lane.broken:
                # A batch before this one was refused, so this one was refused too when it first
                # arrived. No sequence may be used again: a late copy could then fit (L5).
                lane.poisoned = True
                self._renew()
                return RetryAction.RETRY
            if flight.unknown:
                # Earlier ones first; for the first, the broker cannot know the outcome any more.
                return (
                    RetryAction.FAIL_UNKNOWN
                    if lane.flights[0] is flight
                    else RetryAction.RESEND_SAME
                )
            if not lane.broken:  # no refusal of ours explains it: its table has lost us
                self._renew()
            return RetryAction.RETRY
        if flight.unknown and action is RetryAction.REFRESH_ROUTES and self._outbox.is_gone(lane):
            return RetryAction.FAIL_UNKNOWN  # nobody can tell any more, and others wait for its end
        if flight.unknown and action is not RetryAction.SWITCH_BROKER:
            return RetryAction.RESEND_SAME
        return action

    def _again(self, lane: Lane, flight: Flight) -> None:
        lane.hold_until_ms = self._later_ms(RETRY_MS)
        lane.refused(flight)

    def _strange(self, lane: Lane, flight: Flight, error: FmqError) -> None:
        """Retry, because the broker may not have learned of the topic or queue yet."""
        self._want_routes()
        now_ms = self._clock.monotonic_ms()
        lane.strange_since_ms = lane.strange_since_ms or now_ms
        pinned = all(record[5] for record in flight.records)
        elsewhere = not pinned and self._outbox.has_elsewhere(lane)
        if now_ms - lane.strange_since_ms > STRANGE_MS and not elsewhere:
            self._drop(lane, flight, error)
        else:
            self._again(lane, flight)
            if elsewhere:
                self._avoid()

    def _drop(self, lane: Lane, flight: Flight, error: FmqError) -> None:
        lane.dropped(flight)
        self._outbox.fail((flight,), error)

    def _later_ms(self, most_ms: int) -> int:
        return self._clock.monotonic_ms() + int(self._clock.uniform(most_ms / 2, most_ms))
