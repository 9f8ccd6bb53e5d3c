"""Waits that end together: a broker at rest wakes once for many of them.

A duty that comes back every few tenths of a second does not mind coming a little sooner. All such
waits end at common moments of the monotonic clock, each at the last one before it would end anyway:
what must be in time (a heartbeat, a lease) is never later for it. A wake-up costs a broker at rest
more than what is done in it (docs/performance.md). Not for waits that must last so long at least.
"""

from typing import Final

GRID_MS: Final = 100
_SHORTEST_MS: Final = 2 * GRID_MS  # a shorter wait would end too soon by too much


def together(due_ms: int, wait_ms: int) -> int:
    """When a wait of `wait_ms` ends that would end at `due_ms`; no sooner than after half of it."""
    return due_ms if wait_ms < _SHORTEST_MS else due_ms // GRID_MS * GRID_MS


def together_s(now_ms: int, wait_ms: int) -> float:
    """How long it is until then, for a wait that begins now."""
    return (together(now_ms + wait_ms, wait_ms) - now_ms) / 1000
