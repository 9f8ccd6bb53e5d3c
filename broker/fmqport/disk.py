"""Port: disk. Files below one data directory, addressed by plain relative names.

Every write of the broker goes through here, and each says what it promises. Work is done on
threads of the adapter; the event loop never blocks. An error of fsync is fatal for the caller
(`DiskFailed`): never retry it, the kernel may have dropped the pages.
"""

from collections.abc import Sequence
from typing import Protocol

from fmqcore.errors import FmqError, StorageFull

Chunk = bytes | bytearray | memoryview
Write = tuple[int, Sequence[Chunk]]
"""Where in the file, and the pieces to write there one after the other."""


class DiskFailed(FmqError):
    """EIO or a failed fsync: what was written before is in doubt; fence and exit."""


class DiskFull(StorageFull):
    """ENOSPC: the write may be partial; nothing after it was tried."""


class DiskFile(Protocol):
    """One open file. Writes of one file are done in the order of the calls."""

    @property
    def name(self) -> str:
        """Its relative name."""
        ...

    @property
    def size(self) -> int:
        """Bytes, as of open or the last write."""
        ...

    async def write(self, writes: Sequence[Write], *, sync: bool) -> None:
        """Write all pieces (pwritev), then fdatasync if `sync`: one hop to the writer thread.

        With no `writes` and `sync`, only fdatasync. Raises `DiskFull`, `DiskFailed`.
        """
        ...

    async def read(self, at: int, length: int) -> bytes:
        """Up to `length` bytes from byte `at`; fewer only at the end of the file."""
        ...

    async def zero(self, at: int, length: int) -> None:
        """Make a range read as zeros, durably; the file keeps its size."""
        ...

    async def close(self) -> None:
        """Close it; what was not synced may be lost with the machine."""
        ...


class DiskLock(Protocol):
    """An exclusive hold on a data directory; gone with the process."""

    def release(self) -> None:
        """Let it go."""
        ...


class Disk(Protocol):
    """One data directory."""

    @property
    def path(self) -> str:
        """Where it is, for people and messages only."""
        ...

    async def lock(self, owner: str) -> DiskLock:
        """Hold the directory (made if absent). Raises `DirectoryLocked` saying who holds it."""
        ...

    async def list(self) -> list[tuple[str, int]]:
        """(name, size) of the files in it, sorted by name."""
        ...

    async def create(self, name: str, size: int) -> DiskFile:
        """Make a file of `size` zero bytes, space really allocated, its name durable."""
        ...

    async def open(self, name: str) -> DiskFile:
        """Open an existing file. Raises `FileNotFoundError`, `DiskFailed`."""
        ...

    async def read_file(self, name: str) -> bytes | None:
        """A small file whole; None if there is none."""
        ...

    async def replace_file(self, name: str, data: bytes) -> None:
        """Make `name` hold `data`, atomically and durably (write aside, fsync, rename, fsync)."""
        ...

    async def rename(self, file: DiskFile, name: str) -> None:
        """Give an open file another, unused name, durably. Raises `FileExistsError`."""
        ...

    async def remove(self, name: str) -> None:
        """Remove it durably; none there is no error."""
        ...

    async def free_bytes(self) -> int:
        """Space left for us on the file system."""
        ...

    async def close(self) -> None:
        """Close what is open and end the threads."""
        ...
