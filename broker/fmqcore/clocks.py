"""How far the clocks of two brokers are apart, by messages that take an unknown time.

A broker sends its monotonic time, the other answers with its wall time and repeats what it got. The
answer was made between the two moments, so the difference is known up to the time between them.
Only the part that is certain counts: a slow network, or a process that stood still, proves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fmqcore.ids import BrokerId

APART_MS: Final = 60_000
"""A larger difference between the clocks of two brokers is a disagreement."""


@dataclass(frozen=True, slots=True)
class Base:
    """Bounds of a broker's wall time minus my monotonic time."""

    low_ms: int
    high_ms: int

    def ahead_ms(self, my_base_ms: int) -> int:
        """How far that broker's clock is ahead of mine, at least; negative: behind."""
        return max(self.low_ms - my_base_ms, 0) + min(self.high_ms - my_base_ms, 0)


def base_of(peer_wall_ms: int, asked_ms: int, heard_ms: int) -> Base | None:
    """From an answer; None if it carries no time (0), or took too long to prove anything."""
    if not peer_wall_ms or not 0 <= heard_ms - asked_ms <= APART_MS:
        return None
    return Base(peer_wall_ms - heard_ms, peer_wall_ms - asked_ms)


def disagreement(ahead_ms: Mapping[BrokerId, int]) -> str:
    """Empty, or a sentence about the clock that is furthest from mine, if it is too far."""
    broker = max(sorted(ahead_ms), key=lambda b: abs(ahead_ms[b]), default=None)
    if broker is None or abs(ahead_ms[broker]) <= APART_MS:
        return ""
    by_s = int(ahead_ms[broker] / 1000)
    where = f"{by_s} s ahead of" if by_s > 0 else f"{-by_s} s behind"
    return f"the clock of {broker} is {where} mine: set the wrong one right"
