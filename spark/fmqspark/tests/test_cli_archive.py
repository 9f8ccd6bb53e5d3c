"""`archive` on the command line: exit codes, one line for each failure."""

import json
import sys
from pathlib import Path

import pytest

from fmqcore.journal.segments import CHECKPOINT
from fmqspark.archive.ledger import open_book
from fmqspark.tests.kit import data_batch, flip, journal, write
from fmqspark.tests.test_cli import run


def test_without_pyarrow_exits_69_and_names_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, out, err = run(capsys, "archive", write(tmp_path / "a"), "--out", tmp_path / "out")
    assert (code, out) == (69, "")
    assert err == "fmq job: an archive needs pyarrow: pip install 'fmq-broker[spark]'\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_archive_reports_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, out = write(tmp_path / "a"), tmp_path / "out"
    code, output, err = run(capsys, "archive", a, "--out", out, "--group", "g1")
    assert (code, err) == (0, "")
    assert output.startswith("900 records in 12 files, ")
    assert output.endswith(f"planned up to position {journal().end}\n")
    code, output, _ = run(capsys, "archive", a, "--out", out, "--group", "g1", "-o", "json")
    assert (code, json.loads(output)["rows"]) == (0, 0)


@pytest.mark.spark
def test_damage_exits_2_and_names_the_unarchived_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, out = write(tmp_path / "a"), tmp_path / "out"
    flip(a, data_batch(100).position + 100)
    code, output, err = run(capsys, "archive", a, "--out", out)
    assert (code, err) == (2, "")
    assert f"damaged at position {data_batch(100).position}" in output
    assert "Traceback" not in output


@pytest.mark.spark
def test_unreadable_replica_is_reported_and_others_archived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, out = write(tmp_path / "a"), write(tmp_path / "b"), tmp_path / "out"
    (b / CHECKPOINT).unlink()
    (b / CHECKPOINT).mkdir()
    code, output, err = run(capsys, "archive", b, a, "--out", out)
    assert (code, err) == (0, "")
    first, second = output.splitlines()
    assert first.startswith(f"{b} is left out: ")
    assert second.startswith("900 records in 12 files, ")
    code, output, _ = run(capsys, "archive", b, a, "--out", out, "-o", "json")
    assert (code, json.loads(output)["replicas"]) == (0, [first])
    code, output, err = run(capsys, "archive", b, "--out", out)
    assert (code != 0, output, err.count("\n"), str(b) in err) == (True, "", 1, True)


@pytest.mark.spark
def test_invalid_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, out = write(tmp_path / "a"), tmp_path / "out"
    cases = [
        (64, "is not a directory", ("archive", tmp_path / "nowhere", "--out", out)),
        (64, "no topic 'x'", ("archive", a, "--out", out, "--topic", "x")),
        (64, "is no name for a group", ("archive", a, "--out", out, "--group", "../x")),
        (64, "--group is empty: name a broker", ("archive", a, "--out", out, "--group", "")),
        (64, "Missing option '--out'", ("archive", a)),
        (64, "--rate", ("archive", a, "--out", out, "--rate", "x")),
        (64, "named twice", ("archive", a, tmp_path / "b" / ".." / "a", "--out", out)),
        (64, "is a data directory", ("archive", a, "--out", a)),
        (64, "either data directories or brokers", ("archive", "--out", out)),
        (64, "not both", ("archive", a, "--connect", "fmq://b:1", "--out", out)),
        (64, "is not host:port", ("archive", "--connect", "http://b", "--out", out)),
        (64, "no topic ''", ("archive", a, "--out", out, "--topic", "")),
        (3, "Not a directory", ("archive", a, "--out", "/dev/null/x")),
    ]
    for code, sentence, arguments in cases:
        result = run(capsys, *arguments)
        assert result[:2] == (code, "")
        assert sentence in result[2]
        assert "Traceback" not in result[2]
    with open_book(out, "journal"):
        code, _, err = run(capsys, "archive", a, "--out", out)
    assert code == 69
    assert err.endswith("is in use by another archive job: wait until it has ended\n")
