"""Read an archive back: its records in journal order, to be sent by whoever can.

This package knows no client: `fmq job replay` passes one in. Progress is noted in the archive
after what was sent is acknowledged, so a run that was killed goes on there; what it had sent and
not yet noted is sent again, in the same batches. The sender's own state is noted with it: by that
brokers recognise such a batch.

On disk: `_fmq/replay-<name>.json`, replaced atomically; `_fmq/replay-<name>.lock`.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmqcore.errors import DirectoryLocked, InvalidArgument, Malformed
from fmqspark.archive.ledger import FOLDER, ArchivedFile, groups, load
from fmqspark.files import sync_folder

CHUNK: Final = 5000
"""Records of one chunk: read at a time, and noted together at most."""
_COLUMNS: Final = ("queue", "offset", "key", "value", "tag", "headers")


class Place(NamedTuple):
    """How far a replay is: so many files, and so many rows of the next one."""

    files: int = 0
    rows: int = 0


class Archived(NamedTuple):
    """One record."""

    queue: int
    offset: int
    key: bytes | None
    value: bytes
    tag: bytes | None
    headers: dict[str, bytes] | None


class Replay:
    """The records of one topic of an archive, from where the last run of this name ended."""

    def __init__(self, folder: Path, topic: str, group: str | None, name: str) -> None:
        """Raises `InvalidArgument` for what is no archive, or holds no such topic."""
        self._folder = folder
        self._path = folder / FOLDER / f"replay-{name}.json"
        self._files = _files(folder, topic, group)
        self.state: dict[str, Any] = {}  # the sender's, as it was noted last
        self.place = Place()
        self.total = sum(file.rows for file in self._files)
        self.done_before = 0
        self._know()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Nobody else sends under this name meanwhile: what was noted last is known from here on.

        Raises `DirectoryLocked`, `InvalidArgument`.
        """
        path = self._path.with_suffix(".lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DirectoryLocked(
                    f"{path}: another replay of this name is at work: wait, or choose a --name"
                ) from None
            self._know()  # who held the lock may have come further since it was looked at
            yield
        finally:
            os.close(fd)

    def chunks(self) -> Iterator[tuple[list[Archived], Place]]:
        """Records, and what to `note` once all of them are stored: the same ones from the same
        place on, whenever they are read. Raises `Malformed`, `OSError`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for number in range(self.place.files, len(self._files)):
            path = self._folder / self._files[number].path
            skip = self.place.rows if number == self.place.files else 0
            at = 0
            try:
                with pq.ParquetFile(path) as file:
                    self._expect(number, file.metadata.num_rows)  # before any of it is sent
                    for batch in file.iter_batches(CHUNK, columns=list(_COLUMNS)):
                        begin, at = at, at + batch.num_rows
                        if at > skip:
                            rows = _rows(batch.slice(max(0, skip - begin)))
                            yield rows, Place(number, at)
            except (pa.ArrowException, KeyError) as error:
                raise Malformed(f"{path} does not read as an archive's Parquet: {error}") from error
            self._expect(number, at)

    def _expect(self, number: int, rows: int) -> None:
        file = self._files[number]
        if rows != file.rows:
            raise Malformed(
                f"{self._folder / file.path} has {rows} rows, the archive's ledger says {file.rows}"
            )

    def note(self, place: Place, state: Mapping[str, Any] | None = None) -> None:
        """What came up to there is stored; and the sender's state as of there."""
        told = {"files": place.files, "rows": place.rows, "of": self._of(), "sender": state or {}}
        raw = json.dumps(told)
        fresh = self._path.with_suffix(".tmp")
        with fresh.open("w") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)
        sync_folder(self._path.parent)

    def _know(self) -> None:
        """Where it stands."""
        self.state = {}
        self.place = self._load()
        self.done_before = self.place.rows + sum(f.rows for f in self._files[: self.place.files])

    def _of(self) -> list[str]:
        return [file.path for file in self._files]

    def _load(self) -> Place:
        try:
            told = json.loads(self._path.read_text())
            place, of = Place(told["files"], told["rows"]), told["of"]
            self.state = dict(told.get("sender", {}))
        except FileNotFoundError:
            return Place()
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{self._path} does not decode: {error}; remove it") from None
        if self._of()[: len(of)] != of:
            raise InvalidArgument(
                f"{self._path} tells of a replay of other files: choose another --name"
            )
        return place


def _files(folder: Path, topic: str, group: str | None) -> list[ArchivedFile]:
    known = groups(folder)
    if not known:
        raise InvalidArgument(f"{folder} is no archive: `fmq job archive` makes one")
    if group is None and len(known) > 1:
        raise InvalidArgument(f"{folder} holds several groups: --group {' | '.join(known)}")
    if group is not None and group not in known:
        raise InvalidArgument(f"{folder} holds no group {group!r}: there are {', '.join(known)}")
    ledger = load(folder, group or known[0])
    files = ledger.files() if ledger else []
    topics = sorted({file.topic for file in files})
    if topic not in topics:
        raise InvalidArgument(f"no topic {topic!r} in {folder}: {', '.join(topics) or 'none yet'}")
    return [file for file in files if file.topic == topic]


def _rows(batch: Any) -> list[Archived]:
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    return [
        Archived(queue, offset, key, value, tag, None if headers is None else dict(headers))
        for queue, offset, key, value, tag, headers in zip(*columns, strict=True)
    ]
