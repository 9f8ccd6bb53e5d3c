"""How long the other end of a link has been silent, counted in heartbeats of my own (DESIGN §5).

Not by the clock: while my own loop stood still (a slow disk under it, a machine that was paused)
nobody could be heard, and what was said meanwhile waits in the sockets. A stall counts as one beat,
however long it was, and by the next beat it has been read. Pure; leaves nothing behind.
"""


class Silence:
    """One end's patience with the other."""

    def __init__(self, heartbeat_ms: int, dead_after_ms: int) -> None:
        self._heartbeat_ms = heartbeat_ms
        self._dead_after_ms = dead_after_ms
        self._heard_ms = -1
        self._beats = 0

    def beat(self, heard_ms: int) -> bool:
        """One more beat of mine; `heard_ms`: when I last heard it. True = it counts as dead."""
        self._beats = self._beats + 1 if heard_ms == self._heard_ms else 0
        self._heard_ms = heard_ms
        return self.silent_ms >= self._dead_after_ms

    @property
    def silent_ms(self) -> int:
        """So long, as far as I could have heard it."""
        return self._beats * self._heartbeat_ms


class WatchedTime:
    """Time in which I could have heard the other end: what it has not said counts against it.

    A wait that ends late, as my loop stood still, counts as if it had ended when it was due.
    """

    def __init__(self) -> None:
        self.ms = 0

    def waited(self, passed_ms: int, most_ms: int) -> None:
        """One more wait is over."""
        self.ms += min(passed_ms, most_ms)
