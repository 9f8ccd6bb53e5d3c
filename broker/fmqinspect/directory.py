"""A data directory seen from outside, read-only, also while the broker works in it.

For tools: a broker accesses its files through `fmqport.disk`. The lock is only looked at. Leaves
nothing on disk.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from fmqcore.errors import Malformed
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_base

LOCK: Final = "lock"
"""The file that a running broker holds with `flock`."""
_LOOKS: Final = 20


class Seen(NamedTuple):
    """The content of a directory at one moment."""

    listing: list[tuple[str, int]]  # names and sizes, sorted
    checkpoint: bytes | None
    unread: str = ""  # why the checkpoint, which is there, cannot be read


def see(path: Path) -> Seen:
    """Return files and checkpoint that belong together, though a broker may be at work.

    Raises `OSError` only if the directory itself cannot be read.
    """
    for _ in range(_LOOKS):
        before, _ = _checkpoint(path)
        listing = _listing(path)
        after, unread = _checkpoint(path)
        if before == after or _files_named(before) == _files_named(after):
            break
    return Seen(listing, after, unread)


def read_small(path: Path | str, name: str) -> bytes | None:
    """Return a whole small file of a directory; None if there is none. Raises `OSError`."""
    file = Path(path, name)
    try:
        require_file(file, str(file))
        return file.read_bytes()
    except FileNotFoundError:
        return None


def is_locked(path: Path) -> bool:
    """Whether a broker is at work. If not, this holds the lock for a moment, shared.

    Raises `OSError` if the lock is no file: then it cannot be known.
    """
    try:
        fd = os.open(path / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        require_file(path / LOCK, str(path / LOCK))
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def require_file(file: Path | int, name: str) -> None:
    """Raise `OSError` for a pipe, which would block its reader, or a device, which never ends.

    `file`: its path, or a descriptor.
    """
    mode = os.stat(file).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", name)


def in_place_of(path: Path | str, name: str) -> str:
    """Return what stands in the place of a file; "" if it is a file, or nothing is there.

    A listing holds files alone, so a reader of the listing misses the file.
    """
    try:
        mode = os.lstat(Path(path, name)).st_mode
    except OSError:
        return ""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a link that leads to no file"),
        (stat.S_ISREG, ""),
    )
    if stat.S_ISLNK(mode) and Path(path, name).is_file():
        return ""
    return next((what for is_it, what in kinds if is_it(mode)), "a device")


def _checkpoint(path: Path) -> tuple[bytes | None, str]:
    """Return the checkpoint, and why it cannot be read."""
    try:
        return read_small(path, CHECKPOINT), ""
    except OSError as failed:
        return None, failed.strerror or str(failed)


def _listing(path: Path) -> list[tuple[str, int]]:
    """List the files, also those whose size is unknown (a link that leads to itself).

    A reader that opens one gets the reason.
    """
    found, unknown = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
            except FileNotFoundError:
                continue  # gone meanwhile
            except OSError:
                unknown.append(entry.name)
    names = [*unknown, *(name for name, _ in found)]
    return sorted([*found, *((name, _length(name, names)) for name in unknown)])


def _length(name: str, names: list[str]) -> int:
    """Return the length of a segment of unknown size: it ends where the next one starts."""
    base = segment_base(name)
    bases = [other for other in map(segment_base, names) if other is not None]
    behind = [other for other in bases if base is not None and other > base]
    return min(behind) - base if behind and base is not None else 0


def _files_named(checkpoint: bytes | None) -> object:
    """Return what a checkpoint states about which files there are."""
    try:
        decoded = decode_checkpoint(checkpoint or b"")
    except Malformed:
        return checkpoint
    return decoded.journal_start, decoded.bases, decoded.drop_from
