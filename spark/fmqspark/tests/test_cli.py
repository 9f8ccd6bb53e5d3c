"""`python -m fmqspark` and `fmq job`: same commands, exit codes, one line for each failure."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fmqcli.main import run as run_fmq
from fmqcore.journal.segments import MIN_SEGMENT
from fmqspark.check import reports
from fmqspark.cli import main as cli
from fmqspark.tests.kit import data_batch, flip, journal, write


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_both_entry_points_print_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    flip(b, data_batch(50).position + 64)
    for level, code in (("quick", 2), ("standard", 2), ("deep", 2)):
        arguments = ["check", str(a), str(b), "--level", level, "-o", "json"]
        here = run(capsys, *arguments)
        assert run_fmq(["job", *arguments]) == here[0] == code
        there = json.loads(capsys.readouterr().out)
        output = json.loads(here[1])
        assert output["verdict"] == "inconsistent"
        assert [f["code"] for f in output["findings"]] == ["J001"]
        assert there["findings"] == output["findings"]
        assert there["coverage"] == output["coverage"]


def test_clean_check_reports_what_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "check", write(tmp_path / "a"), "--rate", "10G")
    assert (code, err) == (0, "")
    assert f"{journal().end:,} checked" in out
    assert out.endswith("verdict (standard): clean\n")


def test_termination_message_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one line, the verdict first; also for a job that could not start."""
    a, words = write(tmp_path / "a"), tmp_path / "words"
    flip(a, data_batch(50).position + 64)
    monkeypatch.setenv("FMQ_LAST_WORDS", str(words))
    assert run(capsys, "check", a, "--level", "deep", "-o", "json")[0] == 2
    output = words.read_text()
    assert output.startswith("verdict (deep): inconsistent; 1 replica(s), "), output
    assert " checked" in output
    assert "; J001" in output or " J001" in output, output
    assert output.count("\n") == 1
    assert run(capsys, "check", tmp_path / "nowhere")[0] == 64
    assert "nowhere" in words.read_text().splitlines()[1]
    monkeypatch.setenv("FMQ_LAST_WORDS", str(tmp_path / "no" / "folder"))
    assert run(capsys, "check", a)[0] == 2


def test_rebuild_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write(tmp_path / "a")
    victim = a / f"{MIN_SEGMENT:020d}.index"
    right = victim.read_bytes()
    victim.unlink()
    assert run(capsys, "rebuild-index", a, "--dry-run")[0] == 1
    code, out, _ = run(capsys, "rebuild-index", a, "-o", "json")
    assert code == 0
    assert [r["done"] for r in json.loads(out)["indexes"]].count("rebuilt") == 1
    assert victim.read_bytes() == right
    flip(a, data_batch(20).position + 20)
    code, out, _ = run(capsys, "rebuild-index", a)
    assert code == 2
    assert "damaged" in out
    a = write(tmp_path / "a")
    (a / f"{MIN_SEGMENT:020d}.journal").unlink()
    code, out, _ = run(capsys, "rebuild-index", a)
    assert code == 2
    assert f"the segment is missing: position {MIN_SEGMENT}" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "DIR", "--level", "deepest"],
        ["check", "DIR", "--rate", "quick"],
        ["check", "DIR", "--rate", "-1"],
        ["check", "DIR", "--workers", "-1"],
        ["check", "DIR", "DIR"],
        ["rebuild-index", "DIR", "DIR"],
        ["check", "DIR", "--rate", "nan"],
        ["check", "DIR", "--engine", "spark", "--master", "nowhere"],
        ["check", "DIR", "--engine", "spark", "--master", "local[]"],
        ["check", "/nowhere/at/all"],
        ["rebuild-index", "/nowhere/at/all"],
        ["rebuild"],
    ],
)
def test_wrong_usage_is_64_and_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    a = str(write(tmp_path / "a"))
    given = [a if argument == "DIR" else argument for argument in arguments]
    code, out, err = run(capsys, *given)
    assert (code, out) == (64, "")
    assert err.startswith("fmq job: ")
    assert "Traceback" not in err
    assert run_fmq(["job", *given]) == 64


def test_folders_and_terminals_whose_text_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = write(tmp_path / os.fsdecode(b"a\xff"))
    flip(a, data_batch(50).position + 64)
    for arguments in (["check", a], ["check", a, "-o", "json"], ["rebuild-index", a]):
        code, out, err = run(capsys, *arguments)
        assert (code, err) == (2, "")
        assert "a\\xff" in out.replace("\\\\", "\\")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert run(capsys, "check", a)[0] == 2  # a range is printed with a dash that is not ASCII


def test_closed_or_full_output_is_an_error_without_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    a = write(tmp_path / "a")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        assert run(capsys, "check", a)[::2] == (
            3,
            "fmq job: standard output could not be written: it is closed\n",
        )
    for arguments in (["check", a], ["check", "--help"]):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", Full())
            assert run(capsys, *arguments)[::2] == (3, "fmq job: No space left on device\n")
    monkeypatch.setattr(sys, "stderr", None)
    assert run(capsys, "check", a)[0] == 0
    assert run(capsys, "check", "/nowhere/at/all")[0] == 64


def test_internal_error_is_one_line_and_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise ValueError("never thought of")

    monkeypatch.setattr(cli, "run_check", wrong)
    given = ["check", str(write(tmp_path / "a"))]
    code, out, err = run(capsys, *given)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "ValueError in test_cli.py" in err
    assert run_fmq(["job", *given]) == 3


@pytest.mark.spark
def test_reports_that_cannot_be_written_take_no_finding_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    a, out = write(tmp_path / "a"), tmp_path / "out"
    assert run(capsys, "check", a, "--out", out)[0] == 0
    monkeypatch.setattr(reports, "write_coverage", full)
    assert run(capsys, "check", a, "--out", out)[0] == 3
    flip(a, data_batch(50).position + 64)
    code, output, err = run(capsys, "check", a, "--out", out)
    assert code == 2
    assert "J001" in output
    assert "reports: " not in output
    assert "No space left" in err
    assert not (out / "summary.json").exists()


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("pyspark", ["--engine", "spark"]), ("pyarrow", ["--out", "OUT"])],
)
def test_missing_package_exits_69_and_names_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    arguments: list[str],
) -> None:
    a = write(tmp_path / "a")
    for name in [n for n in sys.modules if n.startswith("fmqspark.spark")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [missing, *(n for n in sys.modules if n.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)  # an earlier test may have loaded its parts
    given = [str(tmp_path / "out") if one == "OUT" else one for one in arguments]
    code, _, err = run(capsys, "check", a, *given)
    assert code == 69
    assert "pip install 'fmq-broker[spark]'" in err


@pytest.mark.spark
def test_no_java_is_69(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fmqadapters.process.java import NoJava
    from fmqspark.spark import session

    def none() -> Path:
        raise NoJava("no Java 17 or later: install a JRE")

    monkeypatch.setattr(session, "find_java", none)
    code, _, err = run(capsys, "check", write(tmp_path / "a"), "--engine", "spark")
    assert (code, err) == (69, "fmq job: no Java 17 or later: install a JRE\n")


@pytest.mark.spark
def test_reports_hold_the_printed_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    a, b, out = write(tmp_path / "a"), write(tmp_path / "b"), tmp_path / "out"
    flip(b, data_batch(50).position + 64)
    code, text, _ = run(capsys, "check", a, b, "--out", out, "-o", "json")
    output: dict[str, Any] = json.loads(text)
    assert pq.read_table(out / "findings.parquet").to_pylist() == output["findings"]
    assert pq.read_table(out / "coverage.parquet").to_pylist() == output["coverage"]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["exit_code"], summary["findings"]) == (code, {"J001": 1})
    assert "inconsistent" in (out / "report.html").read_text()
    assert sorted(p.name for p in out.iterdir()) == [
        "coverage.parquet",
        "findings.parquet",
        "report.html",
        "summary.json",
    ]
    b = write(tmp_path / "b")
    assert run(capsys, "check", a, b, "--out", out)[0] == 0
    assert pq.read_table(out / "findings.parquet").num_rows == 0
