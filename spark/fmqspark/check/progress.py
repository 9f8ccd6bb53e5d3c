"""Keep what a check has done so far, so that the same command goes on after a killed one.

Leaves `progress.jsonl` in the check's folder, locked while a check writes there: one line per
checked segment, appended when it is. An incomplete line (the check was killed while it wrote, or
the disk was full) does not count. A segment counts as done while all that its verdict came from is
the same: its file, its index and the next segment's file (size, times, inode), what the checkpoint
claims about it, and the level; as they were before they were read. A check that comes to its end
removes the file, when its reports are there: the next one looks at everything again.
"""

import fcntl
import io
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Final

from fmqcore.batch.crc import crc32c
from fmqcore.errors import DirectoryLocked, Malformed
from fmqcore.journal.checkpoint import decode_checkpoint
from fmqcore.journal.segments import index_name, segment_name
from fmqcore.verify.checkpoint import Claims
from fmqspark.check.rows import SegmentResult
from fmqspark.check.segment import SegmentTask

NAME: Final = "progress.jsonl"
_VERSION: Final = 2


class Progress:
    """The progress file, or nothing at all if there is no folder to keep it in."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder is not None else None
        self._done: dict[str, SegmentResult] = {}
        self._keys: dict[tuple[str, int], str] = {}
        self._file: io.FileIO | None = None
        self._full = False

    def __enter__(self) -> "Progress":
        """Lock and load the file. Raises `DirectoryLocked`, `OSError`."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _locked(self._path)
            self._load(self._path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def done(self, task: SegmentTask) -> SegmentResult | None:
        """Return an earlier run's result if it still holds; never of what may be growing."""
        if self._file is None:
            return None
        key = self._keys[task.replica, task.base] = _key(task)
        return None if task.newest or task.live else self._done.get(key)

    def add(self, task: SegmentTask, result: SegmentResult) -> None:
        """Note a segment as done, unless a part could not be read: a later try may succeed.

        Nor if it may be growing, or its index is still to come: the next try may call it neither.
        Where it cannot be kept (a full disk) the check goes on without.
        """
        if self._file is None or self._full or task.newest or task.live:
            return
        if any(covered.needs_own_line for covered in result.coverage):
            return
        key = self._keys[task.replica, task.base]
        row = {"version": _VERSION, "key": key, "result": result.as_data()}
        line = (
            b"\n%b\n" % json.dumps(row).encode()
        )  # after a row that was cut short, this starts a new line
        try:
            self._full = self._file.write(line) != len(line)
        except OSError:
            self._full = True

    def finished(self) -> None:
        """Remove the file: the whole check is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    if row["version"] == _VERSION:
                        self._done[row["key"]] = SegmentResult.from_data(row["result"])
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue


def _locked(path: Path) -> io.FileIO:
    """Open the file, locked against other checks. Raises `DirectoryLocked`, `OSError`."""
    while True:
        file = io.FileIO(path, "a")
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        except FileNotFoundError:
            pass
        except BlockingIOError:
            file.close()
            raise DirectoryLocked(
                f"{path.parent} is in use by another check: wait for it, or name another --out"
            ) from None
        file.close()  # whoever had it has come to an end, and removed it


def _key(task: SegmentTask) -> str:
    names = (task.file.name, index_name(task.file.base), segment_name(task.file.end))
    looks = [_look(os.path.join(task.path, name)) for name in names]
    place = [task.replica, os.path.abspath(task.path), task.level.value, task.base]
    return json.dumps([*place, looks, _claims(task)])


def _claims(task: SegmentTask) -> int | None:
    """Return the CRC of the checkpoint that makes claims about a segment; None: there is none."""
    try:
        checkpoint = decode_checkpoint(task.checkpoint or b"")
    except Malformed:
        return None
    return crc32c(task.checkpoint or b"") if Claims(checkpoint, task.file).places else None


def _look(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
