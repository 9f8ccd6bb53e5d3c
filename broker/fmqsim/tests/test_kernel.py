"""The disk content that a simulated process leaves when it dies in the middle of work."""

import asyncio
import os

import pytest

from fmqadapters.disk.files import FileDisk
from fmqport.disk import DiskFailed
from fmqsim.adapters.disk import SimCalls, Storage
from fmqsim.engine.filesystem import PAGE, SECTOR
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Node, Process

SEEDS = range(60)


class Machine:
    """A node with a storage and a file that is wholly on the disk."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.random.seed(seed)
        self.loop = loop
        self.node = Node(loop, "machine")
        self.storage = Storage(loop, "/sim/data")

    def start(self) -> FileDisk:
        async def main(process: Process) -> None:
            await self.loop.create_future()

        return self.storage.disk(self.node.start(main))

    def data(self, name: str) -> str:
        """Return the first byte of each sector."""
        return bytes(self.storage.files.find(name).data[::SECTOR]).decode()

    def over(self) -> None:
        for process in self.loop.graveyard:
            process.alive = True  # the runner wants to cancel what never ended


async def test_killed_process_frees_its_lock_and_keeps_cached_bytes() -> None:
    machine = Machine(0)
    disk = machine.start()
    await disk.lock("one")
    file = await disk.create("a", 8)
    await file.write([(0, [b"unsynced"])], sync=False)
    machine.node.crash("kill -9")
    again = machine.start()
    await again.lock("two")
    assert await again.read_file("a") == b"unsynced"
    machine.over()


async def test_current_write_is_partly_done_and_waiting_ones_are_not() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        machine = Machine(seed)
        disk = machine.start()
        file = await disk.create("a", 2 * PAGE)
        await file.write([(0, [b"o" * 2 * PAGE])], sync=True)
        works = [
            asyncio.ensure_future(file.write([(0, [letter * 2 * PAGE])], sync=True))
            for letter in (b"n", b"w")
        ]
        await asyncio.sleep(0)
        machine.node.crash("kill -9")
        seen.add(machine.data("a"))
        for work in works:
            work.cancel()
        machine.over()
    whole = 2 * PAGE // SECTOR
    assert "w" not in "".join(seen), "it had not started"
    assert "n" * whole in seen, "everything"
    assert {text for text in seen if "o" in text and "n" in text}, "a part"


async def test_bytes_written_at_death_may_or_may_not_be_synced() -> None:
    """A created name may be gone, though its bytes were synced."""
    seen: set[tuple[bytes | None, ...]] = set()
    for seed in SEEDS:
        machine = Machine(seed)
        disk = machine.start()
        await disk.replace_file("a", b"old")
        work = asyncio.ensure_future(disk.replace_file("a", b"new"))
        await asyncio.sleep(0)
        machine.node.crash("power")
        files = machine.storage.files
        before = bytes(files.find("a").data)
        machine.storage.cut_power()
        seen.add((before, bytes(files.find("a").data)))
        work.cancel()
        machine.over()
    assert seen == {(b"old", b"old"), (b"new", b"old"), (b"new", b"new")}


def test_syncing_a_file_does_not_make_its_name_durable() -> None:
    seen: set[int] = set()
    for seed in SEEDS:
        storage = Storage(SimLoop(seed), "/sim/data")
        calls = SimCalls(storage.files, None)
        calls.fsync(calls.open("a", os.O_RDWR | os.O_CREAT))
        storage.cut_power()
        seen.add(len(storage.files.names))
    assert seen == {0, 1}


async def test_failed_sync_reports_once_and_loses_its_bytes() -> None:
    machine = Machine(0)
    calls = SimCalls(machine.storage.files, None)
    fd = calls.open("a", os.O_RDWR | os.O_CREAT)
    calls.pwritev(fd, [b"old"], 0)
    calls.fsync(fd)
    machine.storage.files.sync_names()
    calls.pwritev(fd, [b"new"], 0)
    machine.storage.files.failing_syncs = 1
    with pytest.raises(OSError, match="input/output"):
        calls.fdatasync(fd)
    calls.fdatasync(fd)
    assert calls.pread(fd, 3, 0) == b"new"
    machine.storage.cut_power()
    assert bytes(machine.storage.files.find("a").data) == b"old"


async def test_death_after_a_failed_sync_may_leave_the_old_bytes() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        machine = Machine(seed)
        file = await machine.start().create("a", SECTOR)
        await file.write([(0, [b"o"])], sync=True)
        machine.storage.files.failing_syncs = 1
        with pytest.raises(DiskFailed):
            await file.write([(0, [b"n"])], sync=True)
        machine.node.crash("fatal")
        seen.add(machine.data("a"))
        machine.over()
    assert seen == {"o", "n"}


async def test_room_is_freed_when_the_last_handle_closes() -> None:
    machine = Machine(0)
    disk = machine.storage.disk()
    free = await disk.free_bytes()
    file = await disk.create("a", PAGE)
    await disk.remove("a")
    assert await disk.free_bytes() == free - PAGE
    await file.close()
    assert await disk.free_bytes() == free
    unawaited = asyncio.ensure_future(disk.create("b", PAGE))
    await asyncio.sleep(0)
    unawaited.cancel()
    await disk.list()
    await disk.remove("b")
    assert await disk.free_bytes() == free
    await disk.close()


def test_a_file_is_opened_empty_if_that_is_asked_for() -> None:
    calls = SimCalls(Storage(SimLoop(), "/sim/data").files, None)
    for content in (b"longer", b"new"):
        fd = calls.open("a", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        calls.pwritev(fd, [content], 0)
    assert calls.pread(fd, 10, 0) == b"new"


async def test_failed_disk_is_not_asked_again() -> None:
    machine = Machine(0)
    disk = machine.storage.disk()
    file = await disk.create("a", 8)
    machine.storage.files.failing_syncs = 1
    for _ in range(2):
        with pytest.raises(DiskFailed, match="input/output"):
            await file.write([(0, [b"x"])], sync=True)
    await disk.close()
