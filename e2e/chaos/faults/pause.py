"""SIGSTOP past the session's end and back: a broker that wakes must have no lease."""

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind


class _Pause(Fault):
    kind = FaultKind.PAUSE

    def __init__(self) -> None:
        super().__init__()
        self._paused = ""

    async def _pause(self, stage: Stage, broker: str) -> None:
        self._paused = broker
        stage.cluster.pause(broker)
        if not await stage.cluster.until_live(broker, live=False, within_s=30):
            raise NotFired(f"{broker} is stopped, but its ZooKeeper session did not end")

    async def heal(self, stage: Stage) -> None:
        """Wake the broker."""
        if self._paused:
            stage.cluster.resume(self._paused)


class PauseMaster(_Pause):
    """Requests that waited in its sockets find a broker that may not serve."""

    name = "pause-master"
    what = "SIGSTOP of a master past its session, SIGCONT later"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        await self._pause(stage, master)
        slave = await stage.taken_over(group)
        return f"stopped {master} past its session; {slave} took the reads over"


class PauseSlave(_Pause):
    """The slave leaves the in-sync set, and comes back to it."""

    name = "pause-slave"
    what = "SIGSTOP of a slave past its session, SIGCONT later"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, slave = await stage.some_slave()
        await self._pause(stage, slave)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return f"stopped {slave} past its session"
