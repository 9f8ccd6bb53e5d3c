"""The shorter part of chaos: what no scenario covers, on real processes and real disks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.chaos.report import OUTCOMES

pytestmark = [pytest.mark.processes, pytest.mark.timeout(500)]
ROOT = Path(__file__).parents[3]
SHORT = ("power-loss-all", "power-loss-unflushed", "fsync-eio-master", "disk-full-master")


def start(directory: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "e2e.chaos", "--dir", str(directory), "--zookeepers", "1"]
    with (directory.parent / "chaos.log").open("w") as log:
        return subprocess.Popen([*command, *options], cwd=ROOT, stdout=log, stderr=log, text=True)


def processes_of(directory: Path) -> Sequence[psutil.Process]:
    """Return all processes whose command line names the directory."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or ())
    ]


def loops_of(directory: Path) -> Sequence[Path]:
    """Return loop devices on images in it; the kernel frees them a moment after the last mount."""
    found = []
    for loop in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # the device goes at this moment
            found += [loop] if str(directory) in loop.read_text() else []
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The outcomes of all faults on one cluster, once."""
    directory = tmp_path_factory.mktemp("chaos") / "run"
    chosen = [word for name in SHORT for word in ("--only", name)]
    process = start(directory, *chosen, "--seconds", "1")
    process.wait()
    text = (directory / OUTCOMES).read_text()
    return {o["name"]: {**o, "log": directory.parent / "chaos.log"} for o in json.loads(text)}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_round(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    """Nothing lost, no duplicates, in order, recovered: the checks of `e2e.checks`."""
    outcome = outcomes[name]
    if outcome["verdict"] == "not run":
        pytest.skip(f"not run: {outcome['text']}")
    assert outcome["verdict"] == "passed", (outcome["findings"], outcome["log"].read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    """However it ends: no process, no mount, no namespace, no loop device."""
    directory = tmp_path / "run"
    process = start(directory, "--only", "kill-slave", "--groups", "1", "--seconds", "600")
    log = directory.parent / "chaos.log"
    until = time.monotonic() + 120
    while "kill-slave" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    inside = {os.readlink(f"/proc/{p.pid}/ns/net") for p in processes_of(directory)}
    assert inside, "its brokers run"
    process.send_signal(number)
    process.wait(60)
    until = time.monotonic() + 30
    while left := [*processes_of(directory), *loops_of(directory)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
    assert str(directory) not in Path("/proc/mounts").read_text()
    own = os.readlink("/proc/self/ns/net")
    for other in psutil.pids():
        try:
            namespace = os.readlink(f"/proc/{other}/ns/net")
        except OSError:
            continue
        assert namespace == own or namespace not in inside, f"{other} holds a namespace"
