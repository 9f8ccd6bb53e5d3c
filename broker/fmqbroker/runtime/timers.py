"""Many timed calls in one task.

A call is made once and cannot be cancelled: it checks the state itself and does nothing if it is no
longer needed. Time comes from the clock port alone. Each call has its own turn of the loop: many
consumer groups go idle, or miss a deadline, at the same moment.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from fmqport.clock import Clock


class Timers:
    """Calls by monotonic time, in order of time and then of `at`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        self._earlier = asyncio.Event()

    def at(self, due_ms: int, call: Callable[[], None]) -> None:
        """Make `call` at that moment, or soon if it is in the past."""
        self._made += 1
        if not self._heap or due_ms < self._heap[0][0]:
            self._earlier.set()
        heappush(self._heap, (due_ms, self._made, call))

    async def run(self) -> None:
        """Make the calls until cancelled."""
        while True:
            self._earlier.clear()
            now = self._clock.monotonic_ms()
            while self._heap and self._heap[0][0] <= now:
                heappop(self._heap)[2]()
                await asyncio.sleep(0)
            if not self._heap:
                await self._earlier.wait()
            elif (left_ms := self._heap[0][0] - self._clock.monotonic_ms()) > 0:
                await self._sleep(left_ms)

    async def _sleep(self, ms: int) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(ms / 1000))
        earlier = asyncio.ensure_future(self._earlier.wait())
        try:
            await asyncio.wait((sleeping, earlier), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            earlier.cancel()
            await asyncio.gather(sleeping, earlier, return_exceptions=True)
