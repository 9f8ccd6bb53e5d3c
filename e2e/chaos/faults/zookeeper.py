"""ZooKeeper faults: no quorum for a while, sessions that end unexpectedly."""

import asyncio
from contextlib import suppress

from e2e.chaos.ensemble import some_of
from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind
from fmqadapters.zookeeper.embedded import ZooKeeperFailed


class QuorumLost(Fault):
    """The masters serve on by their slaves' grants; nothing can switch."""

    name = "quorum-lost"
    what = "kill -9 of most of ZooKeeper's servers, for six times as long as other faults"
    kind = FaultKind.ZOOKEEPER
    patience = 6.0

    def __init__(self) -> None:
        super().__init__()
        self._dead: list[str] = []

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        names = stage.cluster.ensemble.names
        self._dead = some_of(names, len(names) // 2 + 1, stage.random)
        stage.on += self._dead
        for name in self._dead:
            stage.kill(name)

        async def no_leader() -> bool:
            return not await stage.cluster.ensemble.leader()

        await stage.until_async(no_leader, "no server leads")
        return f"killed {', '.join(self._dead)}: no quorum"

    async def heal(self, stage: Stage) -> None:
        """Start the servers again."""
        for name in self._dead:
            stage.cluster.start_part(name)


class _Expire(Fault):
    kind = FaultKind.EXPIRE

    async def _expire(self, stage: Stage, *brokers: str) -> None:
        old = {broker: await stage.cluster.session_of(broker) for broker in brokers}
        if gone := [broker for broker, session in old.items() if not session]:
            raise NotFired(f"{', '.join(gone)} had no ZooKeeper session to expire")
        for broker, session in old.items():
            await self._end(stage, broker, session)
        for broker, session in old.items():
            await self._another(stage, broker, session)

    @staticmethod
    async def _end(stage: Stage, broker: str, session: int) -> None:
        """End the session, unless it has ended by itself since the last look (a busy machine)."""

        async def over() -> bool:
            with suppress(OSError, ZooKeeperFailed):
                await asyncio.to_thread(stage.cluster.ensemble.expire, session)
                return True
            return await stage.cluster.session_of(broker) != session

        await stage.until_async(over, f"the session of {broker} is ended")

    @staticmethod
    async def _another(stage: Stage, broker: str, old: int) -> None:
        async def another() -> bool:
            return await stage.cluster.session_of(broker) not in (0, old)

        await stage.until_async(another, f"{broker} has another session")

    async def heal(self, stage: Stage) -> None:
        """Do nothing: the fault ends by itself."""


class SessionExpired(_Expire):
    """The master may not serve on as if nothing had happened."""

    name = "session-expired"
    what = "a master's ZooKeeper session is ended by the servers"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        await self._expire(stage, master)
        return f"expired the session of {master}"


class AllSessionsExpired(_Expire):
    """All brokers lose their sessions at once."""

    name = "sessions-expired-all"
    what = "the ZooKeeper sessions of all brokers are ended at once"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        stage.on += stage.cluster.brokers
        await self._expire(stage, *stage.cluster.brokers)
        return "expired the sessions of all brokers"
