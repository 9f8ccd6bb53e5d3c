"""Give the event loop turns that the program withholds, and detect when it blocks the loop.

Heartbeats and acks are sent by the loop on which the program runs. A handler that blocks and then
awaits something that is there already (`ack`, the next buffered message) would never let them
leave; the broker would give its queues to another member, and its messages would come twice.
"""

import asyncio
import logging
from typing import Final

from fmqport.clock import Clock

TURN_EVERY: Final = 256
"""Calls after which the loop gets a turn, however quick they were; a message of a list is one."""
TURN_MS: Final = 10
"""Milliseconds without a turn after which the next call gives one."""
_QUICK_CALLS: Final = 4
"""Of calls in quick succession, one in this many reads the clock."""
_LONG_MS: Final = 50
"""Above this, a bare turn is not enough: answers must be read and replies to them written."""
_SHARE: Final = 50
"""The client gets this fraction (1/n) of the time that the program held the loop."""
_LONGEST_MS: Final = 20

_TICK_S: Final = 0.1
_READ_FIRST_MS: Final = 1000
_PERIOD_MS: Final = 250
STALL_MS: Final = 300
"""A timer this late shows that the loop was blocked; silence meanwhile proves nothing."""
_WARN_MS: Final = 1000
_WARN_EVERY_MS: Final = 10_000

_log = logging.getLogger("fmqclient")


class LoopTurns:
    """Decides when calls that need not wait must let the loop turn. One per consumer."""

    __slots__ = (
        "_armed",
        "_calls",
        "_clock",
        "_clock_due_at_call",
        "_clock_read_ms",
        "_since_ms",
        "listed",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._armed = False  # the loop has not turned since `_since_ms`
        self._calls = 0
        self._since_ms = self._clock_read_ms = 0
        self._clock_due_at_call = 0  # the call that looks at the clock
        self.listed = False  # the program works on a list: `ack` must ask, too

    def due(self) -> bool:
        """Whether this call must give the loop a turn."""
        if not self._armed:
            self._armed = True
            self._calls = self._clock_due_at_call = 0
            self._since_ms = self._clock_read_ms = self._clock.monotonic_ms()
            asyncio.get_running_loop().call_soon(self._turned)
            return False
        self._calls = calls = self._calls + 1
        if calls >= TURN_EVERY:
            return True
        if calls < self._clock_due_at_call:
            return False
        now_ms = self._clock.monotonic_ms()
        quick = now_ms - self._clock_read_ms <= 1
        self._clock_due_at_call = calls + (_QUICK_CALLS if quick else 1)
        self._clock_read_ms = now_ms
        return now_ms - self._since_ms >= TURN_MS

    def note_list(self, messages: int) -> None:
        """Count the messages of a list that the program gets in one call."""
        self._calls += messages

    async def give(self) -> None:
        """Let the loop turn, for longer the longer it was held."""
        held_ms = self._clock.monotonic_ms() - self._since_ms
        if held_ms >= _LONG_MS:
            await self._clock.sleep(min(held_ms / _SHARE, _LONGEST_MS) / 1000)
            return
        await asyncio.sleep(0)
        if held_ms >= TURN_MS:
            await asyncio.sleep(0)  # what the first turn woke up runs in the second

    def _turned(self) -> None:
        self._armed = False


class LoopWatch:
    """Detects when the program blocks the loop, and for how long. One per client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._blocked_until_ms: int | None = None
        self._warned_ms: int | None = None
        self._warned_length_ms = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            late_ms = await self.sleep(_PERIOD_MS / 1000)
            if late_ms >= _WARN_MS:
                self._warn(late_ms)

    async def sleep(self, seconds: float) -> int:
        """Sleep; return by how many milliseconds too late if the loop was blocked, else 0."""
        before_ms = self._clock.monotonic_ms()
        await self._clock.sleep(seconds)
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - before_ms - int(seconds * 1000)
        if late_ms < STALL_MS:
            return 0
        self._blocked_until_ms = now_ms
        return late_ms

    def blocked_since(self, moment_ms: int) -> bool:
        """Whether the loop was blocked for a while after that moment."""
        return self._blocked_until_ms is not None and self._blocked_until_ms > moment_ms

    def ticks(self) -> "Ticks":
        """Return new ticks, for a loop that expires deadlines."""
        return Ticks(self, self._clock)

    def _warn(self, length_ms: int) -> None:
        """Warn once per `_WARN_EVERY_MS`; again only for a stall twice as long."""
        now_ms = self._clock.monotonic_ms()
        recent = self._warned_ms is not None and now_ms - self._warned_ms < _WARN_EVERY_MS
        if recent and length_ms < 2 * self._warned_length_ms:
            return
        self._warned_ms, self._warned_length_ms = now_ms, length_ms
        _log.warning(
            "the event loop was blocked for %.1f s: no heartbeat and no ack left meanwhile, and a "
            "broker gives the queues of a silent consumer to others, and the role of a silent "
            "ordered producer; run blocking work in "
            "asyncio.to_thread(), or use fmqclient.sync",
            length_ms / 1000,
        )


class Ticks:
    """The ticks of a loop that expires deadlines.

    After the program blocked the loop, the brokers' answers are read before anything expires.
    """

    def __init__(self, watch: LoopWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._expire_from_ms = 0

    async def wait(self) -> tuple[int, bool]:
        """Wait for the next tick; return the time, and whether deadlines may expire now."""
        late_ms = await self._watch.sleep(_TICK_S)
        now_ms = self._clock.monotonic_ms()
        if late_ms:
            self._expire_from_ms = now_ms + _READ_FIRST_MS
        return now_ms, now_ms >= self._expire_from_ms
