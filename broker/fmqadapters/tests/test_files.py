"""The real disk adapter only: real error numbers, left-overs, threads."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from fmqadapters.disk.files import FileDisk
from fmqadapters.disk.syscalls import OsCalls
from fmqcore.errors import DirectoryLocked
from fmqport.disk import Chunk, DiskFailed, DiskFull


@pytest.fixture
async def disk(tmp_path: Path) -> FileDisk:
    disk = FileDisk(str(tmp_path))
    await disk.lock("me")
    return disk


async def test_enospc_is_disk_full_and_not_for_ever(disk: FileDisk, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    full = await disk.open("full")
    with pytest.raises(DiskFull, match="make room"):
        await full.write([(0, [b"x"])], sync=True)
    other = await disk.create("a", 1)
    await other.write([(0, [b"x"])], sync=True)
    await disk.close()


async def test_after_a_failed_write_nothing_succeeds_any_more(
    disk: FileDisk, tmp_path: Path
) -> None:
    good = await disk.create("good", 8)
    os.mkfifo(tmp_path / "fifo")
    bad = await disk.open("fifo")  # neither pwritev nor fdatasync works on a pipe
    with pytest.raises(DiskFailed, match="fdatasync"):
        await bad.write([], sync=True)
    for attempt in (good.write([], sync=True), good.write([(0, [b"x"])], sync=False)):
        with pytest.raises(DiskFailed, match=r"earlier failure: fdatasync .*fifo"):
            await attempt
    assert await good.read(0, 1) == b"\0"
    await disk.close()


async def test_short_write_is_continued(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, pieces: list[bytes], at: int) -> int:
        whole = b"".join(pieces)
        return real(fd, [whole[:7]], at)

    monkeypatch.setattr(os, "pwritev", short)
    file = await disk.create("a", 0)
    await file.write(
        [(2, [b"0123456789", b"abc", b"", b"defghijklmnopqrstuvw", b"xyz"])], sync=True
    )
    assert await file.read(2, 100) == b"0123456789abcdefghijklmnopqrstuvwxyz"
    await disk.close()


async def test_half_made_files_of_a_crash_are_removed(disk: FileDisk, tmp_path: Path) -> None:
    await disk.close()
    (tmp_path / "0.seg.tmp").write_bytes(b"half")
    again = FileDisk(str(tmp_path))
    await again.lock("me")
    assert os.listdir(tmp_path) == ["lock"]
    await again.close()


async def test_created_files_have_their_blocks(disk: FileDisk, tmp_path: Path) -> None:
    await disk.create("a", 1 << 20)
    assert (tmp_path / "a").stat().st_blocks * 512 >= 1 << 20
    await disk.close()


async def test_unusable_data_directory_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "data" / "lock").mkdir(parents=True)
    for name, reason in (
        ("file", "it is a file"),
        ("data", f"Is a directory ({tmp_path}/data/lock)"),
    ):
        disk = FileDisk(str(tmp_path / name))
        with pytest.raises(DiskFailed) as caught:
            await disk.lock("me")
        assert str(caught.value) == f"cannot use {tmp_path}/{name} as data directory: {reason}"
        await disk.close()


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    disk = FileDisk(str(tmp_path))
    await disk.lock("me")
    for number in range(20):
        file = await disk.create(f"f{number}", 10)
        await file.write([(0, [b"x"])], sync=True)
        await file.close()
    task = asyncio.ensure_future(disk.create("orphan", 10))
    await asyncio.sleep(0)
    task.cancel()
    await disk.close()
    assert not [name for name in _open_files() if name.startswith(disk.path)]
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()


def _open_files() -> list[str]:
    names: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, or another thread's: closed by now
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return names


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
async def test_any_os_error_is_reported_as_disk_failure(tmp_path: Path, number: int) -> None:
    """A bare `OSError` would end the broker as a bug does."""

    class Failing(OsCalls):
        broken = False

        def open(self, path: str, flags: int) -> int:
            self._fail()
            return super().open(path, flags)

        def scan(self, path: str) -> list[tuple[str, int]]:
            self._fail()
            return super().scan(path)

        def free_bytes(self, path: str) -> int:
            self._fail()
            return super().free_bytes(path)

        def _fail(self) -> None:
            if self.broken:
                raise OSError(number, os.strerror(number))

    calls = Failing()
    disk = FileDisk(str(tmp_path), calls)
    await disk.lock("a test")
    await (await disk.create("a", 4096)).close()
    with pytest.raises(FileNotFoundError):
        await disk.open("b")
    calls.broken = True
    for failing in (
        disk.open("a"),
        disk.list(),
        disk.free_bytes(),
        disk.read_file("a"),
        disk.create("c", 4096),
        disk.replace_file("d", b""),
    ):
        with pytest.raises(DiskFailed, match=os.strerror(number)):
            await failing
    await disk.close()


async def test_no_room_for_a_name_is_a_full_disk(tmp_path: Path) -> None:
    """Some file systems need room for a name, others have a fixed number of files."""

    class Full(OsCalls):
        def open(self, path: str, flags: int) -> int:
            if flags & os.O_CREAT and not path.endswith("lock"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().open(path, flags)

    disk = FileDisk(str(tmp_path), Full())
    await disk.lock("a test")
    for failing in (disk.create("a", 4096), disk.replace_file("b", b"")):
        with pytest.raises(DiskFull):
            await failing
    await disk.close()


class Watched(OsCalls):
    """Record the synced directories, and whatever else a test needs."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.fails: dict[str, int] = {}  # call → the error's number
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.synced.append(self._paths[fd])

    def fdatasync(self, fd: int) -> None:
        self._fail("fdatasync")
        super().fdatasync(fd)

    def pwritev(self, fd: int, pieces: Sequence[Chunk], at: int) -> int:
        self._fail("pwritev")
        return super().pwritev(fd, pieces, at)

    def allocate(self, fd: int, size: int) -> None:
        super().allocate(fd, size)
        self._fail("allocate")  # what it found until then belongs to the file

    def _fail(self, call: str) -> None:
        if call in self.fails:
            raise OSError(self.fails[call], os.strerror(self.fails[call]))


async def test_new_data_directory_and_its_parents_survive_power_cut(
    tmp_path: Path,
) -> None:
    """A directory's name is durable once its parent is synced: each created one."""
    made_in = [tmp_path, tmp_path / "deep", tmp_path / "deep" / "er"]
    for synced in (made_in, made_in[-1:]):  # then it exists: perhaps made by a process that died
        calls = Watched()
        disk = FileDisk(str(made_in[-1] / "data"), calls)
        await disk.lock("me")
        assert set(calls.synced) == set(map(str, synced))
        await disk.close()


async def test_enospc_at_sync_is_a_permanent_failure(tmp_path: Path) -> None:
    """The kernel accepted the bytes and found no blocks: it may have dropped them."""
    calls = Watched()
    disk = FileDisk(str(tmp_path), calls)
    await disk.lock("me")
    file = await disk.create("a", 8)
    calls.fails = {"fdatasync": errno.ENOSPC}
    with pytest.raises(DiskFailed, match="fdatasync"):
        await file.write([(0, [b"x"])], sync=True)
    calls.fails = {}
    for attempt in (file.write([], sync=True), file.zero(0, 8)):
        with pytest.raises(DiskFailed, match="earlier failure"):
            await attempt
    await disk.close()


async def test_a_full_disk_can_be_locked_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    """Its files can still be read; files that do not fit must not take room."""
    (tmp_path / "lock").write_text("a broker of a much longer name, which was killed")
    calls = Watched()
    disk = FileDisk(str(tmp_path), calls)
    calls.fails = dict.fromkeys(("pwritev", "allocate"), errno.ENOSPC)
    await disk.lock("me")
    assert (tmp_path / "lock").read_bytes() == b"", "no process holds it any more"
    before = len(_open_files())
    for failing in (disk.create("a", 4096), disk.replace_file("b", b"x")):
        with pytest.raises(DiskFull):
            await failing
    assert os.listdir(tmp_path) == ["lock"]
    assert len(_open_files()) == before
    await disk.close()


async def test_refused_lock_leaves_no_file_open(tmp_path: Path) -> None:
    first, second = FileDisk(str(tmp_path)), FileDisk(str(tmp_path))
    await first.lock("one")
    await second.list()
    before = len(_open_files())
    for _ in range(3):
        with pytest.raises(DirectoryLocked):
            await second.lock("two")
    assert len(_open_files()) == before
    await first.close()
    await second.close()


async def test_abandoned_open_is_closed_and_unlocked(disk: FileDisk, tmp_path: Path) -> None:
    await disk.create("a", 8)
    before = len(_open_files())
    await disk.close()
    again = FileDisk(str(tmp_path))
    for work in (again.lock("one"), again.open("a")):
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        task.cancel()
        await again.list()
    third = FileDisk(str(tmp_path))
    await third.lock("two")
    assert len(_open_files()) <= before
    await again.close()
    await third.close()
