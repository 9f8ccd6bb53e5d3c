"""The main job: real data through a real cluster while a master is killed, and a verdict.

    start → produce ∥ consume → a third: kill -9 a master → its slave serves the reads, the other
    group takes the writes → two thirds: start it again → offsets come back, the group is whole →
    the rest → stop in order → judge: nothing lost, order kept, journals equal, times of outage

`run_demo` does all of this; it leaves the cluster's folder, and no process.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fmqclient
from fmqclient.client import Client
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqdev.demo.display import Report, Show
from fmqdev.demo.flights import ALL, flights
from fmqdev.demo.folder import clear_folder, lock_folder
from fmqdev.demo.outage_probe import Probe
from fmqdev.demo.replica_comparison import Compared, compare_journals
from fmqdev.demo.traffic import Consuming, Producing, now_ms, read_some
from fmqdev.demo.verdict import (
    Finding,
    History,
    Place,
    judge,
    longest_pause,
    offsets_gone_back,
    outages,
)
from fmqdev.demo.waiting import TIMEOUT_S, DemoFailed, wait_caught_up, wait_until
from fmqdev.folder_lock import lock_cluster

TOPIC: Final = "flights"
QUEUES: Final = 8
READERS: Final = "readers"
NEWCOMER: Final = "newcomer"
VICTIM: Final = "g1"
"""The group that loses its master."""

_NEWCOMER_READS: Final = 500
_QUIET_S: Final = 1.0

FSYNC_AND_SYNC: Final = AckPolicy(Flush.FSYNC, counts=SlaveCounts.DURABLE, how_many=HowMany.ONE)
"""fsynced on the master and on the slave before each acknowledgement."""


@dataclass(slots=True)
class _Fault:
    """The kill of the victim, by the loop's clock, and what followed."""

    killed_ms: float
    offsets: Mapping[Place, int]
    finding: Finding | None = None


async def run_demo(directory: Path, show: Show, *, messages: int = ALL) -> Report:
    """Run the demo in `directory` (emptied first). Raises `FmqError` if it cannot go on."""
    with lock_folder(directory):
        async with lock_cluster(directory):
            clear_folder(directory)
        return await _run(directory, show, messages)


async def _run(directory: Path, show: Show, messages: int) -> Report:
    cluster = DevCluster(directory, ClusterOptions(cluster="demo", policy=FSYNC_AND_SYNC))
    show.step("starting ZooKeeper and two groups, each a master and a slave: five processes")
    async with cluster:
        show.step(f"up: {cluster.url}; logs and data in {cluster.directory}")
        demo = _Demo(cluster, show, messages)
        fault = await demo.run()
        ended_ms = now_ms()
        show.step("stopping in order")
    show.step("comparing the journals of masters and slaves")
    journals = compare_groups(cluster)
    return demo.report(fault, ended_ms, journals)


class _Demo:
    """One run, while the cluster is up."""

    def __init__(self, cluster: DevCluster, show: Show, messages: int) -> None:
        self._cluster = cluster
        self._show = show
        self._total = messages
        self._history = History()
        self._producing = Producing(self._history, TOPIC, limit=messages * 2 // 3)
        self._consuming = Consuming(self._history, TOPIC, READERS)
        self._probe = Probe(cluster.brokers.values())
        self._master, self._slave = (plan.id for plan in cluster.group(VICTIM))

    async def run(self) -> _Fault:
        """Run all that happens while messages flow."""
        async with fmqclient.connect(self._cluster.url, name="demo") as client:
            await client.admin().create_topic(TOPIC, queues=QUEUES)
            self._show.step(
                f"producing {self._total:,} flights to topic {TOPIC} ({QUEUES} queues a group; "
                "fsync and synchronous replication before each acknowledgement), "
                "consumed by a group of two members"
            )
            with self._show.progress():
                async with self._traffic(client) as (producer, consumers):
                    fault = await self._kill_and_return(client)
                    await producer
                    self._show.step("everything is sent; the consumers finish")
                    await self._all_consumed()
                    self._consuming.stop.set()
                    await asyncio.gather(*consumers)
        await wait_caught_up(self._cluster)
        return fault

    @asynccontextmanager
    async def _traffic(
        self, client: Client
    ) -> AsyncIterator[tuple["asyncio.Task[None]", list["asyncio.Task[None]"]]]:
        """Run producer, consumers, probe and progress; they end with the block, even on failure."""
        url = self._cluster.url
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._probe.run()),
                tasks.create_task(self._show_progress()),
            ]
            consumers = [
                tasks.create_task(self._consuming.member(url, f"reader-{n}")) for n in (1, 2)
            ]
            sending = self._producing.run(client, flights(self._total))
            yield tasks.create_task(sending), consumers
            for task in background:
                task.cancel()

    async def _show_progress(self) -> None:
        while True:
            self._show.flow(self._producing.acked, self._consuming.consumed)
            await asyncio.sleep(0.1)

    # ---- the story
    async def _kill_and_return(self, client: Client) -> _Fault:
        producing = self._producing
        await self._until(lambda: producing.acked >= self._total // 3, "a third acknowledged")
        killed_ms = now_ms()
        pid = self._cluster.pid(self._master)
        self._cluster.kill(self._master)
        producing.widen()
        self._show.step(f"kill -9 {pid}: {self._master}, the master of {VICTIM}, is dead")

        await self._slave_serves(killed_ms)
        producing.allow(self._total * 9 // 10)
        since_ms = now_ms()
        await self._until(
            lambda: self._enough_without_it(killed_ms, since_ms), "writes in the other group"
        )
        fault = _Fault(killed_ms, await self._offsets(client))
        others = self._elsewhere(killed_ms)
        self._show.step(f"writes went to the other group: {others:,} acknowledged since the kill")
        fault.finding = None if others else Finding("NO_WRITES", 1, "no writes while it was dead")

        await self._return(client, fault)
        producing.allow(self._total)
        return fault

    async def _slave_serves(self, killed_ms: float) -> None:
        await self._until(
            lambda: self._probe.serves(self._slave, Permission.READ), f"{self._slave} serving reads"
        )
        took_ms = now_ms() - killed_ms
        epoch = (await self._cluster.groups.state(VICTIM)).epoch
        self._show.step(
            f"{self._slave} serves the reads of {VICTIM} since {took_ms / 1000:.1f} s after that "
            f"(epoch {epoch})"
        )
        stored = sum(
            len(rows) for place, rows in self._history.acked.items() if place.group == VICTIM
        )
        wanted = min(_NEWCOMER_READS, stored)
        try:
            read = await read_some(self._cluster.url, TOPIC, NEWCOMER, VICTIM, wanted)
        except TimeoutError:
            raise DemoFailed(f"{self._slave} does not deliver what {VICTIM} holds") from None
        self._show.step(f"a newcomer reads {read:,} messages of {VICTIM} from it, from the start")

    def _enough_without_it(self, killed_ms: float, since_ms: float) -> bool:
        """Whether two thirds are acknowledged, some elsewhere; or (the rest hangs) all that can."""
        producing = self._producing
        newest_ms = max([since_ms, *(moments[-1] for moments in producing.acked_ms.values())])
        if producing.sent >= producing.limit and now_ms() - newest_ms > _QUIET_S * 1000:
            return True
        enough = producing.acked >= self._total * 2 // 3
        return enough and self._elsewhere(killed_ms) > 0

    def _elsewhere(self, since_ms: float) -> int:
        """Return how many flights the other groups acknowledged."""
        others = (group for group in self._cluster.group_names if group != VICTIM)
        return sum(self._producing.acked_since(group, since_ms) for group in others)

    async def _return(self, client: Client, fault: _Fault) -> None:
        started_ms = now_ms()
        self._show.step(f"starting {self._master} again")
        self._cluster.start_broker(self._master)
        await self._cluster.wait_healthy(within_s=TIMEOUT_S)
        took_s = (now_ms() - started_ms) / 1000
        state = await self._cluster.groups.state(VICTIM)
        back = await self._offsets(client)
        self._show.step(
            f"{VICTIM} is whole again after {took_s:.1f} s: {state.master} is its master "
            f"(epoch {state.epoch}) with the offsets of {len(fault.offsets)} queues handed back, "
            f"{self._slave} is in sync"
        )
        if state.mode is not Mode.MASTER or state.degraded:
            fault.finding = Finding("NOT_WHOLE", 1, f"{VICTIM} came back as {state}")
        fault.finding = fault.finding or offsets_gone_back(fault.offsets, back)

    async def _offsets(self, client: Client) -> dict[Place, int]:
        """Return committed offsets of the victim's queues, by consumer group, from its reader."""
        return {
            Place(f"{row.broker_group} for {row.group}", row.queue): row.committed
            for row in await client.admin().offsets(topic=TOPIC)
            if row.broker_group == VICTIM and row.group
        }

    # ---- waiting
    async def _until(self, happened: Callable[[], bool], what: str) -> None:
        await wait_until(happened, self._moved, what)

    def _moved(self) -> tuple[int, int]:
        return self._producing.acked, self._consuming.consumed

    async def _all_consumed(self) -> None:
        """Wait until every acknowledged message is consumed; otherwise the verdict reports it."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while self._consuming.missing():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self._show.step("not everything was consumed in time")

    # ---- the verdict
    def report(self, fault: _Fault, ended_ms: float, journals: list[Compared]) -> Report:
        """Return the report, once the cluster has stopped."""
        traffic = judge(self._history)
        findings = list(traffic.findings)
        findings += [fault.finding] if fault.finding else []
        findings += [compared.finding for compared in journals if compared.finding]
        from_ms = fault.killed_ms
        return Report(
            traffic=traffic,
            outages=outages(self._probe.looks, from_ms, ended_ms),
            pauses_ms=None if self._producing.held else self._pauses(from_ms),
            journals=journals,
            findings=findings,
            seconds=self._show.seconds,
            directory=self._cluster.directory,
        )

    def _pauses(self, from_ms: float) -> tuple[float, float]:
        return (
            _pause(self._consuming.consumed_ms, from_ms),
            _pause(self._producing.acked_ms, from_ms),
        )


def _pause(moments: Mapping[str, "array[float]"], from_ms: float) -> float:
    """Return the longest time between two moments of any group, from the kill to the last."""
    rising = sorted(moment for of_group in moments.values() for moment in of_group)
    return longest_pause(rising, from_ms, rising[-1]) if rising else 0.0


def compare_groups(cluster: DevCluster) -> list[Compared]:
    """Compare the journals of each group, once the cluster has stopped."""
    compared = []
    for name in cluster.group_names:
        master, slave = cluster.group(name)
        compared.append(compare_journals(name, master.data, slave.data))
    return compared
