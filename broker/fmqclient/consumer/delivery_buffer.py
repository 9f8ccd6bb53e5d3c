"""Deliveries that wait to be handed to the program of one consumer, in order. No I/O."""

from collections import deque
from collections.abc import Iterable

from fmqclient.consumer.ack_tracker import Track
from fmqclient.consumer.message import Acker, Chunk, Message
from fmqcore.consume.ranges import Range, RangeSet
from fmqcore.ids import Offset


class Handout:
    """Deliveries of all sessions of a consumer, merged; `take` returns one message at a time."""

    def __init__(self, prefetch: int) -> None:
        self._quarter = max(1, prefetch // 4)  # ranges are no longer: so often credit is given back
        self.reports = True  # what is taken is handed over (else `hand_over` reports it)
        self._chunks: deque[Chunk] = deque()
        self._chunk: Chunk | None = None  # being handed out
        self._next = self._end = 0  # the range of it being handed out
        self._noted = 0  # reported up to here
        self._rest: list[Range] = []  # further ranges of it
        self._copy = False  # it may hold what was handed out before
        self._waiting: dict[Track, RangeSet] = {}  # what waits here, as long as none is handed out

    def __len__(self) -> int:
        """Number of messages that wait, copies included."""
        now = [(self._next, self._end), *self._rest] if self._chunk is not None else []
        waiting = [piece for chunk in self._chunks for piece in chunk.ranges]
        return _count((*now, *waiting))

    def take(self) -> Message | None:
        """Return the next message; None if none is there."""
        self._waiting.clear()
        while True:
            chunk = self._chunk
            if chunk is not None and self._next < self._end:
                offset = self._next
                self._next = offset + 1
                if self._copy and chunk.is_done(offset):  # by now
                    self._skip(chunk)
                    continue
                return Message(chunk, offset)
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
            if self.reports and self._chunk is not None:
                self._chunk.session.handing()
            return True
        if self._chunk is not None:
            chunk, self._chunk = self._chunk, None
            _release(chunk, kept=0 if self.reports else chunk.credit)
        if not self._chunks:
            return False
        chunk = self._chunk = self._chunks.popleft()
        self._rest = chunk.refine()
        chunk.leave_out(chunk.credit - _count(self._rest))
        self._copy = chunk.may_be_a_copy
        self._next = self._end = self._noted = 0
        return True

    def _skip(self, chunk: Chunk) -> None:
        """Skip the message just passed: it is done already, so it is not reported as handed."""
        upto = self._next
        self._next = upto - 1
        self.note()
        self._next = self._noted = upto
        chunk.leave_out(1)

    def note(self) -> None:
        """Report what the program got of the delivery that is being handed out."""
        chunk, first, end = self._chunk, self._noted, self._next
        if chunk is None or first >= end:
            return
        self._noted = end
        if self.reports:
            chunk.credit -= end - first
            chunk.session.handed(chunk, first, end)

    def deliver(self, chunk: Chunk) -> None:
        """Append a delivery to the end of the line."""
        if chunk.again:
            chunk.say_again()
            self._leave_out_waiting(chunk)
        elif (waiting := self._waiting.get(chunk.track)) is not None:
            for first, end in chunk.ranges:
                waiting.add(first, end)
        self._chunks.append(chunk)

    def _leave_out_waiting(self, chunk: Chunk) -> None:
        """Remove from a redelivery what still waits here: the program sees the first copy only."""
        waiting = self._waiting.get(chunk.track)
        if waiting is None:  # made once for all that comes at once
            waiting = self._waiting[chunk.track] = RangeSet()
            now = self._chunk
            if now is not None and now.track is chunk.track and now.term == chunk.term:
                for first, end in ((self._next, self._end), *self._rest):
                    waiting.add(Offset(first), Offset(end))
            for each in self._chunks:
                if each.track is chunk.track and each.term == chunk.term:
                    for first, end in each.ranges:
                        waiting.add(first, end)
        chunk.ranges = [gap for piece in chunk.ranges for gap in waiting.gaps(*piece)]
        for first, end in chunk.ranges:
            waiting.add(first, end)

    def refine(self, session: Acker) -> None:
        """Remove acked messages from waiting copies, before their acks are forgotten as stored."""
        for chunk in self._chunks:
            if chunk.session is session and chunk.may_be_a_copy:
                chunk.refine()
        self.note()
        if self._chunk is not None and self._chunk.session is session and self._copy:
            rest = [(Offset(self._next), Offset(self._end)), *self._rest]
            self._next = self._end = self._noted = 0
            self._chunk.ranges = [(first, end) for first, end in rest if first < end]
            self._rest = self._chunk.refine()
            waited, wait = _count(rest), _count(self._rest)
            self._chunk.leave_out(waited - wait)

    def drop(self, session: Acker, track: Track | None) -> None:
        """Give back what was not handed out, of one queue or of a whole session, for redelivery."""
        self.note()
        self._waiting.clear()
        kept: deque[Chunk] = deque()
        for chunk in self._chunks:
            if chunk.session is session and (track is None or chunk.track is track):
                for first, end in chunk.ranges:
                    session.nacked(chunk, first, end, 0, unseen=True)
                _release(chunk)
            else:
                kept.append(chunk)
        self._chunks = kept
        chunk_now = self._chunk
        if chunk_now is None or chunk_now.session is not session:
            return
        if track is None or chunk_now.track is track:
            left: list[tuple[int, int]] = [(self._next, self._end), *self._rest]
            for begin, until in left:
                if begin < until:
                    session.nacked(chunk_now, begin, until, 0, unseen=True)
            self._next = self._end = self._noted = 0
            self._rest = []
        if track is None:
            self._chunk = None  # a new session has its own credit


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in ranges if first < end)


def _release(chunk: Chunk, kept: int = 0) -> None:
    """Return the credit of a delivery that waits here no longer, except for `kept` messages."""
    records, chunk.credit = chunk.credit - kept, kept
    chunk.session.give_credit(chunk.bytes, records)
