"""The queue buffer: a producer's records for one (group, topic, queue), in order. No I/O.

How order and one attempt at a time are kept (numbered as in `docs/internals/invariants.md`):

L1. Sequences are given when a batch is first sent, one after the other; the broker appends a batch
    only if it is the next one, or answers a retry from its table of the last `MAX_FLIGHTS` batches.
L2. A batch in flight whose outcome is unknown (no answer, or DELIVERY_UNKNOWN) is only ever sent
    again to this very buffer, the same bytes under the same sequence, until its deadline, or until
    the master answers that no attempt was ever appended (L10). While there is one, nothing new
    leaves the buffer: later records wait, or the producer puts them into other groups.
L3. A batch in flight that was certainly not appended (every attempt was refused by a typed error)
    gives its sequence back. The batches sent after it are then refused as out of sequence; when all
    of them have been answered, they go, in their order, to the front of the buffer or to another
    group.
L4. Until the broker has accepted one batch of a buffer in the sender's present session, the buffer
    has one batch only in flight: a session may start at any sequence, so L3 would not hold.
L5. A batch that was given up as unknown leaves a hole that only a new session can close: the buffer
    is `poisoned`, and sends nothing until its sender, with nothing in flight, has started one.
L8. Sessions of a sender are numbered, under one producer id. A broker refuses batches that arrive
    late, over a connection given up long ago, from a session before the newest it knows. So they
    are not stored after batches that were sent later.
L14. A batch that moved after an unknown outcome may be `doubtful`: an attempt in a term before may
    have been shown, so it never ends in a certain error.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from fmqclient.producer.batches import InFlightBatch, PendingBatch, Record, record_bytes
from fmqcore.ids import GroupName, TopicId

MAX_FLIGHTS: Final = 5
"""Number of batches that a broker keeps per producer and queue to recognise a retry."""


class Held(Protocol):
    """The methods of a topic that a queue buffer calls."""

    held: bool  # nothing new is sent for a moment (`producer/topic_buffers.py`)

    def place_again(self) -> None:
        """Place again what was not sent."""
        ...


class QueueBuffer:
    """Records bound for one queue. The producer adds them, its sender sends them."""

    __slots__ = (
        "accepted_end",
        "broken_at",
        "doubtful",
        "group",
        "hold_until_ms",
        "in_flight",
        "next_sequence",
        "open",
        "pending",
        "poisoned",
        "proven",
        "queue",
        "ready",
        "strange_since_ms",
        "topic",
        "topic_id",
        "turned_back",
    )

    def __init__(self, topic: Held, group: GroupName, topic_id: TopicId, queue: int) -> None:
        self.topic = topic
        self.group = group
        self.topic_id = topic_id
        self.queue = queue
        self.pending: deque[PendingBatch] = deque()  # not sent, in order
        self.open: PendingBatch | None = None  # the last of them, while it takes more
        self.in_flight: deque[InFlightBatch] = deque()  # sent, in order of their sequences
        self.turned_back: list[PendingBatch] = []  # refused, in order; L3
        self.broken_at: int | None = None  # first sequence given back: the next are out of sequence
        self.doubtful = False  # a batch that gave its sequence back was doubtful
        self.poisoned = False  # L5
        self.proven = False  # L4
        self.next_sequence = 0
        self.accepted_end = 0  # sequence after the last batch known to be stored
        self.ready = False  # its sender has it in line
        self.hold_until_ms = 0  # refused just now: not before
        self.strange_since_ms = 0  # since when brokers say that they do not know the topic

    def may_send(self, now_ms: int) -> bool:
        """Whether a new batch may leave now (L2 to L5)."""
        in_flight = self.in_flight
        if self.poisoned or self.topic.held:
            return False
        if not in_flight:
            return now_ms >= self.hold_until_ms
        return (
            self.proven
            and self.broken_at is None
            and len(in_flight) < MAX_FLIGHTS
            and not any(f.unknown for f in in_flight)
        )

    def explains(self, batch: InFlightBatch) -> bool:
        """Whether a batch before this one gave its sequence back: this one was never next."""
        return self.broken_at is not None and self.broken_at < batch.sequence

    def begin(self, pending_batch: PendingBatch) -> PendingBatch:
        """Start a new batch: it takes the records from now on."""
        self.pending.append(pending_batch)
        self.open = pending_batch
        return pending_batch

    def depart(self, pending_batch: PendingBatch) -> InFlightBatch:
        """Put the first unsent batch in flight."""
        batch = InFlightBatch(pending_batch, self.next_sequence)
        self.next_sequence = batch.end_sequence
        self.in_flight.append(batch)
        return batch

    def accepted(self, batch: InFlightBatch) -> None:
        """Note that the broker has stored the batch."""
        self._over(batch)
        self.accepted_end = max(self.accepted_end, batch.end_sequence)
        self.proven = True
        self.strange_since_ms = 0
        self._settle()

    def refused(self, batch: InFlightBatch) -> None:
        """Requeue a batch that was certainly not appended, in order, once others are answered."""
        self._over(batch)
        self.turned_back.append(_pending_batch(batch, batch.records))
        self._break(batch)
        self._settle()

    def split(self, batch: InFlightBatch) -> None:
        """Queue a batch that was refused for its size again, as two halves."""
        middle = len(batch.records) // 2
        self._over(batch)
        self.turned_back += [
            _pending_batch(batch, batch.records[:middle]),
            _pending_batch(batch, batch.records[middle:]),
        ]
        self._break(batch)
        self._settle()

    def dropped(self, batch: InFlightBatch) -> None:
        """Drop a batch that was never appended and never will be; its callers have its error."""
        self._over(batch)
        self._break(batch)
        self._settle()

    def abandoned(self, batch: InFlightBatch) -> None:
        """Give up on a batch that may be stored or not: it is not retried any more (L5)."""
        self._over(batch)
        self.poisoned = True
        self._settle()

    def renewed(self) -> None:
        """Reset, because the link has started a new session; nothing is in flight."""
        assert not self.in_flight, "a session only ends while nothing is in flight"
        self.poisoned = self.proven = self.doubtful = False
        self.broken_at = None
        self.next_sequence = self.accepted_end = 0

    def take_unsent(self) -> list[PendingBatch]:
        """Take out all that was not sent; pinned records come back here, in their order.

        What was refused while others are in flight waits for their answers (L3). If those stay for
        good, so does it: it is older, and must not be put into this queue again after them. Of a
        batch that stayed itself, `_settle` decides by its keys (L10).
        """
        if any(batch.stays for batch in self.in_flight):
            for pending_batch in self.turned_back:
                if pending_batch.stayed is None:
                    pending_batch.records = _pinned(pending_batch.records)
        taken, self.pending, self.open = list(self.pending), deque(), None
        return taken

    def drain(self) -> list[PendingBatch]:
        """Take out everything that is not in flight."""
        pending = [*self.turned_back, *self.pending]
        _track_no_more(pending)
        self.turned_back, self.pending, self.open = [], deque(), None
        return pending

    def expire(self, now_ms: int) -> tuple[list[PendingBatch], list[InFlightBatch]]:
        """Take out the batches, unsent and in flight, whose deadline is over."""
        # All are checked: refused batches, and those moved here, need not be in deadline order.
        pending = [p for p in (*self.turned_back, *self.pending) if p.deadline_ms <= now_ms]
        if pending:
            self.turned_back = [p for p in self.turned_back if p.deadline_ms > now_ms]
            self.pending = deque(p for p in self.pending if p.deadline_ms > now_ms)
            if self.open in pending:
                self.open = None
            _track_no_more(pending)
        in_flight = [f for f in self.in_flight if f.deadline_ms <= now_ms]
        for batch in in_flight:
            self.abandoned(batch)
        return pending, in_flight

    def _over(self, batch: InFlightBatch) -> None:
        self.in_flight.remove(batch)
        batch.over = True
        batch.tracked = False

    def _break(self, batch: InFlightBatch) -> None:
        at = self.broken_at
        self.broken_at = batch.sequence if at is None else min(at, batch.sequence)
        self.doubtful = self.doubtful or batch.doubtful

    def _settle(self) -> None:
        if self.in_flight:
            return
        self.next_sequence = self.accepted_end
        self.broken_at, self.doubtful = None, False
        # In the order they were sent, not answered: unknown ones are retried one by one.
        turned_back = sorted(self.turned_back, key=lambda pending_batch: pending_batch.sequence)
        self.turned_back = []
        if any(pending_batch.stayed for pending_batch in turned_back):
            for pending_batch in turned_back:
                _pin_overtaken(pending_batch)
            self.topic.place_again()
        self.pending.extendleft(reversed(turned_back))


def _pending_batch(source: InFlightBatch, records: Iterable[Record]) -> PendingBatch:
    pending_batch = PendingBatch(source.deadline_ms, source.born_ms, source.sequence)
    pending_batch.records = list(records)
    pending_batch.doubtful = source.doubtful
    if source.stays:
        pending_batch.stayed, source.tracked = source, True
    pending_batch.bytes = sum(map(record_bytes, pending_batch.records))
    return pending_batch


def _pinned(records: Iterable[Record]) -> list[Record]:
    return [_pinned_record(record) for record in records]


def _pinned_record(record: Record) -> Record:
    return (*record[:5], True, record[6])


def _track_no_more(batches: Iterable[PendingBatch]) -> None:
    for pending_batch in batches:
        if pending_batch.stayed is not None:
            pending_batch.stayed.tracked = False


def _pin_overtaken(pending_batch: PendingBatch) -> None:
    """Pin the records of a batch that stayed, unless no later record of their key was placed."""
    if (source := pending_batch.stayed) is not None:
        free = source.free_keys
        pending_batch.records = [
            record if record[1] in free else _pinned_record(record)
            for record in pending_batch.records
        ]
        pending_batch.stayed = None
        source.tracked = False
