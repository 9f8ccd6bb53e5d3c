"""Traffic of an ordered topic: senders that take turns, and readers that come and go.

A sender waits until it is the active one, sends bursts for a while, and leaves, so that the next in
line takes over. What it learns and what becomes of each record is written down; check I13 judges.

A consumer group that is deleted and made again, or that seeks to the beginning, has to get
everything that is kept once more, so another one that never reads keeps all segments (`HOLDER`).
One that seeks to a time has to get what was stored from then on.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from e2e.history.client_events import (
    OrderedDelivered,
    OrderedOpened,
    OrderedSent,
    OrderedSought,
    OrderedStored,
    OrderedUnsure,
)
from e2e.traffic.ports import Door
from e2e.traffic.state import TrafficState
from e2e.traffic.values import record_of, value_of
from fmqclient.client import Client
from fmqclient.consumer.message import Message
from fmqclient.producer.ordered import OrderedProducer
from fmqclient.producer.ordered_records import LastRecord, OrderedResult
from fmqcore.errors import FmqError

_AGAIN_S: Final = 0.2
_POLL_S: Final = 0.05
_UNREADABLE: Final = -2
_BEFORE_S: Final = (0.5, 8.0)
_DELETING_S: Final = (0.02, 0.5)  # often too short to reach all broker groups
_SEEKING_S: Final = (0.02, 2.0)
_SOUGHT_S: Final = ((-12.0, 0.0), (45.0, 62.0))
"""Sought times, from now: in the first segment, or in one that was opened some seconds ago.

A segment is taken that was opened a minute before the time, as clocks of brokers differ.
"""
HOLDER: Final = "holder"
"""A consumer group that never reads: its place in the chain keeps all segments."""


@dataclass(frozen=True, slots=True)
class OrderedSending:
    """One sender."""

    name: str
    topic: str
    queues: int
    keys: int = 4
    burst: tuple[int, int] = (1, 6)  # records at a time
    pause_s: tuple[float, float] = (0.02, 0.15)  # between bursts
    size: tuple[int, int] = (24, 200)  # bytes of a value
    stay_s: tuple[float, float] = (1.0, 6.0)  # as the active one
    window: int = 100  # records without an outcome at most
    accepts: bool = False  # it goes on although the end of an earlier segment is not known


@dataclass(frozen=True, slots=True)
class OrderedReading:
    """One member of a consumer group."""

    name: str
    readers: str
    topic: str
    stay_s: tuple[float, float] | None = None  # None: until the end
    rest_s: tuple[float, float] = (0.0, 0.0)  # between two stays, while records are sent
    remade: bool = False  # it reads, is deleted and made again: only what comes then is noted
    seeks: bool = False  # it reads and seeks, at last to the beginning: what comes then is noted
    to_times: bool = False  # the last seek may also go to a time

    @property
    def restarts(self) -> bool:
        """Whether only what comes after a new start counts."""
        return self.remade or self.seeks


async def send_in_order(traffic: TrafficState, sending: OrderedSending, door: Door) -> None:
    """Run until the traffic is stopped and every send has an outcome."""
    while traffic.sending:
        turn = _Turn(traffic, sending)
        work = asyncio.ensure_future(turn.run(door))
        try:
            while not work.done():
                await asyncio.wait((work,), timeout=_POLL_S)
                if not traffic.sending and not turn.active:
                    work.cancel()  # it need not wait for the role any more
        finally:
            work.cancel()
            await asyncio.wait((work,))
        if not work.cancelled() and (error := work.exception()) is not None:
            if not isinstance(error, FmqError):
                traffic.bugs.append(error)
            await asyncio.sleep(_AGAIN_S)


class _Turn:
    """One sender from its place in line to its end."""

    def __init__(self, traffic: TrafficState, sending: OrderedSending) -> None:
        self._traffic = traffic
        self._sending = sending
        self._who = traffic.born(sending.name)
        self._dice = traffic.dice(self._who)
        self._open: dict[int, None] = {}
        self.active = False

    async def run(self, door: Door) -> None:
        """Wait for the role, use it, give it up."""
        sending, traffic = self._sending, self._traffic
        async with (
            door.client(self._who) as client,
            client.ordered_producer(
                sending.topic, name=sending.name, accept_unknown_end=sending.accepts
            ) as producer,
        ):
            self.active, traffic.ordered_sender = True, sending.name
            last = tuple(_record_of_last(producer.last.get(q)) for q in range(sending.queues))
            opened = (traffic.now_ms(), self._who, sending.topic)
            traffic.add(OrderedOpened(*opened, last, sending.accepts))
            until_ms = traffic.now_ms() + self._dice.uniform(*sending.stay_s) * 1000
            while traffic.sending and traffic.now_ms() < until_ms:
                self._burst(producer)
                await asyncio.sleep(self._dice.uniform(*sending.pause_s) * traffic.slowness)
            await producer.flush()

    def _burst(self, producer: OrderedProducer) -> None:
        for _ in range(self._dice.randint(*self._sending.burst)):
            if len(self._open) < self._sending.window:
                self._send(producer, self._dice)

    def _send(self, producer: OrderedProducer, dice: random.Random) -> None:
        traffic, sending = self._traffic, self._sending
        record = traffic.next_record()
        key = f"k{dice.randrange(sending.keys)}"
        value = value_of(record, dice.randint(*sending.size))
        traffic.add(OrderedSent(traffic.now_ms(), self._who, sending.topic, record, key))
        self._open[record] = None
        try:
            future = producer.send_nowait(value, key=key.encode())
        except FmqError as error:
            self._unsure(record, error)
            raise
        future.add_done_callback(partial(self._answered, record))

    def _answered(self, record: int, future: "asyncio.Future[OrderedResult]") -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._unsure(record, error)
            return
        traffic, result = self._traffic, future.result()
        del self._open[record]
        traffic.ordered_stored.add(record)
        traffic.ordered_segments.add(result.segment)
        traffic.add(
            OrderedStored(
                *(traffic.now_ms(), self._who, self._sending.topic, record),
                *(result.queue, result.segment, result.sequence),
                *(str(result.group), int(result.offset)),
            )
        )

    def _unsure(self, record: int, error: BaseException) -> None:
        self._open.pop(record, None)
        if not isinstance(error, FmqError | asyncio.CancelledError):
            self._traffic.bugs.append(error)
        reason = f"{type(error).__name__}: {error}"
        now_ms = self._traffic.now_ms()
        self._traffic.add(OrderedUnsure(now_ms, self._who, self._sending.topic, record, reason))


def _record_of_last(last: LastRecord | None) -> int:
    if last is None or not last.sequence:
        return -1
    return record_of(last.value) if last.readable else _UNREADABLE


async def subscribe_in_order(client: Client, topic: str, readers: Iterable[str]) -> None:
    """Return when the chain has a subscription of each of the consumer groups.

    A group that comes later starts at the first segment that is kept, so check I13 does
    not know what it has to get: do this before the first send.
    """
    for name in readers:
        async with client.consumer(topic, group=name, start="earliest", close_timeout_s=2):
            while True:
                (status,) = await client.admin().ordered.status(topic)
                if status.chain.heads_of(name) is not None:
                    break
                await asyncio.sleep(_POLL_S)


async def read_in_order(traffic: TrafficState, reading: OrderedReading, door: Door) -> None:
    """Run a member that joins, leaves and returns until the traffic stops consuming."""
    while traffic.consuming:
        who = traffic.born(reading.name)
        dice = traffic.dice(who)
        noted = not reading.restarts or reading.readers in traffic.ordered_restarted
        stay_s = dice.uniform(*reading.stay_s) if reading.stay_s else float("inf")
        try:
            async with door.client(who) as client:
                if noted:
                    await _read_on(traffic, reading, who, client, stay_s)
                elif reading.seeks:
                    await _read_and_seek(traffic, reading, client, dice, door)
                else:
                    await _read_and_delete(traffic, reading, client, dice)
        except FmqError:  # no broker answers, or the topic is not known yet: later
            await asyncio.sleep(_AGAIN_S)
        if traffic.sending:
            await asyncio.sleep(dice.uniform(*reading.rest_s))


async def _read_on(
    traffic: TrafficState, reading: OrderedReading, who: str | None, client: Client, stay_s: float
) -> None:
    """Read for a while. `who` None: what comes is not noted."""
    until_ms = traffic.now_ms() + stay_s * 1000
    consumer = client.consumer(
        reading.topic, group=reading.readers, start="earliest", close_timeout_s=2
    )
    async with consumer:
        while traffic.consuming and traffic.now_ms() < until_ms:
            for message in await consumer.fetch(100, 0.2):
                if who is not None:
                    _note(traffic, reading, who, message)
                message.ack_now()


async def _read_and_delete(
    traffic: TrafficState, reading: OrderedReading, client: Client, dice: random.Random
) -> None:
    """Read for a while, then delete the group; it need not reach all broker groups."""
    await _read_on(traffic, reading, None, client, dice.uniform(*_BEFORE_S))
    while traffic.consuming:
        with suppress(FmqError, TimeoutError):
            async with asyncio.timeout(dice.uniform(*_DELETING_S)):
                await client.admin().delete_group(reading.readers, reading.topic)
        (status,) = await client.admin().ordered.status(reading.topic)
        if status.chain.heads_of(reading.readers) is None:
            traffic.ordered_restarted.add(reading.readers)
            return
        await asyncio.sleep(_POLL_S)


async def _read_and_seek(
    traffic: TrafficState, reading: OrderedReading, client: Client, dice: random.Random, door: Door
) -> None:
    """Read and seek a few times, over segments of several broker groups.

    The last seek goes to the start, or also to a time (`OrderedReading.to_times`).
    """
    for _ in range(dice.randint(0, 2)):
        await _read_on(traffic, reading, None, client, dice.uniform(*_BEFORE_S))
        with suppress(FmqError, TimeoutError):  # it counts, or not, or later
            async with asyncio.timeout(dice.uniform(*_SEEKING_S)):
                to = dice.choice(("earliest", "latest", _some_time(dice, door)))
                await client.admin().seek(reading.readers, reading.topic, to)
    await _read_on(traffic, reading, None, client, dice.uniform(*_BEFORE_S))
    last = ("earliest", _some_time(dice, door)) if reading.to_times else ("earliest",)
    asked_ms, to = traffic.now_ms(), dice.choice(last)
    await client.admin().seek(reading.readers, reading.topic, to)
    if isinstance(to, int):
        named = reading.readers, reading.topic
        traffic.add(OrderedSought(asked_ms, traffic.now_ms(), *named, to))
        traffic.ordered_sought[reading.readers] = set(traffic.ordered_stored)
    traffic.ordered_restarted.add(reading.readers)


def _some_time(dice: random.Random, door: Door) -> int:
    """Return a time near now, or near enough to a minute ahead, in milliseconds since 1970."""
    now_ms = time.time_ns() // 1_000_000 if door.clock is None else door.clock.wall_ms()
    return now_ms + int(dice.uniform(*dice.choice(_SOUGHT_S)) * 1000)


def _note(traffic: TrafficState, reading: OrderedReading, who: str, message: Message) -> None:
    record = record_of(message.value)
    traffic.ordered_delivered.setdefault(reading.readers, set()).add(record)
    traffic.add(
        OrderedDelivered(
            *(traffic.now_ms(), who, reading.readers, reading.topic, message.queue),
            *(message.segment, str(message.group), int(message.offset), record),
        )
    )
