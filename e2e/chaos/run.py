"""One run: a cluster, and faults one after another, each under traffic of its own and judged.

Leaves in its directory: a folder a cluster (data, logs), `history.jsonl`. After a failed round the
cluster is kept as it was left and the next fault gets a new one.
"""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.chaos.cluster import ChaosCluster
from e2e.chaos.ensemble import Ensemble
from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.flow import READERS, Flow
from e2e.chaos.ground import Ground
from e2e.chaos.judge import ENOUGH, Outcome, Verdict, findings_of
from e2e.chaos.machines import Loopback, Namespaces, Network
from e2e.chaos.stage import BOUND_S, Stage
from e2e.chaos.watch import Watch, now_ms
from e2e.doors import Door
from e2e.events import Fault as FaultStep
from e2e.events import GroupSetup, Phase, PhaseName, Setup, Step
from e2e.history import History
from fmqclient.dev.plan import ClusterOptions
from fmqclient.dev.verdict import CLUSTER, outages
from fmqcore.errors import FmqError
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqport.rpc import GrpcTransport

FSYNC_AND_SYNC: Final = AckPolicy(Flush.FSYNC, counts=SlaveCounts.DURABLE, how_many=HowMany.ONE)
SETTINGS: Final = {"segment_bytes": 4 << 20}
"""Everything else is as users have it; with small segments a short run rolls a few."""

_WARM: Final = 100
_DRAIN_S: Final = 60.0
_RECORDS_A_ROUND: Final = 10_000_000


@dataclass(slots=True)
class Options:
    """What the command line says."""

    directory: Path
    seed: int = 0
    seconds: float = 10.0
    groups: int = 2
    slaves: int = 1
    zookeepers: int = 3
    settings: dict[str, str | int] = field(default_factory=lambda: dict(SETTINGS))
    say: Callable[[str], None] = print


class Run:
    """See the module."""

    def __init__(self, options: Options, ground: Ground) -> None:
        self.options = options
        self.outcomes: list[Outcome] = []
        self._ground = ground
        self._clusters = 0
        self._rounds = 0

    async def play(self, faults: Sequence[type[Fault]]) -> None:
        """All of them, in order; `outcomes` has what came of each."""
        todo = list(faults)
        while todo:
            if (reason := todo[0].available(self._ground)) is not None:
                self._note(Outcome(todo.pop(0).name, Verdict.NOT_RUN, reason))
                continue
            self._clusters += 1
            folder = self.options.directory / f"cluster-{self._clusters}"
            async with self.cluster(folder) as (cluster, watch, history):
                while todo:
                    if (reason := todo[0].available(self._ground)) is not None:
                        self._note(Outcome(todo.pop(0).name, Verdict.NOT_RUN, reason))
                        continue
                    outcome = await self._round(todo.pop(0), cluster, watch, history)
                    self._note(outcome)
                    if outcome.verdict is not Verdict.PASSED:
                        break  # what it left may not be whole: the next one gets a new cluster

    def _note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.options.say(f"  {outcome.verdict.value}: {outcome.told}")
        for finding in outcome.findings[:5]:
            self.options.say(f"    {finding}")

    @asynccontextmanager
    async def cluster(self, folder: Path) -> AsyncIterator[tuple[ChaosCluster, Watch, History]]:
        """A whole cluster, looked at all the time; nothing of it runs afterwards."""
        options = self.options
        folder.mkdir(parents=True)
        network: Network = Loopback() if self._ground.namespaces else Namespaces(folder)
        ensemble = Ensemble(folder, network, options.zookeepers)
        cluster: ChaosCluster | None = None
        try:
            await ensemble.start()
            given = ClusterOptions(
                cluster="chaos",
                groups=options.groups,
                slaves=options.slaves,
                policy=FSYNC_AND_SYNC,
                settings=options.settings,
                zookeeper=ensemble.address(),
            )
            disks = self._ground.disks is None
            cluster = ChaosCluster(folder, given, network, ensemble, disks=disks)
            await cluster.start()
            history = History()
            watch = Watch(cluster, history, READERS)
            watching = asyncio.create_task(watch.run())
            try:
                yield cluster, watch, history
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        finally:
            if cluster is not None:
                await cluster.stop()
                self._bring_out(cluster)
            await ensemble.stop()
            network.close()

    @staticmethod
    def _bring_out(cluster: ChaosCluster) -> None:
        """The data out of the images, which would be hard to look into later."""
        for broker, disk in cluster.disks.items():
            aside = cluster.directory / broker / "data.out"
            if disk.mounted:
                shutil.copytree(disk.folder, aside, ignore=shutil.ignore_patterns("lost+found"))
                disk.unmount()
                disk.folder.rmdir()
                aside.rename(disk.folder)
            disk.image.unlink(missing_ok=True)

    # ---- one round
    async def _round(
        self, kind: type[Fault], cluster: ChaosCluster, watch: Watch, history: History
    ) -> Outcome:
        self._rounds += 1
        name = f"{kind.name}"
        self.options.say(f"{name}: {kind.what}")
        rng = random.Random(f"{self.options.seed}/{name}")
        door = Door(cluster.url, GrpcTransport())
        first = self._rounds * _RECORDS_A_ROUND
        flow = Flow(history, door, f"{name}-{self._rounds}", self.options.seed, first)
        stage = Stage(cluster, watch, flow, history, rng, cluster.directory)
        begin, outcome = len(history), Outcome(kind.name)
        history.add(_setup(cluster))
        history.add(Phase(now_ms(), PhaseName.CALM))
        fault = kind()
        try:
            await flow.start()
            await flow.moved(_WARM, cluster.group_names, BOUND_S)
            await self._hurt(fault, stage, outcome)
            await flow.moved(_WARM, cluster.group_names, BOUND_S)
            outcome.findings += await flow.finish(_DRAIN_S)
        except FmqError as error:
            outcome.findings.append(f"{type(error).__name__}: {error}")
        finally:
            await flow.stop()
        outcome.findings += stage.faults
        outcome.findings += findings_of(history.events[begin:])
        outcome.acked = len(flow.traffic.stored)
        if outcome.findings:
            outcome.verdict = Verdict.FAILED
        elif outcome.told and outcome.acked >= ENOUGH:
            outcome.verdict = Verdict.PASSED
        return outcome

    async def _hurt(self, fault: Fault, stage: Stage, outcome: Outcome) -> None:
        """Inject, hold, heal, wait until all is whole."""
        from_ms = now_ms()
        stage.history.add(Phase(from_ms, PhaseName.TROUBLE))
        healed = False
        try:
            self._step(fault, stage, Step.SCHEDULED)
            outcome.told = await fault.inject(stage)
            self._step(fault, stage, Step.FIRED, outcome.told)
            await asyncio.sleep(self.options.seconds * fault.patience)
            stage.flow.check()
            stage.unexpected_ends(fault.ended)
            await fault.heal(stage)
            healed = True
        except NotFired as error:
            outcome.told = f"did not fire: {error}"
            raise
        finally:
            if not healed:
                await fault.heal(stage)
        self._step(fault, stage, Step.HEALED)
        stage.history.add(Phase(now_ms(), PhaseName.HEALED))
        healed_s = time.monotonic()
        await stage.whole()
        outcome.whole_s = time.monotonic() - healed_s
        stage.history.add(Phase(now_ms(), PhaseName.WHOLE))
        for outage in outages(stage.watch.seen, from_ms, now_ms()):
            if outage.group != CLUSTER:
                outcome.reads_ms = max(outcome.reads_ms, outage.reads_ms)
                outcome.writes_ms = max(outcome.writes_ms, outage.writes_ms)
        stage.watch.seen.clear()

    def _step(self, fault: Fault, stage: Stage, step: Step, detail: str = "") -> None:
        on = " ".join(stage.on)
        event = FaultStep(now_ms(), self._rounds, fault.kind, on, step, detail)
        stage.history.add(event)


def _setup(cluster: ChaosCluster) -> Setup:
    groups = tuple(
        GroupSetup(
            group,
            cluster.group(group)[0].id,
            tuple(str(plan.id) for plan in cluster.group(group)),
            cluster.options.policy,
        )
        for group in cluster.group_names
    )
    return Setup(now_ms(), groups)
