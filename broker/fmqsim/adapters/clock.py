"""Simulator adapter of the clock port: a node's drifting clocks, and seeded randomness."""

import asyncio

from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process


class SimClock:
    """The simulated `Clock` of one process."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self._loop = loop
        self._node = process.node

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return int(self._node.monotonic() * 1e9) // 1_000_000

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return int(self._node.monotonic() * 1e9)

    def wall_ms(self) -> int:
        """See `Clock`."""
        return int(self._node.wall_ms())

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await asyncio.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        """See `Clock`."""
        return self._loop.random.uniform(low, high)

    def random_id(self) -> int:
        """See `Clock`."""
        return self._loop.random.getrandbits(63) | 1
