"""`rebuild-index`: make the index files of full segments anew from the journal's headers.

Order of effects, a segment: the index is built from the headers; it is written beside the old one
as `<base>.index.tmp` and synced; it is read back and must decode to what was built; then it is
renamed over the old one and the folder is synced. A killed run leaves the old index and perhaps a
`.tmp`, which a broker removes at its next start (and the next run replaces). A segment that is
damaged keeps the index it has: an index of what can be read would hide what cannot.

The directory is locked meanwhile. Beside a broker at work (`live`) it is not: the file is swapped
under it, which it reads when it opens that index next; the two newest segments are the broker's,
and a segment that was cut meanwhile loses the new index again.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from fmqcore.batch import HEADER_LEN, BatchHeader, BatchType
from fmqcore.errors import DirectoryLocked, Malformed
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.scan import Blank, Fault, Sealed
from fmqcore.journal.segments import Segment, index_name
from fmqcore.journal.verify import Verifier
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqcore.words import Position
from fmqspark.engines import Engine
from fmqspark.files import (
    DataDirectory,
    SegmentBytes,
    Throttle,
    directory_lock,
    look,
    open_segment,
    read_small,
)

_NEWEST_OF_A_BROKER: Final = 2


class Done(Enum):
    """What became of a segment's index."""

    SAME = "already right"
    REBUILT = "rebuilt"
    WOULD = "differs or is missing"  # nothing was changed: --dry-run
    OPEN = "not full yet: needs none"
    DAMAGED = "the segment is damaged: its index stays as it is"
    UNREAD = "could not be read or written"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One segment whose index is to be right."""

    path: str
    base: int
    size: int
    bytes_per_s: float
    newest: bool
    dry: bool


@dataclass(frozen=True, slots=True)
class IndexResult:
    """What was done."""

    path: str
    base: int
    done: Done
    batches: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        """The index file."""
        return index_name(Position(self.base))


def rebuild(
    directories: Sequence[Path],
    engine: Engine,
    *,
    bytes_per_s: float = 0,
    live: bool = False,
    dry: bool = False,
) -> list[IndexResult]:
    """Rebuild the indexes of all of these. Raises `InvalidArgument`, `DirectoryLocked`."""
    views = [look(path) for path in directories]
    with ExitStack() as locks:
        for view in views:
            if view.live and not live and not dry:
                raise DirectoryLocked(
                    f"{view.path}: a broker is at work there: stop it, or say --live"
                )
            if not view.live and not dry:
                locks.enter_context(directory_lock(view.path))
        rate = bytes_per_s / engine.workers
        tasks = [task for view in views for task in _tasks(view, rate, dry)]
        found = list(engine.run(rebuild_index, tasks))
    return sorted(found, key=lambda result: (result.path, result.base))


def _tasks(view: DataDirectory, rate: float, dry: bool) -> list[IndexTask]:
    listing = [pair for pair in view.listing if pair[0] != view.empty]
    files: tuple[SegmentFile, ...] = Verifier(listing, view.checkpoint).segments
    if view.live:
        files = files[:-_NEWEST_OF_A_BROKER]
    newest = None if view.live or not files else files[-1]
    return [IndexTask(view.path, file.base, file.size, rate, file == newest, dry) for file in files]


def rebuild_index(task: IndexTask) -> IndexResult:
    """Make one segment's index right; an I/O error is part of the result, not raised."""
    file = SegmentFile(Position(task.base), task.size)
    throttle = Throttle(task.bytes_per_s)
    try:
        with open_segment(task.path, file.name, throttle, sparse=True) as data:
            index, scan, last = _build(data, file)
            result = IndexResult(task.path, task.base, Done.SAME, len(index))
            if not isinstance(scan.stop, Sealed) or scan.position != file.end:
                return _not_sealed(result, scan, newest=task.newest)
            raw = index.encode()
            if read_small(task.path, index_name(file.base)) == raw:
                return result
            if task.dry:
                return IndexResult(task.path, task.base, Done.WOULD, len(index))
            _swap(Path(task.path), index_name(file.base), raw)
            if last is not None and not _still_there(task, data, last):
                Path(task.path, index_name(file.base)).unlink(missing_ok=True)
                return IndexResult(task.path, task.base, Done.OPEN, why="it was cut meanwhile")
            return IndexResult(task.path, task.base, Done.REBUILT, len(index))
    except Malformed as damage:
        return IndexResult(task.path, task.base, Done.DAMAGED, why=str(damage))
    except OSError as failed:
        why = failed.strerror or str(failed)
        return IndexResult(task.path, task.base, Done.UNREAD, why=why)


def _build(
    data: SegmentBytes, file: SegmentFile
) -> tuple[SegmentIndex, HeaderScan, BatchHeader | None]:
    segment = Segment(file.base, file.end)
    scan = HeaderScan(data.read, ScanRange(segment, file.base, file.end))
    index, last = SegmentIndex(file.base), None
    ends: dict[tuple[int, int], int] = {}
    for block in scan:
        for header in block.headers():
            if header.type == BatchType.DATA:
                key = (header.topic_id, header.queue_id)
                if ends.setdefault(key, header.base_offset) != header.base_offset:
                    raise Malformed(f"position {header.position}: the offsets of {key} have a gap")
                ends[key] = header.end_offset
            index.add(header)
            last = header
    return index, scan, last


def _not_sealed(result: IndexResult, scan: HeaderScan, *, newest: bool) -> IndexResult:
    if newest and isinstance(scan.stop, Blank):
        return IndexResult(result.path, result.base, Done.OPEN)
    match scan.stop:
        case Fault():
            sentence = scan.stop.sentence
        case Sealed():
            sentence = "the segment ends there, its file does not"
        case _:
            sentence = "zeros where a batch must be"
    why = f"position {scan.position}: {sentence}"
    return IndexResult(result.path, result.base, Done.DAMAGED, why=why)


def _swap(folder: Path, name: str, raw: bytes) -> None:
    """The shadow, read back and compared, takes the old one's place."""
    shadow = folder / f"{name}.tmp"
    with shadow.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    back = shadow.read_bytes()
    if back != raw or SegmentIndex.decode(back).encode() != raw:
        shadow.unlink()
        raise OSError(f"{shadow} reads differently from what was written: look at the disk")
    shadow.replace(folder / name)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _still_there(task: IndexTask, data: SegmentBytes, last: BatchHeader) -> bool:
    """Is the segment's file still the one that was read, and sealed by the same batch?"""
    try:
        named = os.stat(Path(task.path, SegmentFile(Position(task.base), task.size).name))
    except FileNotFoundError:
        return False
    if (named.st_dev, named.st_ino) != data.identity():
        return False
    head = data.read(HEADER_LEN, last.position - task.base)
    return last.type != BatchType.EOF or int.from_bytes(head[8:12], "little") == last.header_crc
