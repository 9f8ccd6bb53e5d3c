"""How long the other end of a link has been silent, in the broker's heartbeats.

Not by the clock: while this broker's loop stood still (a slow disk, a paused machine) it could hear
no broker, and what was sent meanwhile waits in the sockets. A stall counts as one beat, however
long it was, and by the next beat the sockets have been read. Pure; leaves nothing behind.
"""


class Silence:
    """Counts the silence of the other end against a limit."""

    def __init__(self, heartbeat_ms: int, dead_after_ms: int) -> None:
        self._heartbeat_ms = heartbeat_ms
        self._dead_after_ms = dead_after_ms
        self._heard_ms = -1
        self._beats = 0

    def beat(self, heard_ms: int) -> bool:
        """Count one beat; `heard_ms`: when the other end was last heard. True = it is dead."""
        self._beats = self._beats + 1 if heard_ms == self._heard_ms else 0
        self._heard_ms = heard_ms
        return self.silent_ms >= self._dead_after_ms

    @property
    def silent_ms(self) -> int:
        """The silence in milliseconds, as far as this broker could have heard the other end."""
        return self._beats * self._heartbeat_ms


class WatchedTime:
    """Time in which this broker could have heard the other end, whose silence then counts.

    A wait that ended late because the loop stood still counts as if it had ended when due.
    """

    def __init__(self) -> None:
        self.ms = 0

    def waited(self, passed_ms: int, most_ms: int) -> None:
        """Add a wait that took `passed_ms` and should have taken at most `most_ms`."""
        self.ms += min(passed_ms, most_ms)
