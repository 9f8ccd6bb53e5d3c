"""The demo from outside: a short run, an interrupted one, and its output."""

import asyncio
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fmqdev.cluster import ClusterFailed
from fmqdev.demo import run as demo_module
from fmqdev.demo import waiting
from fmqdev.demo.display import Report, Show, print_report
from fmqdev.demo.folder import clear_folder, lock_folder
from fmqdev.demo.replica_comparison import Compared
from fmqdev.demo.traffic import Consuming, Producing
from fmqdev.demo.verdict import CLUSTER, Finding, History, Outage, Traffic
from fmqdev.tests.test_cluster import processes_of


@contextmanager
def a_demo(directory: Path, messages: int) -> Iterator[subprocess.Popen[str]]:
    options = ["--no-keep", "--messages", str(messages), "--dir", str(directory)]
    with subprocess.Popen(
        [sys.executable, "-m", "fmqcli.main", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.processes
def test_a_short_demo_ends_well_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with a_demo(folder, 3000) as demo:
        report, talk = demo.communicate(timeout=110)
    assert demo.returncode == 0, talk
    assert "VERDICT: all is well" in report
    assert "acknowledged" in report
    assert "3,000" in report
    for expected in ("kill -9", "serves the reads of g1", "newcomer reads", "is whole again"):
        assert expected in talk
    assert not processes_of(folder)
    assert (folder / "g1-0" / "broker.log").exists()
    assert not (folder / "g1-0" / "data").exists()  # --no-keep


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "demo"
    with a_demo(folder, 300_000) as demo:
        assert demo.stderr is not None
        expected = []
        while "acknowledged," not in (line := demo.stderr.readline()):
            expected.append(line)
            assert line, "".join(expected)
        demo.send_signal(number)
        _, talk = demo.communicate(timeout=110)
    assert "no process is left running" in talk
    assert demo.returncode == 128 + number
    assert not processes_of(folder)


@pytest.mark.processes
def test_second_demo_in_a_folder_is_refused_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with a_demo(folder, 300_000) as first:
        assert first.stderr is not None
        assert "up to 895 MB of logs and data in" in first.stderr.readline()
        assert "starting ZooKeeper" in first.stderr.readline()
        with a_demo(folder, 3000) as second:  # before the first one has recorded its cluster
            report, talk = second.communicate(timeout=60)
        assert second.returncode == 69
        assert f"a demo runs in {folder} already (process {first.pid})" in talk
        assert f"in another folder (it uses other ports): fmq demo --dir {folder}-2" in talk
        assert (report, "dev down" in talk) == ("", False)
        while "acknowledged," not in (line := first.stderr.readline()):
            assert line, "the first one ended"
        with a_demo(folder, 3000) as third:
            _, talk = third.communicate(timeout=60)
        assert f"a demo runs in {folder} already (process {first.pid})" in talk
        first.send_signal(signal.SIGINT)
        _, talk = first.communicate(timeout=110)
    assert first.returncode == 128 + signal.SIGINT
    assert not processes_of(folder)


def test_folder_is_free_once_its_demo_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    for _ in range(2):
        with lock_folder(folder):
            clear_folder(folder)
            with pytest.raises(ClusterFailed, match="a demo runs in"), lock_folder(folder):
                pass


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with a_demo(tmp_path, 3000) as demo:
        _, talk = demo.communicate(timeout=60)
    assert demo.returncode != 0
    assert "is not empty and holds no cluster" in talk
    assert precious.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


async def test_slow_machine_is_awaited_and_a_stuck_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "TIMEOUT_S", 0.5)
    demo = object.__new__(demo_module._Demo)  # only its waiting: there is no cluster
    demo._producing = Producing(History(), "t", limit=0)
    demo._consuming = Consuming(History(), "t", "g")
    until = 1.5 + asyncio.get_running_loop().time()  # three times its patience

    def slowly() -> bool:
        demo._producing.acked += 1
        return asyncio.get_running_loop().time() > until

    await demo._until(slowly, "so many")
    with pytest.raises(waiting.DemoFailed, match="no progress for"):
        await demo._until(lambda: False, "more")


# ---- output


def a_report(*findings: Finding) -> Report:
    return Report(
        traffic=Traffic(3000, 2999, 1, 2999, 17, 0, 16, findings),
        outages=[Outage("g1", 2100, 4200), Outage(CLUSTER, 0, 12)],
        pauses_ms=(654, 321),
        journals=[Compared("g1", 123_456, None)],
        findings=list(findings),
        seconds=9.5,
        directory=Path("somewhere"),
    )


def printed(report: Report, *, data_stay: bool = True) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=100), data_stay=data_stay)
    return out.getvalue()


def test_the_report_has_all_numbers_and_the_verdict() -> None:
    text = printed(a_report())
    for number in ("2,999", "17", "123,456 bytes equal byte for byte", "2,100 ms", "4,200 ms"):
        assert number in text
    for number in ("whole cluster", "12 ms", "321 ms", "654 ms"):
        assert number in text
    assert "VERDICT: all is well" in text
    assert "somewhere/*/broker.log" in text


def test_a_folder_is_named_as_it_is() -> None:
    text = printed(replace(a_report(), directory=Path("run[bold]")))
    assert "fmq journal verify run[bold]/g1-0/data" in text


def test_removed_data_are_not_named() -> None:
    text = printed(a_report(), data_stay=False)
    assert text.endswith("Logs: somewhere/*/broker.log\n")


def test_finding_changes_the_verdict() -> None:
    report = a_report(Finding("LOST", 1, "1 acknowledged but never consumed: [g1/0]"))
    assert not report.good
    text = printed(report)
    assert "FOUND LOST: 1 acknowledged but never consumed: [g1/0]" in text
    assert "VERDICT: something is off" in text


def test_plain_lines_without_a_terminal() -> None:
    out = io.StringIO()
    show = Show(1000, Console(file=out, width=100))
    with show.progress():
        show.step("started [really]")
        for count in range(0, 1000, 10):
            show.flow(count, count)
    lines = out.getvalue().splitlines()
    assert lines[0].endswith("started [really]")
    assert len(lines) == 2  # not one per step: one in two seconds
    assert "0 acknowledged, 0 consumed" in lines[1]


def test_bars_on_a_terminal() -> None:
    out = io.StringIO()
    show = Show(1000, Console(file=out, width=100, force_terminal=True))
    with show.progress():
        show.flow(1000, 500)
    text = out.getvalue()
    assert "1000/1000" in text
    assert "500/1000" in text
