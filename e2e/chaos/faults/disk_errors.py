"""A disk that fails or is full: EIO from fdatasync by strace, ENOSPC by filling it."""

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import Ending, FaultKind
from fmqcore.ids import Permission

_FATAL: Final = 70
_QUIET_S: Final = 1.5


class _SyncFails(Fault):
    kind = FaultKind.DISK_ERROR
    needs = ("strace",)

    def __init__(self) -> None:
        super().__init__()
        self._strace: subprocess.Popen[bytes] | None = None

    async def _fail(self, stage: Stage, broker: str) -> str:
        self.ended.add(broker)
        stage.fired("fdatasync fails with EIO")
        trace = stage.directory / f"{self.name}.strace"
        calls = "fsync,fdatasync"
        command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}"]
        command += ["-e", f"inject={calls}:error=EIO", "-p", str(stage.cluster.pid(broker))]
        self._strace = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if not await stage.has_ended(broker):
            raise NotFired(
                f"{broker} still runs after its fsyncs failed; its last call: {_last_line(trace)}"
            )
        if "INJECTED" not in await asyncio.to_thread(trace.read_text):
            raise NotFired(f"{broker} ended, but strace injected no error into its calls")
        status = stage.cluster.exit_status(broker)
        if status != _FATAL:
            stage.wrong(f"{broker} ended with status {status} when its disk failed, not {_FATAL}")
        stage.down(broker, Ending.FATAL)
        return f"fdatasync failed with EIO on {broker}: it ended itself"

    async def heal(self, stage: Stage) -> None:
        """Stop the injection and start the broker: another disk controller, the same data."""
        if self._strace is not None:
            self._strace.terminate()
            await asyncio.to_thread(self._strace.wait)
        for broker in sorted(self.ended):
            stage.cluster.start_part(broker)


def _last_line(path: Path) -> str:
    lines = path.read_text().splitlines() if path.exists() else []
    return lines[-1] if lines else "none"


class SyncFailsOnMaster(_SyncFails):
    """The master must end itself and never acknowledge what it tried to sync."""

    name = "fsync-eio-master"
    what = "fdatasync of a master fails with EIO"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        detail = await self._fail(stage, master)
        await stage.taken_over(group)
        return detail


class SyncFailsOnSlave(_SyncFails):
    """The slave must end itself and never acknowledge to its master what it tried to sync."""

    name = "fsync-eio-slave"
    what = "fdatasync of a slave fails with EIO"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        return await self._fail(stage, slave)


class _DiskFull(Fault):
    kind = FaultKind.DISK_FULL
    needs = ("disks",)

    def __init__(self) -> None:
        super().__init__()
        self._full = ""

    async def heal(self, stage: Stage) -> None:
        """Free the disk again."""
        if self._full:
            stage.cluster.disks[self._full].empty()


class DiskFullOnMaster(_DiskFull):
    """The master refuses writes by itself and serves reads until there is space again."""

    def __init__(self) -> None:
        super().__init__()
        self._stored, self._since_s = -1, 0.0

    def _refused(self, stage: Stage, group: str) -> bool:
        """Whether nothing new has been stored in the group for a while."""
        stored, now_s = stage.flow.stored(group), time.monotonic()
        if stored != self._stored:
            self._stored, self._since_s = stored, now_s
        return now_s - self._since_s > _QUIET_S

    name = "disk-full-master"
    what = "a master's disk is full: it refuses writes and serves reads"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        self._full = master
        taken = await asyncio.to_thread(stage.cluster.disks[master].fill)
        await stage.until(lambda: self._refused(stage, group), f"{master} refuses writes")
        if not stage.serves(master, Permission.READ):
            stage.wrong(f"{master} serves no reads while its disk is full")
        return f"filled the disk of {master} with {taken >> 20} MiB: no more writes there"


class DiskFullOnSlave(_DiskFull):
    """The slave stops following, and follows again when there is space."""

    name = "disk-full-slave"
    what = "a slave's disk is full: it leaves the in-sync set"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, slave = await stage.some_slave()
        self._full = slave
        taken = await asyncio.to_thread(stage.cluster.disks[slave].fill)
        await stage.until_state(group, lambda s: slave not in s.isr, f"{slave} is out of sync")
        return f"filled the disk of {slave} with {taken >> 20} MiB: it left the in-sync set"
