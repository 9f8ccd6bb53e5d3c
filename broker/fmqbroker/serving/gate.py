"""The gate: whether this broker may serve reads or writes at this moment.

Checked on every produce, pull and ack: the cached group state grants the broker its role *and* its
lease holds. Each check compares the lease with the monotonic clock; no timer ends it: a loop that
was stopped and wakes up late serves nothing more. Set by `failover/loop.py` and `lease.py` alone.

Not here: the decision what to grant (`fmqcore.failover`), the renewals (`lease.py`).
"""

from collections.abc import Callable
from typing import Final

from fmqbroker.runtime.notifier import Signal
from fmqcore.errors import NoPermission
from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, Epoch, Permission
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.clock import Clock

LEASE_OVER: Final = (
    "serving lease expired: no ZooKeeper session, and not all in-sync slaves have granted this "
    "broker a lease; it serves again when either returns"
)


def stopping_refusal() -> NoPermission:
    """Return the refusal of a broker that is being stopped in good order."""
    return NoPermission("this broker is stopping: ask for the routes again")


class Gate:
    """What this broker serves now. `changed` fires whenever that may have changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.changed = Signal()
        self.mode = Mode.NEW
        self.epoch = Epoch(0)
        self.master = BrokerId("")
        self.reader = BrokerId("")  # who serves (in HANDOVER: served) the reads
        self.remedy = Remedy.NONE  # of what `reason` describes, for a person
        self._reason = "starting"
        self._permission = Permission.NONE
        self._lease_until_ms = 0
        self._grants: Callable[[], int] | None = None

    @property
    def reason(self) -> str:
        """The reason for the current permission, as a sentence for people."""
        return LEASE_OVER if self._permission and not self.leased() else self._reason

    def permission(self) -> Permission:
        """Return what may be served now: the granted permission while the lease holds (F10)."""
        return self._permission if self._permission and self.leased() else Permission.NONE

    def require(self, needed: Permission) -> None:
        """Raise `NoPermission` (with epoch and reader) unless all of `needed` is held now."""
        if int(needed) & ~int(self.permission()):  # plain numbers: checked for every message
            raise NoPermission(
                f"no {needed.name} permission here: mode {self.mode.value}, epoch {self.epoch}, "
                f"reader {self.reader or 'none'}; {self.reason}"
            )

    def is_master(self) -> bool:
        """Return whether this broker holds the group's term as master now, lease included.

        It may serve nothing: an administrator can configure less than FULL. No other broker
        appends a message meanwhile.
        """
        return self._grants is not None and self.leased()

    # ---- the lease
    def leased(self) -> bool:
        """Return whether the lease holds now: ZooKeeper's, or the grants that count."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._lease_until_ms:
            return True
        return self._grants is not None and now_ms < self._grants()

    def leased_until_ms(self) -> int:
        """Return when the lease runs out as things stand (monotonic milliseconds)."""
        return max(self._lease_until_ms, self._grants() if self._grants is not None else 0)

    def zookeeper_leased(self) -> bool:
        """Return whether the part of the lease that comes from ZooKeeper holds now."""
        return self._clock.monotonic_ms() < self._lease_until_ms

    def extend_lease(self, until_ms: int) -> None:
        """Extend the lease to that monotonic moment; it never gets shorter."""
        self._lease_until_ms = max(self._lease_until_ms, until_ms)

    def end_lease(self) -> None:
        """End ZooKeeper's part of the lease; grants of slaves count as before."""
        self._lease_until_ms = 0

    def count_grants(self, until_ms: Callable[[], int] | None) -> None:
        """Count the grants of the slaves from now on (None: do not count them)."""
        self._grants = until_ms

    # ---- the grant
    def adopt(self, state: GroupState) -> None:
        """Publish the group state's mode, epoch and brokers; this alone grants nothing."""
        seen = (state.mode, state.epoch, state.master, state.reader)
        if seen != (self.mode, self.epoch, self.master, self.reader):
            self.mode, self.epoch, self.master, self.reader = seen
            self.changed.notify()

    def grant(self, permission: Permission, reason: str, remedy: Remedy = Remedy.NONE) -> None:
        """Set the permission, still bounded by the lease. An empty `reason` keeps the last one."""
        if reason:
            self.remedy = remedy
        reason = reason or self._reason
        if permission != self._permission or reason != self._reason:
            self._permission, self._reason = permission, reason
            self.changed.notify()

    def close(self, reason: str) -> None:
        """Serve nothing, and void all leases: another term needs new ones."""
        self._lease_until_ms, self._grants = 0, None
        self.grant(Permission.NONE, reason)
