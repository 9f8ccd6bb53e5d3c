"""The records of an ordered producer that have no outcome yet, by queue: a batch is cut from them.

A record is in an inbox until its batch is cut, then in the `OrderedState` until its outcome. Which
of them fits is decided before it has a place in the order.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from fmqclient.producer.batches import PendingBatch, Record, reject
from fmqclient.producer.ordered_records import CutBatch, cut_of, error_of_cut, error_of_unsent
from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_values import Batch
from fmqclient.settings import ProducerSettings
from fmqcore.errors import FmqError, Overloaded
from fmqport.clock import Clock

_BATCH_AGE_MS: Final = 1000  # a batch takes records for at most this time: they share its deadline


class _Inbox:
    """Records of one queue that were not cut into their batch yet."""

    __slots__ = ("open", "pending")

    def __init__(self) -> None:
        self.pending: deque[PendingBatch] = deque()
        self.open: PendingBatch | None = None  # the last of them, while it takes more


class OrderedBuffer:
    """Keeps the records of all queues within the window of outstanding bytes and records."""

    def __init__(
        self,
        clock: Clock,
        settings: ProducerSettings,
        state: OrderedState,
        released: Callable[[], None],
    ) -> None:
        """`released` is called when records got their outcome: there may be room."""
        self._clock = clock
        self._settings = settings
        self._state = state
        self._released = released
        self._inboxes: list[_Inbox] = []
        self._timeout_ms = int(settings.delivery_timeout_s * 1000)
        self.records = self.bytes = 0  # without an outcome

    @property
    def queues(self) -> int:
        """Number of queues; 0 until the topic is known."""
        return len(self._inboxes)

    def open_queues(self) -> None:
        """Make room for the queues of the state, which never change."""
        self._inboxes = self._inboxes or [_Inbox() for _ in self._state.queues]

    def require_room(self, size: int) -> None:
        """Raise `Overloaded` if a record of `size` bytes does not fit beside the others."""
        settings = self._settings
        if self.records and (
            self.bytes + size > settings.max_outstanding_bytes
            or self.records >= settings.max_outstanding_records
        ):
            raise Overloaded(
                f"{self.records} records, {self.bytes} bytes are outstanding: await send(), or "
                "raise max_outstanding_bytes"
            )

    def put(self, queue: int, record: Record, size: int, most_bytes: int, most: int) -> bool:
        """Add a record to the last batch of a queue; return whether that batch is new.

        `most_bytes` and `most`: the bytes and records of a batch that the broker takes.
        """
        inbox, settings = self._inboxes[queue], self._settings
        most_bytes = min(settings.max_batch_bytes, most_bytes)
        most = min(settings.max_batch_records, most)
        batch = inbox.open
        new = batch is None or batch.bytes + size > most_bytes or len(batch.records) >= most
        if batch is None or new:
            born_ms = self._clock.wall_ms() if settings.born_time else 0
            batch = PendingBatch(self._clock.monotonic_ms() + self._timeout_ms, born_ms)
            inbox.open = batch
            inbox.pending.append(batch)
        batch.records.append(record)
        batch.bytes += size
        self.records += 1
        self.bytes += size
        return new

    def cut(self) -> None:
        """Cut the next batch of each queue whose earlier ones were all sent (L11)."""
        for number, inbox in enumerate(self._inboxes):
            if inbox.pending and self._state.all_sent(number):
                pending = inbox.pending.popleft()
                if pending is inbox.open:
                    inbox.open = None
                self._state.add(number, CutBatch(pending))

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the oldest record of a queue has waited for too long; end old batches."""
        for queue, inbox in zip(self._state.queues, self._inboxes, strict=True):
            batch = inbox.open
            if batch is not None and batch.deadline_ms < now_ms + self._timeout_ms - _BATCH_AGE_MS:
                inbox.open = None
            oldest = cut_of(queue.batches[0]) if queue.batches else next(iter(inbox.pending), None)
            if oldest is not None and oldest.deadline_ms <= now_ms:
                return True
        return False

    def outstanding(self) -> Iterator[Record]:
        """Return the records without an outcome."""
        for batch in self._state.batches:
            yield from cut_of(batch).records
        for inbox in self._inboxes:
            for pending in inbox.pending:
                yield from pending.records

    def fail_all(self, error: FmqError, refused: Batch | None) -> None:
        """Fail what has no outcome. `refused`: the batch that this error is about."""
        for batch in self._state.batches:
            self._reject(cut_of(batch), error_of_cut(batch, error, refused=batch is refused))
        for queue in self._state.queues:
            queue.batches.clear()
        for inbox in self._inboxes:
            for pending in inbox.pending:
                self._reject(pending, error_of_unsent(error))
            inbox.pending.clear()
            inbox.open = None

    def _reject(self, batch: CutBatch | PendingBatch, error: FmqError) -> None:
        reject(batch.records, error)
        self.release(batch)

    def release(self, batch: CutBatch | PendingBatch) -> None:
        """Free the room of a batch whose records have their outcome."""
        self.records -= len(batch.records)
        self.bytes -= batch.bytes
        self._released()
