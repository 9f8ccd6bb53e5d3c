"""A cluster under traffic, and the operations that faults need to act on it.

Everything that is done and seen goes into one history. A stage judges nothing.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.chaos.cluster import ChaosCluster
from e2e.chaos.flow import Flow
from e2e.chaos.machines import Network
from e2e.chaos.watch import Watch, now_ms
from e2e.history.cluster_events import Down, Ending, Fault, FaultKind, Step
from e2e.history.history import History
from fmqcore.errors import FmqError
from fmqcore.ids import Permission
from fmqcore.zk.group_state import GroupState, Mode
from fmqdev.broker_process import tail
from fmqport.coordination import ConnectionLost

TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_STOP_TIMEOUT_S: Final = 30.0


class Stuck(FmqError):
    """An expected event did not come in time."""


class Stage:
    """One round: a fault, its traffic, and observations."""

    def __init__(
        self,
        cluster: ChaosCluster,
        watch: Watch,
        flow: Flow,
        history: History,
        rng: random.Random,
        directory: Path,
        kind: FaultKind,
        numbers: Iterator[int],
    ) -> None:
        self.cluster = cluster
        self.watch = watch
        self.flow = flow
        self.history = history
        self.random = rng
        self.directory = directory
        self._kind = kind
        self._next = numbers
        self.on: list[str] = []  # the targets of the fault
        self._numbers: dict[str, int] = {}  # target → its fault's number
        self.faults: list[str] = []  # forbidden observations on the way

    @property
    def network(self) -> Network:
        """The network whose links are cut."""
        return self.cluster.network

    def wrong(self, what: str) -> None:
        """Record an observation that must not be."""
        self.faults.append(what)

    def fired(self, detail: str = "") -> None:
        """Record, once for each part in `on`, that the fault was done. Call before any effect."""
        for part in self.on:
            if part not in self._numbers:
                self._numbers[part] = next(self._next)
                self._step(part, Step.SCHEDULED, detail)
                self._step(part, Step.FIRED, detail)

    def healed(self) -> None:
        """Record that the fault is over."""
        for part in self._numbers:
            self._step(part, Step.HEALED, "")

    def _step(self, part: str, step: Step, detail: str) -> None:
        self.history.add(Fault(now_ms(), self._numbers[part], self._kind, part, step, detail))

    # ---- whom
    async def some_master(self) -> tuple[str, str]:
        """Return a random group and its master, which becomes a target."""
        group = self.random.choice(self.cluster.group_names)
        master = await self.cluster.master_of(group)
        self.on.append(master)
        return group, master

    async def some_slave(self) -> tuple[str, str]:
        """Return a random group and one slave in it, which becomes a target."""
        group = self.random.choice(self.cluster.group_names)
        slave = self.random.choice(await self.cluster.slaves_of(group))
        self.on.append(slave)
        return group, slave

    # ---- what is done
    def kill(self, part: str, how: Ending = Ending.KILLED) -> None:
        """Send SIGKILL to a broker or a ZooKeeper server."""
        if self.cluster.is_zookeeper(part):
            self.cluster.ensemble.child(part).kill()
            return
        self.cluster.kill(part)
        self.down(part, how)

    def down(self, broker: str, how: Ending) -> None:
        """Record that a broker's process has ended, or does so now."""
        group = broker.rpartition("-")[0]
        self.history.add(Down(now_ms(), broker, group, how))

    async def has_ended(self, part: str, within_s: float = _STOP_TIMEOUT_S) -> bool:
        """Wait until a part's process has ended; False if it still runs."""
        if self.cluster.is_zookeeper(part):
            return await self.cluster.ensemble.child(part).ended(within_s)
        return await self.cluster.ended(part, within_s)

    async def restart(self, broker: str) -> None:
        """Restart a broker in good order; returns when its group is whole."""
        self.cluster.kill(broker, signal.SIGTERM)
        if not await self.has_ended(broker):
            raise Stuck(f"{broker} still runs {_STOP_TIMEOUT_S:g} s after SIGTERM")
        self.down(broker, Ending.STOPPED)
        self.cluster.start_part(broker)
        await self.whole()

    async def whole(self, within_s: float = TIMEOUT_S) -> None:
        """Wait until every group is as configured and in sync.

        Raises `ClusterFailed`, which names what is missing.
        """
        until_s = time.monotonic() + within_s
        while True:
            try:
                await self.cluster.wait_healthy(within_s=max(0.1, until_s - time.monotonic()))
                return
            except ConnectionLost:  # the stage's own session has to come back first
                await asyncio.sleep(_POLL_S)

    # ---- waiting
    def serves(self, broker: str, need: Permission) -> bool:
        """Whether the broker served when it was last looked at."""
        return self.watch.serves(broker, need)

    async def until(
        self, condition: Callable[[], object], what: str, within_s: float = TIMEOUT_S
    ) -> None:
        """Wait until the condition holds. Raises `Stuck`."""

        async def met() -> object:
            return condition()

        await self.until_async(met, what, within_s)

    async def until_async(
        self, condition: Callable[[], Awaitable[object]], what: str, within_s: float = TIMEOUT_S
    ) -> None:
        """Wait until an asynchronous condition holds. Raises `Stuck`."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(FmqError):
                        if await condition():
                            return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise Stuck(
                f"timed out after {within_s:g} s, waiting for: {what}; {self._seen()}"
            ) from None

    async def until_state(
        self, group: str, condition: Callable[[GroupState], object], what: str
    ) -> None:
        """Wait until the condition holds for the group's state in ZooKeeper."""

        async def so() -> object:
            return condition(await self.cluster.groups.state(group))

        await self.until_async(so, what)

    async def taken_over(self, group: str) -> str:
        """Wait until a slave has taken the reads over; return its name."""
        taken = Mode.SLAVE_CONSUME
        await self.until_state(group, lambda s: s.mode is taken, f"a slave of {group} takes over")
        return await self.cluster.reader_of(group)

    def _seen(self) -> str:
        looks = ", ".join(
            f"{broker}: {sight.permission.name} {sight.mode} e{sight.epoch} ({sight.reason})"
            for broker, sight in self.watch.latest.items()
        )
        return f"brokers report: {looks}"

    # ---- afterwards
    def unexpected_ends(self, expected: set[str]) -> None:
        """Record brokers that have ended, and should not have."""
        for broker, plan in self.cluster.brokers.items():
            if broker not in expected and not self.cluster.alive(broker):
                status = self.cluster.exit_status(broker)
                self.wrong(f"{broker} has ended with status {status}: {tail(plan.log, 2)}")
