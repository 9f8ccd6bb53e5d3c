"""`fmq journal` and the small files: resume file, damage note, checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fmqbroker.journal import resume_file as resumes
from fmqbroker.journal.journal import BatchDraft
from fmqbroker.tests import journal_kit
from fmqclient.tests.journal_directory import (
    FIRST,
    codes,
    directory,
    flip,
    run,
    verify,
    write,
    writer,
)
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.ids import Epoch, Offset, Position
from fmqcore.journal.damage_note import SUSPECT
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.resume_file import RESUME, Resume, encode_resume
from fmqcore.journal.segments import CHECKPOINT, segment_name
from fmqcore.tests.journal.writer import JournalWriter

__all__ = ["directory", "writer"]  # fixtures


@pytest.fixture
def resume(writer: JournalWriter) -> Resume:
    """Return the resume file a broker would write at the journal's end."""
    base, last = writer.last_base, writer.headers[-1]
    index = SegmentIndex(base)
    for header in writer.headers:
        if header.position >= base:
            index.add(header)
    return Resume(
        base,
        Position(base + writer.segment_bytes),
        writer.end,
        last.store_ms,
        crc32c(bytes(writer.segments[base][: writer.end - base])),
        last.header_crc,
        writer.epoch,
        writer.state.to_snap(0, 1 << 40),
        index.encode(),
    )


def note(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(note for note in found["notes"] if note["file"] == name)


def test_a_resume_file_that_fits(directory: Path, writer: JournalWriter, resume: Resume) -> None:
    (directory / RESUME).write_bytes(encode_resume(resume))
    code, found = verify(directory)
    assert (code, found["findings"]) == (0, [])
    row = note(found, RESUME)
    assert (row["fits"], row["position"]) == (True, writer.end)
    assert row["segment"] == segment_name(writer.last_base)
    out = run("verify", directory)[1]
    assert f"up to position {writer.end}: the next start goes on from there" in out
    code, _, message = run("ls", directory)
    assert code == 0
    assert f"resume: names {segment_name(writer.last_base)}" in message


VOID: list[tuple[str, Callable[[Resume], Resume], str]] = [
    ("of other bytes", lambda r: r._replace(raw_crc=1), "its checksum does not match"),
    (
        "of a later segment",
        lambda r: r._replace(base=r.end, end=Position(r.end * 2), position=Position(r.end + 8)),
        "the journal has no position",
    ),
]


@pytest.mark.parametrize(("change", "says"), [v[1:] for v in VOID], ids=[v[0] for v in VOID])
def test_a_resume_file_that_does_not_count_is_a_warning(
    directory: Path, resume: Resume, change: Callable[[Resume], Resume], says: str
) -> None:
    (directory / RESUME).write_bytes(encode_resume(change(resume)))
    code, found = verify(directory)
    assert (code, codes(found), note(found, RESUME)["fits"]) == (1, ["M001"], False)
    assert found["findings"][0]["file"] == RESUME
    assert says in found["findings"][0]["sentence"]
    assert "passes it over" in found["findings"][0]["remedy"]


def test_a_damaged_resume_file_is_a_warning(directory: Path, resume: Resume) -> None:
    (directory / RESUME).write_bytes(encode_resume(resume)[:-1])
    assert (verify(directory)[0], codes(verify(directory)[1])) == (1, ["M001"])
    code, _, message = run("ls", directory)
    assert code == 1
    assert "M001 resume" in message


WRONG: list[tuple[str, Callable[[Resume, JournalWriter], Resume]]] = [
    ("the segment's end", lambda r, _: r._replace(end=Position(r.end + 8))),
    ("the epoch", lambda r, _: r._replace(epoch=Epoch(r.epoch + 1))),
    ("the last batch's checksum", lambda r, _: r._replace(last_header_crc=1)),
    ("the time of the last batch", lambda r, _: r._replace(last_ms=1)),
    ("its state", lambda r, w: r._replace(snap=JournalWriter().state.to_snap(0))),
    ("its state", lambda r, _: r._replace(snap=b"?")),
    ("its index", lambda r, _: r._replace(entries=SegmentIndex(r.base).encode())),
    (
        "its position",
        lambda r, w: r._replace(
            position=Position(r.position - 8),
            raw_crc=crc32c(bytes(w.segments[r.base][: r.position - 8 - r.base])),
        ),
    ),
]


@pytest.mark.parametrize(("what", "change"), WRONG)
def test_a_resume_file_that_counts_and_is_wrong_is_an_error(
    directory: Path,
    writer: JournalWriter,
    resume: Resume,
    what: str,
    change: Callable[[Resume, JournalWriter], Resume],
) -> None:
    """A start would trust it."""
    (directory / RESUME).write_bytes(encode_resume(change(resume, writer)))
    code, found = verify(directory)
    assert (code, codes(found)) == (2, ["M001"])
    (finding,) = found["findings"]
    assert f"it counts, but {what} is not what" in finding["sentence"]
    assert "remove the file resume" in finding["remedy"]


def test_resume_file_of_an_older_segment_is_no_finding(
    directory: Path, writer: JournalWriter, resume: Resume
) -> None:
    older = resume._replace(base=Position(0), end=writer.last_base, position=Position(800))
    (directory / RESUME).write_bytes(encode_resume(older))
    code, found = verify(directory)
    assert (code, found["findings"]) == (0, [])
    assert "does without it" in note(found, RESUME)["says"]


@pytest.mark.parametrize("crash", [True, False])
async def test_resume_file_of_a_real_broker_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    """Producers, progress, tombstones; over rolls and starts, also from the resume file."""
    monkeypatch.setattr(resumes, "EVERY_BYTES", 16 * 1024)
    path, fitted = tmp_path / "data", 0
    for term in range(1, 6):
        async with journal_kit.running(path, segment_bytes=1 << 18, crash=crash) as journal:
            journal.append(journal_kit.epoch(term))
            for number in range(40):
                version = term * 1000 + number
                entry = OffsetEntry(version, Offset(number))
                if number % 7 == 3:
                    entry = tombstone(version)
                entries = {OffsetKey(f"g{number % 5}", journal_kit.TOPIC, 0): entry}
                payload = encode_offsets(entries)
                journal.append(BatchDraft(BatchType.OFFSETS, payload, crc32c(payload)))
                produced = {"producer_id": 1 + number % 3, "base_sequence": version}
                journal.append(journal_kit.records(b"p" * 900, producer_epoch=term, **produced))
                await journal.wait_durable(journal.end)
        code, found = verify(path)
        assert (code, found["findings"]) == (0, [])
        fitted += note(found, RESUME)["fits"] is True
    assert fitted >= 3, "it mostly names the newest segment"


# ---- the damage note
def test_damage_note_about_real_damage(directory: Path, writer: JournalWriter) -> None:
    (directory / SUSPECT).write_bytes(b"0\n")
    flip(directory / FIRST, writer.headers[4].position + 100)
    code, found = verify(directory)
    assert (code, codes(found)) == (2, ["J002"])
    row = note(found, SUSPECT)
    assert (row["fits"], row["segment"]) == (True, FIRST)
    assert f"suspect: a read found damage in {FIRST}" in run("verify", directory)[1]


def test_damage_note_about_sound_bytes_is_a_warning(directory: Path) -> None:
    (directory / SUSPECT).write_bytes(b"0\n")
    code, found = verify(directory)
    assert (code, codes(found), note(found, SUSPECT)["fits"]) == (1, ["M001"], False)
    assert "now it is whole" in found["findings"][0]["sentence"]
    code, _, message = run("ls", directory)
    assert f"suspect: a read found damage in {FIRST}: the next start reads it in full" in message


@pytest.mark.parametrize(
    ("raw", "says"), [(b"12345678\n", "is not there"), (b"what?", "does not decode")]
)
def test_invalid_damage_note_is_a_warning(directory: Path, raw: bytes, says: str) -> None:
    (directory / SUSPECT).write_bytes(raw)
    code, found = verify(directory)
    assert (code, codes(found)) == (1, ["M001"])
    assert says in found["findings"][0]["sentence"]
    assert run("ls", directory)[0] == 1


def test_unreadable_note_is_reported(directory: Path) -> None:
    (directory / SUSPECT).mkdir()
    code, found = verify(directory)
    assert (code, found["verdict"]) == (3, "incomplete")
    assert found["coverage"]["unreadable"] == ["suspect: Is a directory"]
    code, _, message = run("ls", directory)
    assert code == 3
    assert "not read: suspect: Is a directory" in message


# ---- `ls`, and the checkpoint
def test_ls_ends_as_verify_does(directory: Path, writer: JournalWriter) -> None:
    (directory / CHECKPOINT).unlink()
    code, _, message = run("ls", directory)
    assert code == 1
    assert "M001 checkpoint: there is none: nothing in the last segment" in message
    (directory / segment_name(list(writer.segments)[1])).unlink()
    code, out, message = run("ls", directory, "-o", "json")
    assert code == 2
    assert "J005" in message
    assert json.loads(out)


def test_ls_of_a_torn_tail_is_a_warning(tmp_path: Path, writer: JournalWriter) -> None:
    last = writer.headers[-1]
    files = writer.files(writer.checkpoint(durable_end=last.position))
    directory = write(tmp_path / "data", files)
    flip(directory / segment_name(writer.last_base), last.position - writer.last_base + 20)
    assert run("ls", directory)[0] == 1


def test_a_damaged_checkpoint_is_not_called_none(directory: Path) -> None:
    flip(directory / CHECKPOINT, 30)
    code, found = verify(directory)
    assert code == 1
    (finding,) = found["findings"]
    assert "it is damaged and does not count" in finding["sentence"]
    assert "nothing in the last segment counts as known durable" in finding["sentence"]
