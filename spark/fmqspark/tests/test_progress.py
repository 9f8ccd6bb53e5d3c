"""A job's progress: one updated line on a terminal, plain lines now and then elsewhere."""

import sys

import pytest

from fmqspark.cli.progress import INTERVAL_S, progress


def test_plain_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    at_s = 0.0
    report = progress("checked", lambda: at_s)
    for done in range(1, 11):
        at_s += INTERVAL_S / 2
        report(done, 10)
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [f"checked {done} of 10 segments" for done in (2, 4, 6, 8)]


def test_short_job_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    report = progress("checked", lambda: 0.0)
    for done in range(1, 11):
        report(done, 10)
    assert capsys.readouterr() == ("", "")


def test_a_line_that_is_written_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    report = progress("checked")
    report(1, 2)
    report(2, 2)
    err = capsys.readouterr().err
    assert err == "\rchecked 1 of 2 segments\x1b[K\rchecked 2 of 2 segments\x1b[K\r"
