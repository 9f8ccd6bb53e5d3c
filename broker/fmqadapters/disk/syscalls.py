"""The system calls of the disk adapter, and nothing more: the seam below `files.py`.

`files.py` and `open_file.py` decide what is done and in which order (write, sync, rename, sync the
directory); this module only has what the kernel does. So a simulated kernel under the same adapter
shows what a power loss leaves when one of these steps is missing. All raise `OSError`.
"""

import fcntl
import os
from collections.abc import Sequence
from typing import Protocol

from fmqport.disk import Chunk


class Syscalls(Protocol):
    """The calls of a kernel; each is made on a thread and may block."""

    def open(self, path: str, flags: int) -> int:
        """Return a descriptor, closed on exec."""
        ...

    def close(self, fd: int) -> None:
        """Free the descriptor; the file's bytes stay wherever they were."""
        ...

    def size(self, fd: int) -> int:
        """Return the size of an open file in bytes."""
        ...

    def pread(self, fd: int, length: int, at: int) -> bytes:
        """Return at most `length` bytes from byte `at`; none at the end."""
        ...

    def pwritev(self, fd: int, pieces: Sequence[Chunk], at: int) -> int:
        """Write to the page cache; return how many bytes, which may be fewer than all."""
        ...

    def fdatasync(self, fd: int) -> None:
        """Force bytes (and a size that grew) to the disk."""
        ...

    def fsync(self, fd: int) -> None:
        """The same; for a directory: its names."""
        ...

    def allocate(self, fd: int, size: int) -> None:
        """Allocate `size` bytes, which read as zeros."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Truncate the file, or extend it by a hole."""
        ...

    def next_data(self, fd: int, at: int) -> int:
        """Return the first byte at or after `at` that was ever written; ENXIO if there is none."""
        ...

    def lock(self, fd: int) -> None:
        """Lock until the descriptor is closed; `BlockingIOError` if another process has it."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Rename, replacing any file of that name. Durable when the directory is synced."""
        ...

    def unlink(self, path: str) -> None:
        """Remove the name. Durable when the directory is synced."""
        ...

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        ...

    def makedirs(self, path: str) -> list[str]:
        """Create the directory and missing parents; return the directories in which it did."""
        ...

    def scan(self, path: str) -> list[tuple[str, int]]:
        """Return (name, size) of the directory's plain files, in any order."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the bytes left for this process on the file system."""
        ...

    def process_id(self) -> int:
        """Return the id of this process, for people."""
        ...


class OsCalls:
    """The real `Syscalls`."""

    def open(self, path: str, flags: int) -> int:
        """See `Syscalls`."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        """See `Syscalls`."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """See `Syscalls`."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, length: int, at: int) -> bytes:
        """See `Syscalls`."""
        return os.pread(fd, length, at)

    def pwritev(self, fd: int, pieces: Sequence[Chunk], at: int) -> int:
        """See `Syscalls`."""
        return os.pwritev(fd, pieces, at)

    def fdatasync(self, fd: int) -> None:
        """See `Syscalls`."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """See `Syscalls`."""
        os.fsync(fd)

    def allocate(self, fd: int, size: int) -> None:
        """See `Syscalls`."""
        os.posix_fallocate(fd, 0, size)

    def truncate(self, fd: int, size: int) -> None:
        """See `Syscalls`."""
        os.ftruncate(fd, size)

    def next_data(self, fd: int, at: int) -> int:
        """See `Syscalls`."""
        return os.lseek(fd, at, os.SEEK_DATA)

    def lock(self, fd: int) -> None:
        """See `Syscalls`."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, path: str, to: str) -> None:
        """See `Syscalls`."""
        os.rename(path, to)

    def unlink(self, path: str) -> None:
        """See `Syscalls`."""
        os.unlink(path)

    def exists(self, path: str) -> bool:
        """See `Syscalls`."""
        return os.path.lexists(path)

    def makedirs(self, path: str) -> list[str]:
        """See `Syscalls`."""
        made_in: list[str] = []
        missing = path
        while not os.path.exists(missing):
            missing = os.path.dirname(missing)
            made_in.insert(0, missing)
        os.makedirs(path, exist_ok=True)
        return made_in

    def scan(self, path: str) -> list[tuple[str, int]]:
        """See `Syscalls`."""
        with os.scandir(path) as entries:
            return [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]

    def free_bytes(self, path: str) -> int:
        """See `Syscalls`."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def process_id(self) -> int:
        """See `Syscalls`."""
        return os.getpid()
