"""`fmq journal` on real directories, whole and damaged in every way it distinguishes."""

import fcntl
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
from fmqcore.batch.header import HEADER_LEN, BatchType, seal_header
from fmqcore.ids import Position
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, index_name, segment_name
from fmqcore.tests.journal.writer import JournalWriter
from fmqinspect import files as journal_files

__all__ = ["directory", "writer"]  # fixtures


# ---- verify
def test_whole_directory_is_clean_and_lists_the_files_read(
    directory: Path, writer: JournalWriter
) -> None:
    code, found = verify(directory)
    assert (code, found["verdict"], found["findings"]) == (0, "clean", [])
    coverage = found["coverage"]
    assert coverage["segments"] == coverage["of_segments"] == len(writer.segments)
    assert coverage["bytes_read"] == writer.end
    assert coverage["bytes_not_read"] == 0
    assert coverage["batches"] == len(writer.headers)
    data = [h for h in writer.headers if h.type == BatchType.DATA]
    assert coverage["records"] == sum(h.record_count for h in data)
    code, out, err = run("verify", directory)
    assert code == 0
    assert out.endswith("verdict: clean\n")
    assert err == ""


def test_verify_changes_no_file(directory: Path) -> None:
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.iterdir()}
    for command in ("ls", "dump", "verify"):
        run(command, directory)
    assert before == {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.iterdir()}


def test_a_torn_tail_is_a_warning(tmp_path: Path, writer: JournalWriter) -> None:
    last = writer.headers[-1]
    files = writer.files(writer.checkpoint(durable_end=last.position))
    directory = write(tmp_path / "data", files)
    flip(directory / segment_name(writer.last_base), last.end - writer.last_base - 10)
    code, found = verify(directory)
    assert (code, found["verdict"]) == (1, "warnings")
    finding = found["findings"][0]
    assert (finding["severity"], finding["position"]) == ("warning", last.position)
    assert "torn" in finding["sentence"]
    assert "cuts it at its next start" in finding["remedy"]
    assert found["coverage"]["bytes_not_read"] == 0


def test_stale_bytes_behind_the_end_are_a_warning(directory: Path, writer: JournalWriter) -> None:
    flip(directory / segment_name(writer.last_base), MIN_SEGMENT - 5)
    assert verify(directory)[0] == 1


DAMAGE: list[tuple[str, Callable[[JournalWriter, Any], int], str]] = [
    ("length", lambda w, h: h.position, "J001"),
    ("magic", lambda w, h: h.position + 4, "J001"),
    ("position", lambda w, h: h.position + 16, "J001"),
    ("chain", lambda w, h: h.position + 80, "J001"),
    ("payload", lambda w, h: h.position + 96, "J002"),
]


@pytest.mark.parametrize(("what", "place", "code"), DAMAGE, ids=[d[0] for d in DAMAGE])
@pytest.mark.parametrize("where", ["first segment", "last segment"])
def test_damage_below_the_durable_end_is_inconsistent(
    directory: Path,
    writer: JournalWriter,
    where: str,
    what: str,
    place: Callable[[JournalWriter, Any], int],
    code: str,
) -> None:
    base = Position(0) if where == "first segment" else writer.last_base
    victim = [h for h in writer.headers if h.position >= base and h.type == BatchType.DATA][3]
    flip(directory / segment_name(base), place(writer, victim) - base)
    exit_code, found = verify(directory)
    assert (exit_code, found["verdict"]) == (2, "inconsistent")
    finding = next(f for f in found["findings"] if f["severity"] == "error")
    assert (finding["code"], finding["position"]) == (code, victim.position)
    assert finding["file"] == segment_name(base)
    assert "move the whole data directory away" in finding["remedy"]
    # A bad payload hides nothing else; a bad header hides its own batch.
    hidden = victim.total_len if code == "J001" else 0
    assert found["coverage"]["bytes_not_read"] == hidden
    assert found["coverage"]["bytes_read"] == writer.end - hidden
    assert found["coverage"]["batches"] == len(writer.headers) - (1 if hidden else 0)
    assert len(found["findings"]) == 1
    if hidden:
        assert f"{hidden} bytes cannot be read, up to position {victim.end}" in finding["sentence"]
    out = run("verify", directory)[1]
    assert f"{segment_name(base)}, position {victim.position}" in out


@pytest.mark.parametrize("what", ["the SNAP", "a long range", "the last before the EOF", "all"])
def test_verify_continues_after_damage(directory: Path, writer: JournalWriter, what: str) -> None:
    second = list(writer.segments)[1]
    inside = [h for h in writer.headers if h.end <= second]
    batches = {
        "the SNAP": inside[:1],
        "a long range": inside[3:9],
        "the last before the EOF": inside[-2:-1],
        "all": inside,
    }[what]
    for batch in batches:
        flip(directory / FIRST, batch.position + 60)
    code, found = verify(directory)
    assert code == 2
    hidden = batches[-1].end - batches[0].position
    assert found["coverage"]["bytes_not_read"] == hidden
    assert found["coverage"]["batches"] == len(writer.headers) - len(batches)
    (finding,) = [f for f in found["findings"] if f["code"] == "J001"]
    assert finding["position"] == batches[0].position


def test_batch_that_breaks_the_chain_is_reported_and_read(
    directory: Path, writer: JournalWriter
) -> None:
    raw = bytearray((directory / FIRST).read_bytes())
    victim = [h for h in writer.headers if h.type == BatchType.DATA][3]
    at = victim.position
    raw[at : at + HEADER_LEN], _ = seal_header(tuple(victim._replace(prev_header_crc=7)))
    (directory / FIRST).write_bytes(raw)
    code, found = verify(directory)
    assert code == 2
    # Its own chain, and that of the next batch.
    assert codes(found) == ["J003"]
    assert [f["position"] for f in found["findings"]] == [at, victim.end]
    assert found["coverage"]["bytes_not_read"] == 0
    assert found["coverage"]["batches"] == len(writer.headers)


@pytest.mark.parametrize("segment", [0, 1])
def test_segment_that_breaks_the_chain_is_reported_and_read(
    directory: Path, writer: JournalWriter, segment: int
) -> None:
    base = list(writer.segments)[segment]
    snap = next(h for h in writer.headers if h.position == base)
    raw, _ = seal_header(tuple(snap._replace(prev_header_crc=7)))
    file = directory / segment_name(base)
    file.write_bytes(raw + file.read_bytes()[HEADER_LEN:])
    _, found = verify(directory)
    positions = [(f["code"], f["position"]) for f in found["findings"]]
    assert positions == [("J003", base), ("J003", snap.end)]
    assert found["coverage"]["bytes_not_read"] == 0


def test_bytes_after_an_eof_are_reported(directory: Path, writer: JournalWriter) -> None:
    eof = next(h for h in writer.headers if h.type == BatchType.EOF)
    assert eof.total_len > HEADER_LEN
    flip(directory / FIRST, eof.end - 1)
    code, found = verify(directory)
    assert (code, codes(found)) == (1, ["J005"])
    assert found["findings"][0]["position"] == eof.end - 1


def test_two_bad_payloads_are_both_reported(directory: Path, writer: JournalWriter) -> None:
    victims = [h for h in writer.headers if h.type == BatchType.DATA][2:5:2]
    for victim in victims:
        flip(directory / FIRST, victim.position + 100)
    code, found = verify(directory)
    assert code == 2
    assert [f["position"] for f in found["findings"]] == [v.position for v in victims]
    assert codes(found) == ["J002"]


def test_columns_that_do_not_decode_under_a_right_crc(
    tmp_path: Path, writer: JournalWriter
) -> None:
    bad = writer.data(7, 1, [b"value"], record_count=2)
    writer.data(7, 1, [b"value"])
    code, found = verify(write(tmp_path / "data", writer.files(writer.checkpoint())))
    assert (code, codes(found), found["coverage"]["bytes_not_read"]) == (2, ["J002"], 0)
    [finding] = found["findings"]
    assert finding["position"] == bad.position
    assert "each replica" in finding["remedy"]


def test_a_missing_segment_is_inconsistent_and_the_rest_is_read(
    directory: Path, writer: JournalWriter
) -> None:
    missing = list(writer.segments)[1]
    (directory / segment_name(missing)).unlink()
    code, found = verify(directory)
    assert code == 2
    assert codes(found) == [
        "J005"
    ]  # its index is no stray: the broker does not start and remove it
    assert found["findings"][-1]["file"] == segment_name(missing)
    assert found["coverage"]["segments"] == len(writer.segments) - 1


def test_false_clean_stop_mark_is_inconsistent(tmp_path: Path, writer: JournalWriter) -> None:
    files = writer.files(writer.checkpoint(clean=True))
    directory = write(tmp_path / "data", files)
    assert verify(directory)[0] == 0
    name = segment_name(writer.last_base)
    last = writer.headers[-1]
    zeroed = files[name][: last.position - writer.last_base]
    (directory / name).write_bytes(zeroed + bytes(MIN_SEGMENT - len(zeroed)))
    code, found = verify(directory)
    assert code == 2
    assert found["findings"][0]["position"] == last.position
    wrong = writer.checkpoint(last_header_crc=1, clean=True)
    write(directory, writer.files(wrong))
    assert codes(verify(directory)[1]) == ["M001"]
    assert verify(directory)[0] == 2


def test_no_checkpoint_or_a_bad_one_is_a_warning(directory: Path) -> None:
    flip(directory / CHECKPOINT, 30)
    code, found = verify(directory)
    assert (code, codes(found)) == (1, ["M001"])
    (directory / CHECKPOINT).unlink()
    code, found = verify(directory)
    assert (code, codes(found)) == (1, ["M001"])


def test_indexes_are_held_against_the_journal(directory: Path, writer: JournalWriter) -> None:
    path = directory / index_name(Position(0))
    good = path.read_bytes()
    path.unlink()
    assert (verify(directory)[0], codes(verify(directory)[1])) == (1, ["I001"])
    path.write_bytes(good[:-1])
    assert (verify(directory)[0], codes(verify(directory)[1])) == (1, ["I002"])
    kept = writer.headers
    data = [h for h in kept if h.type == BatchType.DATA]
    changed = data[1]._replace(store_ms=1)
    foreign = data[60]._replace(position=Position(kept[4].position + 8))
    for headers, code in (
        ([h for h in kept if h is not data[1]], "I003"),
        (
            [*kept[:5], foreign, *kept[5:]],
            "I004",
        ),
        ([changed if h is data[1] else h for h in kept], "I005"),
    ):
        writer.headers = headers
        path.write_bytes(writer.index(0))
        exit_code, found = verify(directory)
        assert (exit_code, codes(found)) == (2, [code])
        assert "remove the index file" in found["findings"][0]["remedy"]


def test_a_snap_that_does_not_follow_from_the_journal(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.topic(7, "orders", 4)
    writer.state.topics.clear()
    writer.roll()
    directory = write(tmp_path / "data", writer.files(writer.checkpoint()))
    code, found = verify(directory)
    assert (code, codes(found)) == (2, ["M001"])
    assert "topics differ" in found["findings"][0]["sentence"]


def test_an_empty_file_behind_a_sealed_segment(tmp_path: Path, writer: JournalWriter) -> None:
    end = writer.end
    writer.roll()
    empty = writer.last_base
    files = writer.files(writer.checkpoint(durable_end=empty, commit_end=end))
    directory = write(tmp_path / "data", files | {segment_name(empty): bytes(MIN_SEGMENT)})
    assert verify(directory)[0] == 0
    rows = json.loads(run("ls", directory, "-o", "json")[1])
    assert [row["state"] for row in rows[-2:]] == ["sealed", "empty"]
    assert run("dump", directory)[0] == 0


def test_a_file_that_lost_its_blank_end(directory: Path, writer: JournalWriter) -> None:
    last = directory / segment_name(writer.last_base)
    last.write_bytes(last.read_bytes()[: writer.end - writer.last_base])
    code, found = verify(directory)
    assert (code, codes(found)) == (1, ["J005"])


def test_unreadable_file_makes_the_check_incomplete(
    directory: Path, writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, bad_fds = journal_files._pread, 0

    def failing(fd: int, length: int, at: int) -> bytes:
        nonlocal bad_fds
        data = real(fd, length, at)
        if at == 0 and length > 96 and len(data) >= 96 and data[:96] == head:
            bad_fds += 1
            raise OSError(5, "Input/output error")
        return data

    head = (directory / FIRST).read_bytes()[:96]
    monkeypatch.setattr(journal_files, "_pread", failing)
    code, found = verify(directory)
    assert bad_fds == 1
    assert (code, found["verdict"]) == (3, "incomplete")
    assert FIRST in found["coverage"]["unreadable"][0]
    assert found["coverage"]["segments"] == len(writer.segments) - 1


def test_damage_outranks_unread_files(
    directory: Path, writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result "incomplete" calls for another run, "inconsistent" for action."""

    def failing(fd: int, length: int, at: int) -> bytes:
        data = real(fd, length, at)
        if data[:96] == head:
            raise OSError(5, "Input/output error")
        return data

    real = journal_files._pread
    head = (directory / FIRST).read_bytes()[:96]
    victim = next(
        h for h in writer.headers if h.position >= writer.last_base and h.type == BatchType.DATA
    )
    flip(directory / segment_name(writer.last_base), victim.position + 96 - writer.last_base)
    monkeypatch.setattr(journal_files, "_pread", failing)
    code, found = verify(directory)
    assert FIRST in found["coverage"]["unreadable"][0]
    assert (code, found["verdict"]) == (2, "inconsistent")


def test_journal_command_usage_errors(tmp_path: Path) -> None:
    for command in ("ls", "dump", "verify"):
        code, out, err = run(command, tmp_path / "nowhere")
        assert (code, out) == (64, "")
        assert "is no directory" in err
        code, out, err = run(command, tmp_path)
        assert (code, out) == (64, "")
        assert "holds no journal" in err


def test_a_new_journal_without_segments(tmp_path: Path, writer: JournalWriter) -> None:
    checkpoint = writer.checkpoint(durable_end=Position(0), bases=())
    writer.segments.clear()
    directory = write(tmp_path / "data", writer.files(checkpoint))
    assert verify(directory)[0] == 0
    assert run("ls", directory)[0] == 0
    assert run("dump", directory)[:2] == (0, "")


# ---- beside a running broker
def test_a_moving_tail_is_not_held_against_a_broker_at_work(
    tmp_path: Path, writer: JournalWriter
) -> None:
    last = writer.headers[-1]
    files = writer.files(writer.checkpoint(durable_end=last.position))
    directory = write(tmp_path / "data", files | {"lock": b"broker g1-0\n"})
    path = directory / segment_name(writer.last_base)
    torn_at = last.end - writer.last_base - 10
    flip(path, torn_at)
    with (directory / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, found = verify(directory)
        assert (code, found["live"]) == (3, True)
        assert found["coverage"]["moving_end"]
        mend = threading.Timer(0.1, flip, (path, torn_at))
        mend.start()
        code, out, err = run("verify", directory)
        mend.join()
        assert "a broker is at work" in err
        assert (code, out.splitlines()[-1]) == (0, "verdict: clean")
        assert "a broker is at work" not in out
    assert verify(directory)[1]["live"] is False


def test_damage_far_below_the_end_is_reported_beside_a_broker(
    tmp_path: Path, writer: JournalWriter
) -> None:
    directory = write(tmp_path / "data", writer.files(writer.checkpoint()) | {"lock": b""})
    flip(directory / FIRST, 200)
    with (directory / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert verify(directory)[0] == 2
