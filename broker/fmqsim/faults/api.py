"""The interface between a fault and the simulation: the world that it acts on, and its course.

A fault is a coroutine over an `Act`. It reaches the simulation through `WorldApi` alone, so that a
world may import the faults, and the faults do not import the world.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from e2e.history.cluster_events import Fault, FaultKind, PhaseName, Step
from fmqsim.scenario.api import GroupWorld
from fmqsim.scenario.chain_watch import ChainWatch
from fmqsim.scenario.hosts import BrokerHost
from fmqsim.scenario.operator_stand_in import Operator

TAKEOVER_S: Final = (2.3, 4.0)
"""Bounds of the length of a fault that lasts until another broker takes over."""


class WorldApi(GroupWorld, Protocol):
    """What a fault may see and do (`scenario.world.World`)."""

    operator: Operator
    reader_changes: int
    chains: ChainWatch

    async def until(self, true: Callable[[], object], within_s: float) -> bool:
        """Wait until `true()` holds, for `within_s` at most; return whether it did."""
        ...

    def quiet(self) -> bool:
        """Whether the cluster is whole and every machine works: a time to be calm."""
        ...

    def phase(self, name: PhaseName) -> None:
        """Start a phase of the run."""
        ...


class Act:
    """One fault, from its schedule to its healing: the interface for its coroutine."""

    def __init__(
        self, world: WorldApi, dice: random.Random, number: int, kind: FaultKind, name: str
    ) -> None:
        self.world = world
        self.dice = dice
        self.kind = kind
        self.name = name
        self.on = ""
        self.long = False  # so long that somebody else takes over
        self._number = number
        self._record(Step.SCHEDULED)
        self._fired = False

    @property
    def target(self) -> BrokerHost:
        """The broker that the fault is done to."""
        return self.world.brokers[self.on]

    def fired(self, detail: str = "", on: str = "") -> None:
        """Report that the fault has had its effect."""
        self._fired = True
        self.on = on or self.on
        self._record(Step.FIRED, detail)

    def also(self, kind: FaultKind, detail: str, on: str = "") -> None:
        """Report another effect of the fault, on its target or another broker."""
        world, step, on = self.world, Step.FIRED, on or self.on
        world.history.add(Fault(world.loop.now_ms, self._number, kind, on, step, detail))
        world.loop.note(f"fault {self._number} {step.value}: {detail} on {on}")

    def healed(self, detail: str = "") -> None:
        """Report that the fault is over, if it has fired."""
        if self._fired:
            self._record(Step.HEALED, detail)

    async def last(self, low_s: float, high_s: float) -> None:
        """Let the fault last for a random time between the two.

        If it is `long`, it lasts long enough for a takeover.
        """
        if self.long:
            low_s, high_s = max(low_s, TAKEOVER_S[0]), max(high_s, TAKEOVER_S[1])
        await asyncio.sleep(self.dice.uniform(low_s, high_s))

    def peers(self) -> list[str]:
        """Return the other brokers of the target's group."""
        group = self.target.group
        return [
            b.name for b in self.world.brokers.values() if b.group == group and b.name != self.on
        ]

    def _record(self, step: Step, detail: str = "") -> None:
        world = self.world
        text = f"{self.name} {detail}".strip()
        world.history.add(Fault(world.loop.now_ms, self._number, self.kind, self.on, step, text))
        world.loop.note(f"fault {self._number} {step.value}: {text} on {self.on or '?'}")


Doing = Callable[[Act], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault of the table. `roles`: its targets, by preference; empty = no target."""

    name: str
    kind: FaultKind
    weight: float
    roles: tuple[str, ...]
    do: Doing
