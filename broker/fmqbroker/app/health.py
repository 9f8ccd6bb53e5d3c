"""Broker health: the answers to probes, from the start of the process on.

| probe | answered yes |
|---|---|
| started | at once: a recovery may take its time |
| alive | whenever the event loop turns: that is what answering proves |
| ready | registered in ZooKeeper, in its role, and a flushed write to its disk has just returned |

In its role: the broker serves what it was granted (with WRITE it takes messages, see
`produce/intake.py`); or it follows a master, or waits its turn behind the slave that serves the
reads. For the probe of reads only (`/readyz?serves=reads`), a broker that refuses messages is ready
too: a probe that decides about connections must not take the reads away. The write goes through
the journal's thread, behind pending writes: so the probe finds a disk that hangs or fails before a
client does. Probes only decide where the prober sends new connections; leases alone decide which
broker serves.

On disk: `probe`, one page, from the first readiness probe on.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from fmqbroker.admin.snapshot import BrokerSnapshot, TopicsSnapshot
from fmqcore.ids import Permission
from fmqcore.zk.group_state import Mode
from fmqport.clock import Clock
from fmqport.disk import Disk, DiskFailed, DiskFile, DiskFull

NAME: Final = "probe"
_PAGE_BYTES: Final = 4096
_PROBE_TIMEOUT_S: Final = 2.0


class Answer(NamedTuple):
    """The answer to a probe; `reason` is a sentence for people."""

    well: bool
    reason: str


class Snapshots(Protocol):
    """Where the snapshots of a broker come from (`admin/snapshot_source.py`)."""

    def take(self) -> BrokerSnapshot:
        """Return the broker as it is now."""
        ...

    async def topics(self) -> TopicsSnapshot:
        """Return its topics, summed over their queues."""
        ...


class Health:
    """The health of one broker. `stage` is what keeps it from being ready, "" once it runs."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self.stage = "recovering the journal"
        self.snapshots: Snapshots | None = None  # once the broker has joined its group
        self.probe_ms = -1  # how long the last flushed write took
        self._disk = disk
        self._clock = clock
        self._file: DiskFile | None = None
        self._probing = asyncio.Lock()

    def started(self) -> Answer:
        """Return that the process has started: it answers."""
        return Answer(True, self.stage or "running")

    def alive(self) -> Answer:
        """Return yes: the event loop turns."""
        return Answer(True, "the event loop turns")

    async def ready(self, *, reads_suffice: bool = False) -> Answer:
        """Return whether the broker is ready; with `reads_suffice` it may refuse messages."""
        if self.stage or self.snapshots is None:
            return Answer(False, self.stage)
        in_role = role_of(self.snapshots.take(), reads_suffice=reads_suffice)
        if not in_role.well:
            return in_role
        disk = await self._flushed()
        return disk if not disk.well else Answer(True, f"{in_role.reason}; {disk.reason}")

    async def _flushed(self) -> Answer:
        """Write one page and fsync it, behind pending journal writes."""
        started_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S), self._probing:
                file = await self._opened()
                await file.write([(0, [bytes(_PAGE_BYTES)])], sync=True)
        except DiskFull as error:
            return Answer(True, f"the disk is full: {error}")
        except DiskFailed as error:
            return Answer(False, f"the disk fails: {error}")
        except TimeoutError:
            waited_ms = self._clock.monotonic_ms() - started_ms
            return Answer(False, f"a flushed write has no answer for {waited_ms} ms")
        finally:
            self.probe_ms = self._clock.monotonic_ms() - started_ms
        return Answer(True, f"a flushed write took {self.probe_ms} ms")

    async def _opened(self) -> DiskFile:
        if self._file is None:
            try:
                self._file = await self._disk.open(NAME)
            except FileNotFoundError:
                self._file = await self._disk.create(NAME, _PAGE_BYTES)
        return self._file


def role_of(broker: BrokerSnapshot, *, reads_suffice: bool = False) -> Answer:
    """Return whether the broker does what the group's state gives it to do."""
    me, state, granted, master = broker.broker, broker.state, broker.granted, broker.master
    if not broker.registered and not granted:
        return Answer(False, "not registered in ZooKeeper")
    if granted:
        does = f"{state.mode.value}: serves {broker.serves.name}"
        if broker.refusal is None or not granted & Permission.WRITE:
            return Answer(True, does)
        well = reads_suffice and bool(broker.serves & Permission.READ)
        return Answer(well, f"{does}; it takes no messages: {broker.refusal.reason}")
    member, reason = broker.config.member(me), broker.grant_reason
    if member is not None and not member.permission:
        return Answer(True, "may serve nothing: its configured permission is NONE")
    if me == master and state.mode is not Mode.SLAVE_CONSUME:
        return Answer(False, f"master, serves nothing: {reason}")
    if me == master:
        return Answer(False, f"{state.reader} serves the reads; this master catches up: {reason}")
    if state.mode is Mode.MASTER and not broker.upstream_connected:
        return Answer(False, f"slave, not linked to its master {master}")
    return Answer(True, f"slave, {state.mode.value}")
