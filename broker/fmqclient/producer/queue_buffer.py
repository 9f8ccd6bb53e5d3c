"""One lane of a producer: its records for one (group, topic, queue), in order. No I/O.

How order and exactly-one-try-at-a-time are kept (numbered as in `docs/invariants.md`):

L1. Sequences are given when a batch is first sent, one after the other; the broker appends a batch
   only if it is the next one, or answers a retry from its table of the last `MAX_FLIGHTS` batches.
L2. A flight whose outcome is unknown (no answer, or DELIVERY_UNKNOWN) is only ever sent again to
   this very lane, the same bytes under the same sequence, until its deadline. While there is one,
   nothing new leaves the lane: later records wait, or the producer puts them into other groups.
L3. A flight that was certainly not appended (refused by a typed error, every attempt of it) gives
   its sequence back. What was sent after it is then refused as out of sequence; when all of them
   have been answered, they go, in their order, to the front of the lane or to another group.
L4. Until a lane has had one batch accepted by the broker in the link's present session, it has one
   flight only: a session may begin at any sequence, so L3 would not hold.
L5. A flight that was given up unknown leaves a hole that only a new session can close: the lane is
   `poisoned`, and sends nothing until its link has begun one (when nothing of it is in flight).
L8. Sessions of a link are numbered, under one producer id: a broker refuses what comes late, over a
   connection that was long given up, of a session before the newest it knows. It is not stored
   after what was sent later.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from fmqclient.producer.batches import Flight, Pile, Record, record_bytes
from fmqcore.ids import GroupName, TopicId

MAX_FLIGHTS: Final = 5
"""As many batches as a broker keeps per producer and queue to recognise a retry."""


class Held(Protocol):
    """What a lane needs of its topic."""

    held: bool  # nothing new is sent for a moment (`producer/topic_buffers.py`)


class Lane:
    """Records bound for one queue. `link` sends them; `producer` puts them in."""

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
        """Tell whether a new batch may leave now (L2 to L5)."""
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
        """A new pile takes records from now on."""
        self.piles.append(pile)
        self.open = pile
        return pile

    def depart(self, pile: Pile) -> Flight:
        """Make the first pile a flight."""
        flight = Flight(pile, self.next_sequence)
        self.next_sequence = flight.end_sequence
        self.flights.append(flight)
        return flight

    def accepted(self, flight: Flight) -> None:
        """The broker has stored it."""
        self._over(flight)
        self.accepted_end = max(self.accepted_end, flight.end_sequence)
        self.proven = True
        self.strange_since_ms = 0
        self._settle()

    def refused(self, flight: Flight) -> None:
        """It was certainly not appended: again, in its order, when the others are answered."""
        self._over(flight)
        self.turned_back.append(_pile(flight, flight.records))
        self.broken = True
        self._settle()

    def split(self, flight: Flight) -> None:
        """It was refused for its size: the same, in two halves."""
        middle = len(flight.records) // 2
        self._over(flight)
        self.turned_back += [
            _pile(flight, flight.records[:middle]),
            _pile(flight, flight.records[middle:]),
        ]
        self.broken = True
        self._settle()

    def dropped(self, flight: Flight) -> None:
        """It was certainly not appended and never will be: whoever waits for it has been told."""
        self._over(flight)
        self.broken = True
        self._settle()

    def abandoned(self, flight: Flight) -> None:
        """It may be stored or not, and nobody asks any more (L5)."""
        self._over(flight)
        self.poisoned = True
        self._settle()

    def renewed(self) -> None:
        """The link has begun a new session; nothing is in flight."""
        assert not self.flights, "a session only ends while nothing is in flight"
        self.poisoned = self.proven = self.broken = False
        self.next_sequence = self.accepted_end = 0

    def take_unsent(self) -> list[Pile]:
        """Take out all that was not sent; what is pinned comes back here, in its order.

        What was refused while others are on their way stays (L3). If those stay for good, so
        does it: it is older, and must not come to this queue again after them.
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
        """Take out the piles and flights whose deadline is over."""
        # All are looked at: what was turned back, or moved here, need not stand in this order.
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
        # As they were sent, not as they were answered: unknown ones are asked one by one.
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
