"""One member of a consumer group, as this broker knows it: credit, moves, acks without room."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fmqbroker.runtime.notifier import Signal
from fmqcore.consume.assignment import Move
from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.errors import FmqError
from fmqcore.ids import Offset

if TYPE_CHECKING:
    pass


_MOST_REFUSED: Final = 1000
"""Maximum ranges of one queue in `Session.uncounted`; above it, they are merged into one.

`all_acks_count` checks them in one turn of the event loop.
"""


class Session:
    """One consumer's stream: what may be delivered to it, and what must be reported to it."""

    def __init__(
        self, id: str, client: str, ack_timeout_ms: int, now_ms: int, tear: Callable[[], None]
    ) -> None:
        self.id = id
        self.tear = tear  # ends its stream at once, whatever is under way
        self.client = client
        self.ack_timeout_ms = ack_timeout_ms
        self.credit_bytes = 0
        self.reports_delivered = False  # it reports what its program got, and gives credit by count
        self.credit_records = 0
        self.overshoot = 0  # records beyond that credit, rather than split a batch
        self.leases = 0
        self.ready: dict[int, None] = {}  # queues that may have something for it, in turn
        # It was just sent a little: more leaves in a moment (`consume/pacing.py`).
        self.resting = False
        # Moves not reported yet, by queue: the move, the offset where it starts, its last seek.
        self.assigned: dict[int, tuple[Move, Offset, int]] = {}
        self.revoked: list[Move] = []
        self._reported: dict[int, int] = {}  # the queues that it takes for its own -> generation
        self.ignored: set[tuple[int, int]] = set()  # (queue, generation) of acks that came too late
        self.tokens: list[int] = []  # commit tokens to answer now: their acks are stored
        self.skipped: list[tuple[int, Range]] = []  # (queue, range): deleted before it was acked
        self.accepts_omitted_batch = False  # it knows deliveries without a batch
        self.open_tokens = 0  # writes of progress that a token, or the leaving session, waits for
        self.unstorable = False  # it acked records that this broker does not have
        # Acked ranges that do not count yet, by (queue, generation): there was no room for them.
        self.uncounted: dict[tuple[int, int], RangeSet] = {}
        # The commit token to answer once no ack is uncounted (`ConsumerGroup.all_acks_count`).
        self.waiting_token = 0
        self.heartbeat = False
        self.leaving = False
        self.over = False  # only its last message may still be sent
        self.gone = False  # its stream has ended
        self.error: FmqError | None = None  # sent before the stream ends
        self.sent_ms = now_ms
        self.received_ms = now_ms
        self.working_ms = now_ms  # it acked or nacked something
        self.wake = Signal()
        self.stirred = False  # something changed since its deliverer last looked

    def tear_if_there(self) -> None:
        """End the session's stream, if it has not ended by itself."""
        if not self.gone:
            self.tear()

    def refuse(self, queue: int, generation: int, first: Offset, end: Offset) -> None:
        """Note an ack for which there was no room: no commit token is answered until it counts."""
        refused = self.uncounted.setdefault((queue, generation), RangeSet())
        if first < end:
            refused.add(first, end)
        if len(refused) > _MOST_REFUSED and refused.last_end is not None:
            begin = next(iter(refused))[0]
            self.uncounted[queue, generation] = RangeSet([(begin, refused.last_end)])

    @property
    def has_news(self) -> bool:
        """Whether something other than deliveries must be reported to the consumer."""
        news = (self.assigned, self.revoked, self.ignored, self.skipped, self.tokens)
        return any(news)

    @property
    def hungry(self) -> bool:
        """Whether deliveries may be sent to the session now."""
        credit = self.credit_bytes > 0 and (self.credit_records > 0 or not self.reports_delivered)
        return bool(self.ready) and credit and not self.resting

    def stir(self) -> None:
        """Wake the task that sends to this session, once until it looks."""
        if not self.stirred:
            self.stirred = True
            self.wake.notify()

    def forget_assigned(self, queue: int) -> None:
        """Drop an assignment of the queue that was not reported to the consumer yet."""
        self.assigned.pop(queue, None)

    def revoke(self, move: Move) -> None:
        """Revoke a queue; report it under the generation the consumer knows, if it knows one."""
        self.ready.pop(move.queue_id, None)
        self.forget_assigned(move.queue_id)
        generation = self._reported.pop(move.queue_id, None)
        if generation is not None:
            self.revoked.append(move._replace(generation=generation))
            self.stir()

    def take_moves(self) -> tuple[list[Move], list[tuple[Move, Offset, int]]]:
        """Return the moves to report now, first revoked queues and then (re)assigned ones."""
        revoked, assigned = self.revoked, list(self.assigned.values())
        self.revoked, self.assigned = [], {}
        self._reported.update((move.queue_id, move.generation) for move, *_ in assigned)
        return revoked, assigned

    def finish(self, error: FmqError | None = None) -> None:
        """End the session; `error` is sent to the consumer first."""
        if not self.over:
            self.over, self.error = True, error
            self.stir()
