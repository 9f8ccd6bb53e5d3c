"""A disk's content after a power cut: the real adapter on ext4, cut off by its shutdown call.

`fmqsim/tests` runs the same with the simulated kernel. The real one needs root and a loop device.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Protocol

import pytest

from e2e.chaos.disks import Disk as Image
from fmqadapters.disk.files import FileDisk
from fmqcore.errors import FmqError
from fmqport.disk import Disk

SECTOR = 512


class Machine(Protocol):
    """A machine with one disk."""

    async def disk(self) -> Disk:
        """The port in a freshly started process; locked."""
        ...

    async def cut_power(self) -> None:
        """End all processes and drop the page cache."""
        ...


class RealMachine:
    """A machine with its own ext4 file system."""

    def __init__(self, folder: Path) -> None:
        self._image = Image(folder / "image", folder / "mounted")
        self._image.make()
        self._open: FileDisk | None = None

    async def disk(self) -> Disk:
        self._open = FileDisk(str(self._image.folder / "data"))
        await self._open.lock("me")
        return self._open

    async def cut_power(self) -> None:
        self._image.lose_power()
        await self._leave()
        self._image.unmount()
        self._image.mount()

    async def _leave(self) -> None:
        if self._open is not None:
            with contextlib.suppress(OSError):  # the lock's file cannot be written any more
                await self._open.close()
            self._open = None

    async def close(self) -> None:
        await self._leave()
        self._image.unmount()
        self._image.image.unlink()


def _impossible() -> str:
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        return "needs root and a loop device"
    return "" if shutil.which("mkfs.ext4") else "needs mkfs.ext4"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    if reason := _impossible():
        pytest.skip(reason)
    try:
        made = RealMachine(tmp_path)
    except FmqError as error:
        pytest.skip(f"no file system on a loop device here: {error}")
    yield made
    await made.close()


async def under_way(work: Awaitable[object]) -> "asyncio.Future[object]":
    """Start the work, and leave it at an unknown point."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    return task


async def over(task: "asyncio.Future[object]") -> None:
    """Ignore the end of the work; that of a dead process never comes."""
    if not task.done():
        task.cancel()
    await asyncio.wait([task], timeout=1)
    with contextlib.suppress(BaseException):
        task.exception()


async def test_synced_bytes_survive_power_cut(machine: Machine) -> None:
    disk = await machine.disk()
    file = await disk.create("a", 100_000)
    await file.write([(0, [b"one"]), (50_000, [b"two"])], sync=True)
    await file.write([(200_000, [b"grown"])], sync=True)
    await machine.cut_power()
    disk = await machine.disk()
    assert await disk.list() == [("a", 200_005)]
    data = await (await disk.open("a")).read(0, 300_000)
    assert (data[:3], data[50_000:50_003], data[200_000:]) == (b"one", b"two", b"grown")
    assert data.count(0) == 200_005 - 11


async def test_a_later_sync_covers_earlier_writes(machine: Machine) -> None:
    disk = await machine.disk()
    file = await disk.create("a", 100_000)
    for at in range(0, 100_000, 10_000):
        await file.write([(at, [b"x" * 5000])], sync=False)
    await file.write([], sync=True)
    await machine.cut_power()
    data = await (await (await machine.disk()).open("a")).read(0, 100_000)
    assert data == (b"x" * 5000 + bytes(5000)) * 10


async def test_unsynced_sectors_are_old_or_new_after_power_cut(machine: Machine) -> None:
    disk = await machine.disk()
    file = await disk.create("a", 64 * SECTOR)
    await file.write([(0, [b"o" * 64 * SECTOR])], sync=True)
    await file.write([(100, [b"n" * 30_000])], sync=False)
    new = await file.read(0, 64 * SECTOR)
    await machine.cut_power()
    data = await (await (await machine.disk()).open("a")).read(0, 64 * SECTOR)
    for at in range(0, 64 * SECTOR, SECTOR):
        assert data[at : at + SECTOR] in (b"o" * SECTOR, new[at : at + SECTOR])


async def test_a_replaced_file_holds_the_last_content(machine: Machine) -> None:
    disk = await machine.disk()
    for number in range(5):
        await disk.replace_file("a", b"%d" % number * 3000)
    await machine.cut_power()
    assert await (await machine.disk()).read_file("a") == b"4" * 3000


async def test_a_file_being_replaced_holds_the_old_or_the_new_content(machine: Machine) -> None:
    disk = await machine.disk()
    old, new = b"old" * 3000, b"newer" * 5000
    await disk.replace_file("a", old)
    work = await under_way(disk.replace_file("a", new))
    await machine.cut_power()
    await over(work)
    disk = await machine.disk()
    assert await disk.read_file("a") in (old, new)
    assert [name for name, _ in await disk.list()] == ["a"]


async def test_a_file_being_made_is_whole_or_not_there(machine: Machine) -> None:
    disk = await machine.disk()
    work = await under_way(disk.create("a", 100_000))
    await machine.cut_power()
    await over(work)
    assert await (await machine.disk()).list() in ([], [("a", 100_000)])


async def test_a_made_file_is_there_with_all_its_zeros(machine: Machine) -> None:
    disk = await machine.disk()
    await disk.create("a", 100_000)
    await machine.cut_power()
    file = await (await machine.disk()).open("a")
    assert await file.read(0, 200_000) == bytes(100_000)


async def test_a_new_name_stays(machine: Machine) -> None:
    disk = await machine.disk()
    file = await disk.create("a", 8)
    await file.write([(0, [b"synced"])], sync=True)
    await disk.rename(file, "b")
    await machine.cut_power()
    disk = await machine.disk()
    assert await disk.list() == [("b", 8)]
    assert await disk.read_file("b") == b"synced\0\0"


async def test_a_removed_file_stays_away(machine: Machine) -> None:
    disk = await machine.disk()
    for name in ("a", "b"):
        await disk.create(name, 8)
    await disk.remove("a")
    await machine.cut_power()
    assert await (await machine.disk()).list() == [("b", 8)]


async def test_zeros_are_durable(machine: Machine) -> None:
    disk = await machine.disk()
    file = await disk.create("a", 20_000)
    await file.write([(0, [b"x" * 20_000])], sync=True)
    await file.zero(5000, 10_000)
    await machine.cut_power()
    data = await (await (await machine.disk()).open("a")).read(0, 30_000)
    assert data == b"x" * 5000 + bytes(10_000) + b"x" * 5000


async def test_the_directory_is_free_again(machine: Machine) -> None:
    await machine.disk()
    await machine.cut_power()
    assert await (await machine.disk()).list() == []
