"""Archive one range of a journal as Parquet files: the task that every engine runs.

Files are made under a name of their own, synced, and renamed; a task that runs twice (another
attempt, a run that was thought dead) makes the same files of the same names.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fmqcore.errors import CorruptJournal, FmqError
from fmqcore.ids import TopicId
from fmqcore.scan.payloads import Slab
from fmqspark.archive.integrity import checksum
from fmqspark.archive.ledger import FOLDER, ArchivedFile, Unit, file_name, scratch_name
from fmqspark.archive.skip_damage import Bad, Search
from fmqspark.source.arrow import TYPES, record_batch, schema, stored, with_order
from fmqspark.source.brokers import connections
from fmqspark.source.files import Throttle, sync_folder
from fmqspark.source.options import ORDERED_COLUMNS
from fmqspark.source.splits import Split, SplitReader, Tally

COLUMNS: Final = tuple(name for name in TYPES if name != "topic")
_DAY_MS: Final = 86_400_000
_ROW_GROUP: Final = 16 * 1024 * 1024  # bytes gathered for one
_AT_ONCE: Final = 128 * 1024 * 1024  # bytes gathered for all
_CODEC: Final = "zstd"
_OPEN: Final = 100
"""Maximum open files of one task: far below the usual limit of a process (1024)."""
_UNFINISHED: Final = ".part"
"""Not `.parquet`: files are made in the archive's folder, where readers look for these."""


class Order(NamedTuple):
    """Of an ordered topic: the unit's segment, in which group, and sequence minus offset."""

    segment: int
    group: str
    shift: int


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """The work on one unit."""

    unit: Unit
    splits: tuple[Split, ...]
    folder: str
    group: str
    bytes_per_s: float = 0
    order: Order | None = None


@dataclass(slots=True)
class ArchiveResult:
    """The result for one unit; `failed` is empty if the unit is archived."""

    unit: Unit
    files: list[ArchivedFile] = field(default_factory=list)
    failed: FmqError | OSError | None = None
    bad: list[Bad] = field(default_factory=list)
    """Ranges that no replica can give, if the unit failed by that: the rest can be archived."""
    bytes_read: int = 0


def archive_unit(task: ArchiveTask) -> ArchiveResult:
    """Archive a unit; what goes wrong is part of the result, not raised."""
    result, tally = ArchiveResult(task.unit), Tally()
    home = Path(task.folder, FOLDER)
    scratch = home / scratch_name(task.group, task.unit, uuid.uuid4().hex)
    try:
        scratch.mkdir()
        try:
            result.files = _write(task, scratch, tally)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except _Unreadable as error:
        result.failed = error.why
        _look_for_damage(task, result, tally)
    except OSError as error:  # pyarrow does not say of which file
        result.failed = error if error.filename else _of(error, task.folder)
    except FmqError as error:
        result.failed = error
    result.bytes_read = tally.bytes_read
    return result


def _of(error: OSError, folder: str) -> OSError:
    if error.errno is None:
        return OSError(None, str(error), folder)
    return OSError(error.errno, os.strerror(error.errno), folder)


class _Unreadable(Exception):
    """The journal could not be read; an error of the archive's own files is another one."""

    def __init__(self, why: FmqError | OSError) -> None:
        super().__init__(str(why))
        self.why = why


def _look_for_damage(task: ArchiveTask, result: ArchiveResult, tally: Tally) -> None:
    search = Search(task.unit, COLUMNS, Throttle(task.bytes_per_s), tally)
    with (
        connections(),
        suppress(FmqError, OSError),
    ):  # then the whole unit is reported, as it failed first
        result.bad = search.find(task.splits)


def _write(task: ArchiveTask, scratch: Path, tally: Tally) -> list[ArchivedFile]:
    throttle = Throttle(task.bytes_per_s)
    with connections(), _Files(scratch, task.group, task.order) as files:
        for split in task.splits:
            for topic, day, rows in _rows(split, throttle, tally):
                files.add(
                    topic, day, rows if task.order is None else _ordered(rows, split, task.order)
                )
        made = files.close()
    found = []
    for (topic, day), (path, rows) in made.items():
        place = Path(f"topic={topic}", f"date={day}", file_name(task.group, task.unit))
        target = Path(task.folder) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        size, crc = path.stat().st_size, checksum(path)
        put(path, target)
        found.append(ArchivedFile(str(place), topic, day, rows, size, crc))
    for folder in {Path(task.folder) / Path(file.path).parent for file in found}:
        for above in (folder, folder.parent, folder.parent.parent):
            sync_folder(above)
    return found


def put(path: Path, target: Path) -> None:
    """Sync a file, then give it its name."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(path, target)


def _rows(split: Split, throttle: Throttle, tally: Tally) -> Iterator[tuple[str, str, Any]]:
    """Yield a split's rows by topic and day. Raises `_Unreadable`."""
    reader = SplitReader(split, stored(COLUMNS), throttle, tally)
    try:
        for slab in reader:
            yield from _parted(slab, reader.names)
    except (FmqError, OSError) as error:
        raise _Unreadable(error) from error


def _ordered(rows: Any, split: Split, order: Order) -> Any:
    """Return the rows within the split's offsets, with the columns of the order."""
    offsets, within = rows.column("offset").to_numpy(), split.wanted.offsets
    taken = (offsets >= within.first) & (offsets < within.end)
    kept = rows.filter(pa.array(taken))
    return with_order(kept, (*COLUMNS, *ORDERED_COLUMNS), order.segment, order.shift)


def _parted(slab: Slab, names: dict[TopicId, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield a slab's rows by topic and day (UTC)."""
    batch = record_batch(slab, COLUMNS, names)
    topics = np.asarray(slab.headers.column("topic_id")).astype(np.int64)
    days = (np.asarray(slab.headers.column("store_ms")) // _DAY_MS).astype(np.int64)
    counts = np.asarray(slab.headers.column("record_count")).astype(np.int64)
    keys, which = np.unique(np.stack([topics, days]), axis=1, return_inverse=True)
    of_row = np.repeat(which.reshape(-1), counts)
    for i in range(keys.shape[1]):
        rows = batch if keys.shape[1] == 1 else batch.filter(pa.array(of_row == i))
        yield names[TopicId(int(keys[0, i]))], str(_day(int(keys[1, i]))), rows


def _day(number: int) -> date:
    try:
        return datetime.fromtimestamp(number * 86_400, UTC).date()
    except (ValueError, OverflowError, OSError):
        raise CorruptJournal(f"a batch was stored {number} days after 1970: no such day") from None


@dataclass(slots=True)
class _File:
    parts: list[Path] = field(default_factory=list)
    writer: Any = None  # of the last part, while it is open
    waiting: list[Any] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0


class _Files:
    """One Parquet file per topic and day, written at the same time; few are open at once.

    The one that was written to least recently is closed, and goes on in another part. In the end
    parts become one file, so its name does not depend on how many could be open.
    """

    def __init__(self, scratch: Path, group: str, order: Order | None) -> None:
        self._scratch = scratch
        self._group = group if order is None else order.group
        columns = schema(COLUMNS)
        for name in ORDERED_COLUMNS if order else ():
            columns = columns.append(pa.field(name, pa.int64()))
        self._schema = columns.append(pa.field("group", pa.string()))
        self._files: dict[tuple[str, str], _File] = {}
        self._open: list[_File] = []  # who was written to last comes last
        self._made = 0
        self._bytes = 0

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for file in list(self._open):
            self._shut(file)

    def add(self, topic: str, day: str, batch: Any) -> None:
        """Add rows to one file."""
        file = self._files.setdefault((topic, day), _File())
        file.rows += len(batch)
        self._keep(file, batch)
        if self._bytes >= _AT_ONCE:
            for each in self._files.values():
                self._flush(each)

    def close(self) -> dict[tuple[str, str], tuple[Path, int]]:
        """Finish the files; return path and rows of each."""
        return {key: (self._finish(file), file.rows) for key, file in self._files.items()}

    def _keep(self, file: _File, batch: Any) -> None:
        file.waiting.append(batch)
        file.bytes += batch.nbytes
        self._bytes += batch.nbytes
        if file.bytes >= _ROW_GROUP:
            self._flush(file)

    def _flush(self, file: _File) -> None:
        if not file.waiting:
            return
        table = pa.Table.from_batches(file.waiting)
        group = pa.array([self._group]).take(pa.array(np.zeros(len(table), np.int64)))
        self._writer(file).write_table(table.append_column(self._schema.field("group"), group))
        self._bytes -= file.bytes
        file.waiting, file.bytes = [], 0

    def _writer(self, file: _File) -> Any:
        """Return the writer for a file's next rows."""
        if file.writer is not None:
            self._open.remove(file)
        else:
            if len(self._open) >= _OPEN:
                self._shut(self._open[0])
            file.parts.append(self._scratch / f"{self._made}{_UNFINISHED}")
            self._made += 1
            file.writer = pq.ParquetWriter(
                file.parts[-1],
                self._schema,
                compression=_CODEC,
                use_dictionary=["group", "queue"],
                write_page_checksum=True,
            )
        self._open.append(file)
        return file.writer

    def _shut(self, file: _File) -> None:
        self._open.remove(file)
        file.writer.close()
        file.writer = None

    def _finish(self, file: _File) -> Path:
        """Return one closed part with all rows of a file."""
        self._flush(file)
        if len(file.parts) > 1:
            self._join(file)
        if file.writer is not None:
            self._shut(file)
        return file.parts[0]

    def _join(self, file: _File) -> None:
        if file.writer is not None:
            self._shut(file)
        parts, file.parts = file.parts, []
        for part in parts:
            with pq.ParquetFile(part, page_checksum_verification=True) as opened:
                for number in range(opened.num_row_groups):
                    for batch in opened.read_row_group(number).to_batches():
                        self._keep(file, batch.drop_columns(["group"]))
            part.unlink()
        self._flush(file)
