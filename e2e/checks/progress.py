"""Progress of one consumer group in one queue: delivered, acked, promised messages. Pure.

A seek voids everything, and no outside observer knows the moment: messages that a member had in its
buffer still arrive, and their acks count for nothing. A client whose answer is lost asks once more:
the seek may be made twice, and the first one be lost again with its reader. So from a `Seeking` on
nothing is known until it is answered and the very message that it went to has arrived (`waiting`);
that message may come once more. If this cannot be determined (a seek without an answer, or another
one meanwhile), nothing is known any more (`blurred`).
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from e2e.history.client_events import Acked, Delivered, Nacked, Seeking, Skipped, Sought


class Confirmed(NamedTuple):
    """An ack by `who` was reported as stored."""

    at_ms: float
    who: str
    offset: int
    acked_ms: float
    reported: bool = True  # False: stored at an unknown time between `acked_ms` and `at_ms`


Progress = Delivered | Acked | Nacked | Confirmed | Seeking | Sought | Skipped
"""The events of one consumer group in one queue."""


class Arrival(NamedTuple):
    """A message arrived: what was known about it at that moment."""

    event: Delivered
    first: bool  # earlier deliveries do not count: a seek, or a reused offset
    before: Delivered | None  # the same message, since the last seek
    nacked: bool  # it was to be redelivered
    acked_ms: float | None  # when the same member had acked it
    confirmed: Confirmed | None
    sought: Confirmed | None  # the last seek: as an ack that was confirmed when it was answered
    skipped: int = 0  # messages that the member was informed are deleted
    early: bool = False  # it also came after the last seek, before the answer


class Promised(NamedTuple):
    """From `at_ms` on everything up to `floor` is promised; `by` None: nothing is (a seek)."""

    at_ms: float
    floor: int
    by: Confirmed | None


class Read:
    """Everything that the checks ask about one consumer group in one queue, in one pass."""

    __slots__ = ("_confirmed", "acked", "arrivals", "ever", "got", "promises", "skipped_to")

    def __init__(self, events: Iterable[Progress]) -> None:
        reading = _Reading()
        self.arrivals: list[Arrival] = []  # without those about which nothing is known
        self.promises: list[Promised] = []
        self._confirmed: dict[int, list[Confirmed]] = defaultdict(list)
        for event in events:
            if isinstance(event, Delivered):
                self._arrive(reading, event)
                continue
            floor = reading.floor
            reading.take(event)
            if isinstance(event, Confirmed):
                self._confirmed[event.offset].append(event)
                if reading.floor > floor:
                    self.promises.append(Promised(event.at_ms, reading.floor, event))
            elif not reading.known:
                self.promises.append(Promised(event.at_ms, -1, None))
        self.ever = reading.ever
        self.got = reading.got_ever
        self.acked = reading.acked_ever
        self.skipped_to = reading.skipped_to

    def behind(self, promised: Promised, offset: int) -> Confirmed:
        """Return the ack that promises this offset, which is below what is promised."""
        until_ms = promised.at_ms
        void = [p.at_ms for p in self.promises if p.by is None and p.at_ms <= until_ms]
        since_ms = max(void, default=0.0)
        acks = self._confirmed.get(offset, ())
        known = next((c for c in acks if since_ms <= c.at_ms <= until_ms), promised.by)
        assert known is not None, "something is promised"
        return known

    def _arrive(self, reading: "_Reading", event: Delivered) -> None:
        offset = event.offset
        first = reading.forget_another(event)
        if reading.moved_once_more(event):
            self.promises.append(Promised(event.at_ms, -1, None))
        first |= reading.restarted
        before = reading.delivered.get(offset)
        nacked = offset in reading.nacked
        acked_ms = reading.acked[event.who].get(offset)
        confirmed = reading.confirmed.get(offset)
        reading.take(event)
        if reading.known:
            self.arrivals.append(
                Arrival(
                    *(event, first, before, nacked, acked_ms, confirmed, reading.sought),
                    skipped=reading.skipped[event.who],
                    early=offset in reading.early,
                )
            )
        else:
            self.promises.append(Promised(event.at_ms, -1, None))


class _Reading:
    """The state of one pass; events are fed in their order."""

    def __init__(self) -> None:
        self.delivered: dict[int, Delivered] = {}  # offset → the newest, since the last seek
        self.ever: set[int] = set()  # offsets delivered at all
        self.got_ever: set[tuple[int, int]] = set()  # offset, record
        self.acked_ever: set[int] = set()
        self.skipped_to = 0  # target of a seek forward
        self.acked: dict[str, dict[int, float]] = defaultdict(
            dict
        )  # client → offset → when it acked
        self.nacked: set[int] = set()  # to be redelivered
        self.skipped: dict[str, int] = defaultdict(int)  # client → how many it was informed of
        self.confirmed: dict[int, Confirmed] = {}
        self.first = -1  # the lowest offset delivered since the last seek
        self.floor = -1  # everything from `first` to here is confirmed
        self.blurred = False
        self.restarted = True  # no message came since the last seek
        self.sought: Confirmed | None = None
        self._waiting: int | None = None  # the target of the last seek
        self._asked = False  # the seek has no answer yet
        self._asked_ms = 0.0
        self._meanwhile: set[int] = set()  # messages that came before the answer
        self.early: set[int] = set()  # such messages of the last answered seek
        self._twice = -1  # this message may come once more
        self._got: set[tuple[str, int]] = set()  # delivered since the last seek: client, offset
        self._counted: set[tuple[str, int]] = set()  # acks that are not void

    @property
    def known(self) -> bool:
        """Whether anything is known now."""
        return not self.blurred and self._waiting is None

    def take(self, event: Progress) -> None:
        """Take one event."""
        match event:
            case Delivered():
                self._deliver(event)
            case Acked():
                self.acked_ever.add(event.offset)
                if self.known and (event.who, event.offset) in self._got:
                    acked = self.acked[event.who]
                    if acked.get(event.offset, -inf) <= self.delivered[event.offset].at_ms:
                        acked[event.offset] = event.at_ms  # of the latest delivery
                    self._counted.add((event.who, event.offset))
            case Nacked():
                self.nacked.add(event.offset)
                self.acked[event.who].pop(event.offset, None)
            case Confirmed():
                if self.known and (event.who, event.offset) in self._counted:
                    self._confirm(event)
            case Skipped():
                self.skipped[event.who] += event.messages
            case Seeking():
                self._seek(event)
            case Sought():
                self._answer(event)

    def moved_once_more(self, event: Delivered) -> bool:
        """Whether the target of a seek came again: most likely the seek was made twice."""
        again = self.known and event.offset == self._twice
        if again:
            self._twice = -1
            self._clear()
        return again

    def forget_another(self, event: Delivered) -> bool:
        """Forget an offset that was lost and given again: it is another message now (I1)."""
        offset, before = event.offset, self.delivered.get(event.offset)
        if before is None or before.record == event.record:
            return False
        del self.delivered[offset]
        self.nacked.discard(offset)
        self.confirmed.pop(offset, None)
        for acked in self.acked.values():
            acked.pop(offset, None)
        return True

    def _deliver(self, event: Delivered) -> None:
        offset = event.offset
        if self._asked:
            self._meanwhile.add(offset)
        elif offset == self._waiting:
            self._waiting = None
        if self.known:
            self.restarted = False
            self.delivered[offset] = event
            self._got.add((event.who, offset))
            self.nacked.discard(offset)
            if self.first < 0 or offset < self.first:
                self.first = self.floor = offset
        self.ever.add(offset)
        self.got_ever.add((offset, event.record))

    def _confirm(self, event: Confirmed) -> None:
        self.confirmed.setdefault(event.offset, event)
        while self.floor in self.confirmed:
            self.floor += 1

    def _seek(self, event: Seeking) -> None:
        self.blurred |= self._waiting is not None or event.offset not in self.ever
        self.skipped_to = max(self.skipped_to, event.offset)
        self._waiting, self._twice = event.offset, -1
        self._asked, self._meanwhile = True, set()
        self._asked_ms = event.at_ms
        self._clear()

    def _answer(self, event: Sought) -> None:
        self.blurred |= bool(event.reason) or self._waiting is None
        if self._waiting is not None:
            went = event.offset if event.offset >= 0 else self._waiting
            self._waiting = self._twice = went
            if self._waiting in self._meanwhile:
                self._waiting = None
                self.early = self._meanwhile
            self.sought = Confirmed(event.at_ms, event.who, self._twice, self._asked_ms)
        self._asked = False

    def _clear(self) -> None:
        self.restarted = True
        self.early = set()
        self.delivered.clear()
        self.acked.clear()
        self.nacked.clear()
        self.confirmed.clear()
        self._got.clear()
        self._counted.clear()
        self.first = self.floor = -1
