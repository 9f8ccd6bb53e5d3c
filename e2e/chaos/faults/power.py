"""Power loss of one broker or of all at once. Data that was not fsynced is gone.

The broker's file system is shut down while its process stands still, so nothing runs between the
last write and the end.
"""

from dataclasses import replace
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import TIMEOUT_S, Stage
from e2e.chaos.watch import setup_of
from e2e.history.cluster_events import Ending, FaultKind
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_config import GroupConfig

_UNFLUSHED: Final = 100


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
            stage.kill(broker, Ending.POWER)
        for broker in brokers:
            if not await stage.has_ended(broker):
                raise NotFired(f"{broker} still runs after SIGKILL")
            cluster.disks[broker].unmount()
            cluster.disks[broker].mount()

    async def heal(self, stage: Stage) -> None:
        """Switch the machines on."""
        for broker in sorted(self.ended):
            stage.cluster.start_part(broker)


class PowerLossMaster(_Power):
    """Everything that the master acknowledged is on its slave's disk too."""

    name = "power-loss-master"
    what = "a master loses its power; what it had not fsynced is gone"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        await self._cut_power(stage, master)
        slave = await stage.taken_over(group)
        return f"{master} lost its power; {slave} took the reads over"


class PowerLossSlave(_Power):
    """Everything that the slave acknowledged to its master is on its own disk."""

    name = "power-loss-slave"
    what = "a slave loses its power; what it had not fsynced is gone"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        await self._cut_power(stage, slave)
        return f"{slave} lost its power"


class PowerLossAll(_Power):
    """The whole building loses its power."""

    name = "power-loss-all"
    what = "all brokers lose their power at once"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        stage.on += stage.cluster.brokers
        await self._cut_power(stage, *stage.cluster.brokers)
        return "all brokers lost their power"


class PowerLossUnflushed(_Power):
    """The slave has data that never reached the master's disk.

    It gives the data back before a term is opened.
    """

    name = "power-loss-unflushed"
    what = "a master of a group that fsyncs nothing loses its power; its slave is ahead then"

    def __init__(self) -> None:
        super().__init__()
        self._before: GroupConfig | None = None

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        cluster = stage.cluster
        group, master = await stage.some_master()
        self._before = config = await cluster.groups.config(group)
        lazy = AckPolicy(Flush.OS_CACHE, counts=SlaveCounts.RECEIVED, how_many=HowMany.ONE)
        await cluster.groups.put_config(replace(config, policy=lazy))
        stage.history.add(await setup_of(cluster))
        await stage.until_async(lambda: self._unflushed(stage, master), f"{master} fsyncs nothing")
        await stage.flow.moved(_UNFLUSHED, [group], TIMEOUT_S)
        [slave, *_] = await cluster.slaves_of(group)
        here, there = await cluster.broker_status(master), await cluster.broker_status(slave)
        await self._cut_power(stage, master)
        if here is None or there is None or here.durable_end >= there.end:
            raise NotFired(f"{master} had fsynced all that {slave} has: nothing to lose")
        reader = await stage.taken_over(group)
        ahead = there.end - here.durable_end
        return f"{master} lost its power and {ahead:,} bytes; {reader} had them and took over"

    @staticmethod
    async def _unflushed(stage: Stage, master: str) -> bool:
        reply = await stage.cluster.broker_status(master)
        return reply is not None and reply.commit_end > reply.durable_end

    async def heal(self, stage: Stage) -> None:
        """Switch the machine on, with the policy as before."""
        if self._before is not None:
            await stage.cluster.groups.put_config(self._before)
            stage.history.add(await setup_of(stage.cluster))
        await super().heal(stage)
