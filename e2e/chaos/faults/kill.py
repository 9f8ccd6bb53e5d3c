"""SIGKILL: of a master, a slave, both in turn, ZooKeeper's leader, or everything."""

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind
from fmqcore.ids import Permission


class _Kill(Fault):
    kind = FaultKind.KILL

    async def _kill(self, stage: Stage, *parts: str) -> None:
        self.ended.update(parts)
        for part in parts:
            stage.kill(part)
        for part in parts:
            if not await stage.has_ended(part):
                raise NotFired(f"{part} still runs after SIGKILL")

    async def heal(self, stage: Stage) -> None:
        """Start the killed parts again."""
        for part in sorted(self.ended):
            stage.cluster.start_part(part)


class KillMaster(_Kill):
    """The slave takes the reads over."""

    name = "kill-master"
    what = "kill -9 of a group's master, which serves reads and writes"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        await self._kill(stage, master)
        slave = await stage.taken_over(group)
        return f"killed {master}; {slave} took the reads over"


class KillSlave(_Kill):
    """The master goes on alone, without acknowledging what needs the slave."""

    name = "kill-slave"
    what = "kill -9 of a group's slave"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, slave = await stage.some_slave()
        await self._kill(stage, slave)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return f"killed {slave}"


class KillTaker(_Kill):
    """First the master is killed, then the takeover reader."""

    name = "kill-reader"
    what = "kill -9 of a master, then of the slave that has taken over"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        await self._kill(stage, master)
        reader = await stage.taken_over(group)
        stage.on.append(reader)
        await stage.until(lambda: stage.serves(reader, Permission.READ), f"{reader} serves reads")
        await self._kill(stage, reader)
        return f"killed {master}, then {reader}"


class KillZooKeeperLeader(_Kill):
    """The other servers elect another leader."""

    name = "kill-zookeeper-leader"
    what = "kill -9 of the ZooKeeper server that leads"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        leader = await stage.cluster.ensemble.leader() or stage.cluster.ensemble.names[0]
        stage.on.append(leader)
        await self._kill(stage, leader)
        return f"killed {leader}"


class KillAll(_Kill):
    """Everything is killed at once; the clients only see a long pause."""

    name = "kill-all"
    what = "kill -9 of all brokers and all of ZooKeeper at once"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        parts = stage.cluster.parts
        stage.on += parts
        await self._kill(stage, *parts)
        return f"killed {', '.join(parts)}"
