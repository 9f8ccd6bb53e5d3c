"""How a producer handles a refused batch: a table by the code of the ack, and the actions.

"Not appended" counts only if it is true of every attempt. Once an attempt may have been stored
(`flight.unknown`), a refusal of a later one proves nothing, and the batch is retried unchanged.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, assert_never

from fmqclient.net.routes import STRANGE_MS
from fmqclient.producer.accumulator import Outbox
from fmqclient.producer.batches import Flight
from fmqclient.producer.queue_buffer import Lane
from fmqcore.errors import DeliveryUnknown, ErrorCode, FmqError
from fmqport.clock import Clock

RETRY_MS: Final = 100


class Verdict(Enum):
    """What to do with a batch that was not acknowledged as stored."""

    UNKNOWN = auto()  # it may be stored: the same bytes to the same lane again, a little later
    LEAVE = auto()  # not appended, and this broker takes no writes: open at another one
    AGAIN = auto()  # not appended: again, in its order
    ELSEWHERE = auto()  # not appended: to another group if there is one, else again
    STRANGE = auto()  # not appended: the broker does not know the topic (yet)
    TOO_LARGE = auto()  # not appended: in two halves, if it has two records
    DROP = auto()  # not appended, and never will be
    OUT_OF_ORDER = auto()  # not appended now: an earlier one was refused, or the table lost us
    GIVE_UP = auto()  # may be stored, and asking again cannot tell


_BY_CODE: Final[dict[int, Verdict]] = {
    ErrorCode.NO_PERMISSION: Verdict.LEAVE,
    ErrorCode.NOT_ENOUGH_REPLICAS: Verdict.ELSEWHERE,
    ErrorCode.OVERLOADED: Verdict.ELSEWHERE,
    ErrorCode.STORAGE_FULL: Verdict.ELSEWHERE,
    ErrorCode.UNKNOWN_TOPIC: Verdict.STRANGE,
    ErrorCode.UNKNOWN_QUEUE: Verdict.STRANGE,
    ErrorCode.TOO_LARGE: Verdict.TOO_LARGE,
    ErrorCode.BAD_CRC: Verdict.DROP,
    ErrorCode.MALFORMED: Verdict.DROP,
    ErrorCode.UNSUPPORTED: Verdict.DROP,
    ErrorCode.INVALID_ARGUMENT: Verdict.DROP,
    ErrorCode.OUT_OF_SEQUENCE: Verdict.OUT_OF_ORDER,
    ErrorCode.PRODUCER_FENCED: Verdict.OUT_OF_ORDER,
}


def verdict_of(code: int) -> Verdict:
    """Return the verdict for a wire code; with an unlisted code the batch may have been stored."""
    return _BY_CODE.get(code, Verdict.UNKNOWN)


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
        verdict = self._judge(lane, flight, error)
        match verdict:
            case Verdict.UNKNOWN:
                flight.unknown = True
                flight.due_ms = self._later_ms(3 * RETRY_MS)
                self._avoid()
            case Verdict.LEAVE:
                if not flight.unknown:
                    lane.refused(flight)
            case Verdict.AGAIN:
                self._again(lane, flight)
            case Verdict.ELSEWHERE:
                self._again(lane, flight)
                self._avoid()
            case Verdict.STRANGE:
                self._strange(lane, flight, error)
            case Verdict.TOO_LARGE if len(flight.records) > 1:
                lane.split(flight)
            case Verdict.TOO_LARGE | Verdict.DROP:
                self._drop(lane, flight, error)
            case Verdict.OUT_OF_ORDER:
                raise AssertionError("judged before")
            case Verdict.GIVE_UP:
                lane.abandoned(flight)
                self._renew()
                unknown = DeliveryUnknown(f"it may be stored or not: {error}")
                self._outbox.fail((flight,), unknown)
            case _:
                assert_never(verdict)
        return verdict is Verdict.LEAVE

    def _judge(self, lane: Lane, flight: Flight, error: FmqError) -> Verdict:
        verdict = verdict_of(error.code)
        if verdict is Verdict.OUT_OF_ORDER:
            if flight.unknown and lane.broken:
                # A batch before this one was refused, so this one was refused too when it first
                # arrived. No sequence may be used again: a late copy could then fit (L5).
                lane.poisoned = True
                self._renew()
                return Verdict.AGAIN
            if flight.unknown:
                # Earlier ones first; for the first, the broker cannot know the outcome any more.
                return Verdict.GIVE_UP if lane.flights[0] is flight else Verdict.UNKNOWN
            if not lane.broken:  # no refusal of ours explains it: its table has lost us
                self._renew()
            return Verdict.AGAIN
        if flight.unknown and verdict is Verdict.STRANGE and self._outbox.is_gone(lane):
            return Verdict.GIVE_UP  # nobody can tell any more, and others wait for its end
        if flight.unknown and verdict is not Verdict.LEAVE:
            return Verdict.UNKNOWN
        return verdict

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
