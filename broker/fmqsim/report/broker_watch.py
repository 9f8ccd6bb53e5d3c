"""Observe the simulated brokers: what they serve, and where their journals end.

A `WatchingProbe` makes a broker's gate, journal and commit frontier so that they also report. They
decide nothing.
"""

from collections.abc import Callable
from typing import Final

from fmqbroker.app.probe import BrokerProbe
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqcore.failover.evidence import Remedy
from fmqcore.ids import Epoch, Permission
from fmqcore.zk.group_state import GroupState
from fmqport.clock import Clock
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process

_A_BIT_S: Final = 1e-6
_RESUME_EVERY_BYTES: Final = 16 << 10
"""Resume files are written as often as everything else."""
_SHRINKS_S: Final = 0.05
"""Seconds until the next look: grants may end earlier when a slave comes in sync."""
OnServes = Callable[[Process, Permission, int], None]
Opened = Callable[[Process, Journal], None]


class Insight:
    """What is known about one broker's process."""

    def __init__(self) -> None:
        self.gate: Gate | None = None
        self.journal: Journal | None = None
        self.commit: CommitFrontier | None = None

    def ends(self) -> tuple[int, int, int, int] | None:
        """Return the journal's start, end, durable end and commit end; None while it starts."""
        journal, commit = self.journal, self.commit
        if journal is None or commit is None:
            return None
        starts, end, durable = journal.journal_start, journal.end, journal.durable_end
        return int(starts), int(end), int(durable), int(commit.commit_end)


class Watcher:
    """Observes all brokers of one simulation."""

    def __init__(self, loop: SimLoop, serves: OnServes, opened: Opened) -> None:
        self.loop = loop
        self.serves = serves
        self.opened = opened
        self._insights: dict[Process, Insight] = {}

    def of(self, process: Process) -> Insight:
        """Return the insight into one process."""
        insight = self._insights.get(process)
        if insight is None:
            insight = self._insights[process] = Insight()
        return insight


class WatchingProbe(BrokerProbe):
    """The probe of one simulated broker process."""

    def __init__(self, watcher: Watcher, process: Process) -> None:
        self._watcher = watcher
        self._process = process

    async def open_journal(
        self, disk: Disk, settings: BrokerSettings, clock: Clock, lifecycle: Lifecycle
    ) -> Journal:
        """See `BrokerProbe`; reports the opened journal."""
        journal = await Journal.open(
            disk, settings, clock, lifecycle, resume_every_bytes=_RESUME_EVERY_BYTES
        )
        self._watcher.of(self._process).journal = journal
        self._watcher.opened(self._process, journal)
        return journal

    def make_gate(self, clock: Clock) -> Gate:
        """See `BrokerProbe`."""
        gate = _WatchedGate(clock, self._watcher, self._process)
        self._watcher.of(self._process).gate = gate
        return gate

    def make_commit_frontier(self) -> CommitFrontier:
        """See `BrokerProbe`."""
        commit = self._watcher.of(self._process).commit = CommitFrontier()
        return commit


class _WatchedGate(Gate):
    """Reports every change of the permission when it happens, also the end of a lease."""

    def __init__(self, clock: Clock, watcher: Watcher, process: Process) -> None:
        self._watcher = watcher
        self._process = process
        self._reported: tuple[Permission, Epoch] = (Permission.NONE, Epoch(0))
        self._timed = False
        super().__init__(clock)

    def permission(self) -> Permission:
        permission = super().permission()
        if permission != self._reported[0]:
            self._look()
        return permission

    def extend_lease(self, until_ms: int) -> None:
        super().extend_lease(until_ms)
        self._look()

    def count_grants(self, until_ms: Callable[[], int] | None) -> None:
        super().count_grants(until_ms)
        self._look()

    def adopt(self, state: GroupState) -> None:
        super().adopt(state)
        self._look()

    def grant(self, permission: Permission, reason: str, remedy: Remedy = Remedy.NONE) -> None:
        super().grant(permission, reason, remedy)
        self._look()

    def close(self, reason: str) -> None:
        super().close(reason)
        self._look()

    def _look(self) -> None:
        watcher, process = self._watcher, self._process
        permission = super().permission()
        now = (permission, self.epoch if permission else self._reported[1])
        if now != self._reported:
            self._reported = now
            watcher.serves(process, permission, self.epoch)
        if permission and not self._timed:
            self._timed = True
            ends = process.node.in_world(self.leased_until_ms() / 1000)
            at = min(ends + _A_BIT_S, watcher.loop.now + _SHRINKS_S)
            watcher.loop.at_time(at, self._expired)

    def _expired(self) -> None:
        self._timed = False
        if self._process.alive:
            self._look()
