"""One run: faults one after another, each under its own traffic and judged.

Several rounds share a cluster; when it has stopped, its whole history is judged once more with the
journals that it left. After a round that failed the next one gets a new cluster.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import count
from typing import Final

from e2e.chaos.arena import Arena, Options, arena
from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.flow import Flow
from e2e.chaos.ground import Ground
from e2e.chaos.judge import ENOUGH, Outcome, Verdict
from e2e.chaos.stage import TIMEOUT_S, Stage
from e2e.chaos.verify import verify_all
from e2e.chaos.watch import now_ms
from e2e.history.cluster_events import Phase, PhaseName
from e2e.traffic.ports import Door
from fmqadapters.grpc import GrpcTransport
from fmqcore.errors import FmqError
from fmqdev.demo.verdict import CLUSTER, outages

_WARM: Final = 100
_DRAIN_S: Final = 60.0
_ROUNDS_A_CLUSTER: Final = 8
_RECORDS_A_ROUND: Final = 10_000_000


class Run:
    """A run of faults. `outcomes`: one for each fault, in order."""

    def __init__(self, options: Options, ground: Ground) -> None:
        self.options = options
        self.outcomes: list[Outcome] = []
        self.findings: list[str] = []  # findings that belong to no round
        self._ground = ground
        self._clusters = count(1)
        self._rounds = count(1)
        self._numbers = count(1)

    async def play(self, faults: Sequence[type[Fault]]) -> None:
        """Run all faults, in order."""
        todo = []
        for kind in faults:
            if reason := kind.available(self._ground):
                self.outcomes.append(Outcome(kind.name, Verdict.NOT_RUN, reason))
            else:
                todo.append(kind)
        while todo:
            await self._cluster(todo)

    async def _cluster(self, todo: list[type[Fault]]) -> None:
        """Run some rounds on one cluster, and remove their faults from `todo`."""
        folder = self.options.directory / f"cluster-{next(self._clusters)}"
        played: list[tuple[float, Outcome]] = []
        async with arena(self.options, self._ground, folder) as found:
            for _ in range(_ROUNDS_A_CLUSTER):
                outcome = Outcome(todo[0].name)
                played.append((now_ms(), outcome))
                self.outcomes.append(outcome)
                await self._round(todo.pop(0), found, outcome)
                self._report(outcome)
                if not todo or outcome.verdict is not Verdict.PASSED:
                    break
        for finding in found.judge().findings:
            self._blame(played, finding.at_ms, str(finding))
        self.findings += await verify_all(found.cluster)

    def _blame(self, played: list[tuple[float, Outcome]], at_ms: float, text: str) -> None:
        """Add a finding to the round in which it showed."""
        outcome = next((o for begin, o in reversed(played) if begin <= at_ms), played[0][1])
        if text not in outcome.findings:
            self.options.say(f"  with its journals, {outcome.name}: {text}")
            outcome.findings.append(text)
            outcome.verdict = Verdict.FAILED

    def _report(self, outcome: Outcome) -> None:
        self.options.say(f"  {outcome.verdict.value}: {outcome.summary}")
        for finding in outcome.findings[:5]:
            self.options.say(f"    {finding}")

    # ---- one round
    async def _round(self, kind: type[Fault], found: Arena, outcome: Outcome) -> None:
        number = next(self._rounds)
        self.options.say(f"{kind.name}: {kind.what}")
        history, cluster = found.history, found.cluster
        rng = random.Random(f"{self.options.seed}/{kind.name}")
        door = Door(cluster.url, GrpcTransport())
        topic = f"{kind.name}-{number}"
        flow = Flow(history, door, topic, self.options.seed, number * _RECORDS_A_ROUND)
        stage = Stage(
            cluster, found.watch, flow, history, rng, cluster.directory, kind.kind, self._numbers
        )
        begin = len(history)
        history.add(Phase(now_ms(), PhaseName.CALM))
        fired = False
        try:
            await flow.start(cluster.group_names)
            await flow.moved(_WARM, cluster.group_names, TIMEOUT_S)
            fired = await self._hurt(kind(), stage, outcome)
            await flow.moved(_WARM, cluster.group_names, TIMEOUT_S)
            outcome.findings += await flow.finish(_DRAIN_S)
        except FmqError as error:
            outcome.findings.append(f"{type(error).__name__}: {error}")
        finally:
            await flow.stop()
        verdict = found.judge(begin)
        outcome.findings += [*stage.faults, *map(str, verdict.findings)]
        outcome.acked = len(flow.traffic.stored)
        outcome.switches = verdict.counts["changes of reader"]
        if outcome.findings:
            outcome.verdict = Verdict.FAILED
        elif fired and outcome.acked >= ENOUGH:
            outcome.verdict = Verdict.PASSED

    async def _hurt(self, fault: Fault, stage: Stage, outcome: Outcome) -> bool:
        """Inject, hold, heal, wait until all is whole; return whether the fault fired."""
        from_ms = now_ms()
        stage.history.add(Phase(from_ms, PhaseName.TROUBLE))
        fired = False
        try:
            outcome.summary = await fault.inject(stage)
            fired = True
            stage.fired(outcome.summary)
            await asyncio.sleep(self.options.seconds * fault.patience)
            stage.flow.check()
            stage.unexpected_ends(fault.ended)
        except NotFired as error:
            outcome.summary = f"did not fire: {error}"
        finally:
            await fault.heal(stage)
            stage.healed()
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
        return fired
