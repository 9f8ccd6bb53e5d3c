"""What a check has done so far, so that the same command goes on where a killed one ended.

Leaves `progress.jsonl` in the check's folder: one line a segment that was checked, appended when
it is. A line that is cut (the check was killed while it wrote) does not count. A segment counts
as done while its file is the same: size, time of change, level. A check that comes to its end
removes the file: the next one looks at everything again.
"""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from fmqcore.journal.segments import index_name
from fmqspark.check.rows import SegmentResult
from fmqspark.check.segment import SegmentTask

NAME: Final = "progress.jsonl"
_VERSION: Final = 1


class Progress:
    """The file, or nothing at all if there is no folder to keep it in."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder is not None else None
        self._done: dict[str, SegmentResult] = {}
        self._file: TextIO | None = None

    def __enter__(self) -> "Progress":
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._load(self._path)
            self._file = self._path.open("a", encoding="utf-8")
            if self._path.stat().st_size:
                self._file.write("\n")  # whatever the last line is, ours begins a new one
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
        """The result of an earlier run that still holds. Never of what may be growing."""
        return None if task.newest or task.live else self._done.get(_key(task))

    def add(self, task: SegmentTask, result: SegmentResult) -> None:
        """This one is done."""
        if self._file is not None:
            row = {"version": _VERSION, "key": _key(task), "result": result.as_data()}
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def finished(self) -> None:
        """The whole check is."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    if row["version"] == _VERSION:
                        self._done[row["key"]] = SegmentResult.from_data(row["result"])
                except (ValueError, KeyError, TypeError):
                    continue


def _key(task: SegmentTask) -> str:
    names = (task.file.name, index_name(task.file.base))
    looks = [_look(os.path.join(task.path, name)) for name in names]
    return json.dumps(
        [task.replica, os.path.abspath(task.path), task.level.value, task.base, looks]
    )


def _look(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns, found.st_ino]
