"""Deliveries that wait to be handed to the program of one consumer, in order. No I/O."""

from collections import deque
from collections.abc import Iterable

from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.message import Acker, DeliveredBatch, Message
from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.ids import Offset


class DeliveryBuffer:
    """Deliveries of all sessions of a consumer, merged; `take` returns one message at a time."""

    def __init__(self, prefetch: int) -> None:
        self._quarter = max(1, prefetch // 4)  # maximum range; credit is given back per range
        self.reports = True  # what is taken is handed over (else `hand_over` reports it)
        self._batches: deque[DeliveredBatch] = deque()
        self._batch: DeliveredBatch | None = None  # being handed out
        self._next = self._end = 0  # the range that is being handed out
        self._noted = 0  # reported up to here
        self._rest: list[Range] = []  # its further ranges
        self._copy = False  # it may hold what was handed out before
        self._waiting: dict[
            AckTracker, RangeSet
        ] = {}  # what waits here, as long as none is handed out

    def __len__(self) -> int:
        """Number of messages that wait, copies included."""
        now = [(self._next, self._end), *self._rest] if self._batch is not None else []
        waiting = [piece for batch in self._batches for piece in batch.ranges]
        return _count((*now, *waiting))

    def take(self) -> Message | None:
        """Return the next buffered message; None if there is none."""
        self._waiting.clear()
        while True:
            batch = self._batch
            if batch is not None and self._next < self._end:
                offset = self._next
                self._next = offset + 1
                if self._copy and batch.is_done(offset):  # by now
                    self._skip(batch)
                    continue
                return Message(batch, offset)
            if not self._advance():
                return None

    def _advance(self) -> bool:
        """Go to the next range to hand out, of this delivery or the next; False if none is left."""
        self.note()
        if self._rest:
            first, end = self._rest[0]
            if end - first > self._quarter:
                end = Offset(first + self._quarter)
                self._rest[0] = (end, self._rest[0][1])
            else:
                self._rest.pop(0)
            self._next, self._end, self._noted = first, end, first
            if self.reports and self._batch is not None:
                self._batch.session.handing()
            return True
        if self._batch is not None:
            batch, self._batch = self._batch, None
            _release(batch, kept=0 if self.reports else batch.credit)
        if not self._batches:
            return False
        batch = self._batch = self._batches.popleft()
        self._rest = batch.refine()
        batch.leave_out(batch.credit - _count(self._rest))
        self._copy = batch.may_be_a_copy
        self._next = self._end = self._noted = 0
        return True

    def _skip(self, batch: DeliveredBatch) -> None:
        """Skip the message just passed: it is done already, so it is not reported as handed."""
        upto = self._next
        self._next = upto - 1
        self.note()
        self._next = self._noted = upto
        batch.leave_out(1)

    def note(self) -> None:
        """Report what the program got of the delivery that is being handed out."""
        batch, first, end = self._batch, self._noted, self._next
        if batch is None or first >= end:
            return
        self._noted = end
        if self.reports:
            batch.credit -= end - first
            batch.session.note_handed_over(batch, first, end)

    def deliver(self, batch: DeliveredBatch) -> None:
        """Append a delivery to the end of the line."""
        if batch.again:
            batch.report_again()
            self._leave_out_waiting(batch)
        elif (waiting := self._waiting.get(batch.tracker)) is not None:
            for first, end in batch.ranges:
                waiting.add(first, end)
        self._batches.append(batch)

    def _leave_out_waiting(self, batch: DeliveredBatch) -> None:
        """Remove from a redelivery what still waits here: the program sees the first copy only."""
        waiting = self._waiting.get(batch.tracker)
        if waiting is None:  # made once for all that comes at once
            waiting = self._waiting[batch.tracker] = RangeSet()
            now = self._batch
            if now is not None and now.tracker is batch.tracker and now.term == batch.term:
                for first, end in ((self._next, self._end), *self._rest):
                    waiting.add(Offset(first), Offset(end))
            for other in self._batches:
                if other.tracker is batch.tracker and other.term == batch.term:
                    for first, end in other.ranges:
                        waiting.add(first, end)
        batch.ranges = [gap for piece in batch.ranges for gap in waiting.gaps(*piece)]
        for first, end in batch.ranges:
            waiting.add(first, end)

    def refine(self, session: Acker) -> None:
        """Remove acked messages from waiting copies, before their acks are forgotten as stored."""
        for batch in self._batches:
            if batch.session is session and batch.may_be_a_copy:
                batch.refine()
        self.note()
        if self._batch is not None and self._batch.session is session and self._copy:
            rest = [(Offset(self._next), Offset(self._end)), *self._rest]
            self._next = self._end = self._noted = 0
            self._batch.ranges = [(first, end) for first, end in rest if first < end]
            self._rest = self._batch.refine()
            waited, wait = _count(rest), _count(self._rest)
            self._batch.leave_out(waited - wait)

    def drop(self, session: Acker, tracker: AckTracker | None) -> None:
        """Give back what was not handed out, of one queue or of a whole session, for redelivery."""
        self.note()
        self._waiting.clear()
        kept: deque[DeliveredBatch] = deque()
        for batch in self._batches:
            if batch.session is session and (tracker is None or batch.tracker is tracker):
                for first, end in batch.ranges:
                    session.nacked(batch, first, end, 0, unseen=True)
                _release(batch)
            else:
                kept.append(batch)
        self._batches = kept
        batch_now = self._batch
        if batch_now is None or batch_now.session is not session:
            return
        if tracker is None or batch_now.tracker is tracker:
            left: list[tuple[int, int]] = [(self._next, self._end), *self._rest]
            for begin, until in left:
                if begin < until:
                    session.nacked(batch_now, begin, until, 0, unseen=True)
            self._next = self._end = self._noted = 0
            self._rest = []
        if tracker is None:
            self._batch = None  # a new session has its own credit


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in ranges if first < end)


def _release(batch: DeliveredBatch, kept: int = 0) -> None:
    """Return the credit of a delivery that waits here no longer, except for `kept` messages."""
    records, batch.credit = batch.credit - kept, kept
    batch.session.give_credit(batch.bytes, records)
