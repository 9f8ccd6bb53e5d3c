"""A consumer group's member: joins, takes messages, acks, nacks, commits, leaves, returns.

Each life is a client and a consumer with its own name in the history.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from e2e.history.client_events import (
    Acked,
    Committed,
    Committing,
    Delivered,
    Joined,
    Left,
    Nacked,
    Place,
    Skipped,
)
from e2e.traffic.ports import Door, Severable
from e2e.traffic.state import TrafficState
from e2e.traffic.values import record_of
from fmqclient.consumer.consumer import Consumer
from fmqclient.consumer.message import Message
from fmqcore.errors import FmqError, StaleAssignment

_FETCH: Final = 100
_FETCH_S: Final = 0.1
_AGAIN_S: Final = 0.2
_COMMIT_S: Final = 5.0
_LAST_COMMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Member:
    """One member, over all its lives."""

    name: str
    topic: str
    readers: str
    start: str = "earliest"
    stay_s: tuple[float, float] | None = None  # None: for good
    away_s: tuple[float, float] = (0.3, 2.0)
    abrupt: float = 0.0  # share of ends without a goodbye
    nacks: float = 0.02  # share of first deliveries that are nacked
    holds: float = 0.1  # share of fetches that are acked a while later
    commit_every_s: tuple[float, float] = (0.2, 0.8)
    buffer_bytes: int = 256 * 1024
    handle_s: tuple[float, float] = (0.0, 0.01)  # between a fetch and its acks


async def consume(traffic: TrafficState, member: Member, door: Door) -> None:
    """Run life after life, until the traffic is stopped."""
    name = traffic.born(member.name)  # it may have been killed before
    dice = traffic.dice(name)
    number = 0
    while traffic.consuming:
        number += 1
        life = _Life(traffic, member, f"{name}.{number}", dice)
        await life.run(door)
        await traffic.rest(dice.uniform(*member.away_s), lambda: traffic.consuming)


class _Life:
    """One life of a member, from joining to leaving."""

    def __init__(
        self, traffic: TrafficState, member: Member, who: str, dice: random.Random
    ) -> None:
        self._traffic = traffic
        self._member = member
        self._who = who
        self._dice = dice
        self._held: list[Message] = []  # to be acked with a later fetch
        self._skipped: dict[tuple[str, int], int] = {}  # (group, queue) → as reported so far
        self._abrupt = member.stay_s is not None and dice.random() < member.abrupt
        self._until_ms = float("inf")
        if member.stay_s is not None:
            self._until_ms = traffic.now_ms() + dice.uniform(*member.stay_s) * 1000

    async def run(self, door: Door) -> None:
        """Run this life from start to end."""
        member = self._member
        own, line = door.severable()
        joined = orderly = False
        try:
            async with (
                own.client(self._who) as client,
                client.consumer(
                    member.topic,
                    group=member.readers,
                    start=member.start,
                    buffer_bytes=member.buffer_bytes,
                    close_timeout_s=2,
                ) as consumer,
            ):
                joined = True
                self._say_joined()
                orderly = await self._stay(consumer, line)
        except FmqError:  # no broker answers, or the topic is not there yet: later
            await asyncio.sleep(_AGAIN_S)
        finally:
            if joined:
                self._say_left(orderly=orderly)

    def _say_joined(self) -> None:
        member, traffic = self._member, self._traffic
        traffic.lives[member.name] = (self._who, member.readers)
        traffic.topics.setdefault(member.readers, set()).add(member.topic)
        traffic.add(Joined(traffic.now_ms(), self._who, member.readers, member.topic, member.start))

    def _say_left(self, *, orderly: bool) -> None:
        member, traffic = self._member, self._traffic
        if traffic.lives.pop(member.name, None) is not None:
            traffic.add(Left(traffic.now_ms(), self._who, member.readers, orderly))

    async def _stay(self, consumer: Consumer, line: Severable) -> bool:
        """Take, ack and commit; return whether it ended in good order."""
        member, traffic, dice = self._member, self._traffic, self._dice
        commit_ms = traffic.now_ms() + dice.uniform(*member.commit_every_s) * 1000
        while traffic.consuming and traffic.now_ms() < self._until_ms:
            messages = await consumer.fetch(_FETCH, _FETCH_S)
            self._say_skipped(consumer)
            for message in messages:
                self._delivered(message)
            await self._handle(messages)
            if traffic.now_ms() >= commit_ms:
                await self._commit(consumer, _COMMIT_S)
                commit_ms = traffic.now_ms() + dice.uniform(*member.commit_every_s) * 1000
        if traffic.consuming and self._abrupt:
            self._say_left(orderly=False)  # its queues move before `sever` returns
            await line.sever()
            return False
        self._ack(self._held)
        await self._commit(consumer, _LAST_COMMIT_S)
        return True

    async def _handle(self, messages: list[Message]) -> None:
        member, dice = self._member, self._dice
        if messages:
            await asyncio.sleep(dice.uniform(*member.handle_s))
        held, self._held = self._held, []
        self._ack(held)
        if dice.random() < member.holds:
            self._held = messages
            return
        kept = []
        for message in messages:
            if message.delivery_count == 1 and dice.random() < member.nacks:
                await self._nack(message)
            else:
                kept.append(message)
        self._ack(kept)

    def _say_skipped(self, consumer: Consumer) -> None:
        """Record deleted messages; the client reports them before it hands over later ones."""
        for (group, queue), count in consumer.skipped.items():
            more = count - self._skipped.get((group, queue), 0)
            if more:
                self._skipped[group, queue] = count
                place = Place(self._member.topic, group, queue)
                readers = self._member.readers
                self._traffic.add(Skipped(self._traffic.now_ms(), self._who, readers, place, more))

    def _delivered(self, message: Message) -> None:
        traffic, member = self._traffic, self._member
        record, offset = record_of(message.value), int(message.offset)
        place = self._place(message)
        traffic.delivered.setdefault(member.readers, set()).add(record)
        known = (member.readers, place)
        traffic.seen[known] = max(traffic.seen.get(known, 0), offset + 1)
        key = (message.key or b"").decode("latin-1")
        count, epoch = message.delivery_count, message.read_epoch
        who = (traffic.now_ms(), self._who, member.readers)
        traffic.add(Delivered(*who, place, offset, record, count, key, epoch))

    def _ack(self, messages: list[Message]) -> None:
        for message in messages:
            place, offset = self._place(message), int(message.offset)
            event = Acked(self._traffic.now_ms(), self._who, self._member.readers, place, offset)
            self._traffic.add(event)
            message.ack_now()

    async def _nack(self, message: Message) -> None:
        delay_ms = self._dice.choice((0, 50, 300))
        place, offset = self._place(message), int(message.offset)
        at_ms = self._traffic.now_ms()
        event = Nacked(at_ms, self._who, self._member.readers, place, offset, delay_ms)
        self._traffic.add(event)
        await message.nack(delay_ms=delay_ms)

    async def _commit(self, consumer: Consumer, timeout_s: float) -> None:
        traffic, readers = self._traffic, self._member.readers
        traffic.add(Committing(traffic.now_ms(), self._who, readers))
        reason, stale = "", False
        traffic.committing[self._who] = traffic.now_ms()
        try:
            await consumer.commit(timeout_s)
        except FmqError as error:
            reason = f"{type(error).__name__}: {error}"
            stale = isinstance(error, StaleAssignment)
        finally:
            traffic.committing.pop(self._who, None)
        traffic.add(Committed(traffic.now_ms(), self._who, readers, reason, stale))

    def _place(self, message: Message) -> Place:
        return Place(message.topic, message.group, message.queue)
