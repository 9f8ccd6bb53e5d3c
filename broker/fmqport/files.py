"""Adapter of the disk port: the machine's own files, one directory of them.

Three workers below one `FileDisk`: one thread writes and syncs, in the order of the calls; one
does directory work (create, rename, remove: each fsyncs the directory); two read. Nothing here
runs on the event loop but the hand-over.

It leaves in the directory: the files that were asked for; `lock`, which holds who owns
it; and, after a crash, `*.tmp` files, which the next `lock` removes. Names ending in `.tmp`
and the name `lock` belong to this adapter and are neither listed nor taken.

Once a write or an fsync has failed (anything but a full disk), every later write and sync of this
`FileDisk` fails too: a second fsync may say yes to pages that the kernel has dropped.
"""

import asyncio
import errno
import fcntl
import os
import re
import threading
from collections.abc import Sequence
from typing import Final

from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqport.disk import Chunk, DiskFailed, DiskFile, DiskFull, Write
from fmqport.workers import Worker

LOCK_NAME: Final = "lock"
_TMP: Final = ".tmp"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_IOV_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX"))
_STEP: Final = 1024 * 1024
_ZEROS: Final = bytes(_STEP)
_Listing = list[tuple[str, int]]
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def checked_name(name: str) -> str:
    """Return `name` if it is a plain relative name that is not the adapter's own."""
    if not _NAME.fullmatch(name) or name == LOCK_NAME or name.endswith(_TMP):
        raise InvalidArgument(f"{name!r} is no name for a file of ours")
    return name


class _Health:
    """The first failure of a write or sync; all later ones repeat it."""

    def __init__(self) -> None:
        self._failed = ""

    def require(self) -> None:
        if self._failed:
            raise DiskFailed(f"refused after an earlier failure: {self._failed}")

    def failure(self, what: str, error: OSError) -> DiskFailed | DiskFull:
        if error.errno in _FULL and not what.startswith("fdatasync"):
            return DiskFull(f"{what}: {error.strerror}; make room on the file system")
        self._failed = f"{what}: {error}"
        return DiskFailed(self._failed)


class OpenFile:
    """The real `DiskFile`."""

    def __init__(self, path: str, fd: int, writer: Worker, reader: Worker, health: _Health) -> None:
        self._path = path
        self._fd = fd
        self._writer = writer
        self._reader = reader
        self._health = health
        self._size = os.fstat(fd).st_size
        self._users = 1  # this object itself, and each read under way: the last closes the fd
        self._guard = threading.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        """See `DiskFile`."""
        return os.path.basename(self._path)

    @property
    def size(self) -> int:
        """See `DiskFile`."""
        return self._size

    async def write(self, writes: Sequence[Write], *, sync: bool) -> None:
        """See `DiskFile`."""
        self._require_open()
        await self._writer.submit(lambda: self._write(writes, sync))
        for at, pieces in writes:
            self._size = max(self._size, at + sum(map(len, pieces)))

    async def read(self, at: int, length: int) -> bytes:
        """See `DiskFile`."""
        self._require_open()
        with self._guard:
            self._users += 1
        return await self._reader.submit(lambda: self._read(at, length))

    async def zero(self, at: int, length: int) -> None:
        """See `DiskFile`."""
        self._require_open()
        end = min(at + length, self._size)
        await self._writer.submit(lambda: self._zero(at, end))

    async def close(self) -> None:
        """See `DiskFile`."""
        if not self._closed:
            self._closed = True
            await self._writer.submit(self._release)

    @property
    def path(self) -> str:
        """Where it is now."""
        return self._path

    def move(self, path: str) -> None:
        """Rename it on the directory's thread; the caller syncs the directory."""
        os.rename(self._path, path)
        self._path = path

    def close_now(self) -> None:
        """Close without the writer thread: nobody has seen this file."""
        self._closed = True
        self._release()

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path} is closed")

    def _release(self) -> None:
        with self._guard:
            self._users -= 1
            if self._users == 0:
                os.close(self._fd)

    # ---- on the threads
    def _write(self, writes: Sequence[Write], sync: bool) -> None:
        self._health.require()
        try:
            for at, pieces in writes:
                _pwrite_all(self._fd, pieces, at)
        except OSError as error:
            raise self._health.failure(f"write {self._path}", error) from error
        if sync:
            self._sync()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._health.failure(f"fdatasync {self._path}", error) from error

    def _read(self, at: int, length: int) -> bytes:
        try:
            parts: list[bytes] = []
            while length > 0 and (part := os.pread(self._fd, length, at)):
                parts.append(part)
                at += len(part)
                length -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        except OSError as error:
            raise DiskFailed(f"read {self._path} at {at}: {error}") from error
        finally:
            self._release()

    def _zero(self, at: int, end: int) -> None:
        self._health.require()
        try:
            while (at := _next_data(self._fd, at, end)) < end:
                step = min(_STEP, end - at)
                if os.pread(self._fd, step, at) != _ZEROS[:step]:
                    _pwrite_all(self._fd, [memoryview(_ZEROS)[:step]], at)
                at += step
        except OSError as error:
            raise self._health.failure(f"write {self._path}", error) from error
        self._sync()


class FileDisk:
    """The real `Disk`: one directory."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._writer = Worker("fmq-write")
        self._directory = Worker("fmq-directory")
        self._reader = Worker("fmq-read", threads=2)
        self._health = _Health()
        self._lock: _Lock | None = None

    @property
    def path(self) -> str:
        """See `Disk`."""
        return self._path

    async def lock(self, owner: str) -> "_Lock":
        """See `Disk`. Also removes what a crash left half-made."""
        self._lock = await self._directory.submit(lambda: self._take(owner), _Lock.release)
        return self._lock

    async def list(self) -> list[tuple[str, int]]:
        """See `Disk`."""
        return await self._directory.submit(self._list)

    async def create(self, name: str, size: int) -> OpenFile:
        """See `Disk`. Made aside and renamed: a file of that name always has its whole size."""
        checked_name(name)
        return await self._directory.submit(lambda: self._create(name, size), OpenFile.close_now)

    async def open(self, name: str) -> OpenFile:
        """See `Disk`."""
        path = self._at(name)
        return await self._directory.submit(lambda: self._open(path), OpenFile.close_now)

    async def read_file(self, name: str) -> bytes | None:
        """See `Disk`."""
        path = self._at(name)
        return await self._directory.submit(lambda: _read_file(path))

    async def replace_file(self, name: str, data: bytes) -> None:
        """See `Disk`."""
        checked_name(name)
        await self._directory.submit(lambda: self._replace(name, data))

    async def rename(self, file: DiskFile, name: str) -> None:
        """See `Disk`."""
        path = self._at(name)
        assert isinstance(file, OpenFile), "a file of this disk"
        await self._directory.submit(lambda: self._rename(file, path))

    async def remove(self, name: str) -> None:
        """See `Disk`."""
        path = self._at(name)
        await self._directory.submit(lambda: self._remove(path))

    async def free_bytes(self) -> int:
        """See `Disk`."""
        return await self._directory.submit(self._free)

    async def close(self) -> None:
        """See `Disk`. A lock still held is released at the end."""
        await asyncio.gather(self._reader.stop(), self._writer.stop(), self._directory.stop())
        if self._lock is not None:
            self._lock.release()

    def _at(self, name: str) -> str:
        return os.path.join(self._path, checked_name(name))

    # ---- on the threads
    def _take(self, owner: str) -> "_Lock":
        try:
            os.makedirs(self._path, exist_ok=True)
            _sync_directory(os.path.dirname(self._path))
            return self._take_made(owner)
        except OSError as error:
            raise DiskFailed(f"cannot use {self._path} as data directory: {error}") from error

    def _take_made(self, owner: str) -> "_Lock":
        path = os.path.join(self._path, LOCK_NAME)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 1000, 0).decode(errors="replace").strip() or "another process"
            os.close(fd)
            raise DirectoryLocked(
                f"{self._path} is in use by {holder}: stop it, or use another directory"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{owner} (process {os.getpid()})\n".encode(), 0)
        for name in os.listdir(self._path):
            if name.endswith(_TMP):
                os.unlink(os.path.join(self._path, name))
        return _Lock(fd)

    def _list(self) -> _Listing:
        with os.scandir(self._path) as entries:
            return sorted(
                (entry.name, entry.stat().st_size)
                for entry in entries
                if entry.is_file() and entry.name != LOCK_NAME and not entry.name.endswith(_TMP)
            )

    def _open(self, path: str) -> OpenFile:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return OpenFile(path, fd, self._writer, self._reader, self._health)

    def _create(self, name: str, size: int) -> OpenFile:
        path = os.path.join(self._path, name)
        _refuse_existing(path)
        aside = path + _TMP
        fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if size:
                os.posix_fallocate(fd, 0, size)
            self._publish(fd, aside, path)
            return OpenFile(path, fd, self._writer, self._reader, self._health)
        except BaseException as error:
            os.close(fd)
            _unlink_quietly(aside)
            if isinstance(error, OSError):
                raise self._failure(f"create {path}", error) from error
            raise

    def _replace(self, name: str, data: bytes) -> None:
        path = os.path.join(self._path, name)
        aside = path + _TMP
        try:
            fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                _pwrite_all(fd, [data], 0)
                self._publish(fd, aside, path)
            finally:
                os.close(fd)
        except OSError as error:
            _unlink_quietly(aside)
            raise self._failure(f"replace {path}", error) from error

    def _publish(self, fd: int, aside: str, path: str) -> None:
        os.fsync(fd)
        os.rename(aside, path)
        _sync_directory(self._path)

    def _rename(self, file: OpenFile, path: str) -> None:
        _refuse_existing(path)
        try:
            file.move(path)
            _sync_directory(self._path)
        except OSError as error:
            raise self._failure(f"rename {file.path} to {path}", error) from error

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
            _sync_directory(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure(f"remove {path}", error) from error

    def _free(self) -> int:
        stat = os.statvfs(self._path)
        return stat.f_bavail * stat.f_frsize

    @staticmethod
    def _failure(what: str, error: OSError) -> DiskFailed | DiskFull:
        # Nothing that was acknowledged is in doubt here: the file was made aside.
        if error.errno in _FULL:
            return DiskFull(f"{what}: {error.strerror}; make room on the file system")
        return DiskFailed(f"{what}: {error}")


class _Lock:
    """The real `DiskLock`: an flock, which ends with the process however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """See `DiskLock`."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.ftruncate(fd, 0)
            os.close(fd)


def _pwrite_all(fd: int, pieces: Sequence[Chunk], at: int) -> None:
    """Write all of `pieces` from byte `at` on, however often the kernel stops short."""
    left = [piece for piece in pieces if len(piece)]
    while left:
        group = left[:_IOV_MAX]
        done = os.pwritev(fd, group, at)
        at += done
        taken = 0
        while taken < len(group) and done >= len(group[taken]):
            done -= len(group[taken])
            taken += 1
        del left[:taken]
        if done:
            left[0] = memoryview(left[0])[done:]


def _refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists already", path)


def _next_data(fd: int, at: int, end: int) -> int:
    """Skip what was never written; `end` if nothing was."""
    if at >= end:
        return end
    try:
        return min(os.lseek(fd, at, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise


def _read_file(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskFailed(f"read {path}: {error}") from error


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
