"""The two ends of the copy: one sends the source's change log, one applies it to the target.

The sender goes on after the chain's last record, whatever happened before. The target applies the
changes of a fetch in one transaction, remembers the newest, and acknowledges after that. What comes
a second time (delivery is at least once) is skipped by its number.
"""

import asyncio
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import fmqclient
from fmqclient.client import Client
from fmqclient.consumer.message import Message
from fmqclient.producer.ordered_records import OrderedResult
from fmqdev.demo.ordered.changes import Change, apply_changes, changes_after, number_of
from fmqdev.demo.traffic import now_ms

WINDOW: Final = 2_000
"""Maximum changes without an answer."""
READERS: Final = "target"
SENDER: Final = "copier"

_TURN: Final = 20
_FETCH: Final = 500
_FETCH_S: Final = 0.2


class Acked(NamedTuple):
    """An acknowledged change: where it is stored, and since when that is known."""

    number: int
    group: str
    segment: int
    offset: int
    at_ms: float


@dataclass(slots=True)
class Sending:
    """Sends changes at a steady pace, up to `limit`, and notes every answer."""

    topic: str
    limit: int
    per_second: float
    sent: int = 0
    acked: list[Acked] = field(default_factory=list)  # in the order of the answers
    refused: list[str] = field(default_factory=list)
    _answered: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: Client, source: Path) -> None:
        """Run until every change of the source has an answer."""
        async with client.ordered_producer(self.topic, name=SENDER) as producer:
            last = producer.last.get(0)
            done = number_of(last.value) if last is not None else 0
            log = changes_after(source, done)
            due_s = asyncio.get_running_loop().time()
            while changes := await asyncio.to_thread(_next, log):
                await self._wait_for_room()
                for change in changes:
                    self.sent += 1
                    future = producer.send_nowait(change.body, key=change.key)
                    future.add_done_callback(partial(self._note, change.number))
                due_s = max(due_s, asyncio.get_running_loop().time() - 1) + (
                    len(changes) / self.per_second
                )
                await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
            await producer.flush()

    def allow(self, limit: int) -> None:
        """Set how many changes to send in all."""
        self.limit = limit
        self._changed.set()

    async def _wait_for_room(self) -> None:
        while self.sent >= self.limit or self.sent - self._answered >= WINDOW:
            self._changed.clear()
            await self._changed.wait()

    def _note(self, number: int, future: "asyncio.Future[OrderedResult]") -> None:
        self._answered += 1
        self._changed.set()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self.refused.append(f"change {number}: {error or 'cancelled'}")
        else:
            result = future.result()
            self.acked.append(
                Acked(number, result.group, result.segment, int(result.offset), now_ms())
            )


def _next(log: Iterator[Change]) -> list[Change]:
    return list(islice(log, _TURN))


@dataclass(slots=True)
class Applying:
    """Reads the topic and applies its changes to the target."""

    topic: str
    target: Path
    applied: int = 0  # the newest change in the target
    again: int = 0  # deliveries of changes that the target had
    misfits: list[str] = field(default_factory=list)
    applied_ms: "array[float]" = field(default_factory=lambda: array("d"))  # of each transaction
    segments: list[int] = field(default_factory=list)  # in the order of their first delivery
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, url: str) -> None:
        """Run until `stop`."""
        async with (
            fmqclient.connect(url, name=READERS) as client,
            client.consumer(self.topic, group=READERS) as consumer,
        ):
            while not self.stop.is_set():
                messages = await consumer.fetch(_FETCH, _FETCH_S)
                if not messages:
                    continue
                await self._apply(messages)
                for message in messages:
                    message.ack_now()

    async def _apply(self, messages: Iterable[Message]) -> None:
        bodies = []
        for message in messages:
            number = number_of(message.value)
            if message.segment not in self.segments[-1:]:
                self.segments.append(message.segment)
            if number <= self.applied:
                self.again += 1
                continue
            if number != self.applied + 1:
                self.misfits.append(f"change {number} came after change {self.applied}")
            self.applied = number
            bodies.append(message.value)
        if bodies:
            self.misfits += await asyncio.to_thread(apply_changes, self.target, bodies)
            self.applied_ms.append(now_ms())
