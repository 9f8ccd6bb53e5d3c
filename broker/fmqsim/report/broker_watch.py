"""Observe the simulated brokers: what they serve, and where their journals end.

Inside `watching`, a broker's classes for its gate, its journal and its commit frontier are replaced
by subclasses that also report. They decide nothing, and cost nothing outside.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fmqbroker.app import broker as broker_module
from fmqbroker.journal import resume_file as resumes
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqcore.ids import Epoch, Permission
from fmqcore.zk.group_state import GroupState
from fmqport.clock import Clock
from fmqport.disk import Disk
from fmqport.lifecycle import Lifecycle
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Process, current

_A_BIT_S: Final = 1e-6
_EVERY_BYTES: Final = 16 << 10
_SHRINKS_S: Final = 0.05
"""Seconds until the next look: grants may end earlier when a slave comes in sync."""
Told = Callable[[Process, Permission, int], None]
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
        starts, end, durable = journal.log_start, journal.end, journal.durable_end
        return int(starts), int(end), int(durable), int(commit.commit_end)


class Watcher:
    """Observes all brokers of one simulation."""

    def __init__(self, loop: SimLoop, serves: Told, opened: Opened) -> None:
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


_watcher: list[Watcher] = []


def _here() -> tuple[Watcher, Process] | None:
    process = current.get()
    return (_watcher[-1], process) if _watcher and process is not None else None


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let brokers created inside report to `watcher`.

    Their resume files are written as often as everything else.
    """
    names = {"Gate": _Gate, "Journal": _Journal, "CommitFrontier": _Frontier}
    before = {name: getattr(broker_module, name) for name in names}
    for name, kind in names.items():
        setattr(broker_module, name, kind)
    _watcher.append(watcher)
    every_bytes, resumes.EVERY_BYTES = resumes.EVERY_BYTES, _EVERY_BYTES
    try:
        yield
    finally:
        resumes.EVERY_BYTES = every_bytes
        _watcher.pop()
        for name, kind in before.items():
            setattr(broker_module, name, kind)


class _Journal(Journal):
    @classmethod
    async def open(
        cls, disk: Disk, settings: BrokerSettings, clock: Clock, lifecycle: Lifecycle
    ) -> "Journal":
        journal = await super().open(disk, settings, clock, lifecycle)
        here = _here()
        if here is not None:
            watcher, process = here
            watcher.of(process).journal = journal
            watcher.opened(process, journal)
        return journal


class _Frontier(CommitFrontier):
    def __init__(self) -> None:
        super().__init__()
        here = _here()
        if here is not None:
            here[0].of(here[1]).commit = self


class _Gate(Gate):
    """Reports every change of the permission when it happens, also the end of a lease."""

    def __init__(self, clock: Clock) -> None:
        self._here = _here()
        self._told: tuple[Permission, Epoch] = (Permission.NONE, Epoch(0))
        self._timed = False
        super().__init__(clock)
        if self._here is not None:
            self._here[0].of(self._here[1]).gate = self

    def permission(self) -> Permission:
        permission = super().permission()
        if permission != self._told[0]:
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

    def grant(self, permission: Permission, why: str) -> None:
        super().grant(permission, why)
        self._look()

    def close(self, why: str) -> None:
        super().close(why)
        self._look()

    def _look(self) -> None:
        if self._here is None:
            return
        watcher, process = self._here
        permission = super().permission()
        now = (permission, self.epoch if permission else self._told[1])
        if now != self._told:
            self._told = now
            watcher.serves(process, permission, self.epoch)
        if permission and not self._timed:
            self._timed = True
            ends = process.node.in_world(self.leased_until_ms() / 1000)
            at = min(ends + _A_BIT_S, watcher.loop.now + _SHRINKS_S)
            watcher.loop.at_time(at, self._expired)

    def _expired(self) -> None:
        self._timed = False
        if self._here is not None and self._here[1].alive:
            self._look()
