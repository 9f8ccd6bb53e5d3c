"""A clock that does not follow a jump of wall time at once, and may block destructive work.

Wall time is compared with the monotonic clock at each reading. Small differences are followed.
After a jump wall time goes on as if there had been none, until the new time has stood for
`HOLD_MS`: a clock that is days ahead for a moment changes no store time, and nothing is deleted
by age.

At a start only the newest store time in the journal is there to compare with. If that is far away,
the broker may have been off for long, or its clock may be wrong: store times follow the clock, but
nothing is deleted by age for `HOLD_MS`. If the newest store time is in the future, ZooKeeper's
clock ends that doubt if it agrees; without doubt, store times are set back to the clock (ADR 0070).

The group's other brokers' clocks are compared with this one (`peer_clocks.py`), each by the time
that counts: nothing is deleted by age while two of them disagree.
"""

from typing import Final

import structlog

from fmqbroker.runtime.peer_clocks import PeerClocks
from fmqcore.clocks import APART_MS, base_of
from fmqport.clock import Clock

JUMP_MS: Final = 5_000
"""Difference between wall and monotonic clock, in milliseconds, above which it is a jump."""
HOLD_MS: Final = 30 * 60 * 1000
"""Milliseconds that the new time must stand before a jump counts."""
FAR_MS: Final = 60 * 60 * 1000
"""Distance from the newest store time, in milliseconds, above which a start is in doubt."""

_log = structlog.get_logger()


class SteadyClock(Clock):
    """See the module. Everything but `wall_ms` is the given clock's."""

    def __init__(self, clock: Clock) -> None:
        self.jumps = 0
        self._clock = clock
        self._base_ms = clock.wall_ms() - clock.monotonic_ms()  # of the time that counts
        self._jumped_base_ms = 0  # of the time that does not count yet
        self._jumped_at_ms: int | None = None  # by the monotonic clock
        self._start_ms = clock.monotonic_ms()
        self._start_gap_ms = 0
        self._confirmed = False  # by ZooKeeper's clock, when this session's live node was created
        self._past_is_future = False  # ZooKeeper's clock has shown a time later than this clock
        self.peers = PeerClocks(self)

    def wall_ms(self) -> int:
        """Return wall time; for a while after a jump, the time as if there had been none."""
        now_ms = self._clock.monotonic_ms()
        base_ms = self._clock.wall_ms() - now_ms
        if abs(base_ms - self._base_ms) <= JUMP_MS:
            if self._jumped_at_ms is not None:
                self._jumped_at_ms = None
                _log.warning("clock_jump_over")
            self._base_ms = base_ms
        elif self._jumped_at_ms is None or abs(base_ms - self._jumped_base_ms) > JUMP_MS:
            self._jumped_at_ms, self._jumped_base_ms = now_ms, base_ms
            self.jumps += 1
            _log.error("clock_jumped", by_ms=base_ms - self._base_ms, held_ms=HOLD_MS)
        elif now_ms - self._jumped_at_ms >= HOLD_MS:
            _log.warning("clock_jump_accepted", by_ms=base_ms - self._base_ms)
            self._base_ms, self._jumped_at_ms = base_ms, None
        else:
            self._jumped_base_ms = base_ms  # it may drift
        return now_ms + self._base_ms

    def note_newest(self, store_ms: int) -> None:
        """Take the newest store time in the journal at a start; 0 = none."""
        gap_ms = self.wall_ms() - store_ms if store_ms else 0
        if abs(gap_ms) > FAR_MS:
            self._start_gap_ms = gap_ms
            _log.warning("clock_far_from_journal", gap_ms=gap_ms, held_ms=HOLD_MS)

    def note_zookeeper(self, wall_ms: int, asked_ms: int) -> None:
        """Take ZooKeeper's time in an answer to a request made at `asked_ms` (monotonic clock)."""
        base = base_of(wall_ms, asked_ms, self.monotonic_ms())
        if base is not None:
            ahead_ms = base.ahead_ms(self.wall_ms() - self.monotonic_ms())
            self._confirmed = abs(ahead_ms) <= APART_MS

    def note_past(self, wall_ms: int) -> None:
        """Take a time that ZooKeeper's clock showed earlier: this clock must be later."""
        if wall_ms - self.wall_ms() > APART_MS:
            self._past_is_future = True

    @property
    def may_correct(self) -> bool:
        """Whether store times of the future may be set back to this clock."""
        self.wall_ms()  # notices a jump
        if self._jumped_at_ms is not None or self.peers.doubt is not None:
            return False
        return not self._in_start_doubt()

    def _in_start_doubt(self) -> bool:
        # A clock that is behind deletes late: here a wrong one would do less harm.
        if self._start_gap_ms < 0 and self._confirmed and not self._past_is_future:
            return False
        waited_ms = self._clock.monotonic_ms() - self._start_ms
        return bool(self._start_gap_ms) and waited_ms < HOLD_MS

    @property
    def doubt(self) -> str | None:
        """Why nothing may be deleted by age now; None if it may."""
        wall_ms, now_ms = self.wall_ms(), self._clock.monotonic_ms()
        if self._jumped_at_ms is not None:
            by_s = (self._clock.wall_ms() - wall_ms) // 1000
            return (
                f"the clock jumped by {by_s} s {(now_ms - self._jumped_at_ms) // 1000} s ago: set "
                f"it right; the new time counts once it has stood for {HOLD_MS // 60_000} min"
            )
        if self._in_start_doubt():
            return (
                f"at the start the clock was {self._start_gap_ms // 1000} s from the newest "
                "message: look whether it is right"
            )
        return self.peers.doubt

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return self._clock.monotonic_ms()

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return self._clock.monotonic_ns()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await self._clock.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        """See `Clock`."""
        return self._clock.uniform(low, high)

    def random_id(self) -> int:
        """See `Clock`."""
        return self._clock.random_id()


def clock_doubt(clock: Clock) -> str | None:
    """Return why nothing may be deleted by age now; None if it may."""
    steady = _steady(clock)
    return None if steady is None else steady.doubt


def may_correct(clock: Clock) -> bool:
    """Return whether store times of the future may be set back to this clock."""
    steady = _steady(clock)
    return steady is not None and steady.may_correct


def note_zookeeper(clock: Clock, wall_ms: int, asked_ms: int) -> None:
    """See `SteadyClock.note_zookeeper`; other clocks compare nothing."""
    if (steady := _steady(clock)) is not None:
        steady.note_zookeeper(wall_ms, asked_ms)


def note_past(clock: Clock, wall_ms: int) -> None:
    """See `SteadyClock.note_past`; other clocks compare nothing."""
    if (steady := _steady(clock)) is not None:
        steady.note_past(wall_ms)


def peer_clocks(clock: Clock) -> PeerClocks:
    """Return the comparison with other brokers' clocks, shared by all users of that clock."""
    steady = _steady(clock)
    return PeerClocks(clock) if steady is None else steady.peers


def _steady(clock: Clock) -> SteadyClock | None:
    """Return the broker's clock; None for the plain clock of a test or of a single part."""
    return clock if isinstance(clock, SteadyClock) else None
