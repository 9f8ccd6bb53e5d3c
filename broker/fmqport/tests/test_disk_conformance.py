"""Requirements on every disk adapter. `fmqsim/tests` runs them with the simulated one."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqcore.errors import DirectoryLocked, InvalidArgument, StorageFull
from fmqport.disk import Disk, DiskFailed

MakeDisk = Callable[[], Disk]


@pytest.fixture
def maker(tmp_path: Path) -> MakeDisk:
    """Make disks over one directory: they see the same files."""
    return lambda: FileDisk(str(tmp_path / "deep" / "data"))


@pytest.fixture
async def make(maker: MakeDisk) -> AsyncIterator[MakeDisk]:
    disks: list[Disk] = []

    def new() -> Disk:
        disks.append(maker())
        return disks[-1]

    yield new
    for disk in disks:
        await disk.close()


@pytest.fixture
async def disk(make: MakeDisk) -> Disk:
    disk = make()
    await disk.lock("me")
    return disk


async def test_a_new_directory_is_empty_and_has_room(disk: Disk) -> None:
    assert await disk.list() == []
    assert await disk.free_bytes() > 0
    assert disk.path.endswith("data")


async def test_a_created_file_reads_as_zeros(disk: Disk) -> None:
    file = await disk.create("b", 10_000)
    assert (file.name, file.size) == ("b", 10_000)
    assert await file.read(0, 20_000) == bytes(10_000)
    await disk.create("a", 0)
    assert await disk.list() == [("a", 0), ("b", 10_000)]


async def test_create_never_takes_an_existing_file(disk: Disk) -> None:
    file = await disk.create("a", 8)
    await file.write([(0, [b"precious"])], sync=True)
    with pytest.raises(FileExistsError):
        await disk.create("a", 8)
    assert await file.read(0, 8) == b"precious"


async def test_pieces_land_one_after_the_other(disk: Disk) -> None:
    file = await disk.create("a", 64)
    await file.write(
        [(8, [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]]), (32, [b"", b"zz"])], sync=True
    )
    assert await file.read(8, 6) == b"abcdef"
    assert await file.read(32, 3) == b"zz\0"
    assert file.size == 64


async def test_more_pieces_than_one_system_call_takes(disk: Disk) -> None:
    pieces = [b"%05d" % number for number in range(5000)]
    file = await disk.create("a", 0)
    await file.write([(3, pieces)], sync=False)
    assert file.size == 3 + 25_000
    assert await file.read(3, 30_000) == b"".join(pieces)


async def test_a_large_write_is_whole(disk: Disk) -> None:
    data = bytes(range(256)) * 40_000
    file = await disk.create("a", 1000)
    await file.write([(500, [data, data])], sync=True)
    assert await file.read(500, 3 * len(data)) == data + data


async def test_writes_of_one_file_keep_the_order_of_the_calls(disk: Disk) -> None:
    file = await disk.create("a", 8)
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(file.write([(0, [b"%08d" % number])], sync=number % 50 == 0))
    assert await file.read(0, 8) == b"00000199"


async def test_a_cancelled_write_is_still_done_in_its_place(disk: Disk) -> None:
    file = await disk.create("a", 8)
    first = asyncio.ensure_future(file.write([(0, [b"cancelled"])], sync=True))
    await asyncio.sleep(0)
    first.cancel()
    await file.write([(0, [b"later"])], sync=True)
    assert (await file.read(0, 9)) == b"laterlled"
    assert first.cancelled()


async def test_sync_alone(disk: Disk) -> None:
    file = await disk.create("a", 8)
    await file.write([(0, [b"x"])], sync=False)
    await file.write([], sync=True)
    assert await file.read(0, 1) == b"x"


async def test_reads_stop_at_the_end_of_the_file(disk: Disk) -> None:
    file = await disk.create("a", 0)
    await file.write([(0, [b"0123456789"])], sync=False)
    assert await file.read(8, 100) == b"89"
    assert await file.read(10, 1) == b""
    assert await file.read(1000, 1) == b""


async def test_zero_wipes_a_range_and_keeps_the_size(disk: Disk) -> None:
    file = await disk.create("a", 3_000_000)
    await file.write([(0, [b"\xff" * 1_500_000]), (2_900_000, [b"end"])], sync=True)
    await file.zero(1000, 2_800_000)
    data = await file.read(0, 4_000_000)
    assert data[:1000] == b"\xff" * 1000
    assert data[1000:2_801_000].count(0) == 2_800_000
    assert data[2_900_000:2_900_003] == b"end"
    await file.zero(2_900_000, 10_000_000)
    assert await file.read(2_900_000, 3) == bytes(3)
    assert file.size == len(await file.read(0, 4_000_000)) == 3_000_000


async def test_reopened_files_hold_their_bytes(make: MakeDisk) -> None:
    disk = make()
    lock = await disk.lock("me")
    file = await disk.create("a", 16)
    await file.write([(4, [b"kept"])], sync=True)
    await file.close()
    lock.release()
    await disk.close()
    again = make()
    await again.lock("me")
    file = await again.open("a")
    assert (file.size, await file.read(0, 16)) == (16, b"\0\0\0\0kept" + bytes(8))


async def test_opening_a_missing_file_fails(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        await disk.open("a")
    assert await disk.read_file("a") is None
    await disk.remove("a")


async def test_small_files_are_replaced_whole(disk: Disk) -> None:
    await disk.replace_file("a", b"one, the longer")
    await disk.replace_file("a", b"two")
    assert await disk.read_file("a") == b"two"
    assert await disk.list() == [("a", 3)]
    await disk.remove("a")
    assert await disk.list() == []


async def test_rename_keeps_content_and_takes_no_other_files_name(disk: Disk) -> None:
    file = await disk.create("a", 4)
    await file.write([(0, [b"here"])], sync=True)
    await disk.rename(file, "b")
    assert file.name == "b"
    assert await disk.list() == [("b", 4)]
    await file.write([(0, [b"T"])], sync=True)
    assert await (await disk.open("b")).read(0, 4) == b"Tere"
    await disk.create("c", 1)
    with pytest.raises(FileExistsError):
        await disk.rename(file, "c")
    assert (file.name, await disk.list()) == ("b", [("b", 4), ("c", 1)])


async def test_an_open_file_outlives_its_name(disk: Disk) -> None:
    file = await disk.create("a", 4)
    await file.write([(0, [b"here"])], sync=True)
    await disk.remove("a")
    assert await file.read(0, 4) == b"here"


async def test_a_file_closed_while_it_is_read(disk: Disk) -> None:
    file = await disk.create("a", 2_000_000)
    reads = [asyncio.ensure_future(file.read(0, 2_000_000)) for _ in range(8)]
    await asyncio.sleep(0)
    await file.close()
    assert [len(data) for data in await asyncio.gather(*reads)] == [2_000_000] * 8
    await file.close()
    with pytest.raises(ValueError, match="closed"):
        await file.read(0, 1)


async def test_a_file_closed_while_it_is_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes requested earlier come first."""
    real, kernel_is_free = os.pwritev, threading.Event()

    def slow(fd: int, pieces: list[bytes], at: int) -> int:
        assert kernel_is_free.wait(60)
        return real(fd, pieces, at)

    file, other = await disk.create("a", 8), await disk.create("b", 1)
    monkeypatch.setattr(os, "pwritev", slow)
    writes = [
        asyncio.ensure_future(file.write([(0, [b"%08d" % number])], sync=True))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(file.close())
    for _ in range(20):  # a close beside the writes has had time for it
        await other.read(0, 1)
    kernel_is_free.set()
    await asyncio.gather(*writes, closing)
    assert await disk.read_file("a") == b"00000019"


async def test_close_closes_open_files(disk: Disk) -> None:
    file = await disk.create("a", 4)
    again = await disk.open("a")
    await disk.close()
    for closed in (file, again):
        with pytest.raises(ValueError, match="closed"):
            await closed.read(0, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a\0", "lock", "x.tmp", "-r"])
async def test_only_plain_names(disk: Disk, name: str) -> None:
    file = await disk.create("good", 1)
    for attempt in (disk.create(name, 1), disk.open(name), disk.read_file(name),
                    disk.replace_file(name, b""), disk.remove(name),
                    disk.rename(file, name)):  # fmt: skip
        with pytest.raises(InvalidArgument):
            await attempt


async def test_second_owner_learns_the_first(make: MakeDisk) -> None:
    first, second = make(), make()
    lock = await first.lock("broker g1-0, process 42")
    with pytest.raises(DirectoryLocked, match="broker g1-0, process 42"):
        await second.lock("broker g1-1")
    lock.release()
    lock.release()
    await second.lock("broker g1-1")
    with pytest.raises(DirectoryLocked, match="g1-1"):
        await first.lock("broker g1-0")


async def test_close_lets_the_lock_go(make: MakeDisk) -> None:
    first, second = make(), make()
    await first.lock("one")
    await first.close()
    await first.close()
    await second.lock("two")


async def test_a_file_of_no_sane_size_is_refused_and_leaves_nothing(disk: Disk) -> None:
    with pytest.raises((StorageFull, DiskFailed)):
        await disk.create("a", 1 << 62)
    assert await disk.list() == []
    await disk.create("a", 1)
