"""Adapter of the disk port: the machine's own files, in one directory.

Three workers below one `FileDisk`: one thread writes and syncs, in the order of the calls; one does
directory work (create, rename, remove: each fsyncs the directory); two read. Only the hand-over
runs on the event loop. `syscalls.py` has what the kernel does; this module decides what is done and
in which order.

It leaves in the directory: the files that were asked for; `lock`, which names the owner of the
directory; and, after a crash, `*.tmp` files, which the next `lock` removes. Names ending in `.tmp`
and the name `lock` belong to this adapter and are neither listed nor accepted.
"""

import asyncio
import contextlib
import errno
import os
import re
from collections.abc import Callable
from typing import Final

from fmqadapters.disk.open_file import FULL, Health, OpenFile, pread_all, pwrite_all
from fmqadapters.disk.syscalls import OsCalls, Syscalls
from fmqadapters.disk.workers import Threads, Worker
from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqport.disk import DiskFailed, DiskFile, DiskFull

LOCK_NAME: Final = "lock"
_TMP: Final = ".tmp"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_Listing = list[tuple[str, int]]


def checked_name(name: str) -> str:
    """Return `name` if it is a plain relative name and not one of the adapter's own.

    Raises `InvalidArgument` otherwise.
    """
    if not _NAME.fullmatch(name) or name == LOCK_NAME or name.endswith(_TMP):
        raise InvalidArgument(f"{name!r} is not a valid name of a file in a data directory")
    return name


class FileDisk:
    """The real `Disk`: one directory. `calls` and `worker` are for a simulated kernel below it."""

    def __init__(
        self,
        path: str,
        calls: Syscalls | None = None,
        worker: Callable[[str, int], Worker] = Threads,
    ) -> None:
        self._path = os.path.abspath(path)
        self._calls = calls or OsCalls()
        self._writer = worker("fmq-write", 1)
        self._directory = worker("fmq-directory", 1)
        self._reader = worker("fmq-read", 2)
        self._health = Health()
        self._opens: dict[OpenFile, None] = {}
        self._lock: _Lock | None = None

    @property
    def path(self) -> str:
        """See `Disk`."""
        return self._path

    async def lock(self, owner: str) -> "_Lock":
        """See `Disk`. Also removes what a crash left incomplete."""
        self._lock = await self._directory.submit(lambda: self._take(owner), _Lock.release)
        return self._lock

    async def list(self) -> list[tuple[str, int]]:
        """See `Disk`."""
        return await self._directory.submit(self._list)

    async def create(self, name: str, size: int) -> OpenFile:
        """See `Disk`. Created aside and renamed: a file of that name always has its whole size."""
        checked_name(name)
        return await self._directory.submit(lambda: self._create(name, size), OpenFile.close_now)

    async def open(self, name: str) -> OpenFile:
        """See `Disk`."""
        path = self._at(name)
        return await self._directory.submit(lambda: self._open(path), OpenFile.close_now)

    async def read_file(self, name: str) -> bytes | None:
        """See `Disk`."""
        path = self._at(name)
        return await self._directory.submit(lambda: self._read_file(path))

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
        await asyncio.gather(*(file.close() for file in list(self._opens)))
        await asyncio.gather(self._reader.stop(), self._writer.stop(), self._directory.stop())
        if self._lock is not None:
            self._lock.release()

    def _at(self, name: str) -> str:
        return os.path.join(self._path, checked_name(name))

    # ---- on the threads
    def _take(self, owner: str) -> "_Lock":
        try:
            for made_in in self._calls.makedirs(self._path):
                self._sync_directory(made_in)
            self._sync_directory(os.path.dirname(self._path))  # made by one that then died, perhaps
            return self._take_made(owner)
        except OSError as error:
            raise DiskFailed(
                f"cannot use {self._path} as data directory: {self._why(error)}"
            ) from error

    def _why(self, error: OSError) -> str:
        if isinstance(error, FileExistsError):
            return "it is a file"
        where = "" if error.filename in (None, self._path) else f" ({error.filename})"
        return f"{error.strerror or error}{where}"

    def _take_made(self, owner: str) -> "_Lock":
        calls = self._calls
        fd = calls.open(os.path.join(self._path, LOCK_NAME), os.O_RDWR | os.O_CREAT)
        try:
            calls.lock(fd)
        except BlockingIOError:
            holder = calls.pread(fd, 1000, 0).decode(errors="replace").strip() or "another process"
            calls.close(fd)
            raise DirectoryLocked(
                f"{self._path} is in use by {holder}: stop it, or use another directory"
            ) from None
        calls.truncate(fd, 0)
        try:
            calls.pwritev(fd, [f"{owner} (process {calls.process_id()})\n".encode()], 0)
        except OSError as error:  # a full disk may hold a journal that can still be read
            if error.errno not in FULL:
                raise
        for name, _ in sorted(calls.scan(self._path)):
            if name.endswith(_TMP):
                calls.unlink(os.path.join(self._path, name))
        return _Lock(fd, calls)

    def _list(self) -> _Listing:
        try:
            entries = sorted(self._calls.scan(self._path))
        except OSError as error:
            raise DiskFailed(f"list {self._path}: {error}") from error
        return [e for e in entries if e[0] != LOCK_NAME and not e[0].endswith(_TMP)]

    def _opened(self, path: str, fd: int) -> OpenFile:
        return OpenFile(
            path, fd, self._calls, self._writer, self._reader, self._health, self._opens
        )

    def _open(self, path: str) -> OpenFile:
        try:
            return self._opened(path, self._calls.open(path, os.O_RDWR))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"open {path}: {error}") from error

    def _create(self, name: str, size: int) -> OpenFile:
        path = os.path.join(self._path, name)
        self._refuse_existing(path)
        aside = path + _TMP
        try:
            fd = self._calls.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            raise self._failure(f"create {path}", error) from error
        try:
            if size:
                self._calls.allocate(fd, size)
            self._publish(fd, aside, path)
            return self._opened(path, fd)
        except BaseException as error:
            self._calls.close(fd)
            self._unlink_quietly(aside)
            if isinstance(error, OSError):
                raise self._failure(f"create {path}", error) from error
            raise

    def _replace(self, name: str, data: bytes) -> None:
        path = os.path.join(self._path, name)
        aside = path + _TMP
        try:
            fd = self._calls.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                pwrite_all(self._calls, fd, [data], 0)
                self._publish(fd, aside, path)
            finally:
                self._calls.close(fd)
        except OSError as error:
            self._unlink_quietly(aside)
            raise self._failure(f"replace {path}", error) from error

    def _publish(self, fd: int, aside: str, path: str) -> None:
        self._calls.fsync(fd)
        self._calls.rename(aside, path)
        self._sync_directory(self._path)

    def _rename(self, file: OpenFile, path: str) -> None:
        self._refuse_existing(path)
        try:
            file.move(path)
            self._sync_directory(self._path)
        except OSError as error:
            raise self._failure(f"rename {file.path} to {path}", error) from error

    def _remove(self, path: str) -> None:
        try:
            self._calls.unlink(path)
            self._sync_directory(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure(f"remove {path}", error) from error

    def _free(self) -> int:
        try:
            return self._calls.free_bytes(self._path)
        except OSError as error:
            raise DiskFailed(f"free space of {self._path}: {error}") from error

    def _refuse_existing(self, path: str) -> None:
        if self._calls.exists(path):
            raise FileExistsError(errno.EEXIST, "exists already", path)

    def _read_file(self, path: str) -> bytes | None:
        try:
            fd = self._calls.open(path, os.O_RDONLY)
            try:
                return pread_all(self._calls, fd, self._calls.size(fd), 0)
            finally:
                self._calls.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskFailed(f"read {path}: {error}") from error

    def _sync_directory(self, path: str) -> None:
        fd = self._calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._calls.fsync(fd)
        finally:
            self._calls.close(fd)

    def _unlink_quietly(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._calls.unlink(path)

    @staticmethod
    def _failure(what: str, error: OSError) -> DiskFailed | DiskFull:
        # No acknowledged write is in doubt here: the file was created aside.
        if error.errno in FULL:
            return DiskFull(f"{what}: {error.strerror}; make room on the file system")
        return DiskFailed(f"{what}: {error}")


class _Lock:
    """The real `DiskLock`: an flock, which ends with the process however it ends."""

    def __init__(self, fd: int, calls: Syscalls) -> None:
        self._fd = fd
        self._calls = calls

    def release(self) -> None:
        """See `DiskLock`."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                self._calls.truncate(fd, 0)
            finally:
                self._calls.close(fd)
