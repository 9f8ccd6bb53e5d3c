"""Schedule the faults of a simulation: drawn by seed, aimed at roles.

A run has periods. A quarter of them is calm: all faults are healed, the cluster is whole, and
nothing may happen. In each of the others one to three faults come, each at its moment and for its
time, on a broker that has the role then: the reader, the master, a slave in sync. At the end all is
healed.

Each fault is a coroutine of `acts.py`; `table.py` has its weight and its roles. A fault is written
down three times: scheduled, fired (when it certainly had an effect), healed.
"""

import asyncio
import random
from typing import Final

from e2e.checks.verdict import ORDERED
from e2e.history.cluster_events import PhaseName
from fmqcore.ids import BrokerId
from fmqsim.faults.api import Act, Entry, WorldApi
from fmqsim.faults.chain_steps import CHAIN_STEPS
from fmqsim.faults.group_cuts import GROUP_CUTS
from fmqsim.faults.lost_reader import LOST_READER
from fmqsim.faults.master_moves import MOVES
from fmqsim.faults.senders import SENDERS
from fmqsim.faults.table import TABLE, TAKEOVERS
from fmqsim.scenario.hosts import BrokerHost, ClientHost
from fmqsim.scenario.side_topic import TOPICS

CALM_SHARE: Final = 0.25
CALM_S: Final = (0.8, 1.8)
TROUBLE_S: Final = (1.5, 3.0)
PERIODS: Final = (3, 5)
ENOUGH_BATCHES: Final = 320
WHOLE_S: Final = 30.0
LONG_SHARE: Final = 0.6
"""Share of the periods of trouble that start with a fault that changes the reader."""
SLOWNESS: Final = 3.0
"""Factor by which producers rest longer once enough is acknowledged."""
SENDING_SHARE: Final = 0.4
"""Share of the faults that are aimed at the group that takes the ordered sends."""
MORE: Final = 12
"""Maximum number of extra periods until enough has happened for a verdict."""


class Trouble:
    """The faults of one run."""

    def __init__(self, world: WorldApi) -> None:
        self.world = world
        self.dice = random.Random(f"{world.scene.seed}/faults")
        wanted = world.scene.faults
        known = (*TABLE, *MOVES) if world.scene.moves else TABLE
        known = (*known, *TOPICS) if world.scene.changing else known
        if world.scene.ordered is not None:
            known = (*known, *SENDERS, *CHAIN_STEPS, LOST_READER)
            known = (*known, *GROUP_CUTS) if world.scene.moves else known
        self._table = [entry for entry in known if not wanted or entry.name in wanted]
        takeovers = [entry for entry in self._table if entry.name in TAKEOVERS]
        self._takeovers = takeovers or self._table
        self._number = 0

    async def run(self) -> None:
        """Run all periods; afterwards all is healed."""
        dice, world = self.dice, self.world
        periods = dice.randint(*PERIODS)
        await self._calm()
        for _ in range(periods):
            self._take_it_easy()
            if dice.random() < CALM_SHARE:
                await self._calm()
            else:
                await self._trouble()
        for _ in range(0 if world.scene.faults else MORE):
            if self._changes_enough() and world.traffic.batches >= ENOUGH_BATCHES:
                break
            self._take_it_easy()
            if not self._changes_enough():
                await self._trouble(takeover=True)
            else:
                await self._calm()
        self.heal()

    def _changes_enough(self) -> bool:
        world = self.world
        if world.scene.ordered is not None and (
            len(world.traffic.ordered_segments) < ORDERED.segments
            or len(world.traffic.ordered_stored) < ORDERED.ordered_records
        ):
            return False
        return world.reader_changes >= ORDERED.reader_changes

    def _take_it_easy(self) -> None:
        """Slow the producers once enough is acknowledged.

        The remaining faults need some traffic, not all.
        """
        if self.world.traffic.batches >= ENOUGH_BATCHES:
            self.world.traffic.slowness = SLOWNESS

    async def _calm(self) -> None:
        world = self.world
        self.heal()
        if not await world.until(world.quiet, WHOLE_S):
            return  # in vain; whether it is whole in the end will be seen
        started_ms = world.loop.now_ms
        before = {record for records in world.traffic.open.values() for record in records}

        def answered() -> bool:  # clients have found their ways, too
            waiting = any(at_ms < started_ms for at_ms in world.traffic.committing.values())
            return not waiting and not any(before & open_ for open_ in world.traffic.open.values())

        await world.until(answered, WHOLE_S)
        if not world.quiet():
            return
        world.phase(PhaseName.CALM)
        await asyncio.sleep(self.dice.uniform(*CALM_S))
        world.phase(PhaseName.TROUBLE)

    async def _trouble(self, *, takeover: bool = False) -> None:
        dice = self.dice
        length_s = dice.uniform(*TROUBLE_S)
        async with asyncio.TaskGroup() as acts:
            for at in range(dice.choice((1, 1, 2, 3))):
                long = at == 0 and (takeover or dice.random() < LONG_SHARE)
                table = self._takeovers if long else self._table
                entry = dice.choices(table, [entry.weight for entry in table])[0]
                acts.create_task(self._play(entry, dice.uniform(0, length_s / 2), long=long))
            await asyncio.sleep(length_s)

    async def _play(self, entry: Entry, after_s: float, *, long: bool) -> None:
        self._number += 1
        act = Act(self.world, self.dice, self._number, entry.kind, entry.name)
        act.long = long
        await asyncio.sleep(after_s)
        if entry.roles:
            role = "reader" if long else self.dice.choice(entry.roles)
            act.on = self._target(role)
        await entry.do(act)

    def _target(self, role: str) -> str:
        """Return a broker that has the role now, or any member of the group."""
        world, dice = self.world, self.dice
        groups = [c for c in world.configs.values() if len(c.members) > 1]
        group = dice.choice(groups or list(world.configs.values()))
        sending = world.chains.sending_group
        if sending and (dice.random() < SENDING_SHARE or role == "sending"):
            group = world.configs[sending]
        state = world.state(str(group.group))
        members = [str(m.id) for m in group.members]
        found: list[str] = []
        match role:
            case "reader":
                found = [str(state.reader)]
            case "master":
                found = [str(state.master)]
            case "slave":
                found = [m for m in members if BrokerId(m) in state.isr]
            case "learner":
                found = [m for m in members if m != state.master and BrokerId(m) not in state.isr]
        found = [m for m in found if m in world.brokers]
        return dice.choice(found or members)

    def heal(self) -> None:
        """Heal every fault from outside."""
        world = self.world
        world.network.heal_all()
        world.ensemble.heal_all()
        hosts: list[BrokerHost | ClientHost] = [*world.brokers.values(), *world.clients.values()]
        for host in hosts:
            host.node.resume()
        for broker in world.brokers.values():
            files = broker.storage.files
            files.failing_syncs = files.failing_writes = files.failing_reads = 0
            files.taken = 0
            broker.storage.speed.stalled_until_s = 0.0
            broker.storage.speed.write_ms = world.scene.weather.write_ms
