"""The queue buffer: a producer's records for one (group, topic, queue), in order. No I/O.

How order and one attempt at a time are kept (numbered as in `docs/internals/invariants.md`; the
code calls a queue buffer a lane, an unsent batch a pile, and a batch in flight a flight):

L1. Sequences are given when a batch is first sent, one after the other; the broker appends a batch
    only if it is the next one, or answers a retry from its table of the last `MAX_FLIGHTS` batches.
L2. A flight whose outcome is unknown (no answer, or DELIVERY_UNKNOWN) is only ever sent again to
    this very lane, the same bytes under the same sequence, until its deadline. While there is one,
    nothing new leaves the lane: later records wait, or the producer puts them into other groups.
L3. A flight that was certainly not appended (every attempt was refused by a typed error) gives its
    sequence back. The flights sent after it are then refused as out of sequence; when all of them
    have been answered, they go, in their order, to the front of the lane or to another group.
L4. Until the broker has accepted one batch of a lane in the link's present session, the lane has
    one flight only: a session may start at any sequence, so L3 would not hold.
L5. A flight that was given up as unknown leaves a hole that only a new session can close: the lane
    is `poisoned`, and sends nothing until its link, with nothing in flight, has started a session.
L8. Sessions of a link are numbered, under one producer id. A broker refuses batches that arrive
    late, over a connection given up long ago, from a session before the newest it knows. So they
    are not stored after batches that were sent later.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from fmqclient.producer.batches import Flight, Pile, Record, record_bytes
from fmqcore.ids import GroupName, TopicId

MAX_FLIGHTS: Final = 5
"""Number of batches that a broker keeps per producer and queue to recognise a retry."""


class Held(Protocol):
    """The topic as a queue buffer needs it."""

    held: bool  # nothing new is sent for a moment (`producer/topic_buffers.py`)


class Lane:
    """Records bound for one queue. The producer adds them, its link sends them."""

    __slots__ = (
        "accepted_end",
        "broken",
        "flights",
        "group",
        "hold_until_ms",
        "next_sequence",
        "open",
        "piles",
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
        self.piles: deque[Pile] = deque()  # not sent, in order
        self.open: Pile | None = None  # the last of them, while it takes more
        self.flights: deque[Flight] = deque()  # sent, in order of their sequences
        self.turned_back: list[Pile] = []  # refused, in order; L3
        self.broken = False  # a refusal explains that what follows is out of sequence
        self.poisoned = False  # L5
        self.proven = False  # L4
        self.next_sequence = 0
        self.accepted_end = 0  # sequence after the last batch known to be stored
        self.ready = False  # its link has it in line
        self.hold_until_ms = 0  # refused just now: not before
        self.strange_since_ms = 0  # since when brokers say that they do not know the topic

    def may_send(self, now_ms: int) -> bool:
        """Whether a new batch may leave now (L2 to L5)."""
        flights = self.flights
        if self.poisoned or self.topic.held:
            return False
        if not flights:
            return now_ms >= self.hold_until_ms
        return (
            self.proven
            and not self.broken
            and len(flights) < MAX_FLIGHTS
            and not any(f.unknown for f in flights)
        )

    def begin(self, pile: Pile) -> Pile:
        """Start a new batch: it takes the records from now on."""
        self.piles.append(pile)
        self.open = pile
        return pile

    def depart(self, pile: Pile) -> Flight:
        """Turn the first unsent batch into a flight."""
        flight = Flight(pile, self.next_sequence)
        self.next_sequence = flight.end_sequence
        self.flights.append(flight)
        return flight

    def accepted(self, flight: Flight) -> None:
        """Note that the broker has stored the batch."""
        self._over(flight)
        self.accepted_end = max(self.accepted_end, flight.end_sequence)
        self.proven = True
        self.strange_since_ms = 0
        self._settle()

    def refused(self, flight: Flight) -> None:
        """Requeue a batch that was certainly not appended, in order, once others are answered."""
        self._over(flight)
        self.turned_back.append(_pile(flight, flight.records))
        self.broken = True
        self._settle()

    def split(self, flight: Flight) -> None:
        """Queue a batch that was refused for its size again, as two halves."""
        middle = len(flight.records) // 2
        self._over(flight)
        self.turned_back += [
            _pile(flight, flight.records[:middle]),
            _pile(flight, flight.records[middle:]),
        ]
        self.broken = True
        self._settle()

    def dropped(self, flight: Flight) -> None:
        """Drop a batch that was never appended and never will be; its callers have its error."""
        self._over(flight)
        self.broken = True
        self._settle()

    def abandoned(self, flight: Flight) -> None:
        """Give up on a batch that may be stored or not: it is not retried any more (L5)."""
        self._over(flight)
        self.poisoned = True
        self._settle()

    def renewed(self) -> None:
        """Reset, because the link has started a new session; nothing is in flight."""
        assert not self.flights, "a session only ends while nothing is in flight"
        self.poisoned = self.proven = self.broken = False
        self.next_sequence = self.accepted_end = 0

    def take_unsent(self) -> list[Pile]:
        """Take out all that was not sent; pinned records come back here, in their order.

        What was refused while others are in flight stays (L3). If those stay for good, so does it:
        it is older, and must not be put into this queue again after them.
        """
        if any(flight.stays for flight in self.flights):
            for pile in self.turned_back:
                pile.records = _pinned(pile.records)
        taken, self.piles, self.open = list(self.piles), deque(), None
        return taken

    def drain(self) -> list[Pile]:
        """Take out everything that is not in flight."""
        piles = [*self.turned_back, *self.piles]
        self.turned_back, self.piles, self.open = [], deque(), None
        return piles

    def expire(self, now_ms: int) -> tuple[list[Pile], list[Flight]]:
        """Take out the unsent batches and flights whose deadline is over."""
        # All are checked: refused batches, and those moved here, need not be in deadline order.
        piles = [p for p in (*self.turned_back, *self.piles) if p.deadline_ms <= now_ms]
        if piles:
            self.turned_back = [p for p in self.turned_back if p.deadline_ms > now_ms]
            self.piles = deque(p for p in self.piles if p.deadline_ms > now_ms)
            if self.open in piles:
                self.open = None
        flights = [f for f in self.flights if f.deadline_ms <= now_ms]
        for flight in flights:
            self.abandoned(flight)
        return piles, flights

    def _over(self, flight: Flight) -> None:
        self.flights.remove(flight)
        flight.over = True

    def _settle(self) -> None:
        if self.flights:
            return
        self.next_sequence = self.accepted_end
        self.broken = False
        # In the order they were sent, not answered: unknown ones are retried one by one.
        turned_back = sorted(self.turned_back, key=lambda pile: pile.sequence)
        self.turned_back = []
        self.piles.extendleft(reversed(turned_back))


def _pile(source: Pile | Flight, records: Iterable[Record]) -> Pile:
    pile = Pile(source.deadline_ms, source.born_ms, source.sequence)
    stays = isinstance(source, Flight) and source.stays
    pile.records = _pinned(records) if stays else list(records)
    pile.bytes = sum(map(record_bytes, pile.records))
    return pile


def _pinned(records: Iterable[Record]) -> list[Record]:
    return [(*record[:5], True, record[6]) for record in records]
