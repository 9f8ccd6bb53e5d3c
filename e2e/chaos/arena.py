"""A cluster on this machine, observed all the time until it is stopped and judged.

Leaves in its folder: `cluster.json`, a folder for each broker (log, data), a folder for each
ZooKeeper server, `history.jsonl`.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.chaos.cluster import ChaosCluster
from e2e.chaos.ensemble import Ensemble
from e2e.chaos.flow import READERS
from e2e.chaos.ground import Ground
from e2e.chaos.machines import Loopback, Namespaces, Network
from e2e.chaos.watch import Watch, now_ms, setup_of
from e2e.checks.verdict import Limits, Verdict, judge
from e2e.history.cluster_events import Down, Ending, State
from e2e.history.events import Event
from e2e.history.history import History, to_line
from e2e.history.journals import Journal, load_directory
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqdev.cluster_plan import ClusterOptions

FSYNC_AND_SYNC: Final = AckPolicy(Flush.FSYNC, counts=SlaveCounts.DURABLE, how_many=HowMany.ONE)
SETTINGS: Final[Mapping[str, str | int]] = {"segment_bytes": 1 << 20}
"""Broker settings that differ from the defaults: with small segments a short run rolls many."""

ANY: Final = Limits(acked_records=0, reader_changes=0)
"""Limits without minimums: only the whole run decides whether enough happened."""

_STATUS_TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class Options:
    """The options of the command line."""

    directory: Path
    seed: int = 0
    seconds: float = 10.0
    groups: int = 2
    slaves: int = 1
    zookeepers: int = 3
    settings: Mapping[str, str | int] = field(default_factory=lambda: SETTINGS)
    say: Callable[[str], None] = print


@dataclass(slots=True)
class Arena:
    """The parts of a running cluster, and afterwards its `history` and `journals`."""

    cluster: ChaosCluster
    watch: Watch
    history: History
    journals: list[Journal] = field(default_factory=list)

    def judge(self, begin: int = 0) -> Verdict:
        """Judge what happened since that event; with the journals once the cluster has stopped."""
        if not begin:
            return judge(self.history.events, self.journals, ANY)
        events = self.history.events
        states: dict[str, Event] = {e.group: e for e in events[:begin] if isinstance(e, State)}
        return judge([events[0], *states.values(), *events[begin:]], (), ANY)


@asynccontextmanager
async def arena(
    options: Options, ground: Ground, folder: Path, *, disks: bool = True
) -> AsyncIterator[Arena]:
    """Run a whole, observed cluster; when the block ends it is stopped in order and read."""
    folder.mkdir(parents=True)
    network: Network = Loopback() if ground.namespaces else Namespaces(folder)
    ensemble = Ensemble(folder, network, options.zookeepers)
    try:
        await ensemble.start()
        given = ClusterOptions(
            cluster="chaos",
            groups=options.groups,
            slaves=options.slaves,
            policy=FSYNC_AND_SYNC,
            settings=options.settings,
            zookeeper=ensemble.address(),
        )
        own_disks = disks and ground.disks is None
        cluster = ChaosCluster(folder, given, network, ensemble, disks=own_disks)
        with (folder / "history.jsonl").open("w") as file:
            history = History(sink=lambda event: print(to_line(event), file=file))
            found = Arena(cluster, Watch(cluster, history, READERS), history)
            try:
                await cluster.start()
                history.add(await setup_of(cluster))
                async with _watched(found.watch):
                    yield found
            finally:
                await _stop(found)
    finally:
        await ensemble.stop()
        network.close()


@asynccontextmanager
async def _watched(watch: Watch) -> AsyncIterator[None]:
    watching = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(_STATUS_TIMEOUT_S):
            while not watch.has_seen_all():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _stop(found: Arena) -> None:
    """Stop in order, read the journals, and leave the data where a person finds it."""
    cluster = found.cluster
    alive = [broker for broker in cluster.brokers if cluster.alive(broker)]
    try:
        await cluster.stop()
    finally:
        for broker, plan in cluster.brokers.items():
            if broker in alive:
                found.history.add(Down(now_ms(), broker, plan.group, Ending.STOPPED))
            if plan.data.exists():
                found.journals.append(load_directory(broker, plan.group, plan.data))
        _bring_out(cluster)


def _bring_out(cluster: ChaosCluster) -> None:
    """Copy the data out of the images, which would be hard to inspect later."""
    for broker, disk in cluster.disks.items():
        aside = cluster.directory / broker / "data.out"
        if disk.mounted:
            shutil.copytree(disk.folder, aside, ignore=shutil.ignore_patterns("lost+found"))
            disk.unmount()
            disk.folder.rmdir()
            aside.rename(disk.folder)
        disk.image.unlink(missing_ok=True)
