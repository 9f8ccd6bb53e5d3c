"""The state that all clients of a run share: history, record numbers, and when to stop."""

import asyncio
import random
from collections.abc import Callable

from e2e.history.client_events import Place, Sent, Stored
from e2e.history.events import Event
from e2e.history.history import History


class TrafficState:
    """The history, the numbers, and whether to go on."""

    def __init__(
        self, history: History, now_ms: Callable[[], float], seed: int, first_record: int = 0
    ) -> None:
        self.history = history
        self.now_ms = now_ms
        self.sending = True
        self.slowness = 1.0  # factor by which producers rest longer than configured
        self.consuming = True
        self.open: dict[str, set[int]] = {}  # who → records without an outcome
        self.stored: dict[int, tuple[Place, int]] = {}  # acked as stored, offset known
        self.delivered: dict[str, set[int]] = {}  # readers → records
        self.seen: dict[tuple[str, Place], int] = {}  # one past the highest offset delivered
        self.topics: dict[str, set[str]] = {}  # readers → what they have joined
        self.committing: dict[str, float] = {}  # who waits for its acks to be stored, since when
        self.lives: dict[str, tuple[str, str]] = {}  # member → its present life, its readers
        self.ordered_stored: set[int] = set()  # records acknowledged in ordered topics
        self.ordered_delivered: dict[str, set[int]] = {}  # readers → records of ordered topics
        self.ordered_restarted: set[str] = set()  # readers that get everything once more
        self.ordered_sought: dict[str, set[int]] = {}  # readers → acknowledged before their seek
        self.ordered_segments: set[int] = set()  # that have acknowledged records
        self.ordered_sender = ""  # the program that became the active sender last
        self.batches = 0  # acknowledged: places reported at one moment
        self.bugs: list[BaseException] = []  # of clients: what no client may raise
        self._seed = seed
        self._births: dict[str, int] = {}
        self._records = first_record
        self._batch: tuple[float, Place] | None = None

    def born(self, name: str) -> str:
        """Return a name for one life that no other life has: the first life has the name itself."""
        number = self._births[name] = self._births.get(name, 0) + 1
        return name if number == 1 else f"{name}.{number}"

    def dice(self, name: str) -> random.Random:
        """Return one actor's random generator, fixed by seed and name."""
        return random.Random(f"{self._seed}/{name}")

    def add(self, event: Event) -> None:
        """Add an event to the history."""
        self.history.add(event)

    def next_record(self) -> int:
        """Return a record number that was never given."""
        self._records += 1
        return self._records

    def sent(self, event: Sent) -> None:
        """Record a send just before the record is handed to the producer."""
        self.add(event)
        self.open.setdefault(event.who, set()).add(event.record)

    def settled(self, event: Event, who: str, record: int) -> None:
        """Record the outcome of a send."""
        self.add(event)
        self.open[who].discard(record)
        if isinstance(event, Stored) and event.offset >= 0:
            self.stored[record] = (event.place, event.offset)
            if self._batch != (event.at_ms, event.place):
                self._batch = (event.at_ms, event.place)
                self.batches += 1

    async def rest(self, seconds: float, so_long: Callable[[], bool]) -> bool:
        """Sleep in small steps while `so_long`; return whether it still holds."""
        until_ms = self.now_ms() + seconds * 1000
        while so_long():
            left_s = (until_ms - self.now_ms()) / 1000
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, 0.1))
        return so_long()
