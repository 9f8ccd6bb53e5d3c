"""A data directory looked at from outside, read-only, also beside the broker at work in it.

For tools: a broker's own way to its files is `fmqport.disk`. The lock is only looked at. Leaves
nothing on disk.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from fmqcore.errors import Malformed
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT

LOCK: Final = "lock"
"""The file that a broker at work holds with `flock`."""
_LOOKS: Final = 20


class Seen(NamedTuple):
    """What a directory holds, as of one moment."""

    listing: list[tuple[str, int]]  # names and sizes, sorted
    checkpoint: bytes | None


def see(path: Path) -> Seen:
    """Files and checkpoint that belong together, though a broker may be at work."""
    for _ in range(_LOOKS):
        before = read_small(path, CHECKPOINT)
        listing = _listing(path)
        after = read_small(path, CHECKPOINT)
        if before == after or _files_named(before) == _files_named(after):
            break
    return Seen(listing, after)


def read_small(path: Path | str, name: str) -> bytes | None:
    """A small file of a directory, whole; None if there is none. Raises `OSError`."""
    try:
        return Path(path, name).read_bytes()
    except FileNotFoundError:
        return None


def is_locked(path: Path) -> bool:
    """Is a broker at work? Holds the lock itself for a moment, shared, only if none is."""
    try:
        fd = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _listing(path: Path) -> list[tuple[str, int]]:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # gone meanwhile
                if entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
    return sorted(found)


def _files_named(checkpoint: bytes | None) -> object:
    """What a checkpoint says of which files there are."""
    try:
        found = decode_checkpoint(checkpoint or b"")
    except Malformed:
        return checkpoint
    return found.log_start, found.bases, found.drop_from
