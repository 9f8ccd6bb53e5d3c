"""Power loss: of one broker, of the other, of all at once. What was not fsynced is gone.

The broker's file system is shut down while its process stands still, so nothing runs between the
last write and the end.
"""

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.events import FaultKind


class _Power(Fault):
    kind = FaultKind.POWER
    needs = ("disks",)

    async def _cut_power(self, stage: Stage, *brokers: str) -> None:
        cluster = stage.cluster
        self.ended.update(brokers)
        for broker in brokers:
            cluster.pause(broker)
        for broker in brokers:
            cluster.disks[broker].lose_power()
        for broker in brokers:
            stage.kill(broker)
        for broker in brokers:
            if not await stage.has_ended(broker):
                raise NotFired(f"{broker} lives on after SIGKILL")
            cluster.disks[broker].unmount()
            cluster.disks[broker].mount()

    async def heal(self, stage: Stage) -> None:
        """The machines are switched on."""
        for broker in sorted(self.ended):
            stage.cluster.start_part(broker)


class PowerLossMaster(_Power):
    """What it acknowledged is on its slave's disk too."""

    name = "power-loss-master"
    what = "a master loses its power; what it had not fsynced is gone"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        await self._cut_power(stage, master)
        slave = await stage.taken_over(group)
        return f"{master} lost its power; {slave} took the reads over"


class PowerLossSlave(_Power):
    """What it acknowledged to its master is on its own disk."""

    name = "power-loss-slave"
    what = "a slave loses its power; what it had not fsynced is gone"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        await self._cut_power(stage, slave)
        return f"{slave} lost its power"


class PowerLossAll(_Power):
    """The building's power."""

    name = "power-loss-all"
    what = "all brokers lose their power at once"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        stage.on += stage.cluster.brokers
        await self._cut_power(stage, *stage.cluster.brokers)
        return "all brokers lost their power"
