"""Measure what filling a new, empty slave costs producers: latency before and during.

One producer sends a small message every few milliseconds to one group and waits for its answer. The
group has another slave, so its policy can be met all the time.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import fmqclient
from e2e.chaos.cluster import ChaosCluster
from e2e.chaos.faults.damage import empty
from fmqclient.client import Client
from fmqcore.ids import BrokerId

GROUP: Final = "g1"
_TOPIC: Final = "filling"
_LARGE: Final = 512 * 1024
_INTERVAL_S: Final = 0.005
_BEFORE_S: Final = 15.0
_SYNC_TIMEOUT_S: Final = 300.0


class Filling:
    """Measures the filling; `run` it on a whole cluster with two slaves a group."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._took_ms: list[float] = []

    async def run(self, mebibytes: int, say: Callable[[str], None]) -> list[str]:
        """Fill the group, empty a slave's disk, and measure; return lines for people."""
        cluster = self._cluster
        async with fmqclient.connect(cluster.url, name="filling") as client:
            await client.admin().create_topic(_TOPIC, queues=4)
            await self._preload(client, mebibytes)
            say(f"  {GROUP} holds {mebibytes} MiB")
            sending = asyncio.create_task(self._send(client))
            try:
                await asyncio.sleep(_BEFORE_S)
                before, self._took_ms = self._took_ms, []
                slave = (await cluster.slaves_of(GROUP))[-1]
                await self._replace(slave)
                say(f"  {slave} has an empty disk")
                self._took_ms = []
                begin_s = time.monotonic()
                cluster.start_part(slave)
                await cluster.wait_healthy([GROUP], within_s=_SYNC_TIMEOUT_S)
                seconds = time.monotonic() - begin_s
                during = self._took_ms
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
        return [
            f"an empty slave had {mebibytes} MiB after {seconds:.1f} s",
            _line("producers before", before),
            _line("producers meanwhile", during),
        ]

    async def _replace(self, slave: str) -> None:
        cluster = self._cluster
        cluster.kill(slave)
        await cluster.ended(slave)
        empty(cluster.brokers[BrokerId(slave)].data)
        while slave in (await cluster.groups.state(GROUP)).isr:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)  # earlier sends have their answers

    async def _preload(self, client: Client, mebibytes: int) -> None:
        async with client.producer() as producer:
            for number in range(mebibytes * 2):
                await producer.send(_TOPIC, bytes(_LARGE - 4096), group=GROUP, queue=number % 4)

    async def _send(self, client: Client) -> None:
        number = 0
        async with client.producer() as producer:
            while True:
                started = time.perf_counter()
                await producer.send(_TOPIC, b"x" * 1000, group=GROUP, queue=number % 4)
                self._took_ms.append((time.perf_counter() - started) * 1000)
                number += 1
                await asyncio.sleep(_INTERVAL_S)


def _line(what: str, took_ms: list[float]) -> str:
    ordered = sorted(took_ms)
    median, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{what:22} median {median:7.1f} ms   p99 {p99:7.1f} ms   of {len(ordered)} messages"
