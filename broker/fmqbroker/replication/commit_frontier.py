"""The commit frontier: the position up to which the group's policy holds.

Owner: replication. `journal.end` ≥ `commit_end`; readers see only what lies below `commit_end`. A
master computes it from the journal's ends and the slaves' acks; a slave takes it from its master's
messages; a slave that takes over the reads sets it to its durable end. It never falls (R4).

Order of effects when a slave is lost: the slave leaves the in-sync set (compare-and-set), then
`refuse` is called, then produce answers the waiting batches. Leaves nothing on disk.
"""

from fmqbroker.runtime.notifier import Signal
from fmqcore.ids import Position


class CommitFrontier:
    """The position up to which the policy holds, with a signal for each move."""

    def __init__(self) -> None:
        self.commit_end = Position(0)
        self.all_end = Position(0)  # durable on the master and on every in-sync slave
        # Why the policy cannot be met now (NOT_ENOUGH_REPLICAS); None while it can.
        self.unwritable_reason: str | None = None
        self.failed_below = Position(0)  # uncommitted appends below fail as DELIVERY_UNKNOWN
        self.changed = Signal()
        self.policy_changed = Signal()  # `unwritable_reason` has changed

    def advance(self, commit_end: Position, all_end: Position) -> None:
        """Move forward; a lower value changes nothing (R4)."""
        moved = commit_end > self.commit_end or all_end > self.all_end
        self.commit_end = max(self.commit_end, commit_end)
        self.all_end = max(self.all_end, all_end)
        if moved:
            self.changed.notify()

    def refuse(self, reason: str, failed_below: Position) -> None:
        """Refuse new batches and fail those waiting below `failed_below`: the policy cannot be met.

        A failed batch may still commit later: its producer has got DELIVERY_UNKNOWN for it.
        """
        self.unwritable_reason = reason
        self.failed_below = max(self.failed_below, failed_below)
        self.policy_changed.notify()
        self.changed.notify()

    def accept(self) -> None:
        """Accept new batches again: the policy can be met."""
        if self.unwritable_reason is not None:
            self.unwritable_reason = None
            self.policy_changed.notify()
            self.changed.notify()
