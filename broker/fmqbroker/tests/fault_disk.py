"""A test disk: the real adapter, which records each step and injects faults on request.

From the steps, `image` makes the directory as a crash at any point may leave it: unsynced bytes all
lost, all kept, or the last write torn.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from fmqadapters.disk.files import FileDisk
from fmqport.disk import DiskFile, DiskLock, Write


class Step(NamedTuple):
    """One effect on the disk: create, write, sync, zero, replace, rename, remove."""

    kind: str
    name: str
    at: int = 0
    length: int = 0
    data: bytes = b""


class Loss(Enum):
    """The effect of a crash on bytes that were not synced."""

    ALL = "all bytes are lost"
    NONE = "all bytes are there"
    TORN = "the last write is cut in the middle"
    HOLE = "of the last write only the end is there"


class FaultDisk:
    """Ask `fault(step)` before each step; if it raises, the step is not done."""

    def __init__(self, path: Path) -> None:
        self._real = FileDisk(str(path))
        self.steps: list[Step] = []
        self.fault: Callable[[Step], None] = lambda step: None
        self.done: Callable[[], None] = lambda: None
        self.free: int | None = None

    def note(self, step: Step) -> None:
        """Record a step that is about to be done."""
        self.fault(step)
        self.done()
        self.steps.append(step)

    @property
    def path(self) -> str:
        return self._real.path

    async def lock(self, owner: str) -> DiskLock:
        return await self._real.lock(owner)

    async def list(self) -> list[tuple[str, int]]:
        return await self._real.list()

    async def create(self, name: str, size: int) -> DiskFile:
        self.note(Step("create", name, 0, size))
        return _FaultFile(await self._real.create(name, size), self)

    async def open(self, name: str) -> DiskFile:
        return _FaultFile(await self._real.open(name), self)

    async def read_file(self, name: str) -> bytes | None:
        return await self._real.read_file(name)

    async def replace_file(self, name: str, data: bytes) -> None:
        self.note(Step("replace", name, data=data))
        await self._real.replace_file(name, data)

    async def rename(self, file: DiskFile, name: str) -> None:
        assert isinstance(file, _FaultFile)
        self.note(Step("rename", file.name, data=name.encode()))
        await self._real.rename(file.real, name)

    async def remove(self, name: str) -> None:
        self.note(Step("remove", name))
        await self._real.remove(name)

    async def free_bytes(self) -> int:
        return await self._real.free_bytes() if self.free is None else self.free

    async def close(self) -> None:
        await self._real.close()


class _FaultFile:
    def __init__(self, real: DiskFile, disk: FaultDisk) -> None:
        self.real = real
        self._disk = disk

    @property
    def name(self) -> str:
        return self.real.name

    @property
    def size(self) -> int:
        return self.real.size

    async def write(self, writes: Sequence[Write], *, sync: bool) -> None:
        for at, pieces in writes:
            data = b"".join(bytes(piece) for piece in pieces)
            self._disk.note(Step("write", self.name, at, len(data), data))
            await self.real.write([(at, [data])], sync=False)
        if sync:
            self._disk.note(Step("sync", self.name))
            await self.real.write([], sync=True)

    async def read(self, at: int, length: int) -> bytes:
        return await self.real.read(at, length)

    async def zero(self, at: int, length: int) -> None:
        self._disk.note(Step("zero", self.name, at, length))
        await self.real.zero(at, length)

    async def close(self) -> None:
        await self.real.close()


def image(steps: Sequence[Step], loss: Loss, path: Path) -> None:
    """Make the directory at `path` as a crash after `steps` may leave it."""
    now: dict[str, bytearray] = {}
    durable: dict[str, bytearray] = {}
    unsynced: list[Step] = []
    for step in steps:
        _do(now, step)
        if step.kind == "write":
            unsynced.append(step)
            continue
        if step.kind == "sync":
            unsynced = [s for s in unsynced if s.name != step.name]
            durable[step.name] = bytearray(now[step.name])
        else:  # all others are durable once done
            _do(durable, step)
    if loss is Loss.NONE:
        durable = now
    elif unsynced and loss is not Loss.ALL:
        for step in unsynced[:-1]:
            _do(durable, step)
        last, half = unsynced[-1], unsynced[-1].length // 2
        part = (0, half) if loss is Loss.TORN else (half, last.length)
        _do(durable, last._replace(at=last.at + part[0], data=last.data[slice(*part)]))
    path.mkdir(parents=True)
    for name, data in durable.items():
        (path / name).write_bytes(data)


def _do(files: dict[str, bytearray], step: Step) -> None:
    match step.kind:
        case "create":
            files[step.name] = bytearray(step.length)
        case "write":
            data = files[step.name]
            data.extend(bytes(max(0, step.at + len(step.data) - len(data))))
            data[step.at : step.at + len(step.data)] = step.data
        case "zero":
            end = min(step.at + step.length, len(files[step.name]))
            files[step.name][step.at : end] = bytes(max(0, end - step.at))
        case "replace":
            files[step.name] = bytearray(step.data)
        case "rename":
            files[step.data.decode()] = files.pop(step.name)
        case "remove":
            files.pop(step.name, None)
