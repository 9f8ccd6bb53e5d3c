"""Rebuild the index files of full segments from the journal's headers (`rebuild-index`).

Order of effects, per segment: the index is built from the headers; it is written beside the old one
as `<base>.index.<random>.tmp` and synced; it is read back and must decode to what was built; then
it is renamed over the old one and the folder is synced. A killed run leaves the old index and
perhaps a `.tmp`, which the next run and the broker's next start remove. A damaged segment keeps the
index it has: an index of what can be read would hide what cannot. A segment whose file is missing
is reported as such: what can be rebuilt is, and the job does not call that whole.

The directory is locked meanwhile. Beside a running broker (`live`) it is not: the file is swapped
under the broker, which reads it when it opens that index next; the two newest segments are the
broker's, and a segment that was truncated meanwhile loses the new index again.
"""

import os
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from fmqcore.batch.header import HEADER_LEN, BatchFault, BatchHeader, BatchType
from fmqcore.errors import DirectoryLocked, Malformed
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint
from fmqcore.journal.findings import Finding
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import Refuse, SegmentFile, Survey, judge, survey
from fmqcore.journal.scan import Blank, Fault, Sealed
from fmqcore.journal.segments import CHECKPOINT, Segment, index_base, index_name
from fmqcore.scan.headers import HeaderScan, ScanRange
from fmqspark.engines.engine import Engine
from fmqspark.source.files import (
    DataDirectory,
    SegmentBytes,
    Throttle,
    directory_lock,
    give_to_owner_of,
    inspect_directories,
    inspect_directory,
    open_segment,
    read_small,
)

_NEWEST_OF_A_BROKER: Final = 2


class Done(Enum):
    """The outcome for a segment's index."""

    SAME = "already right"
    REBUILT = "rebuilt"
    WOULD = "differs or is missing"  # nothing was changed: --dry-run
    OPEN = "not full yet: needs none"
    RETIRED = "deleted by retention meanwhile"  # beside a broker at work
    DAMAGED = "the segment is damaged: its index stays as it is"
    NEWER = "only a newer FMQ reads the segment: its index stays as it is"
    MISSING = "the segment is missing"
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
    live: bool
    durable_end: int
    """The position below which everything must be there."""
    clean: bool
    """Whether the broker stopped in order: nothing can be torn."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The outcome for a segment, or a directory."""

    path: str
    base: int | None  # None: the directory as a whole
    done: Done
    batches: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        """The name of the index file."""
        return "" if self.base is None else index_name(Position(self.base))


def rebuild(
    directories: Sequence[Path],
    engine: Engine,
    *,
    bytes_per_s: float = 0,
    live: bool = False,
    dry: bool = False,
) -> list[IndexResult]:
    """Rebuild the indexes of all directories. Raises `InvalidArgument`, `DirectoryLocked`."""
    views = inspect_directories(directories)
    found: list[IndexResult] = []
    tasks: list[IndexTask] = []
    with ExitStack() as locks:
        for view in views:
            if view.live and not live and not dry:
                raise DirectoryLocked(
                    f"{view.path} is in use by a running broker: stop it, or use --live"
                )
            # Without its checkpoint it is not known which of the files count.
            why = f"{CHECKPOINT}: {view.unread}" if view.unread and view.listing else view.unread
            if not (why or view.live or dry):
                why = _locked(Path(view.path), locks)
            if why:
                found.append(IndexResult(view.path, None, Done.UNREAD, why=why))
        left_out = {result.path for result in found}
        rate = bytes_per_s / engine.workers
        for view in views:
            if view.path in left_out:
                continue
            seen = _survey(view)
            if seen.missing and view.live:  # retention may have been at work: look again
                with suppress(OSError):
                    view = inspect_directory(Path(view.path))._replace(live=True)
                seen = _survey(view)
            found += _missing(view, seen)
            tasks += _tasks(view, seen, rate, dry)
        found += engine.run(rebuild_index, tasks)
    return sorted(found, key=lambda result: (result.path, result.base or 0))


def _locked(folder: Path, locks: ExitStack) -> str:
    """Lock a folder and tidy it up; return why that fails, or "". Raises `DirectoryLocked`."""
    try:
        locks.enter_context(directory_lock(str(folder)))
        _tidy(folder)
    except OSError as failed:
        return f"{failed.filename}: {failed.strerror}" if failed.filename else str(failed)
    return ""


def _tidy(folder: Path) -> None:
    """Remove the files of a killed run: under the lock no other process builds an index."""
    for shadow in folder.glob("*.index.*tmp"):
        if index_base(".".join(shadow.name.split(".")[:2])) is not None:
            shadow.unlink(missing_ok=True)


def _checkpoint(view: DataDirectory) -> Checkpoint | None:
    try:
        return None if view.checkpoint is None else decode_checkpoint(view.checkpoint)
    except Malformed:
        return None


def _survey(view: DataDirectory) -> Survey:
    """Return which files of the listing count."""
    return survey(view.listing, _checkpoint(view))


def _missing(view: DataDirectory, seen: Survey) -> list[IndexResult]:
    """Return results for missing segments, in the chain or at its end: they have no index."""
    holes: list[tuple[Finding | None, int]] = [(hole, hole.position or 0) for hole in seen.missing]
    end = seen.segments[-1].end if seen.segments else seen.journal_start
    if end < seen.durable_end and not holes:
        holes.append((None, end))
    return [
        IndexResult(
            view.path,
            base,
            Done.MISSING,
            why=f"position {base}: "
            + (hole.sentence if hole else f"all below {seen.durable_end} is known to be stored"),
        )
        for hole, base in holes
    ]


def _tasks(view: DataDirectory, seen: Survey, rate: float, dry: bool) -> list[IndexTask]:
    checkpoint = _checkpoint(view)
    files = seen.segments
    if seen.cut_at is not None:
        files = files[:-1]  # the broker's next start truncates this file and removes its index
    if view.live:
        files = files[:-_NEWEST_OF_A_BROKER]
    newest = None if view.live or not files else seen.segments[-1]
    clean = checkpoint is not None and checkpoint.clean
    return [
        IndexTask(
            view.path,
            file.base,
            file.size,
            rate,
            newest=file == newest,
            dry=dry,
            live=view.live,
            durable_end=seen.durable_end,
            clean=clean,
        )
        for file in files
    ]


def rebuild_index(task: IndexTask) -> IndexResult:
    """Make one segment's index right; an I/O error is part of the result, not raised."""
    file = SegmentFile(Position(task.base), task.size)
    throttle = Throttle(task.bytes_per_s)
    try:
        with open_segment(task.path, file.name, throttle, sparse=True) as data:
            index, scan, last = _build(data, file)
            result = IndexResult(task.path, task.base, Done.SAME, len(index))
            if last is None or not isinstance(scan.stop, Sealed) or scan.position != file.end:
                return _not_sealed(task, file, scan)
            raw = index.encode()
            there = read_small(task.path, index_name(file.base))
            throttle.read(len(there or b""))
            if there == raw:
                return result
            if task.dry:
                return IndexResult(task.path, task.base, Done.WOULD, len(index))
            _swap(Path(task.path), file, raw)
            if last is not None and not _still_there(task, data, last):
                Path(task.path, index_name(file.base)).unlink(missing_ok=True)
                return IndexResult(
                    task.path, task.base, Done.OPEN, why="it was truncated meanwhile"
                )
            return IndexResult(task.path, task.base, Done.REBUILT, len(index))
    except Malformed as damage:
        return IndexResult(task.path, task.base, Done.DAMAGED, why=str(damage))
    except OSError as failed:
        if task.live and not Path(task.path, file.name).exists():
            return IndexResult(task.path, task.base, Done.RETIRED)
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


def _not_sealed(task: IndexTask, file: SegmentFile, scan: HeaderScan) -> IndexResult:
    """Return OPEN for the newest segment if that is as it should be, else DAMAGED."""
    stop = scan.stop
    if stop is None or not file.size:  # the file is cut, perhaps to nothing
        stop = Blank(scan.position)
    if task.newest and not isinstance(stop, Sealed):
        durable_end = Position(task.durable_end)
        verdict = judge(stop, file.name, durable_end=durable_end, clean=task.clean)
        if not isinstance(verdict, Refuse):  # not full, perhaps with a torn end that will be cut
            return IndexResult(task.path, task.base, Done.OPEN)
    done = Done.DAMAGED
    match stop:
        case Fault():
            sentence = stop.sentence
            done = Done.NEWER if stop.fault is BatchFault.KIND else done
        case Sealed():
            sentence = "the segment ends there, its file does not"
        case _:
            sentence = "zeros where a batch must be"
    why = f"position {scan.position}: {sentence}"
    return IndexResult(task.path, task.base, done, why=why)


def _swap(folder: Path, segment: SegmentFile, raw: bytes) -> None:
    """Write an index beside the old one, read it back, compare, and rename it over the old one.

    It gets its segment's owner. Its temporary name is unique: two runs beside a broker (which hold
    no lock) may be at the same index.
    """
    name = index_name(segment.base)
    shadow = folder / f"{name}.{uuid.uuid4().hex}.tmp"
    try:
        with shadow.open("wb") as file:
            give_to_owner_of(folder / segment.name, file.fileno())
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        back = shadow.read_bytes()
        if back != raw or SegmentIndex.decode(back).encode() != raw:
            raise OSError(f"{shadow} differs from what was just written to it: check the disk")
        shadow.replace(folder / name)
    except (OSError, Malformed):
        with suppress(OSError):
            shadow.unlink()
        raise
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _still_there(task: IndexTask, data: SegmentBytes, last: BatchHeader) -> bool:
    """Return whether the segment's file is still the one read, sealed by the same batch."""
    try:
        named = os.stat(Path(task.path, SegmentFile(Position(task.base), task.size).name))
    except FileNotFoundError:
        return False
    if (named.st_dev, named.st_ino) != data.identity():
        return False
    head = data.read(HEADER_LEN, last.position - task.base)
    return last.type != BatchType.EOF or int.from_bytes(head[8:12], "little") == last.header_crc
