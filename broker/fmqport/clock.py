"""Port: clock and random numbers."""

from typing import Protocol


class Clock(Protocol):
    """Time and random numbers. Leases use `monotonic_ms`; what people read uses `wall_ms`."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back; not comparable between machines."""
        ...

    def monotonic_ns(self) -> int:
        """The same clock in nanoseconds, for measurements."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for that many seconds."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a random number between two bounds, for jitter."""
        ...

    def random_id(self) -> int:
        """Return a random number of 63 bits, never 0, for producer ids, incarnations, tokens."""
        ...
