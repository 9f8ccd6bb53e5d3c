"""Port: disk. Files below one data directory, addressed by plain relative names.

Every write of the broker goes through this port, and each method states what it guarantees. Work is
done on threads of the adapter; the event loop never blocks. An error of fsync is fatal for the
caller (`DiskFailed`): never retry it, the kernel may have dropped the pages.
"""

from collections.abc import Sequence
from typing import Protocol

from fmqcore.errors import FmqError, StorageFull

Chunk = bytes | bytearray | memoryview
Write = tuple[int, Sequence[Chunk]]
"""A position in the file, and the pieces to write there one after the other."""


class DiskFailed(FmqError):
    """EIO or a failed fsync: earlier writes may be lost; fence and exit."""


class DiskFull(StorageFull):
    """ENOSPC: the write may be partial; nothing after it was tried."""


class DiskFile(Protocol):
    """One open file. Its writes are done in the order of the calls."""

    @property
    def name(self) -> str:
        """The relative name of the file."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes, as of open or the last write."""
        ...

    async def write(self, writes: Sequence[Write], *, sync: bool) -> None:
        """Write all pieces (pwritev), then fdatasync if `sync`: one hop to the writer thread.

        With no `writes` and `sync`, only fdatasync. Raises `DiskFull`, `DiskFailed`.
        """
        ...

    async def read(self, at: int, length: int) -> bytes:
        """Return up to `length` bytes from byte `at`; fewer only at the end of the file."""
        ...

    async def zero(self, at: int, length: int) -> None:
        """Make a range read as zeros, durably; the file keeps its size."""
        ...

    async def close(self) -> None:
        """Close the file; what was not synced may be lost with the machine."""
        ...


class DiskLock(Protocol):
    """An exclusive lock on a data directory; it ends with the process."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """One data directory."""

    @property
    def path(self) -> str:
        """The path of the directory, for people and messages only."""
        ...

    async def lock(self, owner: str) -> DiskLock:
        """Lock the directory (created if absent). Raises `DirectoryLocked` naming the holder."""
        ...

    async def list(self) -> list[tuple[str, int]]:
        """Return (name, size) of the files in the directory, sorted by name."""
        ...

    async def create(self, name: str, size: int) -> DiskFile:
        """Create a file of `size` zero bytes, with its space allocated and its name durable."""
        ...

    async def open(self, name: str) -> DiskFile:
        """Open an existing file. Raises `FileNotFoundError`, `DiskFailed`."""
        ...

    async def read_file(self, name: str) -> bytes | None:
        """Return the whole content of a small file; None if there is none."""
        ...

    async def replace_file(self, name: str, data: bytes) -> None:
        """Set the content of `name`, atomically and durably (write aside, fsync, rename, fsync)."""
        ...

    async def rename(self, file: DiskFile, name: str) -> None:
        """Give an open file another, unused name, durably. Raises `FileExistsError`."""
        ...

    async def remove(self, name: str) -> None:
        """Remove a file durably; a missing file is no error."""
        ...

    async def free_bytes(self) -> int:
        """Return the bytes left for this process on the file system."""
        ...

    async def close(self) -> None:
        """Close what is open and end the threads."""
        ...
