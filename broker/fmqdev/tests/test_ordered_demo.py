"""`fmq demo --ordered`: source and target, the verdict, and a short run from outside."""

import io
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fmqdev.demo.ordered.changes import (
    apply_changes,
    changes_after,
    count_rows,
    differing_rows,
    make_source,
    make_target,
    number_of,
)
from fmqdev.demo.ordered.copying import Acked
from fmqdev.demo.ordered.report import print_ordered_report
from fmqdev.demo.ordered.run import OrderedReport
from fmqdev.demo.ordered.verdict import Copied, Kill, judge_copy, lacking
from fmqdev.demo.verdict import Finding
from fmqdev.tests.test_cluster import processes_of

COUNT = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    database = tmp_path / "source.db"
    assert make_source(database, COUNT) == COUNT
    return database


@pytest.fixture
def target(tmp_path: Path) -> Path:
    make_target(tmp_path / "target.db")
    return tmp_path / "target.db"


def bodies(source: Path, after: int = 0) -> list[bytes]:
    return [change.body for change in changes_after(source, after)]


def test_whole_log_applied_in_order_makes_the_tables_equal(source: Path, target: Path) -> None:
    log = bodies(source)
    assert [number_of(body) for body in log] == list(range(1, COUNT + 1))
    assert apply_changes(target, log) == []
    assert differing_rows(source, target) == []
    assert count_rows(target) == 24
    assert json.loads(log[0])["after"] == 0, "an insert"
    assert json.loads(log[-1])["after"] > 0, "an update"


def test_log_is_read_from_behind_a_change(source: Path) -> None:
    assert [number_of(body) for body in bodies(source, 198)] == [199, 200]


def test_changes_in_another_order_do_not_fit(source: Path, target: Path) -> None:
    log = bodies(source)
    first = json.loads(log[0])
    second = next(body for body in log[1:] if json.loads(body)["after"] == first["change"])
    assert apply_changes(target, [second]) == [
        f"change {number_of(second)} of EWR at {first['hour']} does not follow change 1"
    ]
    assert apply_changes(target, [log[0], log[0]]) == [
        f"change 1 of EWR at {first['hour']} does not follow change 0"
    ]


def test_one_row_that_differs_is_found_on_both_sides(source: Path, target: Path) -> None:
    apply_changes(target, bodies(source))
    with closing(sqlite3.connect(target)) as opened, opened:
        opened.execute("UPDATE weather SET temp = temp + 1 WHERE hour = 3")
    found = differing_rows(source, target)
    assert [text.partition(" has ")[0] for text in found] == [
        "only the source",
        "only the target",
    ]


# ---- the verdict

ACKED = (Acked(1, "g1", 1, 0, 10.0), Acked(2, "g1", 1, 1, 20.0), Acked(3, "g2", 2, 0, 30.0))
KILL = Kill("g1-0", "g1", "master", 25.0, acked_before=2, segment=1)
GOOD = Copied(3, ACKED, (), 3, (), (), (1, 2), (KILL,), 1, ())


def test_good_copy_has_no_findings() -> None:
    assert judge_copy(GOOD) == []


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (replace(GOOD, refused=["change 3: no"]), "REFUSED"),
        (replace(GOOD, acked=ACKED[1:], kills=[replace(KILL, acked_before=1)]), "LOST"),
        (replace(GOOD, applied=2), "LOST"),
        (replace(GOOD, misfits=["change 3 came after change 1"]), "ORDER"),
        (replace(GOOD, segments_read=[1, 2, 1]), "ORDER"),
        (replace(GOOD, differences=["only the source has (…)"]), "DIFFERENT"),
        (replace(GOOD, on_one_disk=["change 3 is not on g2-1"]), "ONE_DISK"),
        (replace(GOOD, kills=[replace(KILL, lacking=["change 2 is not on g1-0"])]), "ONE_DISK"),
        (replace(GOOD, kills=[]), "NO_SWITCH"),
        (replace(GOOD, kills=[replace(KILL, segment=2)]), "NO_SWITCH"),
    ],
)
def test_each_fault_is_found(bad: Copied, code: str) -> None:
    assert [finding.code for finding in judge_copy(bad)] == [code]


def test_change_that_one_journal_lacks_is_named() -> None:
    found = lacking(ACKED, "g1", "g1-0", lambda _, offset: offset == 0)
    assert found == ["change 2 (segment 1, offset 1) is not on g1-0"]


def test_report_has_pauses_per_kill_and_the_verdict(tmp_path: Path) -> None:
    kill = replace(KILL, sends_pause_ms=812.3, reads_pause_ms=1_234.0)
    report = OrderedReport(
        total=3,
        rows=24,
        again=7,
        segments=2,
        kills=[kill],
        findings=[],
        seconds=12.5,
        directory=tmp_path,
    )
    text = _printed(report)
    for part in ("g1-0, master", "812 ms", "1,234 ms", "24 equal row by row", "all is well"):
        assert part in text
    text = _printed(replace(report, findings=[Finding("ONE_DISK", 1, "1 change is not")]))
    for part in ("SOME", "FOUND ONE_DISK: 1 change is not", "something is off"):
        assert part in text


def _printed(report: OrderedReport) -> str:
    out = io.StringIO()
    print_ordered_report(report, Console(file=out, width=100))
    return out.getvalue()


@pytest.mark.processes
def test_short_ordered_demo_ends_well_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    options = ["--ordered", "--no-keep", "--messages", "2000", "--dir", str(folder)]
    demo = subprocess.run(
        [sys.executable, "-m", "fmqcli.main", "demo", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "VERDICT: all is well" in demo.stdout
    assert demo.stderr.count("kill -9") == 6
    assert not processes_of(folder)
