"""Keep an archive's ledger, one line a fact, each synced before what depends on it.

    planned [begin, end)    before any file of that range is made
    done [begin, end)       after all its files have their names
    lost [begin, end)       retention deleted it before it was archived; if it begins like a planned
                            range and ends within, the rest of that is planned as another one
    cut [begin, end) into   it was planned, and no replica can give a part: these are planned
                            instead; before any file of them is made

A range that is planned and not done is done again as it is, with the same file names: so what a
killed run left is replaced, and nothing comes twice. Files that the ledger does not name are no
part of the archive. Files of a range that it never planned show that the ledger, or its end, is
lost: then nothing is added, as readers of the folder would see records twice.

On disk, in the archive's folder: `_fmq/<group>.ledger` (JSON lines; a torn last line is void),
`_fmq/<group>.lock` (`flock` of the running job), `_fmq/plan-.lock` (of the planning job, whatever
group; no name ends in `-`, so it is no group's), `_fmq/tmp-*` (files being made).
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqcore.names import MAX_NAME, require_name
from fmqspark.source.files import make_folder, sync_folder

FOLDER: Final = "_fmq"
_VERSION: Final = 1
_FILE_FIELDS: Final = 5
"""Fields of a file that earlier versions know; they read a newer line and ignore the rest."""


class Unit(NamedTuple):
    """A range of the journal that is archived as one."""

    begin: int
    end: int


class Hole(NamedTuple):
    """A range of the journal that an archive lacks."""

    begin: int
    end: int
    lost: bool  # for good; else a later run of the job may archive it


class ArchivedFile(NamedTuple):
    """One Parquet file; `path` is relative to the archive, `crc` the CRC32C of all its bytes."""

    path: str
    topic: str
    date: str
    rows: int
    bytes: int
    crc: int | None = None  # an earlier version did not note it


@dataclass(slots=True)
class Ledger:
    """A ledger's content; see the module."""

    topics: list[str] | None = None  # None: all
    planned: list[Unit] = field(default_factory=list)
    done: dict[Unit, list[ArchivedFile]] = field(default_factory=dict)
    lost: list[Unit] = field(default_factory=list)
    cut: dict[Unit, list[Unit]] = field(default_factory=dict)  # planned → what instead
    marks: dict[int, int] = field(
        default_factory=dict
    )  # segment base → header CRC of the segment's SNAP

    @property
    def pending(self) -> list[Unit]:
        """Units that are planned, and neither done nor lost."""
        lost = {unit.begin: unit.end for unit in self.lost}
        return [
            unit
            for unit in self.planned
            if unit not in self.done
            and unit not in self.cut
            and lost.get(unit.begin, unit.end + 1) > unit.end
        ]

    @property
    def holes(self) -> list[Hole]:
        """Ranges planned or lost and not there, in journal order; neighbours of a kind are one."""
        found: list[Hole] = []
        kinds = dict.fromkeys(self.pending, False) | dict.fromkeys(self.lost, True)
        for unit, lost in sorted(kinds.items()):
            if found and (found[-1].end, found[-1].lost) == (unit.begin, lost):
                found[-1] = found[-1]._replace(end=unit.end)
            else:
                found.append(Hole(unit.begin, unit.end, lost))
        return found

    @property
    def begin(self) -> int | None:
        """The position below which nothing was ever planned; None: the archive is new."""
        return min((unit.begin for unit in [*self.planned, *self.lost]), default=None)

    @property
    def end(self) -> int | None:
        """The position up to which all from `begin` is planned or lost; None: a new archive."""
        return max((unit.end for unit in [*self.planned, *self.lost]), default=None)

    def files(self) -> list[ArchivedFile]:
        """Return all files, in journal order."""
        return [file for unit in sorted(self.done) for file in self.done[unit]]


class Book:
    """The ledger of one group in an archive, open for writing; holds its lock."""

    def __init__(self, folder: Path, group: str, ledger: Ledger, fd: int) -> None:
        self.folder = folder
        self.group = group
        self.ledger = ledger
        self._fd = fd

    def begin(self, topics: list[str] | None) -> None:
        """Note what the archive holds, once. Raises `InvalidArgument` if it holds otherwise."""
        if self.ledger.end is None and not self.ledger.marks:
            self._append({"archive": _VERSION, "topics": topics})
            self.ledger.topics = topics
        elif self.ledger.topics != topics:
            held = ", ".join(self.ledger.topics or ["all topics"])
            raise InvalidArgument(
                f"{self.folder} holds {held} of {self.group!r}: name the same topics, or archive "
                "into another folder"
            )

    def plan(self, units: list[Unit], marks: dict[int, int]) -> None:
        """Note units before anything of them is made. `marks`: of the segments read for that."""
        if units or marks:
            pairs = [[base, crc] for base, crc in marks.items()]
            self._append({"planned": [list(unit) for unit in units], "marks": pairs})
            self.ledger.planned += units
            self.ledger.marks |= marks

    def finish(self, unit: Unit, files: list[ArchivedFile]) -> None:
        """Note that all files of a unit are written."""
        rows = [list(file)[:_FILE_FIELDS] for file in files]
        self._append({"done": list(unit), "files": rows, "crc": [file.crc for file in files]})
        self.ledger.done[unit] = files

    def cut(self, unit: Unit, into: list[Unit]) -> None:
        """Plan `into` instead of a unit, after removing what a dead run left of the unit."""
        self.remove_files(unit)
        self._append({"cut": list(unit), "into": [list(each) for each in into]})
        self.ledger.cut[unit] = into
        self.ledger.planned += into

    def lose(self, unit: Unit) -> None:
        """Note that a unit cannot be archived any more."""
        self._append({"lost": list(unit)})
        self.ledger.lost.append(unit)

    def remove_files(self, unit: Unit) -> None:
        """Remove the files that a dead run made of a unit."""
        for path in self.folder.glob(f"topic=*/date=*/{file_name(self.group, unit)}"):
            path.unlink()

    def remove_scratch(self) -> None:
        """Remove files that were being made when a run died."""
        for scratch in (self.folder / FOLDER).glob(f"tmp-{self.group}-*"):
            if is_scratch(self.group, scratch.name):
                shutil.rmtree(scratch, ignore_errors=True)

    def _append(self, row: dict[str, Any]) -> None:
        append(self._fd, json.dumps(row).encode() + b"\n")


@contextmanager
def open_book(folder: Path, group: str) -> Iterator[Book]:
    """Lock and open a ledger. Raises `DirectoryLocked`, `InvalidArgument`, `OSError`."""
    require_name("group", group)
    home = folder / FOLDER
    make_folder(folder)
    make_folder(home)
    lock = os.open(home / f"{group}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryLocked(
                f"{folder} is in use by another archive job: wait until it has ended"
            ) from None
        ledger = load(folder, group) or Ledger()
        _require_planned(folder, group, ledger)
        path = ledger_path(folder, group)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _drop_torn(fd)
            sync_folder(home)
            yield Book(folder, group, ledger, fd)
        finally:
            os.close(fd)
    finally:
        os.close(lock)


@contextmanager
def one_plans(folder: Path) -> Iterator[None]:
    """Keep other jobs from planning in that archive: what is there under other names stays so."""
    fd = os.open(folder / FOLDER / "plan-.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def load(folder: Path, group: str) -> Ledger | None:
    """Return a group's ledger; None if there is none. Raises `InvalidArgument` if undecodable."""
    path = ledger_path(folder, group)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    ledger = Ledger()
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):  # the last is torn, or empty
        try:
            row = json.loads(line)
            if number == 1 and "archive" not in row:
                raise ValueError("the first line, which lists the topics, is missing")
            _take(ledger, row)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidArgument(
                f"{path} line {number} cannot be decoded ({error}): restore it from a backup, "
                "or archive into another folder"
            ) from None
    return ledger


def ledger_path(folder: Path, group: str) -> Path:
    """Return the path of a group's ledger."""
    return folder / FOLDER / f"{group}.ledger"


def file_name(group: str, unit: Unit) -> str:
    """Return the name of each file of a unit, in the folder of that topic and date."""
    return f"{group}-{unit.begin:020d}-{unit.end:020d}.parquet"


def scratch_name(group: str, unit: Unit, mark: str) -> str:
    """Return the name of the folder for making a unit's files; `mark` is 32 hex digits."""
    return f"tmp-{group}-{unit.begin:020d}-{mark}"


def is_scratch(group: str, name: str) -> bool:
    """Return whether a name is of a unit of that group, not of one called `<group>-something`."""
    return re.fullmatch(rf"tmp-{re.escape(group)}-[0-9]{{20}}-[0-9a-f]{{32}}", name) is not None


def groups(folder: Path) -> list[str]:
    """Return the groups that an archive holds."""
    return sorted(path.stem for path in (folder / FOLDER).glob("*.ledger"))


def bounded_name(name: str) -> str:
    """Return a name, or as much as names may have, made unique by a hash of the whole."""
    if len(name) <= MAX_NAME:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(mark) - 1]}-{mark}"


def append(fd: int, line: bytes) -> None:
    """Append a line, whole and synced. Raises `OSError`; then a partial line is torn, and void."""
    left = memoryview(line)
    while left:  # a disk that is nearly full takes only a part first
        left = left[os.write(fd, left) :]
    os.fsync(fd)


def _require_planned(folder: Path, group: str, ledger: Ledger) -> None:
    """Raise `InvalidArgument` if there are files of the group that no plan knows."""
    known = {file_name(group, unit) for unit in ledger.planned}
    pattern = re.compile(rf"{re.escape(group)}-[0-9]{{20}}-[0-9]{{20}}\.parquet")
    found = [
        path
        for path in folder.glob("topic=*/date=*/*.parquet")
        if pattern.fullmatch(path.name) and path.name not in known
    ]
    if found:
        raise InvalidArgument(
            f"{folder} holds {len(found)} file(s) of {group!r} that its ledger "
            f"{ledger_path(folder, group)} does not know, like {min(found).relative_to(folder)}: "
            "their records would come twice. Restore that ledger from a backup, or start again "
            "in another folder (or remove these files here, if the journal still has all their "
            "records)"
        )


def _drop_torn(fd: int) -> None:
    """Drop a last line without its end, which was never acted upon."""
    size = os.fstat(fd).st_size
    raw = os.pread(fd, size, 0)
    os.ftruncate(fd, raw.rfind(b"\n") + 1)


def _take(ledger: Ledger, row: dict[str, Any]) -> None:
    if "archive" in row:
        if row["archive"] != _VERSION:
            raise ValueError(
                f"the ledger has version {row['archive']}, this program reads {_VERSION}"
            )
        topics = row["topics"]  # an earlier version noted one that was named twice so
        ledger.topics = (
            None if topics is None else sorted({_name(row_value) for row_value in topics})
        )
    elif "planned" in row:
        ledger.planned += [_unit(row_value) for row_value in row["planned"]]
        ledger.marks |= {int(base): int(crc) for base, crc in row["marks"]}
    elif "done" in row:
        files = row["files"]
        crcs = row.get("crc", [None] * len(files))
        found = [_file(row_value, crc) for row_value, crc in zip(files, crcs, strict=True)]
        ledger.done[_unit(row["done"])] = found
    elif "cut" in row:  # an earlier version does not know the row, and refuses the archive
        into = [_unit(row_value) for row_value in row["into"]]
        ledger.cut[_unit(row["cut"])] = into
        ledger.planned += into
    else:
        ledger.lost.append(_unit(row["lost"]))


def _unit(row_value: Any) -> Unit:
    begin, end = row_value
    if (type(begin), type(end)) != (int, int) or not 0 <= begin < end:
        raise ValueError(f"{row_value!r} is not a range of a journal")
    return Unit(begin, end)


def _file(row_value: Any, crc: Any) -> ArchivedFile:
    known = [type(part) for part in row_value] == [str, str, str, int, int]
    if not known or type(crc) not in (int, type(None)):
        raise ValueError(f"{row_value!r} is not a file of an archive")
    return ArchivedFile(*row_value)._replace(crc=crc)


def _name(row_value: Any) -> str:
    if not isinstance(row_value, str):
        raise ValueError(f"{row_value!r} is not a topic's name")
    return row_value
