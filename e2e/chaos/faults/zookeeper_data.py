"""ZooKeeper loses its data, or is restored from an older backup.

The tool then does what the runbook asks of a person. The judge stays as strict as ever: no broker
may serve an epoch below one that was served, nothing acknowledged may be missing, and no topic may
get the messages of another. An ordered topic goes on in its order: the journals restore its chain.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.flow import QUEUES
from e2e.chaos.stage import Stage, Stuck
from e2e.history.cluster_events import Ending, FaultKind
from fmqclient import TopicInfo
from fmqcore.ids import Permission
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import Mode

_OLDER: Final = "newer epoch than the group's state"
_SOME: Final = 20
_TIMEOUT_S: Final = 120.0
"""Long enough for all brokers to start on a busy machine."""


class _ZooKeeperData(Fault):
    kind = FaultKind.ZOOKEEPER_DATA

    def __init__(self) -> None:
        super().__init__()
        self._topics: dict[str, TopicInfo] = {}  # all that there are
        self._replaced = False

    async def _note_topics(self, stage: Stage) -> None:
        async with stage.flow.door.client("person") as client:
            self._topics = {topic.name: topic for topic in await client.admin().topics()}

    async def _replace(self, stage: Stage, copy: Path | None, detail: str) -> None:
        """Let all servers start with that data (None: with none)."""
        ensemble = stage.cluster.ensemble
        stage.on += ensemble.names
        await ensemble.stop()
        stage.fired(detail)
        self._replaced = True
        await asyncio.to_thread(ensemble.put_data, copy)
        await ensemble.start()
        await stage.cluster.reconnect()

    async def _stop_brokers(self, stage: Stage) -> None:
        """Stop all brokers in order."""
        alive = [broker for broker in stage.cluster.brokers if stage.cluster.alive(broker)]
        self.ended.update(alive)
        for broker in alive:
            stage.cluster.kill(broker, signal.SIGTERM)
        for broker in alive:
            if not await stage.has_ended(broker):
                raise Stuck(f"{broker} still runs after SIGTERM")
            stage.down(broker, Ending.STOPPED)

    async def _create_topics(self, stage: Stage) -> None:
        """Create a new topic first, then the lost ones: each must get its own number back."""
        number = await self._create(stage, f"{stage.flow.topic}-new")
        if number in {topic.id for topic in self._topics.values()}:
            stage.wrong(f"the new topic got number {number}, which is another topic's")
        for name, old in sorted(self._topics.items(), reverse=True):
            groups = [g.group for g in old.groups] if old.ordered else []
            if (number := await self._create(stage, name, groups)) != old.id:
                stage.wrong(f"topic {name} got number {number}; it had {old.id}")

    @staticmethod
    async def _create(stage: Stage, name: str, chain_groups: Sequence[str] = ()) -> int:
        """Create a topic, again until a broker answers; return its number.

        `chain_groups`: those of an ordered topic.
        """
        number = 0

        async def created() -> bool:
            nonlocal number
            async with stage.flow.door.client("person") as client:
                admin = client.admin()
                if chain_groups:
                    topic = await admin.ordered.create(name, chain_groups, if_not_exists=True)
                else:
                    topic = await admin.create_topic(name, queues=QUEUES, if_not_exists=True)
            number = topic.id
            return True

        await stage.until_async(created, f"topic {name} is created", _TIMEOUT_S)
        return number


class ZooKeeperEmpty(_ZooKeeperData):
    """The masters serve on by their slaves' grants, until a person restarts the brokers."""

    name = "zookeeper-empty"
    what = "all ZooKeeper servers come back without any data, under running brokers"

    def __init__(self) -> None:
        super().__init__()
        self._configs: list[GroupConfig] = []

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        groups = stage.cluster.group_names
        await self._note_topics(stage)
        self._configs = [await stage.cluster.groups.config(group) for group in groups]
        await self._replace(stage, None, "emptied ZooKeeper")
        for group in groups:
            state = await stage.cluster.groups.state(group)
            if state.mode is not Mode.NEW:
                raise NotFired(f"the emptied ZooKeeper still has a state of {group}: {state}")
        return f"emptied ZooKeeper, which held {len(groups)} groups, {len(self._topics)} topics"

    async def heal(self, stage: Stage) -> None:
        """Restart the brokers, write the groups again, then create the topics."""
        if not self._replaced:
            stage.cluster.start_all()
            return
        await self._stop_brokers(stage)
        for config in self._configs:
            await stage.cluster.groups.put_config(config)
        stage.cluster.start_all()
        await self._create_topics(stage)


class ZooKeeperOlder(_ZooKeeperData):
    """Everything loses power at once, and ZooKeeper comes back without the last failover.

    In a group with several slaves, the one that reads in the backup has a journal as old as that.
    """

    name = "zookeeper-older"
    what = "everything is killed, and ZooKeeper is restored from a backup before a failover"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        cluster, groups = stage.cluster, stage.cluster.group_names
        copy = cluster.directory / f"backup-{stage.flow.topic}"
        await cluster.ensemble.back_up(copy)
        before = {group: await cluster.groups.state(group) for group in groups}
        stale = {await self._leave_behind(stage, group) for group in groups} - {""}
        for group in groups:
            await self._fail_over(stage, group)
        late = f"{stage.flow.topic}-late"  # the backup lacks it
        await stage.flow.add_topic(late)
        await stage.until(lambda: stage.flow.stored_in(late) >= _SOME, f"{late} has messages")
        await self._note_topics(stage)
        self.ended.update(cluster.brokers)
        for broker in cluster.brokers:
            if cluster.alive(broker):
                stage.kill(broker)
        for broker in cluster.brokers:
            if not await stage.has_ended(broker):
                raise NotFired(f"{broker} still runs after SIGKILL")
        await self._replace(stage, copy, "restored an older ZooKeeper")
        for group in groups:
            state = await cluster.groups.state(group)
            if state.epoch != before[group].epoch:
                raise NotFired(
                    f"the backup of {group} has epoch {state.epoch}, not {before[group].epoch}"
                )
        await self._start_slaves(stage, stale)
        return "killed all brokers after a failover in each group, restored an older ZooKeeper"

    async def _leave_behind(self, stage: Stage, group: str) -> str:
        """Kill one of several slaves; return its name, or "" if the group has only one."""
        slaves = await stage.cluster.slaves_of(group)
        if len(slaves) < 2:
            return ""
        slave = stage.random.choice(slaves)
        self.ended.add(slave)
        stage.kill(slave)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return slave

    @staticmethod
    async def _fail_over(stage: Stage, group: str) -> None:
        """Let a slave take the reads over, and hand them back."""
        master = await stage.cluster.master_of(group)
        stage.kill(master)
        if not await stage.has_ended(master):
            raise NotFired(f"{master} still runs after SIGKILL")
        reader = await stage.taken_over(group)
        await stage.until(lambda: stage.serves(reader, Permission.READ), f"{reader} serves reads")
        stage.cluster.start_part(master)
        await stage.until(
            lambda: stage.serves(master, Permission.WRITE), f"{master} is back", _TIMEOUT_S
        )

    async def _start_slaves(self, stage: Stage, stale: set[str]) -> None:
        """Start the slaves, those that were left behind last; wait until each has decided."""
        cluster = stage.cluster
        masters = {await cluster.master_of(group) for group in cluster.group_names}
        for some in (set(cluster.brokers) - masters - stale, stale):
            for broker in sorted(some):
                cluster.start_part(broker)
            for broker in sorted(some):
                if not await cluster.until_live(broker, live=True, within_s=_TIMEOUT_S):
                    raise Stuck(f"{broker} has no live node {_TIMEOUT_S:g} s after its start")

        def decided() -> bool:
            seen = [stage.watch.latest[broker] for broker in set(cluster.brokers) - masters]
            return all(_OLDER in sight.reason or sight.permission for sight in seen)

        await stage.until(decided, "each slave names the newer epoch, or serves", _TIMEOUT_S)

    async def heal(self, stage: Stage) -> None:
        """Start the masters, let each group begin again, create what the backup lacks."""
        cluster = stage.cluster
        cluster.start_all()
        if not self._replaced:
            return
        for broker in cluster.brokers:
            if not await cluster.until_live(broker, live=True, within_s=_TIMEOUT_S):
                raise Stuck(f"{broker} has no live node {_TIMEOUT_S:g} s after its start")
        for group in cluster.group_names:
            epoch = (await cluster.groups.state(group)).epoch
            await _fmq(stage, "cluster", "begin-again", group, "--epoch", str(epoch))
        await self._create_topics(stage)


async def _fmq(stage: Stage, *arguments: str) -> None:
    """Run a command as a person does. Raises `Stuck` with its output if it fails."""
    cluster = stage.cluster
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmqcli.main",
        *arguments,
        env=os.environ
        | {"FMQ_ZOOKEEPER": cluster.ensemble.address(), "FMQ_CLUSTER": cluster.options.cluster},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise Stuck(f"fmq {' '.join(arguments)}: {printed.decode()}")
