"""What other tasks see and do while the journal is cut, dropped or retired: at every wait of it."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from fmqbroker.tests.fault_disk import FaultDisk, Step
from fmqbroker.tests.journal_kit import Life, epoch, everything, fill, running, until
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT
from fmqcore.words import Position
from fmqport.disk import DiskFailed


class HeldDisk(FaultDisk):
    """Removals of segments wait while it is held; `looks` counts who asked for the free space."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = asyncio.Event()
        self.go.set()
        self.waits = self.looks = 0

    async def remove(self, name: str) -> None:
        if name.endswith(".journal"):
            self.waits += 1
            await self.go.wait()
            self.waits -= 1
        await super().remove(name)

    async def free_bytes(self) -> int:
        free = await super().free_bytes()
        self.looks += 1
        return free


@pytest.mark.parametrize("way", ["truncate", "reset"])
async def test_no_checkpoint_of_the_old_journal_is_written_while_it_is_cut(
    tmp_path: Path, way: str
) -> None:
    """D5: it would take back what says that a cut is under way, and a start would refuse."""
    disk = HeldDisk(tmp_path / "first")
    async with running(tmp_path / "first", disk=disk) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
        disk.go.clear()
        cut = journal.truncate(ends[20]) if way == "truncate" else journal.reset(Position(1 << 30))
        cutting = asyncio.ensure_future(cut)
        await until(lambda: disk.waits > 0)
        looks = disk.looks
        journal.note_commit_end(Position(ends[10]))
        await until(lambda: disk.looks > looks)
        await disk.list()  # behind what was written meanwhile
        says = decode_checkpoint((tmp_path / "first" / CHECKPOINT).read_bytes())
        disk.go.set()
        await cutting
        stored = await everything(journal)
    assert says.drop_from == (ends[20] if way == "truncate" else 0)
    async with running(tmp_path / "first") as journal:
        assert await everything(journal) == stored


@pytest.mark.parametrize("way", ["truncate", "reset", "retire"])
async def test_a_disk_that_fails_ends_the_process_though_who_asked_is_cancelled(
    tmp_path: Path, way: str
) -> None:
    """D3: else the journal goes on half cut, and its last checkpoint calls that clean."""
    disk, life = HeldDisk(tmp_path), Life()

    def fails(step: Step) -> None:
        if step.kind == "remove" and step.name.endswith(".journal"):
            raise DiskFailed("EIO")

    async with running(
        tmp_path, disk=disk, life=life, crash=True, retention_ms=1, retention_bytes=0
    ) as journal:
        journal.append(epoch(1))
        ends = fill(journal, 200)
        await journal.wait_durable(journal.end)
        disk.fault = fails
        disk.go.clear()
        ways: dict[str, Callable[[], Coroutine[None, None, object]]] = {
            "truncate": lambda: journal.truncate(ends[20]),
            "reset": lambda: journal.reset(Position(1 << 30)),
            "retire": lambda: journal.retire(journal.end, 10**15),
        }
        work = asyncio.ensure_future(ways[way]())
        await until(lambda: disk.waits > 0)
        work.cancel()
        await asyncio.sleep(0)
        disk.go.set()
        await asyncio.wait((work,))
        assert life.reasons
