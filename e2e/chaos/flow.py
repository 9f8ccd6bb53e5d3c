"""The traffic of one round: a topic, some producers, some members of consumer groups."""

import asyncio
from collections.abc import Sequence
from typing import Final

from e2e.chaos.watch import now_ms
from e2e.history.cluster_events import Phase, PhaseName
from e2e.history.history import History
from e2e.traffic.ordered import (
    OrderedReading,
    OrderedSending,
    read_in_order,
    send_in_order,
    subscribe_in_order,
)
from e2e.traffic.ports import Door
from e2e.traffic.traffic import Member, Sending, Traffic
from fmqcore.errors import FmqError

READERS: Final = "billing"
AUDIT: Final = "audit"
LEDGER: Final = "ledger"
QUEUES: Final = 4
_POLL_S: Final = 0.05
_WINDOW: Final = 3000
_LEVELS: Final = ("replicated", "replicated", "all")
_TURNS_S: Final = (4.0, 15.0)
_TO_THE_END_S: Final = (86_400.0, 86_400.0)


class FlowFailed(FmqError):
    """A client did what no client may do, or does not end; the message names it."""


class Flow:
    """The traffic: `start`, later `finish`. `stop` at any time."""

    def __init__(self, history: History, door: Door, topic: str, seed: int, first: int) -> None:
        self.topic = topic
        self.door = door
        self.traffic = Traffic(history, now_ms, seed, first)
        self._history = history
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, groups: Sequence[str] = (), declared: str = "") -> None:
        """Create the topic and start its producers and consumers.

        With two `groups` or more, there is an ordered topic over them, too. `declared`: an ordered
        topic that exists already; one sender has it to the end, and another one waits in line.
        """
        async with self.door.client(f"{self.topic}-admin") as client:
            await client.admin().create_topic(self.topic, queues=QUEUES)
        for number, level in enumerate(_LEVELS):
            sending = Sending(
                f"{self.topic}-p{number}",
                self.topic,
                level,
                keys=7 * number,
                burst=(4, 16),
                pause_s=(0.02, 0.08),
                window=_WINDOW,
            )
            self._run(sending.name, self.traffic.produce(sending, self.door))
        steady, comes_and_goes = (
            Member(f"{self.topic}-m{n}", self.topic, READERS, stay_s=stay_s, abrupt=0.3)
            for n, stay_s in enumerate((None, (3.0, 9.0)))
        )
        audit = Member(f"{self.topic}-audit", self.topic, AUDIT, nacks=0, holds=0)
        for member in (steady, comes_and_goes, audit):
            self._run(member.name, self.traffic.consume(member, self.door))
        if declared:
            await self._start_chain(declared, _TO_THE_END_S)
        elif len(groups) > 1:
            chain = f"{self.topic}-chain"
            async with self.door.client(f"{chain}-admin") as client:
                await client.admin().ordered.create(chain, groups)
            await self._start_chain(chain, _TURNS_S)

    async def _start_chain(self, topic: str, stay_s: tuple[float, float]) -> None:
        """Start two senders of an ordered topic, one at a time active, and two readers."""
        async with self.door.client(f"{topic}-admin") as client:
            await subscribe_in_order(client, topic, (LEDGER,))
        for number in range(2):
            name = f"{self.topic}-chain-p{number}"
            sending = OrderedSending(name, topic, queues=1, stay_s=stay_s)
            self._run(sending.name, send_in_order(self.traffic, sending, self.door))
        for number, reader_stay_s in enumerate((None, (3.0, 9.0))):
            name = f"{self.topic}-chain-r{number}"
            reading = OrderedReading(name, LEDGER, topic, reader_stay_s)
            self._run(reading.name, read_in_order(self.traffic, reading, self.door))

    async def add_topic(self, topic: str) -> None:
        """Create one more topic, with one producer and one more member of `READERS`."""
        async with self.door.client(f"{topic}-admin") as client:
            await client.admin().create_topic(topic, queues=QUEUES)
        sending = Sending(f"{topic}-p0", topic, window=_WINDOW)
        self._run(sending.name, self.traffic.produce(sending, self.door))
        member = Member(f"{topic}-m0", topic, READERS)
        self._run(member.name, self.traffic.consume(member, self.door))

    def _run(self, name: str, work) -> None:  # type: ignore[no-untyped-def]
        self._tasks[name] = asyncio.create_task(work, name=name)

    # ---- what came
    def stored_in(self, topic: str) -> int:
        """Return the number of records of a topic that were reported as stored."""
        return sum(place.topic == topic for place, _ in self.traffic.stored.values())

    def stored(self, group: str) -> int:
        """Return the number of records that this group has reported as stored."""
        return sum(place.group == group for place, _ in self.traffic.stored.values())

    def delivered(self) -> int:
        """Return the number of different records that the consumers have got."""
        return len(self.traffic.delivered.get(READERS, ()))

    def check(self) -> None:
        """Raise `FlowFailed` if a client has failed."""
        for bug in self.traffic.bugs:
            raise FlowFailed(f"a producer raised {bug!r}") from bug
        for name, task in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise FlowFailed(f"{name} has failed: {error!r}") from error

    async def moved(self, count: int, groups: list[str], within_s: float) -> None:
        """Wait until `count` more are stored in each group and delivered. Raises `FlowFailed`."""
        wanted = {group: self.stored(group) + count for group in groups}
        delivered = self.delivered() + count * len(groups)
        try:
            async with asyncio.timeout(within_s):
                while self.delivered() < delivered or any(
                    self.stored(group) < least for group, least in wanted.items()
                ):
                    self.check()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            counts = ", ".join(f"{g}: {self.stored(g) - n + count}" for g, n in wanted.items())
            more = self.delivered() - delivered + count * len(groups)
            raise FlowFailed(
                f"timed out after {within_s:g} s, waiting for {count} more messages in each "
                f"group; stored: {counts}; delivered: {more}"
            ) from None

    # ---- its end
    async def finish(self, within_s: float) -> list[str]:
        """Wait until every send has its outcome and all is delivered; return what is missing."""
        lacks: list[str] = []
        self.traffic.stop_sending()
        producers = [task for name, task in self._tasks.items() if "-p" in name]
        _, late = await asyncio.wait(producers, timeout=within_s)
        if late:
            lacks.append(f"{self.traffic.unanswered()} sends without an outcome")
        self._history.add(Phase(now_ms(), PhaseName.ANSWERED))
        if not await self.traffic.drained(self.door, (READERS, AUDIT), within_s):
            left = {group: self.traffic.undelivered(group) for group in (READERS, AUDIT)}
            lacks.append(f"not all was consumed and committed; undelivered: {left}")
        if missing := await self._missing_in_order(within_s):
            lacks.append(f"{missing} records of the ordered topic were not delivered")
        self._history.add(Phase(now_ms(), PhaseName.DRAINED))
        self.traffic.stop_consuming()
        await asyncio.wait(self._tasks.values(), timeout=within_s)
        self.check()
        await self.stop()
        self._history.add(Phase(now_ms(), PhaseName.OVER))
        return lacks

    async def _missing_in_order(self, within_s: float) -> int:
        """Wait until all that was acknowledged in order is delivered; return how many are not."""
        traffic = self.traffic
        for _ in range(int(within_s / _POLL_S)):
            missing = traffic.ordered_stored - traffic.ordered_delivered.get(LEDGER, set())
            if not missing:
                return 0
            await asyncio.sleep(_POLL_S)
        return len(missing)

    async def stop(self) -> None:
        """Stop all clients."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
