"""A broker's data directory, read-only and offline, also while the broker works in it.

Files are read with `pread` in windows, not mapped: a bad disk block becomes an error to report, not
a signal that ends the process. The lock is only looked at.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fmqcore.batch.header import HEADER_LEN
from fmqcore.journal.segments import CHECKPOINT, segment_base
from fmqinspect.directory import is_locked, read_small, see

_WINDOW: Final = 1024 * 1024


class NoJournal(Exception):
    """The path is no directory, or holds no journal."""


class SegmentBytes:
    """One segment file: `len()` and slices, as `fmqcore.journal.scan.Readable` wants them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._window = b""
        self._window_at = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, piece: slice) -> bytes:
        begin, end, _ = piece.indices(self._size)
        length = end - begin
        if length <= 0:
            return b""
        at = begin - self._window_at
        if at < 0 or at + length > len(self._window):
            self._window = _pread(self._fd, max(length, _WINDOW), begin)
            self._window_at, at = begin, 0
        return self._window[at : at + length]

    def refresh(self) -> None:
        """Forget what was read: the file may have grown."""
        self._window = b""
        self._size = os.fstat(self._fd).st_size


class DataDirectory:
    """The files of one data directory."""

    def __init__(self, path: Path) -> None:
        """Open `path`. Raises `NoJournal` with the reason."""
        self.path = path
        if not path.is_dir():
            raise NoJournal(f"{path} is no directory: name a broker's data directory")
        self.listing, self.checkpoint, self.unread = see(path)
        names = {name for name, _ in self.listing}
        known = self.unread or CHECKPOINT in names
        if not known and not any(segment_base(name) is not None for name in names):
            raise NoJournal(
                f"{path} holds no journal: no checkpoint and no <position>.journal files; "
                "name a broker's data directory"
            )
        self.live = is_locked(path)

    def small(self, name: str) -> bytes | None:
        """Return a whole small file; None if there is none."""
        return read_small(self.path, name)

    def empty(self) -> str | None:
        """Return the newest segment file if it starts with zeros: nothing was stored in it."""
        names = [name for name, _ in self.listing if segment_base(name) is not None]
        if not names:
            return None
        try:
            with self.segment(names[-1]) as data:
                return None if any(data[0:HEADER_LEN]) else names[-1]
        except OSError:
            return None  # reported where it is read as a segment

    @contextmanager
    def segment(self, name: str) -> Iterator[SegmentBytes]:
        """Yield a segment file's bytes. Raises `OSError`, also while they are read."""
        fd = os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield SegmentBytes(fd)
        finally:
            os.close(fd)


def _pread(fd: int, length: int, at: int) -> bytes:
    parts = []
    while length > 0:
        piece = os.pread(fd, length, at)
        if not piece:
            break
        parts.append(piece)
        length -= len(piece)
        at += len(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)
