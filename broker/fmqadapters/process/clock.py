"""Adapter of the clock port: the machine's own clocks and random source."""

import asyncio
import random
import time


class SystemClock:
    """The real `Clock`."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await asyncio.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        """See `Clock`."""
        return self._random.uniform(low, high)

    def random_id(self) -> int:
        """See `Clock`."""
        return self._random.getrandbits(63) | 1
