"""Read an archive back: its records in journal order, for a sender to send.

This package has no client: `fmq job replay` passes one in. Progress is noted in the archive after
what was sent is acknowledged, so the run after a killed one goes on there. What that one had sent
and not yet noted, at most one chunk, comes again: the sender's own state is noted with the place,
and by that state no record of the chunk is stored twice.

A replay ends before the first range that the archive lacks: what is archived there later is sent
then, in journal order. A replay that goes past one on purpose (`skip_lost`, `skip_missing`), or did
so with a version that did not look, keeps the order of files that was noted: what was started stays
where it is, and what comes to be archived of that range is sent behind it. Nothing is sent twice.

On disk: `_fmq/replay-<name>.json`, replaced atomically; `_fmq/replay-<name>-.lock` (no name ends in
`-`, so it is no group's).
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmqcore.errors import DirectoryLocked, InvalidArgument, Malformed
from fmqspark.archive.integrity import REMEDY, require_whole
from fmqspark.archive.ledger import (
    FOLDER,
    ArchivedFile,
    Hole,
    Ledger,
    Unit,
    bounded_name,
    groups,
    load,
)
from fmqspark.source.files import sync_folder

CHUNK: Final = 5000
"""Maximum records of one chunk: read at a time, and noted together."""
_LACKS: Final = {
    False: "are not archived yet",
    True: "were deleted before they were archived, so no replica has them",
}
_REMEDIES: Final = {
    False: "run `fmq job archive` again, with a replica that has them, and then this; "
    "--skip-missing goes on without them",
    True: "--skip-lost goes on without them",
}
_COLUMNS: Final = ("queue", "offset", "key", "value", "tag", "headers")


class Place(NamedTuple):
    """How far a replay is: a number of files, and a number of rows of the next one."""

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


class Progress(NamedTuple):
    """The progress that was last written to the replay's file."""

    place: Place
    of: list[str]  # the files in the order in which they are sent: those that may be started
    sender: dict[str, Any]


class _Step(NamedTuple):
    """One file of the archive, in the order in which files are sent."""

    unit: Unit
    file: ArchivedFile


class Replay:
    """The records of one topic of an archive, from where the last run of this name ended."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        group: str | None,
        name: str,
        *,
        skip_lost: bool = False,
        skip_missing: bool = False,
    ) -> None:
        """Raise `InvalidArgument` if the folder is not an archive, or does not hold the topic."""
        self._folder = folder
        self._topic = topic
        self._group, _ = open_group(folder, group)
        self._path = progress_path(folder, name)
        self._skips = {True: skip_lost, False: skip_missing}
        self.state: dict[str, Any] = {}  # the sender's state, as last written
        self.place = Place()
        self.done_before = 0
        self.stop: Hole | None = None  # the run ends before this hole
        self.skipped: list[Hole] = []
        self._order: list[_Step] = []
        self._until = 0  # number of steps that may be sent
        self._late: list[Unit] = []
        self._know()

    @property
    def whole(self) -> bool:
        """Whether nothing is missing that may still be archived."""
        return self.stop is None and all(hole.lost for hole in self.skipped)

    def notices(self) -> list[str]:
        """Return what a person must know about what is sent, and what is not."""
        notices = [f"{self._where(hole)} {_LACKS[hole.lost]}: left out" for hole in self.skipped]
        notices += [
            f"{self._where(unit)} come behind later ones: an earlier run went past them"
            for unit in self._late
        ]
        if self.stop is not None:
            notices.append(
                f"stopped at position {self.stop.begin}: {self._where(self.stop)} "
                f"{_LACKS[self.stop.lost]}; {_REMEDIES[self.stop.lost]}"
            )
        return notices

    def _where(self, unit: Unit | Hole) -> str:
        return f"positions {unit.begin} to {unit.end} of {self._group}"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep other replays of this name out, and read again what was noted last.

        Raises `DirectoryLocked`, `InvalidArgument`.
        """
        path = self._path.with_name(f"{self._path.stem}-.lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DirectoryLocked(
                    f"{path}: another replay of this name is running: wait for it, or choose "
                    "another --name"
                ) from None
            self._know()  # who held the lock may have come further since it was looked at
            yield
        finally:
            os.close(fd)

    def chunks(self) -> Iterator[tuple[list[Archived], Place]]:
        """Yield records, and what to `note` once all of them are stored.

        They are the same ones from the same place on, whenever they are read. Raises `Malformed`,
        `OSError`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for number in range(self.place.files, self._until):
            archived = self._order[number].file
            path = self._folder / archived.path
            skip = self.place.rows if number == self.place.files else 0
            if skip == archived.rows:
                continue  # all its records are stored: the file need not exist any more
            require_whole(self._folder, archived)
            at = 0
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    self._expect(number, file.metadata.num_rows)  # before its first record is sent
                    for batch in file.iter_batches(CHUNK, columns=list(_COLUMNS)):
                        begin, at = at, at + batch.num_rows
                        if at > skip:
                            rows = _rows(batch.slice(max(0, skip - begin)))
                            yield rows, Place(number, at)
            except (pa.ArrowException, KeyError, ValueError, OSError) as error:
                why = " ".join(str(error).split())
                raise Malformed(
                    f"{path} cannot be read as Parquet of an archive ({why}): {REMEDY}"
                ) from error
            self._expect(number, at)

    def _expect(self, number: int, rows: int) -> None:
        file = self._order[number].file
        if rows != file.rows:
            raise Malformed(
                f"{self._folder / file.path} has {rows} rows, but the archive's ledger states "
                f"{file.rows}: {REMEDY}"
            )

    def note(self, place: Place, state: Mapping[str, Any] | None = None) -> None:
        """Note that all records up to `place` are stored, and the sender's state there."""
        of = [step.file.path for step in self._order]
        noted = {"files": place.files, "rows": place.rows, "of": of, "sender": state or {}}
        raw = json.dumps(noted)
        fresh = self._path.with_suffix(".tmp")
        with fresh.open("w") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)
        sync_folder(self._path.parent)

    def _know(self) -> None:
        """Read where the replay stands, and in which order it goes on."""
        noted = progress(self._path) or Progress(Place(), [], {})
        _, ledger = open_group(self._folder, self._group)
        holes = ledger.holes
        self.stop = next((hole for hole in holes if not self._skips[hole.lost]), None)
        self.skipped = holes[: holes.index(self.stop)] if self.stop else holes
        self._go_on(noted, _steps(self._folder, ledger, self._topic))

    def _go_on(self, noted: Progress, archived: list[_Step]) -> None:
        """Go on with what was started, as it was; then with the rest, in journal order."""
        known = {step.file.path: step for step in archived}
        order = [known[path] for path in noted.of if path in known]
        if len(set(order)) != len(noted.of) or not _is_in(order, noted.place):
            raise InvalidArgument(
                f"{self._path} holds the progress of a replay of other files: choose another --name"
            )
        self.place, self.state = noted.place, noted.sender
        started = order[: _started_count(order, noted.place)]
        paths = {step.file.path for step in started}
        order = started + [step for step in archived if step.file.path not in paths]
        self._until = _end(order, noted.place, self.stop)
        self._order = order[: max(self._until, len(started))]  # what is noted may be started
        newest = max((step.unit for step in started), default=Unit(0, 0))
        late = [step.unit for step in self._order[len(started) :] if step.unit < newest]
        self._late = list(dict.fromkeys(late))
        done = order[: self.place.files]
        self.done_before = self.place.rows + sum(step.file.rows for step in done)


def _is_in(order: Sequence[_Step], place: Place) -> bool:
    """Return whether a replay of these files can be at that place."""
    files, rows = place
    return place == Place() or (files < len(order) and rows <= order[files].file.rows)


def _started_count(order: Sequence[_Step], place: Place) -> int:
    """Return how many files keep their place: sent, or being sent when a run died.

    Behind a whole file, the next one's first records may be stored and not noted.
    """
    files, rows = place
    whole = files < len(order) and rows == order[files].file.rows
    return files + 2 if whole else files + 1


def _end(order: Sequence[_Step], place: Place, stop: Hole | None) -> int:
    """Return how many files are sent, or come before what the archive lacks."""
    for number, (unit, file) in enumerate(order):
        sent = number < place.files or place == (number, file.rows)
        if stop is not None and unit.begin >= stop.begin and not sent:
            return number
    return len(order)


def progress_path(folder: Path, name: str) -> Path:
    """Return where a replay's progress is noted."""
    return folder / FOLDER / f"replay-{name}.json"


def progress_name(folder: Path, topic: str, group: str | None, target: str) -> str:
    """Return the default name of a replay's progress: by the group, if that is named.

    The group has to be named once another group archives there, too: what went on without goes on
    with it, and the other way round. Raises `InvalidArgument`.
    """
    of, ledger = open_group(folder, group)
    archived = {file.path for file in ledger.files()}
    tail = f"{topic}-to-{target}"
    usual, other = (
        bounded_name(f"{whose}-{tail}") for whose in (group or "all", "all" if group else of)
    )
    for name in (usual, other):
        noted = progress(progress_path(folder, name))
        if noted is not None and archived.issuperset(noted.of):
            return name
    return usual


def progress(path: Path) -> Progress | None:
    """Return noted progress; None if there is none. Raises `InvalidArgument` if undecodable."""
    try:
        return _understood(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"{path} cannot be decoded ({error}): choose another --name to send everything again"
        ) from None


def _understood(noted: Any) -> Progress:
    """Decode noted progress. Raises `ValueError`, `KeyError`, `TypeError`."""
    place, of, sender = Place(noted["files"], noted["rows"]), noted["of"], noted.get("sender", {})
    if not all(type(number) is int and number >= 0 for number in place):
        raise ValueError(f"{place.files!r} files and {place.rows!r} rows are no place")
    if not isinstance(of, list) or not all(isinstance(path, str) for path in of):
        raise ValueError("its files are no list of names")
    if not isinstance(sender, dict):
        raise ValueError("its sender's part is no object")
    return Progress(place, of, sender)


def open_group(folder: Path, group: str | None) -> tuple[str, Ledger]:
    """Return the group that is meant, and its ledger.

    Raises `InvalidArgument` if that is not clear, or there is none.
    """
    known = groups(folder)
    if not known:
        raise InvalidArgument(f"{folder} is not an archive: create one by `fmq job archive`")
    if group is None and len(known) > 1:
        raise InvalidArgument(f"{folder} holds several groups: choose --group {' | '.join(known)}")
    if group is not None and group not in known:
        raise InvalidArgument(
            f"{folder} holds no group {group!r}: choose one of {', '.join(known)}"
        )
    name = group or known[0]
    return name, load(folder, name) or Ledger()


def _steps(folder: Path, ledger: Ledger, topic: str) -> list[_Step]:
    """Return a topic's files in journal order. Raises `InvalidArgument` for an unknown topic."""
    steps = [_Step(unit, file) for unit in sorted(ledger.done) for file in ledger.done[unit]]
    topics = sorted({step.file.topic for step in steps})
    if topic not in topics and topic not in (ledger.topics or ()):  # archived, and empty so far
        raise InvalidArgument(
            f"archive {folder} has no topic {topic!r}; its topics: {', '.join(topics) or 'none'}. "
            "Messages stored since its last `fmq job archive` are added by the next one"
        )
    return [step for step in steps if step.file.topic == topic]


def _rows(batch: Any) -> list[Archived]:
    columns = [batch.column(name).to_pylist() for name in _COLUMNS]
    return [
        Archived(queue, offset, key, value, tag, None if headers is None else dict(headers))
        for queue, offset, key, value, tag, headers in zip(*columns, strict=True)
    ]
