"""One queue's progress for one consumer group: done, in flight, to be redelivered.

Every offset is in exactly one place:

    below `floor`        done
    acked                done, above the floor
    flying               delivered, waiting for an ack until a deadline
    delayed              given back (nack), due at a later time
    due                  to be redelivered now (expired, due nack, session gone)
    dead                 put aside by the delivery policy, until its copy is stored
    from `next_offset`   never delivered

Retry is this state, never a rewritten message. Whether and when a piece that comes back is
redelivered is the delivery policy's decision (`delivery_policy.py`). Only floor and acked are
stored (`OffsetEntry`); the rest is lost with the serving broker: at-least-once. Time is given.

Offsets above the highest one that the holder has acked or nacked are *untouched*: most likely they
wait in the holder's buffer. They are not overdue while the holder acks anything at all, up to a
limit, so that a slow consumer does not get everything twice. Offsets that the holder has passed
over are overdue a full timeout after that.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fmqcore.batch.offset_entry import MAX_RANGES
from fmqcore.consume.delivery_policy import (
    Cause,
    DeliveryPolicy,
    Removal,
    Removed,
    Returned,
    redeliver,
)
from fmqcore.consume.ranges import Piece, Range, RangeMap, RangeSet
from fmqcore.ids import Offset

NEVER: Final = 1 << 62
"""`QueueProgress.wake_ms` if nothing has a deadline."""


class Limits(NamedTuple):
    """Limits on the deliveries of one queue."""

    max_in_flight_records: int = 20_000
    max_ranges: int = 1000
    """Above this number of ranges set aside (acked, delayed or due) nothing new is delivered until
    they close up; earlier deliveries may still split into more."""
    most_acked: int = MAX_RANGES // 2
    """At this many acked ranges only acks that raise the floor count: one entry stores them all."""

    @property
    def most_ranges(self) -> int:
        """Most ranges that can exist, with every other record in flight acked."""
        return self.max_ranges + self.max_in_flight_records


class Lease(NamedTuple):
    """A range to send; `deliveries` counts how often a program got it, including this time."""

    first: Offset
    end: Offset
    deliveries: int


class _Flying(NamedTuple):
    deadline_ms: int
    latest_ms: int  # overdue then even if it is untouched
    deliveries: int  # this one included
    seen: bool = True  # its holder's program got it, or its holder does not report it
    number: int = 0  # of the lease: its holder hands out in this order

    @property
    def counted(self) -> int:
        """How often a program got the range, if its holder goes away now."""
        return self.deliveries if self.seen else self.deliveries - 1


class _Delayed(NamedTuple):
    due_ms: int
    deliveries: int


_Places = RangeMap[_Flying] | RangeMap[_Delayed] | RangeMap[int]


class QueueProgress:
    """The state machine of one queue. Cost is per range, never per record."""

    __slots__ = (
        "_acked",
        "_dead",
        "_delayed",
        "_due",
        "_flying",
        "_limits",
        "_policy",
        "_removed",
        "_touched",
        "floor",
        "next",
        "seek_number",
        "start_number",
        "wake_ms",
    )

    def __init__(
        self,
        floor: Offset,
        acked: Sequence[Range] = (),
        limits: Limits | None = None,
        seek_number: int = 0,
        policy: DeliveryPolicy = redeliver,
        start_number: int = 0,
    ):
        self._limits = limits or Limits()
        self._policy = policy
        self._removed: list[Removed] = []
        self.floor = floor
        self.seek_number = seek_number  # which seek it started from (`OffsetEntry.seek_number`)
        self.start_number = start_number  # as in `OffsetEntry`
        self._acked = RangeSet(acked)
        self._flying: RangeMap[_Flying] = RangeMap()
        self._delayed: RangeMap[_Delayed] = RangeMap()
        self._due: RangeMap[int] = RangeMap()  # value: deliveries so far
        self._dead: RangeMap[int] = RangeMap()
        self.wake_ms = NEVER  # the latest time to call `expire`; may be too early, never too late
        self._touched = floor  # one past the highest offset that the holder acked or nacked
        # Gaps between acked ranges were in flight once: they come first, as if never delivered.
        self.next = max(floor, self._acked.last_end or floor)
        for first, end in self._acked.gaps(floor, self.next):
            self._due.put(first, end, 0)
        self._raise_floor()

    # ---- queries
    @property
    def in_flight_records(self) -> int:
        """Records delivered and neither acked, nacked nor expired."""
        return self._flying.records

    @property
    def acked(self) -> tuple[Range, ...]:
        """The ranges that are done above the floor."""
        return tuple(self._acked)

    @property
    def is_full(self) -> bool:
        """Whether acks above the floor are ignored now; their records are redelivered."""
        return len(self._acked) >= self._limits.most_acked

    def has_done(self, first: Offset, end: Offset) -> bool:
        """Whether all of [first, end) is done."""
        first = max(first, self.floor)
        return first >= end or not self._acked.gaps(first, end)

    @property
    def waiting_records(self) -> int:
        """Records to be redelivered, now or later."""
        return self._due.records + self._delayed.records

    @property
    def waits_for(self) -> Offset:
        """The lowest offset to deliver once it is stored and there is room."""
        again = self._due.first()
        return self.next if again is None else again.first

    def peek(self, up_to: Offset) -> Range | None:
        """Return the next range to deliver, redeliveries first; None if none is left or no room."""
        room = self._limits.max_in_flight_records - self._flying.records
        if room <= 0:
            return None
        again = self._due.first()
        if again is not None and again.first < up_to:
            return again.first, Offset(min(again.end, up_to, again.first + room))
        if self.next >= up_to or self._aside() >= self._limits.max_ranges:
            return None
        return self.next, Offset(min(up_to, self.next + room))

    # ---- changes
    def lease(
        self,
        first: Offset,
        end: Offset,
        deadline_ms: int,
        latest_ms: int = 0,
        *,
        seen: bool = True,
        number: int = 0,
    ) -> list[Lease]:
        """Put into flight and return what may be delivered of [first, end), without acked records.

        `seen=False`: the holder reports what it hands over to its program (`handed`), and only
        that counts as a delivery. `number` rises from lease to lease of one holder.
        """
        leased = [Lease(p.first, p.end, p.value + 1) for p in self._due.take(first, end)]
        fresh = max(first, self.next)
        if fresh < end:
            assert fresh == self.next, "fresh offsets are delivered without a hole"  # C1
            leased.append(Lease(fresh, end, 1))
            self.next = end
        for piece in leased:
            latest = max(deadline_ms, latest_ms)
            flying = _Flying(deadline_ms, latest, piece.deliveries, seen, number)
            self._flying.put(piece.first, piece.end, flying)
        if leased:
            self.wake_ms = min(self.wake_ms, deadline_ms)
        return leased

    def unlease(self, first: Offset, end: Offset, now_ms: int) -> None:
        """Undo a lease that was not sent; its range comes back, even if it was fresh before."""
        for piece in self._flying.take(first, end):
            self._come_back(piece, Cause.UNSENT, piece.value.deliveries - 1, now_ms)

    def note_handed_over(self, first: Offset, end: Offset) -> None:
        """The holder's program got what is in flight of a range: count that as a delivery."""
        for piece in self._flying.take(first, end):
            self._flying.put(piece.first, piece.end, piece.value._replace(seen=True))

    def first_unseen(self) -> tuple[int, Offset] | None:
        """Return number and first offset of the oldest lease with an unseen part; None if none."""
        unseen = ((p.value.number, p.first) for p in self._flying if not p.value.seen)
        return min(unseen, default=None)

    @property
    def has_seen(self) -> bool:
        """Whether a program works on some of the records now."""
        return any(piece.value.seen for piece in self._flying)

    def touch(self, first: Offset, end: Offset, deadline_ms: int) -> None:
        """Call before the holder's ack or nack: what it passed over is due by `deadline_ms`."""
        for piece in self._flying.take(self._touched, first):
            passed = piece.value._replace(deadline_ms=max(piece.value.deadline_ms, deadline_ms))
            self._flying.put(piece.first, piece.end, passed)
        self._touched = max(self._touched, min(end, self.next))

    def ack(self, first: Offset, end: Offset, up_to: Offset | None = None) -> bool:
        """Mark a range done, redeliveries included. Return True if that changed anything.

        Below `up_to` (the journal's end) this includes records not delivered here: a consumer
        repeats to a new reader the acks that the last one may not have stored. What it left out is
        delivered first. More ranges than the last reader can have set aside are not taken: no
        consumer was ever given that much. Nor is anything above the floor while `is_full`.
        """
        limit = self.next
        if up_to is not None and self._aside() < self._limits.most_ranges:
            limit = max(limit, up_to)
        first, end = max(first, self.floor), min(end, limit)
        if first >= end or (first > self.floor and self.is_full):
            return False
        news = end > self.next
        if first > self.next:
            self._due.put(self.next, first, 0)
        self.next = max(self.next, end)
        news |= bool(self._flying.take(first, end))
        news |= bool(self._due.take(first, end))
        news |= bool(self._delayed.take(first, end))
        news |= bool(self._dead.take(first, end))
        if news:
            self._acked.add(first, end)
            self._raise_floor()
        return news

    def nack(
        self, first: Offset, end: Offset, due_ms: int, now_ms: int, *, unseen: bool = False
    ) -> bool:
        """Return to the queue, at `due_ms`, what is in flight of a range. True if there was any.

        `unseen`: the holder gives back records that its program never got.
        """
        back = self._flying.take(first, end)
        for piece in back:
            count = piece.value.deliveries - unseen
            self._come_back(piece, Cause.NACKED, count, now_ms, due_ms)
        return bool(back)

    def expire(self, now_ms: int, alive_until_ms: int = 0) -> bool:
        """Take back what is overdue, make due what was delayed. Return True if there was any.

        `alive_until_ms`: a full timeout after the holder's last ack or nack in any queue.
        """
        if now_ms < self.wake_ms:
            return False
        late: list[Piece[_Flying]] = []
        moments: list[int] = []
        for flying in self._flying:
            deadline_ms, latest_ms = flying.value[:2]
            if flying.first >= self._touched:
                deadline_ms = max(deadline_ms, min(alive_until_ms, latest_ms))
            if deadline_ms <= now_ms:
                late.append(flying)
            else:
                moments.append(deadline_ms)
        ripe = [p for p in self._delayed if p.value.due_ms <= now_ms]
        for delayed in ripe:
            self._delayed.take(delayed.first, delayed.end)
            self._due.put(delayed.first, delayed.end, delayed.value.deliveries)
        for flying in late:
            self._flying.take(flying.first, flying.end)
            self._come_back(flying, Cause.OVERDUE, flying.value.counted, now_ms)
        moments += [p.value.due_ms for p in self._delayed]
        self.wake_ms = min(moments, default=NEVER)
        return bool(late or ripe)

    def session_gone(self, now_ms: int) -> bool:
        """The holder is gone: take back what is in flight, and keep the counts."""
        self._touched = self.floor
        back = self._flying.take_all()
        for piece in back:
            self._come_back(piece, Cause.HOLDER_GONE, piece.value.counted, now_ms)
        return bool(back)

    def take_removed(self) -> list[Removed]:
        """Return what the policy has taken out of the deliveries since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def seek(self, offset: Offset, seek_number: int = 0) -> None:
        """Start again at `offset` and forget all else. `seek_number`: the version of this seek."""
        self.seek_number = max(seek_number, self.seek_number + 1)
        self.floor = self.next = self._touched = offset
        self._acked = RangeSet()
        self._flying, self._delayed = RangeMap(), RangeMap()
        self._due, self._dead = RangeMap(), RangeMap()
        self.wake_ms = NEVER

    def skip_to(self, offset: Offset) -> list[Range]:
        """Mark done what retention removed below `offset`; return the ranges not acked."""
        if offset <= self.floor:
            return []
        unacked = self._acked.gaps(self.floor, offset)
        low, self.floor = self.floor, offset
        self.next = max(self.next, offset)
        maps: tuple[_Places, ...]
        maps = (self._flying, self._delayed, self._due, self._dead)
        for where in maps:
            where.take(low, offset)
        self._acked.remove_below(offset)
        self._raise_floor()
        return unacked

    def _aside(self) -> int:
        return len(self._acked) + len(self._delayed) + len(self._due) + len(self._dead)

    def _come_back(
        self, piece: Piece[_Flying], cause: Cause, deliveries: int, now_ms: int, due_ms: int = 0
    ) -> None:
        """Do with a piece that was in flight what the policy decides."""
        first, end, _ = piece
        verdict = self._policy(Returned(first, end, deliveries, cause, now_ms, due_ms))
        if isinstance(verdict, Removal):
            self._removed.append(Removed(first, end, deliveries, verdict))
            if verdict is Removal.DEAD_LETTER:
                self._dead.put(first, end, deliveries)
            else:
                self._acked.add(first, end)
                self._raise_floor()
        elif verdict.due_ms <= now_ms:
            self._due.put(first, end, deliveries)
        else:
            self._delayed.put(first, end, _Delayed(verdict.due_ms, deliveries))
            self.wake_ms = min(self.wake_ms, verdict.due_ms)

    def _raise_floor(self) -> None:
        """C2: the floor only rises; only `seek` sets it back."""
        for first, end in self._acked:
            if first <= self.floor:
                self.floor = max(self.floor, end)
            break
        self._acked.remove_below(self.floor)
        self.next = max(self.next, self.floor)

    def check(self) -> None:
        """Assert C1, every offset in exactly one place (for tests; the cost is per range)."""
        pieces: list[Range] = [*self._acked]
        places: tuple[_Places, ...] = (self._flying, self._delayed, self._due, self._dead)
        for where in places:
            pieces += [(p.first, p.end) for p in where]
        at = self.floor
        for first, end in sorted(pieces):
            assert first == at, f"hole or overlap at {at}: next place begins at {first}"
            at = end
        assert at == self.next, f"places end at {at}, next is {self.next}"
