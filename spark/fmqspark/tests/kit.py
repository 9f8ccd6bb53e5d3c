"""Data directories for the tests of the jobs, damaged on purpose, and the findings of a check."""

import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.header import BatchHeader, BatchType
from fmqcore.ids import Epoch, Position
from fmqcore.journal.segments import MIN_SEGMENT, NO_TERM, segment_name
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqspark.check.job import Options, Outcome, run_check
from fmqspark.check.rows import Level
from fmqspark.engines.engine import Engine
from fmqspark.engines.engines import LocalEngine


@cache
def journal() -> JournalWriter:
    """Return a read-only journal of a dozen small segments with every type of batch."""
    return sample(batches=300)


class Misfit(JournalWriter):
    """A writer whose third segment does not follow the batch before it."""

    def _begin(self, framed_for: Epoch = NO_TERM) -> None:
        if len(self.segments) == 2:
            self._prev_crc ^= 1
        super()._begin(framed_for)


def write(path: Path, writer: JournalWriter | None = None, **changes: Any) -> Path:
    """Write a data directory; `changes` are the checkpoint's."""
    writer = writer or journal()
    path.mkdir(parents=True, exist_ok=True)
    for name, data in writer.files(writer.checkpoint(**changes)).items():
        (path / name).write_bytes(data)
    return path


def check(
    *directories: Path,
    level: Level = Level.DEEP,
    engine: Engine | None = None,
    folder: Path | None = None,
) -> Outcome:
    return run_check(Options(directories, level, folder=folder), engine or LocalEngine())


def codes(outcome: Outcome) -> list[tuple[str, str, int | None]]:
    """Return each finding's (code, replica's folder, position), in order."""
    return [(f.code, Path(f.replica).name, f.begin) for f in outcome.findings]


def file_of(directory: Path, position: int) -> tuple[Path, int]:
    """Return the segment file that holds a position, and the byte's offset in it."""
    base = position // MIN_SEGMENT * MIN_SEGMENT
    return directory / segment_name(Position(base)), position - base


def flip(directory: Path, position: int) -> None:
    path, at = file_of(directory, position)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def data_batch(number: int, writer: JournalWriter | None = None) -> BatchHeader:
    """Return the DATA batch of that number, without the last ones of segments."""
    headers = (writer or journal()).headers
    good = [
        h
        for h, behind in zip(headers, headers[2:], strict=False)
        if h.type == BatchType.DATA and behind.type == BatchType.DATA
    ]
    return good[number]


def snap_crc(writer: JournalWriter, base: int) -> int:
    """Return the checksum that identifies a segment."""
    return next(h.header_crc for h in writer.headers if h.position == base)


def put(directory: Path, position: int, raw: bytes) -> None:
    path, at = file_of(directory, position)
    data = bytearray(path.read_bytes())
    data[at : at + len(raw)] = raw
    path.write_bytes(data)


def rows(outcome: Outcome, state: str) -> list[tuple[str, int, int]]:
    found = [c for c in outcome.coverage if c.state == state]
    return [(Path(c.replica).name, c.begin, c.end) for c in found]


def code_rows(outcome: Outcome) -> list[tuple[str, str, int | None]]:
    return [(f.code, f.severity, f.begin) for f in outcome.findings]


def alike(batches: int = 220, *, other: tuple[int, ...] = ()) -> JournalWriter:
    """Return a journal with the same batches each time, except those in `other`."""
    writer = JournalWriter()
    writer.open_epoch(1)
    for n in range(batches):
        writer.data(7, n % 4, [(b"other" if n in other else b"value") + b"x" * 900])
    return writer


def lose(patch: pytest.MonkeyPatch, file: Path, *bad: tuple[int, int]) -> None:
    """Make these bytes of a file give an I/O error; as on a disk, a read first returns what is
    before them.
    """
    read, inode = os.pread, file.stat().st_ino

    def pread(fd: int, length: int, at: int) -> bytes:
        if os.fstat(fd).st_ino != inode:
            return read(fd, length, at)
        for begin, end in bad:
            if begin <= at < end:
                raise OSError(errno.EIO, "Input/output error")
            if at < begin:
                length = min(length, begin - at)
        return read(fd, length, at)

    patch.setattr(os, "pread", pread)
