"""Data damaged while a broker is down: flipped bits, truncated files, an empty disk.

A broker may not silently truncate data below its durable end: it fetches the data again, or refuses
to start and reports where the damage is. A person then follows the message: empty the disk.
"""

import shutil
from pathlib import Path
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.stage import Stage
from e2e.chaos.watch import now_ms
from e2e.history.cluster_events import Ending, FaultKind, Refusal
from fmqcore.ids import BrokerId
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_base
from fmqdev.broker_process import tail

_DATA_ERROR: Final = 65
_STARTED: Final = b"event=listening "  # its journal was read by then
_ENOUGH: Final = 100_000


class _Damage(Fault):
    kind = FaultKind.DISK_DAMAGE

    def __init__(self) -> None:
        super().__init__()
        self._victim = ""
        self._refused = False

    def damage(self, stage: Stage, data: Path) -> str:
        """Do the damage; return a description."""
        raise NotImplementedError

    async def _restart_damaged(self, stage: Stage, broker: str) -> str:
        """Damage and start the broker: it must refuse, or be whole again by itself."""
        self._victim = broker
        self.ended.add(broker)
        data = stage.cluster.brokers[BrokerId(broker)].data
        await stage.until(lambda: _durable(data) > _ENOUGH, f"{broker} has something to damage")
        stage.kill(broker)
        await stage.has_ended(broker)
        detail = self.damage(stage, data)
        stage.fired(detail)
        log = stage.cluster.brokers[BrokerId(broker)].log
        starts = log.read_bytes().count(_STARTED)
        stage.cluster.start_part(broker)
        self._refused = await refuses(stage, broker, log, starts)
        if not self._refused:
            return f"{detail}; it started"
        status = stage.cluster.exit_status(broker)
        if status != _DATA_ERROR:
            stage.wrong(f"{broker} ended with status {status}, not {_DATA_ERROR}: {tail(log, 2)}")
        stage.history.add(Refusal(now_ms(), broker, tail(log, 1)))
        return f"{detail}; it refused to start and named the place"

    async def heal(self, stage: Stage) -> None:
        """Empty the disk if the broker refused, as its message says, and start it."""
        if self._refused:
            empty(stage.cluster.brokers[BrokerId(self._victim)].data)
        if self._victim:
            stage.cluster.start_part(self._victim)


async def refuses(stage: Stage, broker: str, log: Path, starts: int) -> bool:
    """Wait until the process ends, or `log` has more than `starts` starts; whether it ended.

    A busy machine may take long for either, so there is no fixed time. Raises `Stuck`.
    """

    def ended_or_started() -> bool:
        return not stage.cluster.alive(broker) or log.read_bytes().count(_STARTED) > starts

    await stage.until(ended_or_started, f"{broker} starts or refuses to")
    return not stage.cluster.alive(broker)


def durable_segment(data: Path) -> tuple[Path, int]:
    """Return the newest segment file, and its number of durable bytes by the checkpoint."""
    checkpoint = decode_checkpoint((data / CHECKPOINT).read_bytes())
    bases = [(base, p) for p in data.iterdir() if (base := segment_base(p.name)) is not None]
    base, path = max((base, p) for base, p in bases if base < checkpoint.durable_end)
    length = path.stat().st_size
    return path, min(length, checkpoint.durable_end - base)


def _durable(data: Path) -> int:
    return decode_checkpoint((data / CHECKPOINT).read_bytes()).durable_end


def empty(data: Path) -> None:
    """Delete everything on the disk."""
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


class BitFlipOnSlave(_Damage):
    """One bit flips in the middle of the durable part."""

    name = "bit-flip-slave"
    what = "a bit of a slave's journal flips while it is down"

    def damage(self, stage: Stage, data: Path) -> str:
        """See `_Damage`."""
        path, length = durable_segment(data)
        at = stage.random.randrange(length // 4, length // 2)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << stage.random.randrange(8)]))
        return f"flipped a bit at {at:,} of {self._victim}'s {path.name}"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        return await self._restart_damaged(stage, slave)


class BitFlipOnMaster(BitFlipOnSlave):
    """The same on a master, whose slave has taken the reads over meanwhile."""

    name = "bit-flip-master"
    what = "a bit of a master's journal flips while it is down"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, master = await stage.some_master()
        return await self._restart_damaged(stage, master)


class TruncatedOnSlave(_Damage):
    """A file ends in the middle of the durable part."""

    name = "truncated-slave"
    what = "the newest file of a slave's journal is cut in half while it is down"

    def damage(self, stage: Stage, data: Path) -> str:
        """See `_Damage`."""
        path, length = durable_segment(data)
        with path.open("r+b") as file:
            file.truncate(length // 2)
        return f"cut {self._victim}'s {path.name} to {length // 2:,} bytes"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        return await self._restart_damaged(stage, slave)


class _EmptyDisk(Fault):
    kind = FaultKind.DISK_EMPTY

    def __init__(self) -> None:
        super().__init__()
        self._victim = ""

    async def _replace(self, stage: Stage, broker: str) -> str:
        self._victim = broker
        self.ended.add(broker)
        stage.fired("an empty disk")
        stage.kill(broker, Ending.POWER)
        if not await stage.has_ended(broker):
            raise NotFired(f"{broker} still runs after SIGKILL")
        empty(stage.cluster.brokers[BrokerId(broker)].data)
        return f"{broker} has an empty disk"

    async def heal(self, stage: Stage) -> None:
        """Start the broker with an empty disk."""
        if self._victim:
            stage.cluster.start_part(self._victim)


class EmptyDiskOnSlave(_EmptyDisk):
    """The slave copies everything from its master under traffic."""

    name = "empty-disk-slave"
    what = "a slave comes back under its old name with an empty disk"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        _, slave = await stage.some_slave()
        return await self._replace(stage, slave)


class EmptyDiskOnMaster(_EmptyDisk):
    """Everything that the master acknowledged is on its slave, and is copied back from there."""

    name = "empty-disk-master"
    what = "a master comes back under its old name with an empty disk"

    async def inject(self, stage: Stage) -> str:
        """See `Fault`."""
        group, master = await stage.some_master()
        detail = await self._replace(stage, master)
        slave = await stage.taken_over(group)
        return f"{detail}; {slave} took the reads over"
