"""The cluster under faults: brokers on machines and disks of their own, over an ensemble.

It adds to `fmqdev.cluster`: where each broker runs, its disk, and the present role of each broker.
"""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from e2e.chaos.disks import Disk
from e2e.chaos.ensemble import Ensemble
from e2e.chaos.machines import Loopback, Network
from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk import layout as paths
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqdev.group_nodes import Groups


class ChaosCluster(DevCluster):
    """A `DevCluster` on `network`; `disks`: each broker's data lies on its own image."""

    def __init__(
        self,
        directory: Path,
        options: ClusterOptions,
        network: Network,
        ensemble: Ensemble,
        *,
        disks: bool,
    ) -> None:
        super().__init__(directory, options)
        self.network = network
        self.ensemble = ensemble
        self.disks: dict[str, Disk] = {}
        self._with_disks = disks

    @property
    def parts(self) -> list[str]:
        """Every process: brokers, then ZooKeeper's servers."""
        return [*self.brokers, *self.ensemble.names]

    def _plan(self, ports: Sequence[int]) -> None:
        super()._plan(ports)
        if isinstance(self.network, Loopback):
            self.network.who = self._who_calls
        for broker, plan in self.brokers.items():
            machine = self.network.machine(broker)
            plan.host, plan.under = machine.host, machine.under
            plan.address = self.network.address("", broker, plan.port)
            plan.zookeeper = self.ensemble.address(broker)
            if self._with_disks:
                disk = self.disks[broker] = Disk(plan.directory / "disk.img", plan.data)
                disk.make()

    # ---- who is what
    async def master_of(self, group: str) -> str:
        """Return the acting master, as ZooKeeper has it."""
        return (await self.groups.state(group)).master

    async def reader_of(self, group: str) -> str:
        """Return the broker that serves the reads, as ZooKeeper has it."""
        state = await self.groups.state(group)
        return state.reader or state.master

    async def slaves_of(self, group: str) -> list[str]:
        """Return all brokers of the group but the master."""
        master = await self.master_of(group)
        return [plan.id for plan in self.group(group) if plan.id != master]

    async def session_of(self, broker: str) -> int:
        """Return the number of the broker's ZooKeeper session; 0 if it has no live node."""
        plan = self.brokers[BrokerId(broker)]
        path = paths.live_broker_node(self.options.cluster, GroupName(plan.group), plan.id)
        node = await (await self.groups.session()).get(path)
        return node.owner if node else 0

    async def reconnect(self) -> None:
        """Replace this process's session: ZooKeeper refuses one that has seen newer data."""
        before, self._groups = self._groups, Groups(self.zookeeper_address, self.options.cluster)
        if before is not None:
            await before.close()

    async def until_live(self, broker: str, *, live: bool, within_s: float) -> bool:
        """Wait until the broker's live node exists, or is gone; False if that does not come."""
        try:
            async with asyncio.timeout(within_s):
                while bool(await self.session_of(broker)) is not live:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    # ---- power and signals, of brokers and of ZooKeeper's servers alike
    def is_zookeeper(self, part: str) -> bool:
        """Whether the part is one of ZooKeeper's servers."""
        return part in self.ensemble.names

    def exit_status(self, broker: str) -> int | None:
        """Return the exit status of the broker's process; None if it runs."""
        popen = self._children[broker].popen
        return popen.poll() if popen is not None else None

    def is_alive(self, part: str) -> bool:
        """Whether the part's process runs."""
        return self.ensemble.alive(part) if self.is_zookeeper(part) else self.alive(part)

    def signal_part(self, part: str, number: signal.Signals) -> None:
        """Send a signal to the part's process, if it runs."""
        if self.is_zookeeper(part):
            self.ensemble.child(part).send(number)
        else:
            self.kill(part, number)

    def start_all(self) -> None:
        """Start every process that does not run, ZooKeeper's servers first."""
        for part in (*self.ensemble.names, *self.brokers):
            self.start_part(part)

    def start_part(self, part: str) -> None:
        """Start the part's process, unless it runs."""
        if self.is_zookeeper(part):
            self.ensemble.start_server(part)
        elif not self.alive(part):
            self.start_broker(part)
