"""Archive one range of a journal: the task that every engine runs. pyarrow's Parquet only here.

Files are made under a name of their own, synced, and renamed; a task that runs twice (another
attempt, a run that was thought dead) makes the same files of the same names.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fmqcore.errors import CorruptJournal, FmqError
from fmqcore.scan.payloads import Slab
from fmqcore.words import TopicId
from fmqspark.archive.ledger import FOLDER, ArchivedFile, Unit, scratch_name
from fmqspark.brokers import connections
from fmqspark.files import Throttle, sync_folder
from fmqspark.source.arrow import TYPES, record_batch, schema, stored
from fmqspark.source.splits import Split, SplitReader, Tally

COLUMNS: Final = tuple(name for name in TYPES if name != "topic")
_DAY_MS: Final = 86_400_000
_ROW_GROUP: Final = 16 * 1024 * 1024  # bytes gathered for one
_AT_ONCE: Final = 128 * 1024 * 1024  # bytes gathered for all
_CODEC: Final = "zstd"


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """One unit's work."""

    unit: Unit
    splits: tuple[Split, ...]
    folder: str
    group: str
    bytes_per_s: float = 0


@dataclass(slots=True)
class ArchiveResult:
    """What became of it; `failed` is empty if all of it is there."""

    unit: Unit
    files: list[ArchivedFile] = field(default_factory=list)
    failed: FmqError | OSError | None = None
    bytes_read: int = 0


def archive_unit(task: ArchiveTask) -> ArchiveResult:
    """Do it; what goes wrong is part of the result, not raised."""
    result, tally = ArchiveResult(task.unit), Tally()
    home = Path(task.folder, FOLDER)
    scratch = home / scratch_name(task.group, task.unit, uuid.uuid4().hex)
    try:
        scratch.mkdir()
        try:
            result.files = _write(task, scratch, tally)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except (FmqError, OSError) as error:
        result.failed = error
    result.bytes_read = tally.bytes_read
    return result


def file_name(group: str, unit: Unit) -> str:
    """What each file of a unit is called, in the folder of its topic and date."""
    return f"{group}-{unit.begin:020d}-{unit.end:020d}.parquet"


def _write(task: ArchiveTask, scratch: Path, tally: Tally) -> list[ArchivedFile]:
    throttle = Throttle(task.bytes_per_s)
    with connections(), _Files(scratch, task.group) as files:
        for split in task.splits:
            reader = SplitReader(split, stored(COLUMNS), throttle, tally)
            for slab in reader:
                for topic, day, rows in _parted(slab, reader.names):
                    files.add(topic, day, rows)
        made = files.close()
    found = []
    for (topic, day), (path, rows) in made.items():
        place = Path(f"topic={topic}", f"date={day}", file_name(task.group, task.unit))
        target = Path(task.folder) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size
        put(path, target)
        found.append(ArchivedFile(str(place), topic, day, rows, size))
    for folder in {Path(task.folder) / Path(file.path).parent for file in found}:
        for above in (folder, folder.parent, folder.parent.parent):
            sync_folder(above)
    return found


def put(path: Path, target: Path) -> None:
    """Give a file its name, when its bytes are safe."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(path, target)


def _parted(slab: Slab, names: dict[TopicId, str]) -> Iterator[tuple[str, str, Any]]:
    """A slab's rows by topic and day (UTC)."""
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
    path: Path
    writer: Any
    waiting: list[Any] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0


class _Files:
    """One Parquet file a topic and day, written at the same time."""

    def __init__(self, scratch: Path, group: str) -> None:
        self._scratch = scratch
        self._group = group
        self._schema = schema(COLUMNS).append(pa.field("group", pa.string()))
        self._files: dict[tuple[str, str], _File] = {}
        self._bytes = 0

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.writer.close()

    def add(self, topic: str, day: str, batch: Any) -> None:
        """Rows of one file."""
        file = self._files.get((topic, day))
        if file is None:
            path = self._scratch / f"{len(self._files)}.parquet"
            writer = pq.ParquetWriter(
                path, self._schema, compression=_CODEC, use_dictionary=["group", "queue"]
            )
            file = self._files[topic, day] = _File(path, writer)
        file.waiting.append(batch)
        file.bytes += batch.nbytes
        self._bytes += batch.nbytes
        if file.bytes >= _ROW_GROUP:
            self._flush(file)
        elif self._bytes >= _AT_ONCE:
            for each in self._files.values():
                self._flush(each)

    def close(self) -> dict[tuple[str, str], tuple[Path, int]]:
        """Finish them; path and rows of each."""
        for file in self._files.values():
            self._flush(file)
            file.writer.close()
        return {key: (file.path, file.rows) for key, file in self._files.items()}

    def _flush(self, file: _File) -> None:
        if not file.waiting:
            return
        table = pa.Table.from_batches(file.waiting)
        group = pa.array([self._group]).take(pa.array(np.zeros(len(table), np.int64)))
        file.writer.write_table(table.append_column(self._schema.field("group"), group))
        file.rows += len(table)
        self._bytes -= file.bytes
        file.waiting, file.bytes = [], 0
