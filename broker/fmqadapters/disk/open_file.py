"""One open file of the real disk adapter: pwritev, fdatasync, pread, on its threads.

Once a write or an fsync has failed (except for a full disk), every later write and sync of the same
disk fails too (`Health`): a second fsync may succeed for pages that the kernel has dropped.
"""

import errno
import os
import threading
from collections.abc import Sequence
from typing import Final

from fmqadapters.disk.syscalls import Syscalls
from fmqadapters.disk.workers import Worker
from fmqport.disk import Chunk, DiskFailed, DiskFull, Write

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""The errors that mean that there is no space."""
_IOV_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX"))
_STEP: Final = 1024 * 1024
_ZEROS: Final = bytes(_STEP)


class Health:
    """The first failure of a write or sync; all later ones repeat it."""

    def __init__(self) -> None:
        self._failed = ""

    def require(self) -> None:
        """Raise `DiskFailed` if anything has failed before."""
        if self._failed:
            raise DiskFailed(f"refused after an earlier failure: {self._failed}")

    def failure(self, what: str, error: OSError) -> DiskFailed | DiskFull:
        """Return the error to raise; all except a full disk are remembered."""
        if error.errno in FULL and not what.startswith("fdatasync"):
            return DiskFull(f"{what}: {error.strerror}; make room on the file system")
        self._failed = f"{what}: {error}"
        return DiskFailed(self._failed)


class OpenFile:
    """The real `DiskFile`."""

    def __init__(
        self,
        path: str,
        fd: int,
        calls: Syscalls,
        writer: Worker,
        reader: Worker,
        health: Health,
        opens: "dict[OpenFile, None]",
    ) -> None:
        self._path = path
        self._fd = fd
        self._calls = calls
        self._writer = writer
        self._reader = reader
        self._health = health
        self._size = calls.size(fd)
        self._users = 1  # this object itself, and each read under way: the last closes the fd
        self._guard = threading.Lock()
        self._closed = False
        self._opens = opens
        opens[self] = None

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
        """The path of the file now."""
        return self._path

    def move(self, path: str) -> None:
        """Rename the file on the directory's thread; the caller syncs the directory."""
        self._calls.rename(self._path, path)
        self._path = path

    def close_now(self) -> None:
        """Close without the writer thread: no caller has seen this file."""
        self._closed = True
        self._release()

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path} is closed")

    def _release(self) -> None:
        with self._guard:
            self._users -= 1
            if self._users == 0:
                self._opens.pop(self, None)
                self._calls.close(self._fd)

    # ---- on the threads
    def _write(self, writes: Sequence[Write], sync: bool) -> None:
        self._health.require()
        try:
            for at, pieces in writes:
                pwrite_all(self._calls, self._fd, pieces, at)
        except OSError as error:
            raise self._health.failure(f"write {self._path}", error) from error
        if sync:
            self._sync()

    def _sync(self) -> None:
        try:
            self._calls.fdatasync(self._fd)
        except OSError as error:
            raise self._health.failure(f"fdatasync {self._path}", error) from error

    def _read(self, at: int, length: int) -> bytes:
        try:
            return pread_all(self._calls, self._fd, length, at)
        except OSError as error:
            raise DiskFailed(f"read {self._path} at {at}: {error}") from error
        finally:
            self._release()

    def _zero(self, at: int, end: int) -> None:
        self._health.require()
        try:
            while (at := _next_data(self._calls, self._fd, at, end)) < end:
                step = min(_STEP, end - at)
                if self._calls.pread(self._fd, step, at) != _ZEROS[:step]:
                    pwrite_all(self._calls, self._fd, [memoryview(_ZEROS)[:step]], at)
                at += step
        except OSError as error:
            raise self._health.failure(f"write {self._path}", error) from error
        self._sync()


def pwrite_all(calls: Syscalls, fd: int, pieces: Sequence[Chunk], at: int) -> None:
    """Write all of `pieces` from byte `at` on, however often the kernel stops short."""
    remaining = [piece for piece in pieces if len(piece)]
    while remaining:
        group = remaining[:_IOV_MAX]
        done = calls.pwritev(fd, group, at)
        at += done
        taken = 0
        while taken < len(group) and done >= len(group[taken]):
            done -= len(group[taken])
            taken += 1
        del remaining[:taken]
        if done:
            remaining[0] = memoryview(remaining[0])[done:]


def pread_all(calls: Syscalls, fd: int, length: int, at: int) -> bytes:
    """Return up to `length` bytes from byte `at`; fewer only at the end of the file."""
    parts: list[bytes] = []
    while length > 0 and (part := calls.pread(fd, length, at)):
        parts.append(part)
        at += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _next_data(calls: Syscalls, fd: int, at: int, end: int) -> int:
    """Return the next byte at or after `at` that was ever written; `end` if there is none."""
    if at >= end:
        return end
    try:
        return min(calls.next_data(fd, at), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise
