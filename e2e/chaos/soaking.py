"""One soak from start to end: a cluster, traffic, the hands, calm, the verdict."""

import asyncio
import random
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from e2e.chaos.arena import Arena, Options, arena
from e2e.chaos.flow import Flow
from e2e.chaos.ground import Ground
from e2e.chaos.judge import CHANGES_IN_ALL, ENOUGH_IN_ALL
from e2e.chaos.soak import Soak
from e2e.chaos.stage import TIMEOUT_S, Stage
from e2e.chaos.verify import verify_all
from e2e.chaos.watch import now_ms
from e2e.history.cluster_events import FaultKind, Phase, PhaseName
from e2e.traffic.ports import Door
from fmqadapters.grpc import GrpcTransport
from fmqcore.errors import FmqError

_WARM: Final = 100
_DRAIN_S: Final = 90.0


@dataclass(slots=True)
class Soaked:
    """The result of a soak."""

    findings: list[str] = field(default_factory=list)
    too_little: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    did: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return lines for people; the last one is the verdict."""
        did = ", ".join(f"{count} {what}" for what, count in sorted(self.did.items()))
        counts = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        verdict = "failed" if self.findings else "unknown" if self.too_little else "passed"
        last = f"soak {verdict}: {len(self.findings)} findings"
        return [did, counts, *self.findings, *self.too_little, last]


async def soak(options: Options, ground: Ground) -> Soaked:
    """Run a soak and return its result."""
    came = Soaked()
    async with arena(options, ground, options.directory / "soak") as found:
        await _under_traffic(options, ground, found, came)
    verdict = found.judge()
    came.counts = dict(verdict.counts)
    came.findings += map(str, verdict.findings)
    came.findings += await verify_all(found.cluster)
    for name, least in (("acknowledged", ENOUGH_IN_ALL), ("changes of reader", CHANGES_IN_ALL)):
        if came.counts[name] < least:
            came.too_little.append(f"only {came.counts[name]} {name}, {least} show something")
    return came


async def _under_traffic(options: Options, ground: Ground, found: Arena, came: Soaked) -> None:
    cluster, history = found.cluster, found.history
    door = Door(cluster.url, GrpcTransport())
    flow = Flow(history, door, "soak", options.seed, 0)
    rng = random.Random(f"{options.seed}/soak")
    stage = Stage(
        cluster, found.watch, flow, history, rng, cluster.directory, FaultKind.KILL, count(1)
    )
    hands = Soak(stage, disks=ground.disks is None)
    try:
        await flow.start()
        await flow.moved(_WARM, cluster.group_names, TIMEOUT_S)
        history.add(Phase(now_ms(), PhaseName.TROUBLE))
        telling = asyncio.create_task(_report_progress(options, flow, hands))
        try:
            await hands.run(options.seconds)
        finally:
            telling.cancel()
        history.add(Phase(now_ms(), PhaseName.HEALED))
        await stage.whole()
        history.add(Phase(now_ms(), PhaseName.WHOLE))
        await flow.moved(_WARM, cluster.group_names, TIMEOUT_S)
        came.findings += await flow.finish(_DRAIN_S)
    except* FmqError as group:
        came.findings += [f"{type(error).__name__}: {error}" for error in group.exceptions]
    finally:
        await flow.stop()
        came.findings += stage.faults
        came.did = dict(hands.did)


async def _report_progress(options: Options, flow: Flow, hands: Soak) -> None:
    while True:
        await asyncio.sleep(10)
        stored = len(flow.traffic.stored)
        options.say(f"  {hands.did.total()} faults, {stored:,} acknowledged")
