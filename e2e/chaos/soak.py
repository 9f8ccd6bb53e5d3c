"""A soak: random faults on every part, while messages flow; then calm, then the checks.

Two hands make faults on different parts at the same time, so faults meet. A quarter of the time is
without faults. Each hand undoes its faults; a broker that ends without a hand on it is a finding.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from e2e.chaos.machines import CLIENTS, Cut
from e2e.chaos.stage import Stage
from e2e.chaos.watch import now_ms
from e2e.history.cluster_events import Ending, FaultKind, Step
from e2e.history.cluster_events import Fault as FaultStep
from fmqcore.errors import FmqError

HANDS: Final = 2
_CALM: Final = 0.25
_CALM_S: Final = 6.0
_PART_S: Final = (0.1, 6.0)
_PAUSE_S: Final = (0.2, 3.0)
_STOP_TIMEOUT_S: Final = 60.0


class Soak:
    """Random faults on a whole stage; afterwards every part runs and every link is whole."""

    def __init__(self, stage: Stage, *, disks: bool) -> None:
        self.did: Counter[str] = Counter()
        self._stage = stage
        self._cluster = stage.cluster
        self._held: set[str] = set()  # parts held by a hand
        self._number = 0
        self._acts: list[tuple[int, Callable[[random.Random], Awaitable[None]]]] = [
            (5, self._kill),
            (3, self._stop),
            (4, self._pause),
            (5, self._cut),
            (1, self._expire),
            (2, self._kill_group),
        ]
        if disks:
            self._acts.append((3, self._power))

    async def run(self, seconds: float) -> None:
        """Run for `seconds`. Raises what a hand raises; every hand has undone its faults."""
        until_s = time.monotonic() + seconds
        calm = self._stage.random
        while time.monotonic() < until_s:
            trouble_s = min(calm.uniform(8, 24), until_s - time.monotonic())
            async with asyncio.TaskGroup() as hands:
                for hand in range(HANDS):
                    rng = random.Random(f"{calm.random()}/{hand}")
                    hands.create_task(self._hand(rng, time.monotonic() + trouble_s))
            self._stage.network.heal()
            self._stage.unexpected_ends(set())
            if calm.random() < _CALM * 2:
                await self._stage.whole()
                await asyncio.sleep(_CALM_S)
                self._stage.flow.check()

    async def _hand(self, rng: random.Random, until_s: float) -> None:
        weights = [weight for weight, _ in self._acts]
        while time.monotonic() < until_s:
            [(_, act)] = rng.choices(self._acts, weights)
            await act(rng)
            await asyncio.sleep(rng.uniform(*_PAUSE_S))

    # ---- parts
    def _free(self, rng: random.Random, *, brokers: bool = False) -> str | None:
        parts = list(self._cluster.brokers) if brokers else self._cluster.parts
        free = [part for part in parts if part not in self._held]
        return rng.choice(free) if free else None

    @contextmanager
    def _on(self, kind: FaultKind, what: str, *parts: str) -> Iterator[None]:
        """Mark these parts as held by a hand, and record the fault."""
        self._held.update(parts)
        self.did[what] += 1
        self._number += 1
        numbers = {part: self._number * 100 + n for n, part in enumerate(parts)}
        for step in (Step.SCHEDULED, Step.FIRED):
            self._note(kind, numbers, step, what)
        try:
            yield
        finally:
            self._held.difference_update(parts)
            self._note(kind, numbers, Step.HEALED, what)

    def _note(self, kind: FaultKind, numbers: dict[str, int], step: Step, what: str) -> None:
        for part, number in numbers.items():
            self._stage.history.add(FaultStep(now_ms(), number, kind, part, step, what))

    async def _kill(self, rng: random.Random) -> None:
        if part := self._free(rng):
            with self._on(FaultKind.KILL, "SIGKILL", part):
                await self._kill_all(rng, [part], Ending.KILLED)

    async def _kill_group(self, rng: random.Random) -> None:
        group = rng.choice(self._cluster.group_names)
        brokers = [str(p.id) for p in self._cluster.group(group) if p.id not in self._held]
        if brokers:
            with self._on(FaultKind.KILL, "SIGKILL of a group", *brokers):
                await self._kill_all(rng, brokers, Ending.KILLED)

    async def _kill_all(self, rng: random.Random, parts: list[str], how: Ending) -> None:
        stage = self._stage
        if how is Ending.POWER:
            for part in parts:
                self._cluster.pause(part)
            for part in parts:
                self._cluster.disks[part].lose_power()
        for part in parts:
            stage.kill(part, how)
        for part in parts:
            await stage.has_ended(part)
            if how is Ending.POWER:
                self._cluster.disks[part].unmount()
                self._cluster.disks[part].mount()
        rng.shuffle(parts)
        for part in parts:
            await asyncio.sleep(rng.uniform(*_PART_S) / len(parts))
            self._cluster.start_part(part)

    async def _power(self, rng: random.Random) -> None:
        group = rng.choice(self._cluster.group_names)
        brokers = [str(p.id) for p in self._cluster.group(group) if p.id not in self._held]
        chosen = rng.sample(brokers, rng.randint(1, len(brokers))) if brokers else []
        if chosen:
            with self._on(FaultKind.POWER, "power loss", *chosen):
                await self._kill_all(rng, chosen, Ending.POWER)

    async def _stop(self, rng: random.Random) -> None:
        if broker := self._free(rng, brokers=True):
            with self._on(FaultKind.STOP, "SIGTERM", broker):
                self._cluster.kill(broker, signal.SIGTERM)
                if await self._stage.has_ended(broker, _STOP_TIMEOUT_S):
                    self._stage.down(broker, Ending.STOPPED)
                    status = self._cluster.exit_status(broker)
                    if status not in (0, -signal.SIGTERM):  # the latter: it was just starting
                        self._stage.wrong(f"{broker} ended with status {status} after SIGTERM")
                else:
                    self._stage.wrong(f"{broker} still runs {_STOP_TIMEOUT_S:g} s after SIGTERM")
                    self._stage.kill(broker)
                    await self._stage.has_ended(broker)
                await asyncio.sleep(rng.uniform(*_PART_S) / 2)
                self._cluster.start_part(broker)

    async def _pause(self, rng: random.Random) -> None:
        if part := self._free(rng):
            with self._on(FaultKind.PAUSE, "SIGSTOP", part):
                self._cluster.signal_part(part, signal.SIGSTOP)
                await asyncio.sleep(rng.uniform(*_PART_S))
                self._cluster.signal_part(part, signal.SIGCONT)

    async def _cut(self, rng: random.Random) -> None:
        """Cut the link between two parts, or between a part and the clients."""
        one = rng.choice(list(self._cluster.brokers))
        others = [part for part in self._cluster.parts if part != one]
        if self._stage.network.one_way:
            others.append(CLIENTS)
        other = rng.choice(others)
        how = rng.choice((Cut.DROP, Cut.DROP, Cut.RESET))
        pairs = [(one, other), (other, one)]
        if self._stage.network.one_way and rng.random() < 0.4:
            pairs = [rng.choice(pairs)]
        with self._on(FaultKind.CUT, "cut"):
            for pair in pairs:
                self._stage.network.cut(*pair, how)
            await asyncio.sleep(rng.uniform(*_PART_S))
            self._stage.network.heal()  # the other hand's cut, too: it was short then

    async def _expire(self, rng: random.Random) -> None:
        broker = rng.choice(list(self._cluster.brokers))
        try:
            session = await self._cluster.session_of(broker)
            if session and any(map(self._cluster.ensemble.alive, self._cluster.ensemble.names)):
                with self._on(FaultKind.EXPIRE, "session expired", broker):
                    await asyncio.to_thread(self._cluster.ensemble.expire, session)
        except (FmqError, OSError):
            pass  # ZooKeeper is away, or the session is
