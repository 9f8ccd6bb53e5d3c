"""Links that are cut: packets dropped or reset, in both directions or in one."""

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.machines import CLIENTS, Cut
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind

_NOTICE_TIMEOUT_S = 30.0


class _Cuts(Fault):
    kind = FaultKind.CUT

    @staticmethod
    def _both(stage: Stage, one: str, others: list[str], how: Cut) -> None:
        for other in others:
            stage.network.cut(one, other, how)
            stage.network.cut(other, one, how)

    async def _felt(self, stage: Stage) -> None:
        await stage.until(stage.network.felt, "something was sent over the cut link")

    async def heal(self, stage: Stage) -> None:
        """Restore all links."""
        stage.network.heal()


class _SlaveOneWay(_Cuts):
    needs = ("namespaces",)

    async def _cut_one_way(self, stage: Stage, *, to_master: bool) -> str:
        group, slave = await stage.some_slave()
        master = await stage.cluster.master_of(group)
        sender, receiver = (slave, master) if to_master else (master, slave)
        stage.network.cut(sender, receiver, Cut.DROP)
        await self._felt(stage)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return f"cut {sender} → {receiver}"


class CutMasterFromSlaves(_Cuts):
    """The slaves leave the in-sync set; no switch, since ZooKeeper knows that the master lives."""

    name = "cut-master-slaves"
    what = "a master and its slaves hear nothing of each other"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        slaves = await stage.cluster.slaves_of(group)
        self._both(stage, master, slaves, Cut.DROP)
        await self._felt(stage)
        await stage.until_state(group, lambda s: not s.isr, "the in-sync set is empty")
        return f"cut {master} from {', '.join(slaves)}"


class CutMasterFromZooKeeper(_Cuts):
    """The master serves on by its slaves' grants."""

    name = "cut-master-zookeeper"
    what = "a master hears nothing of ZooKeeper, its slaves do"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        self._both(stage, master, stage.cluster.ensemble.names, Cut.DROP)
        await self._felt(stage)
        if not await stage.cluster.until_live(master, live=False, within_s=_NOTICE_TIMEOUT_S):
            raise NotFired(f"{master} is cut from ZooKeeper, but its session did not end")
        return f"cut {master} from ZooKeeper until its session had ended"


class CutMasterFromBoth(_Cuts):
    """The master fences itself before its slave serves, though clients still reach it."""

    name = "cut-master-both"
    what = "a master hears neither ZooKeeper nor its slaves; clients reach it"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        others = [*stage.cluster.ensemble.names, *await stage.cluster.slaves_of(group)]
        self._both(stage, master, others, Cut.DROP)
        await self._felt(stage)
        slave = await stage.taken_over(group)
        return f"cut {master} from all but its clients; {slave} took the reads over"


class CutClients(_Cuts):
    """No part of the cluster notices anything wrong."""

    name = "cut-clients"
    what = "clients and lookers-on hear nothing of a master that is well"
    needs = ("namespaces",)

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        self._both(stage, CLIENTS, [master], Cut.DROP)
        await self._felt(stage)
        return f"cut all clients from {master}"


class OneWayToMaster(_SlaveOneWay):
    """The slave gets every byte; its acknowledgements and grants do not arrive."""

    name = "one-way-to-master"
    what = "what a slave sends to its master is swallowed, the other direction is whole"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        return await self._cut_one_way(stage, to_master=True)


class OneWayToSlave(_SlaveOneWay):
    """The slave receives nothing; its own messages arrive."""

    name = "one-way-to-slave"
    what = "what a master sends to its slaves is swallowed, the other direction is whole"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        return await self._cut_one_way(stage, to_master=False)


class OneWayToZooKeeper(_Cuts):
    """ZooKeeper receives nothing from a master that receives from ZooKeeper."""

    name = "one-way-to-zookeeper"
    what = "what a master sends to ZooKeeper is swallowed, the other direction is whole"
    needs = ("namespaces",)

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        for server in stage.cluster.ensemble.names:
            stage.network.cut(master, server, Cut.DROP)
        await self._felt(stage)
        if not await stage.cluster.until_live(master, live=False, within_s=_NOTICE_TIMEOUT_S):
            raise NotFired(f"{master} is not heard by ZooKeeper, but its session did not end")
        return f"cut {master} → ZooKeeper until its session had ended"


class ResetLinks(_Cuts):
    """Every connection of a slave to its master is reset, and every new one."""

    name = "reset-master-slave"
    what = "connections between a master and a slave are reset, new ones too"
    kind = FaultKind.RESET

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, slave = await stage.some_slave()
        master = await stage.cluster.master_of(group)
        self._both(stage, master, [slave], Cut.RESET)
        await self._felt(stage)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return f"reset {master} ↔ {slave}"
