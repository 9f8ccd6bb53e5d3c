"""Simulated file system of one directory: page cache, disk, and what a power cut leaves.

Each file has two images: the page cache, which every process sees, and the disk. Written bytes
reach the disk with fsync or fdatasync of the file; names (created, renamed, removed) with fsync of
the directory. When the power goes, each sector that was not synced survives or not, by chance, and
a prefix of the changes to names survives; everything else is lost. When only a process dies, the
page cache stays.

A failed fsync leaves its pages clean and unwritten, as Linux does: the next fsync succeeds and
changes nothing; readers see the new bytes until the pages are dropped (`evict`).

Stricter than ext4 on one point: syncing a new file does not make its name durable.
Pure: randomness comes in as a `Random`. The system calls themselves are in `adapters/disk.py`.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from fmqport.disk import Chunk

PAGE: Final = 4096
SECTOR: Final = 512
_LARGEST: Final = 1 << 40


@dataclass
class Trap:
    """A power cut at a system call: before the `after`-th call of that kind, or behind it."""

    kind: str  # pwritev, fsync, fsync directory, rename, unlink, open, truncate, allocate
    after: int
    behind: bool
    small: bool  # of a file that is no segment
    spring: Callable[[], None]  # called in the middle of the call: no code of the process runs on


class Inode:
    """One file, with or without a name."""

    __slots__ = (
        "allocated",
        "cut_to",
        "data",
        "dirty",
        "disk",
        "lost",
        "number",
        "opens",
        "whole",
        "written",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytearray()  # what processes see
        self.disk = bytearray()  # what is on the disk
        self.dirty: dict[int, None] = {}  # pages to be written, oldest first
        self.lost: dict[int, None] = {}  # pages that a failed sync left clean and not written
        self.written: set[int] = set()  # pages that are no hole
        self.whole = False  # it was cut: on the disk it may still be longer
        self.cut_to = 0  # so short it was meanwhile
        self.allocated = 0
        self.opens = 0

    @property
    def blocks(self) -> int:
        """Bytes that the file takes from the file system."""
        return max(self.allocated, -(-len(self.data) // PAGE) * PAGE)

    def write(self, piece: Chunk, at: int) -> None:
        """Write to the page cache."""
        end = at + len(piece)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[at:end] = piece
        for page in range(at // PAGE, -(-end // PAGE)):
            self.dirty.pop(page, None)
            self.dirty[page] = None
            self.lost.pop(page, None)
            self.written.add(page)

    def truncate(self, size: int) -> None:
        """Shorten or lengthen the file in the page cache."""
        if size < len(self.data):
            del self.data[size:]
            self.cut_to = min(size, self.cut_to) if self.whole else size
            self.whole, self.allocated = True, 0
            keep = -(-size // PAGE)
            self.dirty = {page: None for page in self.dirty if page < keep}
            self.written = {page for page in self.written if page < keep}
        else:
            self.data.extend(bytes(size - len(self.data)))

    def sync(self) -> None:
        """Write the dirty pages to disk, except pages that an earlier failed sync left clean."""
        if self.whole:
            del self.disk[len(self.data) :]
            self.whole = False
        if len(self.disk) < len(self.data):
            self.disk.extend(bytes(len(self.data) - len(self.disk)))
        for page in self.dirty:
            at = page * PAGE
            self.disk[at : at + PAGE] = self.data[at : at + PAGE]
        self.dirty.clear()

    def fail_sync(self) -> None:
        """Fail an fsync with EIO: the pages count as clean, but the disk does not have them."""
        self.lost.update(self.dirty)
        self.dirty.clear()

    def evict(self, random: Random) -> None:
        """Drop clean pages from the cache: lost pages then show what the disk holds."""
        for page in list(self.lost):
            if random.random() < 0.5:
                del self.lost[page]
                at = page * PAGE
                self.data[at : at + PAGE] = self._on_disk(at, min(at + PAGE, len(self.data)))

    def cut_power(self, random: Random) -> None:
        """Reduce the file to what is on the disk, with some of the unsynced sectors."""
        if self.dirty or self.whole or len(self.disk) != len(self.data):
            self._let_some_through(random)
        self.data[:] = self.disk
        self.dirty.clear()
        self.lost.clear()
        self.whole = False

    def _let_some_through(self, random: Random) -> None:
        luck = random.choice((0.0, 0.5, 0.9, 1.0))
        if self.whole and random.random() < 0.5:
            del self.disk[self.cut_to :]
        if luck and len(self.disk) < len(self.data) and random.random() < 0.5 + luck / 2:
            self.disk.extend(bytes(len(self.data) - len(self.disk)))
        ends = len(self.disk)
        in_order = random.random() < 0.5  # the oldest pages are written first; or any of them
        for page in self.dirty:
            for at in range(page * PAGE, min((page + 1) * PAGE, ends), SECTOR):
                if random.random() < luck:
                    end = min(at + SECTOR, ends)
                    self.disk[at:end] = self.data[at:end].ljust(end - at, b"\0")
                elif in_order:
                    return

    def _on_disk(self, at: int, end: int) -> bytes:
        return bytes(self.disk[at:end]).ljust(end - at, b"\0")


class FileSystem:
    """One directory of files on one disk. Outlives every process; `path` is for messages."""

    def __init__(self, path: str, capacity: int = 1 << 30) -> None:
        self.path = os.path.abspath(path)
        self.capacity = capacity
        self.taken = 0  # by others
        self.names: dict[str, Inode] = {}
        self.failing_syncs = 0  # number of next syncs that fail with EIO
        self.failing_writes = 0
        self.failing_reads = 0
        self.trap: Trap | None = None
        self.on_failure: Callable[[], object] = _nothing  # called when one of them comes true
        self.locks: dict[int, object] = {}  # inode number → who holds it
        self._on_disk: dict[str, Inode] = {}
        self._pending: list[tuple[tuple[str, Inode | None], ...]] = []  # names, not yet synced
        self._orphans: dict[int, Inode] = {}  # no name any more, but open
        self._made = 0

    # ---- faults
    def lose_process(self, random: Random) -> None:
        """Handle the death of a process: the cache stays, but clean pages may be dropped."""
        self._orphans.clear()
        for inode in self.names.values():
            inode.opens = 0
            inode.evict(random)

    def cut_power(self, random: Random) -> None:
        """Cut the machine's power: unsynced data survives only by chance."""
        for change in self._pending[: random.randint(0, len(self._pending))]:
            _apply(self._on_disk, change)
        self._pending.clear()
        self.names = dict(self._on_disk)
        for name in sorted(self.names):
            self.names[name].opens = 0
            self.names[name].cut_power(random)
        self._orphans.clear()
        self.locks.clear()

    def springs(self, kind: str, name: str, *, behind: bool) -> bool:
        """Spring the trap if this call is the one it waits for, and return whether it did."""
        trap = self.trap
        if trap is None or (trap.kind, trap.behind) != (kind, behind):
            return False
        if trap.small and (".journal" in name or name.startswith("spare")):
            return False
        trap.after -= 1
        if trap.after > 0:
            return False
        self.trap = None
        trap.spring()
        return True

    def wipe(self) -> None:
        """Replace the disk with an empty one."""
        self.names, self._on_disk = {}, {}
        self._pending.clear()
        self._orphans.clear()
        self.locks.clear()

    def flip_bit(self, name: str, at: int, bit: int = 0) -> None:
        """Flip one bit on the disk and in the page cache."""
        inode = self.names[name]
        for image in (inode.data, inode.disk):
            if at < len(image):
                image[at] ^= 1 << bit

    def cut_file(self, name: str, size: int) -> None:
        """Shorten a file durably, from outside."""
        inode = self.names[name]
        inode.truncate(size)
        inode.sync()

    # ---- names
    def find(self, name: str) -> Inode:
        """Return the file of that name. Raises `FileNotFoundError`."""
        inode = self.names.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{self.path}/{name}")
        return inode

    def create(self, name: str) -> Inode:
        """Create an empty file under a new name."""
        self._made += 1
        inode = Inode(self._made)
        self._change((name, inode))
        return inode

    def rename(self, name: str, to: str) -> None:
        """Rename in one step, replacing the file that had the name."""
        inode, replaced = self.find(name), self.names.get(to)
        self._change((name, None), (to, inode))
        if replaced is not None:
            self._keep_if_open(replaced)

    def unlink(self, name: str) -> None:
        """Remove the name."""
        inode = self.find(name)
        self._change((name, None))
        self._keep_if_open(inode)

    def sync_names(self) -> None:
        """Sync the directory."""
        self.check_sync()
        self._pending.clear()
        self._on_disk = dict(self.names)

    def closed(self, inode: Inode) -> None:
        """Count one open descriptor less."""
        inode.opens -= 1
        if inode.opens <= 0:
            self._orphans.pop(inode.number, None)

    # ---- room
    @property
    def free(self) -> int:
        """Free bytes."""
        held = [*self.names.values(), *self._orphans.values()]
        return max(0, self.capacity - self.taken - sum(inode.blocks for inode in held))

    def allocate(self, inode: Inode, size: int) -> None:
        """Reserve blocks up to `size`, read as zeros. Raises `OSError` if there is no space."""
        if size > _LARGEST or size - inode.blocks > self.free:
            raise OSError(errno.ENOSPC, "no space left on device")
        inode.allocated = max(inode.allocated, size)
        if size > len(inode.data):
            inode.truncate(size)

    def write(self, inode: Inode, pieces: Sequence[Chunk], at: int) -> int:
        """Write as many bytes as there is space for and return their number. Raises `OSError`."""
        if self.failing_writes:
            self.failing_writes -= 1
            self.on_failure()
            raise OSError(errno.EIO, "input/output error")
        end = at + sum(map(len, pieces))
        room = end if end <= inode.blocks else inode.blocks + self.free
        if room <= at < end:
            raise OSError(errno.ENOSPC, "no space left on device")
        done = 0
        for piece in pieces:
            part = piece[: max(0, room - at - done)]
            inode.write(part, at + done)
            done += len(part)
        return done

    def check_sync(self) -> None:
        """Raise `OSError` if the disk fails a sync now."""
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.on_failure()
            raise OSError(errno.EIO, "input/output error")

    # ---- within
    def _change(self, *change: tuple[str, Inode | None]) -> None:
        _apply(self.names, change)
        self._pending.append(change)

    def _keep_if_open(self, inode: Inode) -> None:
        if inode.opens > 0:
            self._orphans[inode.number] = inode


def _apply(names: dict[str, Inode], change: tuple[tuple[str, Inode | None], ...]) -> None:
    for name, inode in change:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _nothing() -> None:
    return None
