"""Read data directories for jobs: read-only, offline, also beside a running broker.

Files are read with `pread`, not mapped: a bad disk block becomes an error to report, not a signal
that ends the process. The lock is only looked at (`directory_lock` alone takes it). Leaves nothing
on disk.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from fmqcore.batch.header import HEADER_LEN
from fmqcore.errors import DirectoryLocked, InvalidArgument, Malformed
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_base
from fmqinspect.directory import LOCK, is_locked, read_small, see
from fmqspark.source.places import each_once

_WINDOW: Final = 1024 * 1024
_FAR: Final = 4096  # a jump over more than this: only what is asked for is read
_SLEEP_FROM_S: Final = 0.002

__all__ = [
    "LOCK",
    "DataDirectory",
    "SegmentBytes",
    "Throttle",
    "directory_lock",
    "give_to_owner_of",
    "inspect_directories",
    "inspect_directory",
    "make_folder",
    "open_segment",
    "read_small",
    "sync_folder",
]


class Throttle:
    """Limit reading to `bytes_per_s` on average since its creation; 0: no limit."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate = bytes_per_s
        self._started_s = time.monotonic()
        self._bytes = 0

    def read(self, count: int) -> None:
        """Count bytes that were read, and wait until they are within the limit."""
        if not self._rate:
            return
        self._bytes += count
        ahead_s = self._bytes / self._rate - (time.monotonic() - self._started_s)
        if ahead_s > _SLEEP_FROM_S:
            time.sleep(ahead_s)


class SegmentBytes:
    """One segment file: `len()` and slices (`scan.Readable`), and `read` (`scan.headers.Read`)."""

    def __init__(self, fd: int, throttle: Throttle, *, sparse: bool = False) -> None:
        """With `sparse`, far jumps read only what is asked for, because payloads are not read."""
        self.bytes_read = 0
        self._fd = fd
        self._throttle = throttle
        self._sparse = sparse
        self._size = os.fstat(fd).st_size
        self._window = b""
        self._window_at = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, piece: slice) -> bytes:
        begin = piece.start or 0
        end = self._size if piece.stop is None else min(piece.stop, self._size)
        length = end - begin
        if length <= 0:
            return b""
        at = begin - self._window_at
        window = self._window
        if at >= 0 and at + length <= len(window):
            return window[at : at + length]
        far = self._sparse and not -_FAR <= at - len(window) <= _FAR
        self._window = self.read(length if far else max(length, _WINDOW), begin)
        self._window_at = begin
        return self._window[:length]

    def read(self, length: int, at: int) -> bytes:
        """Return `length` bytes from `at` on, fewer at the end. Raises `OSError`."""
        data = os.pread(self._fd, length, at)
        while 0 < len(data) < length:
            piece = os.pread(self._fd, length - len(data), at + len(data))
            if not piece:
                break
            data += piece
        self.bytes_read += len(data)
        self._throttle.read(len(data))
        return data

    @property
    def pread(self) -> Callable[[int, int], bytes]:
        """`read` as fast as it can be: no throttle, not counted, and a signal may shorten it."""
        return partial(os.pread, self._fd)

    def identity(self) -> tuple[int, int]:
        """Return which file it is, whatever its name is now."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def refresh(self) -> None:
        """Forget what was read: the file may have grown."""
        self._window = b""
        self._size = os.fstat(self._fd).st_size


class DataDirectory(NamedTuple):
    """The content of a data directory, as of one moment."""

    path: str
    listing: tuple[tuple[str, int], ...]
    checkpoint: bytes | None
    empty: str | None  # the newest segment file if nothing in it was stored
    live: bool  # a broker is at work here
    unread: str = (
        ""  # why its checkpoint, which is there, or (no listing) the directory cannot be read
    )

    def read(self, name: str) -> bytes | None:
        """Return a small file whole; None if there is none. Raises `OSError`."""
        return read_small(self.path, name)


def inspect_directory(path: Path) -> DataDirectory:
    """List a data directory and read its checkpoint.

    Raises `InvalidArgument` if it is not one or holds no journal.

    A checkpoint that cannot be read is `unread`; a directory that cannot be read raises `OSError`.
    """
    if not path.is_dir():
        raise InvalidArgument(f"{path} is not a directory: name a broker's data directory")
    listing, checkpoint, unread = see(path)
    names = [name for name, _ in listing]
    segments = [name for name in names if segment_base(name) is not None]
    if CHECKPOINT not in names and not unread and not segments:
        raise InvalidArgument(
            f"{path} holds no journal: no checkpoint and no <position>.journal files; "
            "name a broker's data directory"
        )
    empty = segments[-1] if segments and _is_blank(path / segments[-1]) else None
    return DataDirectory(str(path), tuple(listing), checkpoint, empty, is_locked(path), unread)


def inspect_directories(paths: Sequence[Path]) -> list[DataDirectory]:
    """List several data directories. Raises `InvalidArgument` also for one named twice or empty.

    Where neither a checkpoint nor a segment holds anything, there is nothing that could be clean. A
    directory that cannot be read does not hinder the others: it is `unread`, without a listing.
    Raises `OSError` if none can be read.
    """
    views, failures = [], []
    for path in paths:
        try:
            views.append(inspect_directory(path))
        except OSError as failed:
            failures.append(failed)
            why = failed.strerror or str(failed)
            views.append(DataDirectory(str(path), (), None, None, live=False, unread=why))
    if len(failures) == len(views):
        raise failures[0]
    each_once(paths)
    for view in views:
        segments = [name for name, _ in view.listing if segment_base(name) is not None]
        known = view.unread or _decodes(view.checkpoint)
        if segments in ([], [view.empty]) and not known:
            raise InvalidArgument(
                f"{view.path} holds no journal: no checkpoint that can be read, and nothing in a "
                "segment file; name a broker's data directory"
            )
    return views


def _decodes(checkpoint: bytes | None) -> bool:
    try:
        return checkpoint is not None and decode_checkpoint(checkpoint) is not None
    except Malformed:
        return False


@contextmanager
def open_segment(
    path: str, name: str, throttle: Throttle, *, sparse: bool = False
) -> Iterator[SegmentBytes]:
    """Open a segment file. Raises `OSError`, also while its bytes are read."""
    fd = os.open(Path(path, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield SegmentBytes(fd, throttle, sparse=sparse)
    finally:
        os.close(fd)


@contextmanager
def directory_lock(path: str) -> Iterator[None]:
    """Keep brokers out of the directory within the context. Raises `DirectoryLocked`."""
    lock = Path(path, LOCK)
    is_new = not lock.exists()
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryLocked(f"{path} is in use by a running broker: stop it") from None
        if is_new:
            give_to_owner_of(Path(path), fd)
        yield
    finally:
        os.close(fd)


def give_to_owner_of(like: Path, fd: int) -> None:
    """Give a new file the owner and mode of `like`, whatever user (root) and umask the job has.

    A file that the broker may not read is a broken disk to it. A user who may not give files away
    leaves the file as it is. Raises `OSError`.
    """
    try:
        owner = os.stat(like)
        os.fchown(fd, owner.st_uid, owner.st_gid)
    except OSError:  # not allowed, an owner that this container does not know; or it went
        return
    os.fchmod(fd, owner.st_mode & 0o666)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its names are there after a power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they are there after a power loss."""
    new = [path for path in folder.absolute().parents if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in [folder, *new]:
        with suppress(PermissionError):  # above what is ours we may not even look
            sync_folder(path.absolute().parent)


def _is_blank(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return not any(opened.read(HEADER_LEN))
    except OSError:
        return False  # reported where it is read as a segment
