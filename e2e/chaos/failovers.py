"""Measure how long reads are gone: unplanned (kill -9), planned (SIGTERM), on the way back.

A consumer takes a backlog at a steady pace, so every queue gives messages many times a second; the
time without reads is that until the *last* queue of the group gives again. It counts from the kill
(a little before the first call that fails). Messages that the consumer had buffered do not count:
arrivals within `_BUFFERED_S` of the kill are ignored.
"""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import fmqclient
from e2e.chaos.cluster import ChaosCluster
from e2e.chaos.watch import now_ms
from fmqclient.client import Client
from fmqcore.zk.group_state import Mode

TOPIC: Final = "failovers"
VICTIM: Final = "g1"
QUEUES: Final = 4
_BACKLOG: Final = 2000
_VALUE: Final = b"x" * 200
_PACE_S: Final = 0.04
_BUFFERED_S: Final = 0.2
_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class Figures:
    """Milliseconds without reads, seconds until all was whole."""

    unplanned_ms: list[float] = field(default_factory=list)
    planned_ms: list[float] = field(default_factory=list)  # master stops in order → slave
    back_ms: list[float] = field(default_factory=list)  # slave → master
    whole_s: list[float] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return lines for people."""
        return [
            _line("unplanned failover of reads", "ms", self.unplanned_ms),
            _line("planned: the master stops", "ms", self.planned_ms),
            _line("planned: the master is back", "ms", self.back_ms),
            _line("full redundancy after", "s", self.whole_s),
        ]


def _line(what: str, unit: str, values: Sequence[float]) -> str:
    if not values:
        return f"{what:30} not measured"
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    digits = 0 if unit == "ms" else 1
    return (
        f"{what:30} median {statistics.median(ordered):8.{digits}f} {unit}   "
        f"p99 {p99:8.{digits}f} {unit}   worst {ordered[-1]:8.{digits}f} {unit}   "
        f"of {len(ordered)}"
    )


class Failovers:
    """Measures failovers; `run` it on a cluster that is whole."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self.figures = Figures()
        self._cluster = cluster
        self._came: dict[int, list[float]] = defaultdict(list)  # queue → moments

    async def run(self, kills: int, planned: int, say: Callable[[str], None]) -> None:
        """Measure `kills` and `planned` failovers. Raises `TimeoutError` if a step never ends."""
        async with fmqclient.connect(self._cluster.url, name="failovers") as client:
            await client.admin().create_topic(TOPIC, queues=QUEUES)
            await self._refill(client)
            async with self._consumer(client):
                for number in range(kills + planned):
                    await self._refill(client)
                    await self._flows(now_ms())
                    await self._once(kill=number < kills)
                    figures = self.figures
                    took_ms = [*figures.unplanned_ms, *figures.planned_ms][-1]
                    say(
                        f"  {number + 1}: {took_ms:.0f} ms, whole {figures.whole_s[-1]:.1f} s later"
                    )

    @asynccontextmanager
    async def _consumer(self, client: Client) -> AsyncIterator[None]:
        task = asyncio.create_task(self._consume(client))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _consume(self, client: Client) -> None:
        async with client.consumer(TOPIC, group="pace", buffer_bytes=4096) as consumer:
            while True:
                for message in await consumer.fetch(4, 0.05):
                    if message.group == VICTIM:
                        self._came[message.queue].append(now_ms())
                    message.ack_now()
                await asyncio.sleep(_PACE_S)

    async def _refill(self, client: Client) -> None:
        """Add messages to the victim's queues, each in its own batch."""
        async with client.producer() as producer:

            async def fill(queue: int) -> None:
                for _ in range(_BACKLOG // QUEUES):
                    await producer.send(TOPIC, _VALUE, group=VICTIM, queue=queue)

            await asyncio.gather(*(fill(queue) for queue in range(QUEUES)))

    async def _once(self, *, kill: bool) -> None:
        cluster = self._cluster
        master = await cluster.master_of(VICTIM)
        lost_ms = now_ms()
        if kill:
            cluster.kill(master)
            self.figures.unplanned_ms.append(await self._flows(lost_ms) - lost_ms)
        else:
            stopped = await cluster.stop_broker(master)
            assert stopped, f"{master} does not end after SIGTERM"
            await self._flows(now_ms())
            self.figures.planned_ms.append(self._longest(lost_ms, now_ms()))
        await cluster.ended(master)
        started_ms, started_s = now_ms(), time.monotonic()
        cluster.start_part(master)
        await cluster.wait_healthy(within_s=_TIMEOUT_S)
        self.figures.whole_s.append(time.monotonic() - started_s)
        assert (await cluster.groups.state(VICTIM)).mode is Mode.MASTER
        await self._flows(now_ms())
        self.figures.back_ms.append(self._longest(started_ms, now_ms()))

    async def _flows(self, since_ms: float) -> float:
        """Wait until every queue has given again; return when the last one did."""
        from_ms = since_ms + _BUFFERED_S * 1000
        async with asyncio.timeout(_TIMEOUT_S):
            while True:
                first = [
                    next((at for at in self._came[queue] if at > from_ms), None)
                    for queue in range(QUEUES)
                ]
                if None not in first:
                    return max(at for at in first if at is not None)
                await asyncio.sleep(0.01)

    def _longest(self, from_ms: float, to_ms: float) -> float:
        """Return the longest time without a message from some queue."""
        longest = 0.0
        for moments in self._came.values():
            within = [from_ms, *(at for at in moments if from_ms < at < to_ms)]
            longest = max([longest, *(later - one for one, later in pairwise(within))])
        return longest
