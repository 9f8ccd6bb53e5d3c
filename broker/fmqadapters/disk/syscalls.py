"""The system calls that the disk adapter makes, and nothing more: the seam below `files.py`.

`files.py` and `open_file.py` decide what is done and in which order (write, sync, rename, sync the
directory); here is only what the kernel does. So a simulated kernel under the very same adapter
shows what a power cut leaves when one of these steps is missing. All raise `OSError`.
"""

import fcntl
import os
from collections.abc import Sequence
from typing import Protocol

from fmqport.disk import Chunk


class Syscalls(Protocol):
    """What a kernel offers; each is called on a thread and may block."""

    def open(self, path: str, flags: int) -> int:
        """A descriptor, closed on exec."""
        ...

    def close(self, fd: int) -> None:
        """The descriptor is free, the file's bytes wherever they were."""
        ...

    def size(self, fd: int) -> int:
        """Of an open file, in bytes."""
        ...

    def pread(self, fd: int, length: int, at: int) -> bytes:
        """At most so many bytes from byte `at`; none at the end."""
        ...

    def pwritev(self, fd: int, pieces: Sequence[Chunk], at: int) -> int:
        """Write to the page cache; says how much, which may be less than all."""
        ...

    def fdatasync(self, fd: int) -> None:
        """Bytes (and a size that grew) reach the disk."""
        ...

    def fsync(self, fd: int) -> None:
        """The same; of a directory: its names."""
        ...

    def allocate(self, fd: int, size: int) -> None:
        """Find room for so many bytes, which read as zeros."""
        ...

    def truncate(self, fd: int, size: int) -> None:
        """Cut it, or lengthen it by a hole."""
        ...

    def next_data(self, fd: int, at: int) -> int:
        """The first byte at or after `at` that was ever written; ENXIO if there is none."""
        ...

    def lock(self, fd: int) -> None:
        """An exclusive hold that ends with the descriptor; `BlockingIOError` if another has it."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Another name, in the place of whatever had it. Durable when the directory is synced."""
        ...

    def unlink(self, path: str) -> None:
        """Take the name away. Durable when the directory is synced."""
        ...

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        ...

    def makedirs(self, path: str) -> list[str]:
        """The directory and those above it, if they are missing; says in which each was made."""
        ...

    def scan(self, path: str) -> list[tuple[str, int]]:
        """(name, size) of the directory's plain files, in any order."""
        ...

    def free_bytes(self, path: str) -> int:
        """What is left for us on the file system."""
        ...

    def process_id(self) -> int:
        """Of this process, for people."""
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
