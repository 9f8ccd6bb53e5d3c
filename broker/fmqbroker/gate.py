"""The gate: may this broker serve reads, writes, at this moment? (DESIGN §6) Owner: failover.

Checked on every produce, pull and ack: the cached group state grants me the role *and* my lease
holds. Set by `failover.py` alone.
"""

from fmqbroker.signal import Signal
from fmqcore.cluster import Mode
from fmqcore.errors import NoPermission
from fmqcore.words import BrokerId, Epoch, Permission
from fmqport.clock import Clock


class Gate:
    """What I serve now. `changed` fires whenever it may have become less or more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.changed = Signal()
        self.mode = Mode.NEW
        self.epoch = Epoch(0)
        self.master = BrokerId("")
        self.reader = BrokerId("")
        self.why = "starting"  # a sentence for people: why it is as it is
        self._permission = Permission.NONE
        self._lease_until_ms = 0

    def permission(self) -> Permission:
        """What I may serve at this moment: the granted permission while the lease holds."""
        if self._clock.monotonic_ms() < self._lease_until_ms:
            return self._permission
        return Permission.NONE

    def require(self, needed: Permission) -> None:
        """Raise `NoPermission` (with epoch and reader) unless all of `needed` is held now."""
        if needed & ~self.permission():
            raise NoPermission(
                f"no {needed.name} permission here: mode {self.mode.value}, epoch {self.epoch}, "
                f"reader {self.reader or 'none'}; {self.why}"
            )

    def extend_lease(self, until_ms: int) -> None:
        """Serve until that monotonic moment; only ever later."""
        self._lease_until_ms = max(self._lease_until_ms, until_ms)

    def grant(self, permission: Permission, why: str) -> None:
        """Set what the group state grants me (the lease still bounds it)."""
        if permission != self._permission or why != self.why:
            self._permission, self.why = permission, why
            self.changed.notify()
