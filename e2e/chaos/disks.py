"""A disk of its own for each broker: an ext4 image on a loop device, which can lose its power.

For a process that has a mount namespace of its own: a mount goes with it, and the loop device with
the mount (it is made to clear itself), so nothing is left behind, not even by SIGKILL. Leaves the
image. An ordinary folder takes its place where there is no root.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from e2e.chaos.tools import run

SIZE: Final = 1 << 28
"""Of an image; sparse, so only what is written takes room."""

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
        """A new file system, empty, and mounted."""
        self.unmount()
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount it where the broker looks for its data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run("mount", "-o", "loop", str(self.image), str(self.folder))
        self.mounted = True

    def unmount(self) -> None:
        """Nobody may have it in use."""
        if self.mounted:
            run("umount", str(self.folder))
            self.mounted = False

    def lose_power(self) -> None:
        """From now on nothing reaches the image: what was not synced is gone with the next mount.

        Everything fails with EIO until then.
        """
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def fill(self) -> int:
        """Take all the room there is; the bytes taken."""
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
        """Give it back."""
        (self.folder / _SPARE).unlink(missing_ok=True)
