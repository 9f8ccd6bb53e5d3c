"""Estimate how far apart two brokers' clocks are, from messages that take an unknown time.

A broker sends its monotonic time; the other answers with its wall time and repeats what it
received. The answer was made between sending and receiving, so the difference is known up to the
round trip. Only the certain part counts: a slow network or a paused process proves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fmqcore.ids import BrokerId

APART_MS: Final = 60_000
"""Two brokers' clocks disagree if they differ by more than this."""
FUTURE_MS: Final = 60_000
"""A store time further ahead of the clock than this came from a wrong clock."""


@dataclass(frozen=True, slots=True)
class Base:
    """Bounds of another broker's wall time minus this broker's monotonic time."""

    low_ms: int
    high_ms: int

    def ahead_ms(self, my_base_ms: int) -> int:
        """Return by how much that clock is at least ahead of this one; negative: behind."""
        return max(self.low_ms - my_base_ms, 0) + min(self.high_ms - my_base_ms, 0)


def base_of(peer_wall_ms: int, asked_ms: int, heard_ms: int) -> Base | None:
    """Return the bounds from an answer; None if it has no time (0) or took too long."""
    if not peer_wall_ms or not 0 <= heard_ms - asked_ms <= APART_MS:
        return None
    return Base(peer_wall_ms - heard_ms, peer_wall_ms - asked_ms)


def disagreement(ahead_ms: Mapping[BrokerId, int]) -> str | None:
    """Return a sentence about the clock that differs most, if by too much; else None."""
    broker = max(sorted(ahead_ms), key=lambda b: abs(ahead_ms[b]), default=None)
    if broker is None or abs(ahead_ms[broker]) <= APART_MS:
        return None
    by_s = int(ahead_ms[broker] / 1000)
    where = f"{by_s} s ahead of" if by_s > 0 else f"{-by_s} s behind"
    return f"the clock of {broker} is {where} this broker's: correct the wrong clock"
