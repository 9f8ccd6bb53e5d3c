"""Files of an archive that rot, shrink or vanish: reported by name, and nothing is sent."""

import errno
import json
import os
from pathlib import Path

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import Malformed
from fmqspark.archive import ledger
from fmqspark.archive.replay import Replay
from fmqspark.tests.kit import write
from fmqspark.tests.test_archive import archive, everything, small, truth
from fmqspark.tests.test_cli import run
from fmqspark.tests.test_replay_holes import replayed

pytestmark = pytest.mark.spark


def made(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Return an archive, and its files of `orders` in the order in which they are sent."""
    out = tmp_path / "out"
    archive(out, write(tmp_path / "a", small()))
    found = ledger.load(out, "journal")
    assert found is not None
    return out, [out / file.path for file in found.files() if file.topic == "orders"]


def sent(out: Path) -> tuple[list[bytes], Exception | None]:
    """Return what a replay sends, and its error."""
    values: list[bytes] = []
    try:
        for rows, _ in Replay(out, "orders", None, "x").chunks():
            values += [row.value for row in rows]
    except (Malformed, OSError) as error:
        return values, error
    return values, None


def flipped(path: Path, at: int, by: int = 0x40) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= by
    path.write_bytes(raw)


def without_checksums(out: Path) -> None:
    """Rewrite the ledger as an earlier version wrote it."""
    path = out / ledger.FOLDER / "journal.ledger"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.pop("crc", None)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_no_byte_of_a_file_rots_unseen(tmp_path: Path) -> None:
    out, (_, second, *_) = made(tmp_path)
    before, _ = sent(out)
    raw = second.read_bytes()
    first = before[: before.index(sent_of(second)[0])]
    for at in [*range(0, len(raw), max(1, len(raw) // 60)), len(raw) - 1]:
        flipped(second, at)
        values, error = sent(out)
        assert values == first, at
        assert isinstance(error, Malformed)
        assert str(error).startswith(f"{second} is not what was archived"), at
        assert "restore it from a backup" in str(error)
        second.write_bytes(raw)
    assert sent(out) == (before, None)


def sent_of(path: Path) -> list[bytes]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        values: list[bytes] = file.read(columns=["value"]).column("value").to_pylist()
    return values


def test_rotten_page_of_an_earlier_version_is_found_by_checksum(
    tmp_path: Path,
) -> None:
    """A file that is no Parquet any more is reported as that, whatever the reader's error."""
    out, (path, *_) = made(tmp_path)
    without_checksums(out)
    before, error = sent(out)
    assert (len(before), error) == (36, None)
    raw = path.read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    for at in [*range(4, len(raw), max(1, len(raw) // 200)), len(raw) - 1]:
        flipped(path, at)
        values, error = sent(out)
        assert error is None or str(error).startswith(
            f"{path} cannot be read as Parquet of an archive "
        ), at
        assert error is not None or values == before or at >= footer, at
        path.write_bytes(raw)


def test_a_version_before_reads_the_ledger(tmp_path: Path) -> None:
    """It knows five fields of a file, and skips unknown fields of a line."""
    out, _ = made(tmp_path)
    lines = (out / ledger.FOLDER / "journal.ledger").read_text().splitlines()
    done = [row for row in map(json.loads, lines) if "done" in row]
    assert done
    for row in done:
        assert [len(file) for file in row["files"]] == [5] * len(row["crc"])


@pytest.mark.parametrize("left", [0, 100, None])
def test_truncated_or_missing_file_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    left: int | None,
) -> None:
    out, (first, path, *_) = made(tmp_path)
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    code, stored = replayed(out, monkeypatch, topic="orders")
    assert (code, len(stored)) == (3, len(sent_of(first)))
    (line,) = capsys.readouterr().err.splitlines()
    how = "is gone" if left is None else "is not what was archived"
    assert line.startswith(f"fmq: {path} {how}: ")
    assert "Errno" not in line


def test_replayed_files_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, files = made(tmp_path)
    code, stored = replayed(out, monkeypatch, topic="orders")
    assert (code, len(stored)) == (0, 36)
    for path in files:
        path.unlink()
    assert replayed(out, monkeypatch, topic="orders") == (0, [])


# ---- a run into an archive whose files are not what they were
def test_run_reports_bad_files_and_adds_new_records(tmp_path: Path) -> None:
    a, out = tmp_path / "a", tmp_path / "out"
    ends = [h.end for h in small().headers if h.type == BatchType.DATA]
    archive(out, write(a, small(), commit_end=ends[15]))
    (gone, *_, cut), before = sorted(out.glob("topic=*/date=*/*")), everything(out)
    raw = {path: path.read_bytes() for path in (gone, cut)}
    gone.unlink()
    cut.write_bytes(raw[cut][:-100])
    write(a, small())
    outcome = archive(out, a)
    assert (outcome.exit_code, outcome.rows) == (3, 72 - len(before))
    names = {path: str(path.relative_to(out)) for path in raw}
    assert (outcome.amiss.gone, outcome.amiss.changed) == ((names[gone],), (names[cut],))
    assert archive(out, a, ignore_missing=True).exit_code == 3, "cut is not moved away"
    for path, whole in raw.items():
        path.write_bytes(whole)
    outcome = archive(out, a)
    assert (outcome.exit_code, outcome.rows, outcome.amiss.lines(False)) == (0, 0, [])
    assert everything(out) == truth(small())


def test_files_moved_on_purpose_are_not_archived_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, files = made(tmp_path)
    for path in files:
        path.unlink()
    files[0].parent.rmdir()
    names = [str(path.relative_to(out)) for path in files]
    code, output, _ = run(capsys, "archive", tmp_path / "a", "--out", out)
    line, last = output.splitlines()
    assert code == 3
    assert line.startswith(f"{len(files)} archived file(s) are gone, like {names[0]}: ")
    assert line.endswith("--ignore-missing")
    assert last.startswith("0 records in 0 files")
    code, output, _ = run(capsys, "archive", tmp_path / "a", "--out", out, "-o", "json")
    assert (code, json.loads(output)["missing"], json.loads(output)["changed"]) == (3, names, [])
    command = ("archive", tmp_path / "a", "--out", out, "--ignore-missing")
    code, output, _ = run(capsys, *command)
    line, last = output.splitlines()
    assert code == 0
    assert line == f"{len(files)} archived file(s) are gone, like {names[0]}: ignored"
    assert {row[0] for row in everything(out)} == {"bills"}


def test_uncheckable_file_does_not_stop_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, (first, *_) = made(tmp_path)
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path == first:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert archive(out, tmp_path / "a").exit_code == 0
