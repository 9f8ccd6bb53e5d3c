"""No more file descriptors: open ones stay, no new one can be opened or accepted."""

import asyncio
import os
import resource
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind
from fmqcore.ids import BrokerId
from fmqdev.cluster_plan import BrokerPlan

_CALLERS: Final = 200
_ANSWER_S: Final = 2.0


class NoDescriptors(Fault):
    """The broker goes on with what it has, or ends itself; both are right."""

    name = "descriptors"
    what = "a master may open no more file descriptors"
    kind = FaultKind.DESCRIPTORS
    needs = ("prlimit",)

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[int, tuple[int, int]] | None = None
        self._master = ""
        self._callers: list[asyncio.StreamWriter] = []

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, self._master = await stage.some_master()
        self.ended.add(self._master)
        pid = stage.cluster.pid(self._master)
        opened = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
        _, most = limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self._before = (pid, limits)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened, most))
        if not await self._refuses(stage.cluster.brokers[BrokerId(self._master)]):
            raise NotFired(f"{self._master} still accepts connections at its descriptor limit")
        return f"{self._master} may have {opened} descriptors: it answers no new caller"

    async def _refuses(self, plan: BrokerPlan) -> bool:
        """Call until no answer comes: a gRPC server speaks first."""
        for _ in range(_CALLERS):
            try:
                async with asyncio.timeout(_ANSWER_S):
                    reader, writer = await asyncio.open_connection(plan.host, plan.port)
                    self._callers.append(writer)
                    if not await reader.read(1):
                        return True
            except (TimeoutError, OSError):
                return True
        return False

    async def heal(self, stage: Stage) -> None:
        """Restore the limit; if the broker ended itself, start it again."""
        for writer in self._callers:
            writer.transport.abort()
        if self._before is None:
            return
        pid, limits = self._before
        if stage.cluster.alive(self._master):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        else:
            stage.cluster.start_part(self._master)
