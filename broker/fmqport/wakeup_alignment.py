"""Align waits, so that an idle broker wakes once for many of them.

A task that repeats every few tenths of a second may run a little sooner. Each such wait ends at the
last common moment of the monotonic clock before its own end, so it never delays what must be in
time (a heartbeat, a lease). A wake-up costs an idle broker more than the work done in it
(docs/benchmarks.md). Not for waits that have a minimum length.
"""

from typing import Final

GRID_MS: Final = 100
_SHORTEST_MS: Final = 2 * GRID_MS  # a shorter wait would end too soon by too much


def together(due_ms: int, wait_ms: int) -> int:
    """Return when a wait of `wait_ms`, due at `due_ms`, ends: not before half the wait."""
    return due_ms if wait_ms < _SHORTEST_MS else due_ms // GRID_MS * GRID_MS


def together_s(now_ms: int, wait_ms: int) -> float:
    """Return the aligned length in seconds of a wait that starts now."""
    return (together(now_ms + wait_ms, wait_ms) - now_ms) / 1000
