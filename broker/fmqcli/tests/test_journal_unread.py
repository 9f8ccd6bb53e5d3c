"""`fmq journal` on files that cannot be read, or that vanish beside a running broker."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fmqclient.tests.journal_directory import codes, directory, run, verify, write, writer
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqinspect.files import DataDirectory

__all__ = ["directory", "writer"]  # fixtures

NOT_READ = "Input/output error"


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let reads of a file fail, as on a bad disk block."""

    def fail(path: Path) -> None:
        inode, pread = path.stat().st_ino, os.pread

        def read(fd: int, length: int, at: int) -> bytes:
            if os.fstat(fd).st_ino == inode:
                raise OSError(errno.EIO, NOT_READ)
            return pread(fd, length, at)

        monkeypatch.setattr(os, "pread", read)

    return fail


@pytest.fixture
def live(tmp_path: Path, writer: JournalWriter) -> Iterator[Path]:
    """A directory beside a running broker."""
    path = write(tmp_path / "live", writer.files(writer.checkpoint()) | {"lock": b"g1-0\n"})
    with (path / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def vanish(
    monkeypatch: pytest.MonkeyPatch, base: Position, *, checkpoint: bytes | None = None
) -> None:
    """Remove a segment after each look at the directory; `checkpoint` is what is there by then."""
    before = DataDirectory.__init__

    def init(self: DataDirectory, path: Path) -> None:
        before(self, path)
        path.joinpath(segment_name(base)).unlink(missing_ok=True)
        if checkpoint is not None:
            path.joinpath(CHECKPOINT).write_bytes(checkpoint)

    monkeypatch.setattr(DataDirectory, "__init__", init)


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def outside(writer: JournalWriter, base: Position) -> list[int]:
    """Return the positions of all batches but those of one segment."""
    bases = list(writer.segments)
    following = bases[bases.index(base) + 1]
    return [h.position for h in writer.headers if not base <= h.position < following]


def test_dump_shows_the_rows_around_an_unreadable_segment(
    directory: Path, writer: JournalWriter, unreadable: Callable[[Path], None]
) -> None:
    base = list(writer.segments)[2]
    unreadable(directory / segment_name(base))
    code, out, err = run("dump", directory, "-o", "json")
    assert [row["position"] for row in rows(out)] == outside(writer, base)
    assert (code, err) == (3, f"fmq: not read: {segment_name(base)}: {NOT_READ}\n")


def test_unread_segment_may_hold_the_unknown_topic(
    directory: Path, writer: JournalWriter, unreadable: Callable[[Path], None]
) -> None:
    unreadable(directory / segment_name(next(iter(writer.segments))))
    code, out, err = run("dump", directory, "--topic", "other")
    assert (code, out, "no topic" in err) == (3, "", False)


def test_ls_lists_the_segments_around_an_unreadable_one(
    directory: Path, writer: JournalWriter, unreadable: Callable[[Path], None]
) -> None:
    bases = list(writer.segments)
    unreadable(directory / segment_name(bases[2]))
    code, out, err = run("ls", directory, "-o", "json")
    assert [row["base"] for row in json.loads(out)] == [b for b in bases if b != bases[2]]
    assert (code, err) == (3, f"fmq: not read: {segment_name(bases[2])}: {NOT_READ}\n")


def test_verify_counts_the_bytes_of_an_unreadable_segment(
    directory: Path, writer: JournalWriter, unreadable: Callable[[Path], None]
) -> None:
    path = directory / segment_name(list(writer.segments)[2])
    unreadable(path)
    code, found = verify(directory)
    assert (code, found["coverage"]["bytes_not_read"]) == (3, path.stat().st_size)
    assert found["coverage"]["unreadable"] == [f"{path.name}: {NOT_READ}"]


def test_listed_file_that_vanishes_beside_a_broker_is_missing(
    live: Path, writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = list(writer.segments)[2]
    data = (live / segment_name(base)).read_bytes()
    vanish(monkeypatch, base)
    code, found = verify(live)
    assert (code, codes(found)) == (2, ["J005"])
    for command in ("ls", "dump"):
        (live / segment_name(base)).write_bytes(data)
        code, out, err = run(command, live, "-o", "json")
        assert code == 2, command
        assert f"{segment_name(base)}, position {base}: the file vanished before it" in err
        assert out, command


def test_file_that_the_broker_retires_meanwhile_is_no_finding(
    live: Path, writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases = list(writer.segments)
    name = segment_name(bases[0])
    before = {path: (live / path).read_bytes() for path in (CHECKPOINT, name)}
    after = writer.checkpoint(journal_start=bases[1], bases=tuple(bases[1:]))
    vanish(monkeypatch, bases[0], checkpoint=encode_checkpoint(after))
    for command in ("verify", "ls", "dump"):
        write(live, before)
        code, out, err = run(command, live, "-o", "json")
        assert (code, f"{name} was retired by the broker" in err) == (0, True), (command, err)
        assert out, command


def test_vanished_file_without_a_checkpoint_is_unread(
    live: Path, writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the broker retired it is not known."""
    base = list(writer.segments)[2]
    vanish(monkeypatch, base, checkpoint=b"no checkpoint")
    code, found = verify(live)
    assert (code, found["findings"]) == (3, [])
    assert found["coverage"]["bytes_not_read"] > 0
    assert "it vanished, and no checkpoint states" in found["coverage"]["unreadable"][0]
