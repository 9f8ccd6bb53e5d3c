"""Seeded traffic: ordinary clients that send, consume, come and go, and record everything.

    traffic = Traffic(history, now_ms, seed)
    for sending in plan.sending:     run traffic.produce(sending, door)       # each to its end
    for member in plan.members:      run traffic.consume(member, door)
    for seeking in plan.seeking:     run traffic.seek(seeking, door)
    ...
    traffic.stop_sending(); all produce() end when each send has an outcome
    await traffic.drained(door); traffic.stop_consuming(); the rest ends

The caller decides where the coroutines run, on which machine and ports (a task each, or a process
of a simulator each). For a client that dies without closing, call `traffic.died(name)`.
Nothing here judges; `checks/` decides what was undelivered when.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from e2e.history.client_events import Left, Seeking, Sought, Unsure
from e2e.traffic.consumer import Member, consume
from e2e.traffic.ports import Door
from e2e.traffic.producer import Sending, produce
from e2e.traffic.state import TrafficState
from fmqclient.client import Client
from fmqcore.errors import FmqError

__all__ = ["Door", "Member", "Plan", "Seeks", "Sending", "Traffic", "usual"]

_POLL_S: Final = 0.02
_GONE_S: Final = 3.0
"""Seconds after which zero lag counts as drained: deleted records are never delivered."""


@dataclass(frozen=True, slots=True)
class Seeks:
    """A client that sometimes moves a consumer group back; no other client moves that group."""

    name: str
    topic: str
    readers: str
    pause_s: tuple[float, float] = (3.0, 8.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The clients of a run."""

    sending: tuple[Sending, ...]
    members: tuple[Member, ...]
    seeking: tuple[Seeks, ...] = ()


class Traffic(TrafficState):
    """The clients of a run, each run by the caller, and when they stop."""

    async def produce(self, sending: Sending, door: Door) -> None:
        """Run a producer until `stop_sending`, and until every send has an outcome."""
        await produce(self, sending, door)

    async def consume(self, member: Member, door: Door) -> None:
        """Run a member that joins, leaves and returns until `stop_consuming`."""
        await consume(self, member, door)

    async def seek(self, seeks: Seeks, door: Door) -> None:
        """Sometimes move the consumer group back to an earlier offset, until `stop_sending`."""
        dice = self.dice(seeks.name)
        while self.sending:
            try:
                async with door.client(seeks.name) as client:
                    await self._seek_on(seeks, client, dice)
            except FmqError:  # no broker answered for as long as a client waits at its start
                await self.rest(_POLL_S, lambda: self.sending)

    async def _seek_on(self, seeks: Seeks, client: Client, dice: random.Random) -> None:
        while await self.rest(dice.uniform(*seeks.pause_s), lambda: self.sending):
            known = sorted(place for who, place in self.seen if who == seeks.readers)
            if not known:
                continue
            place = dice.choice(known)
            offset = dice.randrange(self.seen[seeks.readers, place])
            start = (self.now_ms(), seeks.name, seeks.readers, place)
            self.add(Seeking(*start, offset))
            reason, went = "", -1
            try:
                rows = await client.admin().seek(
                    seeks.readers,
                    seeks.topic,
                    offset=offset,
                    queues=[(place.group, place.queue)],
                )
                went = max(offset, rows[0].begin)
                # A takeover reader may lack it: then it goes on at its end, as its answer shows.
                went = min(went, max(rows[0].committed, rows[0].begin))
            except FmqError as error:
                reason = str(error) or type(error).__name__
            self.add(Sought(self.now_ms(), seeks.name, seeks.readers, place, reason, went))

    def stop_sending(self) -> None:
        """Stop all producers."""
        self.sending = False

    def stop_consuming(self) -> None:
        """Let the members send their last acks, commit, and leave."""
        self.consuming = False

    def unanswered(self) -> int:
        """Return the number of records without an outcome."""
        return sum(map(len, self.open.values()))

    def undelivered(self, readers: str) -> int:
        """Count the stored records in the group's topics that the consumer group has not got."""
        topics, got = self.topics.get(readers, set()), self.delivered.get(readers, set())
        return sum(
            record not in got and place.topic in topics
            for record, (place, _) in self.stored.items()
        )

    async def drained(self, door: Door, readers: Sequence[str], within_s: float) -> bool:
        """Wait until these consumer groups have got and committed everything; False: in vain.

        Call it when every send has an outcome.
        """
        until_ms = self.now_ms() + within_s * 1000
        waiting = list(readers)
        gone_ms = self.now_ms() + _GONE_S * 1000  # by then an undelivered record is not there
        async with door.client("drain") as client:
            while waiting and self.now_ms() < until_ms:
                await asyncio.sleep(_POLL_S)
                if self.undelivered(waiting[0]) and self.now_ms() < gone_ms:
                    continue
                with suppress(FmqError):
                    if all(row.lag == 0 for row in await client.admin().lag(waiting[0])):
                        waiting.pop(0)
        return not waiting

    def died(self, name: str) -> None:
        """Handle a killed client: its open sends have no outcome, its member is gone."""
        for who in sorted(self.open):
            if who == name or who.startswith(f"{name}."):
                for record in sorted(self.open.pop(who)):
                    self.add(Unsure(self.now_ms(), who, record, "the producer was killed"))
        for who in [who for who in self.committing if who.startswith(f"{name}.")]:
            del self.committing[who]
        life = self.lives.pop(name, None)
        if life is not None:
            self.add(Left(self.now_ms(), *life, orderly=False))


def usual(seed: int, topics: Sequence[str]) -> Plan:
    """Return a mixed plan: levels, keys, pins, members that come and go, one that seeks."""
    dice = random.Random(f"{seed}/plan")
    sending: list[Sending] = []
    members: list[Member] = []
    for number, topic in enumerate(topics):
        levels = ["replicated", "replicated", dice.choice(("all", "persisted", "received"))]
        if number == 0:
            levels.append("one_way")
        for at, level in enumerate(levels):
            name = f"p{number}{at}"
            keys = dice.choice((0, 3, 12))
            size = (24, dice.choice((80, 400, 3000)))
            sending.append(Sending(name, topic, level, keys=keys, size=size))
        for at in range(dice.randint(1, 3)):
            stay_s = None if at == 0 else (1.5, 6.0)
            member = Member(
                f"m{number}{at}",
                topic,
                "billing",
                stay_s=stay_s,
                abrupt=dice.choice((0.0, 0.5)),
                nacks=dice.choice((0.0, 0.03)),
            )
            members.append(member)
    members.append(Member("audit", topics[0], "audit", nacks=0.0, holds=0.0))
    members.append(Member("sought", topics[0], "seekers", nacks=0.0))
    seeking = (Seeks("seeker", topics[0], "seekers"),)
    return Plan(tuple(sending), tuple(members), seeking)
