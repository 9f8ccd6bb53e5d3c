"""Port: clock and random."""

from typing import Protocol


class Clock(Protocol):
    """Time and chance. Leases use `monotonic_ms`; what people read uses `wall_ms`."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back; not comparable between machines."""
        ...

    def monotonic_ns(self) -> int:
        """The same clock in nanoseconds, for measuring."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others work for so long."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A random number between two bounds: jitter."""
        ...

    def random_id(self) -> int:
        """A random number of 63 bits, never 0: producer ids, incarnations, tokens."""
        ...
