"""The demo's producer and consumers: ordinary clients that record each flight's history.

All run in one event loop, and only they touch the history. Times are the loop's, in milliseconds.
"""

import asyncio
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import fmqclient
from fmqclient.client import Client
from fmqclient.consumer.consumer import Consumer
from fmqclient.consumer.message import Message
from fmqclient.producer.batches import SendResult
from fmqcore.errors import DeliveryUnknown, StaleAssignment
from fmqdev.demo.flights import Flight, row_of
from fmqdev.demo.verdict import History, Place

WINDOW: Final = 4_000
"""Maximum flights without an answer, and so with a broker that is killed."""
_TURN: Final = 100
_FETCH: Final = 500
_FETCH_S: Final = 0.2


def now_ms() -> float:
    """Return the loop's clock in milliseconds."""
    return asyncio.get_running_loop().time() * 1000


@dataclass(slots=True)
class Producing:
    """Sends the flights, up to `limit`, and notes every answer."""

    history: History
    topic: str
    limit: int
    window: int = WINDOW
    sent: int = 0
    outstanding: int = 0
    acked: int = 0
    held: bool = False  # it has had to wait for `allow`: pauses are then its own
    acked_ms: dict[str, "array[float]"] = field(default_factory=dict)  # by broker group
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: Client, flights: Iterable[Flight]) -> None:
        """Run until every flight has an answer."""
        async with client.producer(acks="replicated", close_timeout_s=2) as producer:
            for flight in flights:
                while self.sent >= self.limit or self.outstanding >= self.window:
                    self.held |= self.sent >= self.limit
                    self._changed.clear()
                    await self._changed.wait()
                self.history.keys.append(flight.key)
                self.history.checksums.append(zlib.crc32(flight.value))
                self.sent += 1
                self.outstanding += 1
                future = producer.send_nowait(self.topic, flight.value, key=flight.key)
                future.add_done_callback(partial(self._answered, flight.row))
                if not self.sent % _TURN:
                    await asyncio.sleep(0)
            await producer.flush()

    def allow(self, limit: int) -> None:
        """Set how many flights to send in all."""
        self.limit = limit
        self._changed.set()

    def widen(self) -> None:
        """Widen the window: flights at a dead broker must not hold up those for other groups."""
        self.window += WINDOW
        self._changed.set()

    def acked_since(self, group: str, moment_ms: float) -> int:
        """Return how many flights a broker group acknowledged after that moment."""
        return sum(at > moment_ms for at in self.acked_ms.get(group, ()))

    def _answered(self, row: int, future: "asyncio.Future[SendResult]") -> None:
        self.outstanding -= 1
        self._changed.set()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, DeliveryUnknown):
            self.history.unknown[row] = str(error or "cancelled")
        elif error is not None:
            self.history.refused[row] = str(error)
        else:
            self._acked(row, future.result())

    def _acked(self, row: int, result: SendResult) -> None:
        self.acked += 1
        rows = self.history.acked.setdefault(Place(result.group, result.queue), {})
        rows[int(result.offset)] = row
        self.acked_ms.setdefault(result.group, array("d")).append(now_ms())


@dataclass(slots=True)
class Consuming:
    """The members of one consumer group; each is an ordinary client."""

    history: History
    topic: str
    group: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    consumed: int = 0  # different messages
    consumed_ms: dict[str, "array[float]"] = field(default_factory=dict)  # by broker group
    _seen: dict[Place, set[int]] = field(default_factory=dict)

    async def member(self, url: str, name: str) -> None:
        """Consume and acknowledge until `stop`; then wait until the acks are stored."""
        async with (
            fmqclient.connect(url, name=name) as client,
            client.consumer(self.topic, group=self.group) as consumer,
        ):
            while not (self.stop.is_set() and await _stored(consumer)):
                for message in await consumer.fetch(_FETCH, _FETCH_S):
                    self._consumed(message)
                    message.ack_now()

    def missing(self) -> int:
        """Return how many acknowledged messages have not been consumed yet."""
        return sum(
            len(rows.keys() - self._seen.get(place, set()))
            for place, rows in self.history.acked.items()
        )

    def _consumed(self, message: Message) -> None:
        place, offset = Place(message.group, message.queue), int(message.offset)
        row = row_of(message.value)
        known = 0 <= row < len(self.history.checksums)
        if known and self.history.checksums[row] == zlib.crc32(message.value):
            self.history.consumed.setdefault(place, []).append((offset, row))
        else:
            self.history.foreign.setdefault(place, []).append(offset)
        seen = self._seen.setdefault(place, set())
        if offset not in seen:
            seen.add(offset)
            self.consumed += 1
        self.consumed_ms.setdefault(message.group, array("d")).append(now_ms())


async def read_some(url: str, topic: str, group: str, of: str, count: int) -> int:
    """Read messages of one broker group from the start, as a new consumer group.

    Returns how many were read, at least `count`; raises `TimeoutError` if they do not come.
    """
    read = 0
    async with (
        fmqclient.connect(url, name=group) as client,
        client.consumer(topic, group=group, start="earliest") as consumer,
    ):
        async with asyncio.timeout(30):
            while read < count or not await _stored(consumer):
                for message in await consumer.fetch(_FETCH, _FETCH_S):
                    read += message.group == of
                    message.ack_now()
    return read


async def _stored(consumer: Consumer) -> bool:
    """Wait until all acks so far are stored; False if some queues went to another member.

    (Their messages are delivered again: that is what "at least once" means.)
    """
    try:
        await consumer.commit()
    except StaleAssignment:
        return False
    return True
