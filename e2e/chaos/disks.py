"""A disk for each broker: an ext4 image on a loop device, which can lose its power.

For a process with its own mount namespace: a mount goes with the process, and the loop device with
the mount (it clears itself), so nothing is left behind, not even by SIGKILL. Leaves the image. An
ordinary folder takes its place where there is no root.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from e2e.chaos.tools import run

SIZE: Final = 1 << 28
"""Bytes of an image; it is sparse, so only written bytes take space."""

_SHUTDOWN: Final = 2 << 30 | 4 << 16 | ord("X") << 8 | 125  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH: Final = 2
_SPARE: Final = "spare.bin"


class Disk:
    """One disk; `mount` it first."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image = image
        self.folder = folder
        self.mounted = False

    def make(self) -> None:
        """Create a new, empty file system and mount it."""
        self.unmount()
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount the disk where the broker looks for its data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run("mount", "-o", "loop", str(self.image), str(self.folder))
        self.mounted = True

    def unmount(self) -> None:
        """Unmount the disk; no process may use it."""
        if self.mounted:
            run("umount", str(self.folder))
            self.mounted = False

    def lose_power(self) -> None:
        """Let nothing reach the image from now on: unsynced data is gone with the next mount.

        Everything fails with EIO until then.
        """
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def fill(self) -> int:
        """Take all free space; return the bytes taken."""
        taken = 0
        with (self.folder / _SPARE).open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                block = bytes(size)
                try:
                    while True:
                        taken += file.write(block)
                except OSError:
                    continue
        return taken

    def empty(self) -> None:
        """Free the space that `fill` took."""
        (self.folder / _SPARE).unlink(missing_ok=True)
