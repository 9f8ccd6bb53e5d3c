"""Shared by the scenarios: a stage with a cluster of real processes, its watch and traffic."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import fmqclient
from e2e.chaos.watch import Sight, setup_of
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqbroker.tests.scenario_traffic import BOUND_S, Raw, Traffic
from fmqbroker.tests.scenario_watch import READERS, TOPIC, ScenarioWatch
from fmqcore.batch.control import decode_offsets
from fmqcore.errors import ErrorCode
from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_state import GroupState, Mode
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqdev.demo.verdict import Place, judge
from fmqproto.v1 import client_pb2

NONE, READ, WRITE, FULL = Permission.NONE, Permission.READ, Permission.WRITE, Permission.FULL
MASTER, SLAVE = BrokerId("g1-0"), BrokerId("g1-1")
SESSION_MS: Final = 2000
SETTINGS: Final[Mapping[str, str | int]] = {
    "segment_bytes": 1 << 20,
    "session_timeout_ms": SESSION_MS,
    "grant_ms": 1500,
    "heartbeat_ms": 100,
    "dead_after_ms": 3000,
    "claim_interval_ms": 100,
    "redial_max_ms": 200,
    "takeover_wait_ms": 500,
    "takeover_checkpoint_ms": 100,
}
_clusters = iter(range(1, 1000))


class Scenario:
    """One cluster, its watch and its traffic."""

    def __init__(self, cluster: DevCluster, watch: ScenarioWatch, traffic: Traffic) -> None:
        self.cluster = cluster
        self.watch = watch
        self.traffic = traffic
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # ---- traffic
    def start_producer(self) -> None:
        """Start sending messages."""
        self.traffic.enough.clear()
        self._tasks["producer"] = asyncio.create_task(self.traffic.produce())

    async def stop_producer(self) -> None:
        """Stop sending, and wait until every message has an outcome."""
        self.traffic.enough.set()
        producer = self._tasks.pop("producer")
        await self.until(producer.done, "everything has an answer")
        await producer

    def start_consumer(self) -> None:
        """Start consuming messages."""
        self._tasks["consumer"] = asyncio.create_task(self.traffic.consume())

    async def stop_consumer(self) -> None:
        """Stop the consumer after its acks are confirmed."""
        task = self._tasks.pop("consumer")
        task.cancel()
        await asyncio.wait([task])

    async def gather_backlog(self, count: int = 200) -> None:
        """Put `count` messages into the first group and do not consume them."""
        await self.stop_consumer()
        wanted = self.traffic.acked() + count
        await self.until(lambda: self.traffic.acked() >= wanted, "messages go in")

    async def consume_backlog(self, least: int = 200) -> None:
        """Consume the backlog until the first group's reader reports its progress as stored."""
        wanted = self._promised() + least
        self.start_consumer()
        await self.until(lambda: self._promised() >= wanted, "consumer progress is stored")
        await self.until(lambda: self.traffic.missing() == 0, "all is consumed")

    async def flow(self, count: int = 200, group: str = "g1", *, stored: bool = True) -> None:
        """Wait until `count` more messages went in and out, and some progress was stored."""
        traffic = self.traffic
        acked, consumed = traffic.acked(group) + count, traffic.consumed(group) + count
        await self.until(lambda: traffic.acked(group) >= acked, "messages go in")
        await self.until(lambda: traffic.consumed(group) >= consumed, "messages come out")
        await self.until(
            lambda: not stored or self._promised(group) >= count,
            "consumer progress is stored",
        )

    def _promised(self, group: str = "g1") -> int:
        return sum(f for p, f in self.traffic.promised.items() if p.group == group)

    def raw(self, broker: str) -> Raw:
        """Return a producer that does not retry."""
        return Raw(self.cluster, self.traffic, broker)

    async def answer(self, level: int = client_pb2.REPLICATED) -> ErrorCode:
        """Return the outcome of one message to the first group's master."""
        async with self.raw(MASTER) as raw:
            await raw.send(level)
            [answer] = await raw.answers()
        return answer

    async def refuses(self) -> None:
        """Wait until the master refuses replicated messages; until then it may answer UNKNOWN.

        Others can read a state in ZooKeeper before the master has the answer to its
        compare-and-set: batches it appends in between wait for a slave that is gone.
        """
        async with asyncio.timeout(BOUND_S):
            while (answer := await self.answer()) is not ErrorCode.NOT_ENOUGH_REPLICAS:
                assert answer is ErrorCode.DELIVERY_UNKNOWN, answer

    # ---- waiting
    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition; a failed task of the stage fails the test at once."""
        try:
            async with asyncio.timeout(BOUND_S):
                while not condition():
                    for name, task in self._tasks.items():
                        if task.done() and (error := task.exception()) is not None:
                            raise AssertionError(f"the {name} has failed") from error
                    await asyncio.sleep(0.01)
        except TimeoutError:
            seen = "\n".join(f"{b}: {sight}" for b, sight in self.watch.latest.items())
            raise AssertionError(f"waited in vain: {what}\n{seen}") from None

    async def serves(self, broker: str, permission: Permission, reason: str = "") -> Sight:
        """Wait until a broker serves exactly that permission, with that reason."""
        latest = self.watch.latest

        def so() -> bool:
            sight = latest[broker]
            return sight.permission == permission and reason in sight.reason and bool(sight.mode)

        await self.until(so, f"{broker} serves {permission.name} {reason}")
        return latest[broker]

    async def looked(self, times: int = 10) -> None:
        """Wait until the watch has asked every broker `times` more times."""
        wanted = {broker: self.watch.looks[broker] + times for broker in self.watch.latest}
        await self.until(lambda: all(self.watch.looks[b] >= n for b, n in wanted.items()), "looks")

    async def state(self, group: str = "g1") -> GroupState:
        """Return the state that ZooKeeper has now."""
        return await self.cluster.groups.state(group)

    async def until_state(self, condition: Callable[[GroupState], Any], what: str) -> GroupState:
        """Wait for a state in ZooKeeper."""
        state = await self.state()
        try:
            async with asyncio.timeout(BOUND_S):
                while not condition(state):
                    await asyncio.sleep(0.02)
                    state = await self.state()
        except TimeoutError:
            raise AssertionError(f"waited in vain: {what}; {state}") from None
        return state

    async def gone_from_zookeeper(self, broker: str) -> None:
        """Wait until the broker's live node is gone."""
        async with asyncio.timeout(BOUND_S):
            while broker in await self.cluster.groups.live(broker.rpartition("-")[0]):
                await asyncio.sleep(0.02)

    async def checkpointed(self) -> None:
        """Wait until the state in ZooKeeper holds all progress confirmed by the first group."""
        promised = {p.queue: f for p, f in self.traffic.promised.items() if p.group == "g1"}

        def holds(state: GroupState) -> bool:
            entries = decode_offsets(base64.b64decode(state.offsets)) if state.offsets else {}
            floors = {k.queue_id: e.floor for k, e in entries.items() if k.group == READERS}
            return all(floors.get(queue, 0) >= floor for queue, floor in promised.items())

        await self.until_state(holds, "the takeover's offsets are in the state")

    # ---- faults
    async def kill(self, *brokers: str) -> None:
        """SIGKILL all at once, then wait until the watch knows nothing of the old incarnations."""
        for broker in brokers:
            self.cluster.kill(broker)
        for broker in brokers:
            assert await self.cluster.ended(broker)
        await self.looked(2)  # one may have been in flight

    async def start_again(self) -> None:
        """Start killed parts of the cluster again, at their old places."""
        ports = [b.port for b in self.cluster.brokers.values()]
        await self.cluster.leave()
        self.cluster = DevCluster(self.cluster.directory, self.cluster.options)
        await self.cluster.start()
        assert ports == [b.port for b in self.cluster.brokers.values()], "somebody took a port"
        await self.looked(2)

    def cut_from_zookeeper(self, broker: BrokerId) -> None:
        """Reset the broker's connections to ZooKeeper, new ones too."""
        self.cluster.zookeeper_links[broker].cut()

    def cut_from_master(self, broker: str) -> None:
        """Reset the slave's stream, new ones too; the master's clients keep their connections."""
        self.cluster.broker_links[MASTER].cut(broker)

    def only_one_connection(self, broker: str) -> list[int]:
        """Reset that slave's connections to the master beside its stream; return the live ones."""
        return self.cluster.broker_links[MASTER].only_one(broker)

    def let_stream_through(self, broker: str) -> None:
        """Undo `cut_from_master` only."""
        self.cluster.broker_links[MASTER].resume(broker)

    async def permit(self, broker: str, permission: Permission) -> None:
        """Set a broker's maximum permission, as an administrator does."""
        groups = self.cluster.groups
        config = await groups.config(broker.rpartition("-")[0])
        members = tuple(
            replace(m, permission=permission) if m.id == broker else m for m in config.members
        )
        await groups.put_config(replace(config, members=members))

    def heal(self) -> None:
        """Heal every link."""
        links = self.cluster.zookeeper_links, self.cluster.broker_links
        for link in (link for some in links for link in some.values()):
            link.heal()

    # ---- the verdict
    async def verdict(self) -> None:
        """Check that each send has an outcome, and each acked message comes, also when reread."""
        traffic = self.traffic
        await self.stop_producer()
        assert not traffic.history.unknown, "the client leaves nothing unknown in so short a time"
        await self.until(lambda: traffic.missing() == 0, "all that was acknowledged comes")
        await self.stop_consumer()
        again = await traffic.read_again()
        for seen in (judge(traffic.history), judge(again)):
            assert not seen.findings, seen.findings
        await self.looked(2)
        known = {Place(p.group, p.queue): floor for p, floor in self.watch.promised().items()}
        assert known == traffic.promised, "the watch compares with everything that was confirmed"
        violations = self.watch.violations()
        assert not violations, violations[:3]

    async def close(self) -> None:
        """Stop the whole stage."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def switched(stage: Scenario, epoch: int) -> None:
    """Wait for the whole switch there and back, until the group is whole again."""
    state = await stage.until_state(lambda s: s.mode is Mode.MASTER and s.epoch > epoch, "back")
    assert state.epoch == epoch + 3, "claim, hand-over, return"
    assert not state.degraded
    await stage.serves(MASTER, FULL)
    await stage.serves(SLAVE, NONE)
    await stage.cluster.wait_healthy()
    assert stage.watch.served[SLAVE, epoch + 1, READ], "the slave was seen to serve reads"
    assert stage.watch.floors_seen[SLAVE], "and its offsets were looked at"


class LateCluster(DevCluster):
    """A cluster in which some brokers never started; `start_again` starts them."""

    def __init__(self, directory: Path, options: ClusterOptions, late: frozenset[str]) -> None:
        super().__init__(directory, options)
        self._late = set(late)

    def start_broker(self, broker: str) -> None:
        if broker in self._late:
            self._late.discard(broker)
        else:
            super().start_broker(broker)

    async def wait_healthy(
        self, groups: Sequence[str] | None = None, *, within_s: float | None = BOUND_S
    ) -> None:
        if all(self.alive(b) for b in self.brokers):
            await super().wait_healthy(groups, within_s=within_s)
            return
        async with asyncio.timeout(within_s):
            while (await self.groups.state("g1")).mode is not Mode.MASTER:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def scenario(
    path: Path,
    server: EmbeddedZooKeeper | None,
    *,
    late: frozenset[str] = frozenset(),
    settings: Mapping[str, int] | None = None,
    **options: Any,
) -> AsyncIterator[Scenario]:
    """Run a healthy cluster of one group (by default) with traffic flowing."""
    given: dict[str, Any] = {"groups": 1, "cluster": f"s{next(_clusters)}", **options}
    given["settings"] = {**SETTINGS, **(settings or {})}
    given["zookeeper"] = f"{server.address}/{given['cluster']}" if server is not None else ""
    cluster = LateCluster(path / "cluster", ClusterOptions(**given), late)
    await cluster.start()
    stage: Scenario | None = None
    try:
        watch = ScenarioWatch(cluster, await setup_of(cluster))
        async with fmqclient.connect(cluster.url) as client, asyncio.TaskGroup() as tasks:
            await client.admin().create_topic(TOPIC, queues=2)
            watching = tasks.create_task(watch.run())
            stage = Scenario(cluster, watch, Traffic(client, watch.history))
            try:
                stage.start_producer()
                stage.start_consumer()
                await stage.flow(100)
                yield stage
            finally:
                await stage.close()
                watching.cancel()
    finally:
        running = cluster if stage is None else stage.cluster
        for broker in filter(running.alive, running.brokers):
            running.kill(broker)  # no orderly end is needed
        await running.stop()
