"""Which slaves leave the in-sync set and which may enter. Pure.

A slave is *in sync* while it is linked and, within `dead_after_ms`, always comes to hold what the
master held: it is never behind for longer than that. A *learner* may enter when it is linked, has
answered in this term, accepts more, and lacks at most `in_sync_lag_bytes`. Only the master moves a
slave in or out, by compare-and-set of the group's state (`replication/in_sync_set.py` in the
shell).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fmqcore.ids import BrokerId, Position


@dataclass(slots=True)
class Lag:
    """How long a slave has not held what its master held at that time.

    Not a distance in bytes: a slave that follows a stream of 100 MB/s is always a little behind,
    yet holds, a moment later, everything that existed a moment ago.
    """

    mark_end: Position
    mark_ms: int
    caught_up_ms: int

    @classmethod
    def begin(cls, master_end: Position, now_ms: int) -> "Lag":
        """Start the measurement for a slave that has just linked."""
        return cls(master_end, now_ms, now_ms)

    def note(self, counted_end: Position, master_end: Position, now_ms: int) -> None:
        """Note a slave's acknowledgement."""
        if counted_end >= master_end:
            self.caught_up_ms = now_ms
        elif counted_end >= self.mark_end:
            self.caught_up_ms = max(self.caught_up_ms, self.mark_ms)
        else:
            return
        self.mark_end, self.mark_ms = master_end, now_ms

    def lag_ms(self, now_ms: int) -> int:
        """Return how long it has been behind: at most twice the true time, as one mark is kept."""
        return now_ms - self.caught_up_ms


class LinkFacts(NamedTuple):
    """What the in-sync set needs to know of one configured slave."""

    connected: bool = False
    lost: bool = False  # it was linked in this term, and the stream broke
    current: bool = False  # its newest ack is of this term
    ready: bool = False  # it takes more: one whose disk is full gives no credit
    counted_end: Position = Position(0)
    lag_ms: int = 0
    durable_end: Position = Position(0)


class IsrLimits(NamedTuple):
    """Limits from the broker's settings."""

    dead_after_ms: int
    in_sync_lag_bytes: int


def leavers(
    isr: frozenset[BrokerId],
    slaves: Mapping[BrokerId, LinkFacts],
    term_ms: int,
    limits: IsrLimits,
) -> dict[BrokerId, str]:
    """Return the slaves that must leave, with the reason.

    `slaves` has every configured slave; `term_ms` is the age of the term.
    """
    reasons = {
        broker: _reason_to_leave(slaves.get(broker), term_ms, limits) for broker in sorted(isr)
    }
    return {broker: reason for broker, reason in reasons.items() if reason}


def _reason_to_leave(facts: LinkFacts | None, term_ms: int, limits: IsrLimits) -> str:
    if facts is None:
        return "it is no configured slave any more"
    if not facts.connected:
        if facts.lost:
            return "its stream broke"
        return "it did not come" if term_ms >= limits.dead_after_ms else ""
    behind = facts.lag_ms >= limits.dead_after_ms
    return f"it has been behind for {facts.lag_ms} ms" if behind else ""


def candidates(
    isr: frozenset[BrokerId],
    slaves: Mapping[BrokerId, LinkFacts],
    master_end: Position,
    limits: IsrLimits,
) -> list[BrokerId]:
    """Return the learners that may enter now, in order of their names."""
    return [
        broker
        for broker, facts in sorted(slaves.items())
        if broker not in isr
        and facts.connected
        and facts.current
        and facts.ready
        and facts.lag_ms < limits.dead_after_ms
        and master_end - facts.counted_end <= limits.in_sync_lag_bytes
    ]
