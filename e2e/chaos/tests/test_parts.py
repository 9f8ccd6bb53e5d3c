"""Parts of chaos, each without a cluster."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.chaos import freeze
from e2e.chaos.ensemble import password_of
from e2e.chaos.faults import FAULTS
from e2e.chaos.ground import Ground
from e2e.chaos.judge import Outcome, Verdict
from e2e.chaos.report import last_line, table, whole_run

TWO_THREADS = """
import select, sys, threading, time
def beat():
    while True:
        sys.stdout.write("thread\\n"); sys.stdout.flush(); time.sleep(0.02)
threading.Thread(target=beat, daemon=True).start()
poll = select.epoll()
while True:
    poll.poll(0.02)
    sys.stdout.write("main\\n"); sys.stdout.flush()
"""


def test_fault_names_are_unique_and_all_selects_every_fault() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    ground = Ground(loopback=True)
    reasons = {fault.name: fault.available(ground) for fault in FAULTS}
    assert reasons["power-loss-all"] == "--loopback was asked for"
    assert reasons["kill-master"] is None


def test_skipped_rounds_do_not_pass_and_unknown_fails() -> None:
    outcomes = [
        Outcome("a", Verdict.PASSED, "done", acked=9000, switches=2),
        Outcome("b", Verdict.NOT_RUN, "needs root"),
        Outcome("c", Verdict.UNKNOWN, "did not fire"),
        Outcome("d", Verdict.FAILED, "done", findings=["I2 lost: it is gone"]),
    ]
    assert last_line(outcomes) == "4 faults, 1 passed, 2 failed, 1 not run"
    text = table(outcomes)
    assert "not run" in text
    assert "needs root" in text
    assert "I2 lost: it is gone" in text
    assert not whole_run(outcomes, [], all_faults=True)[0]
    few = outcomes[:2]
    assert not whole_run(few, [], all_faults=True)[0], "too little happened"
    assert whole_run(few, [], all_faults=False)[0]
    assert not whole_run(few, ["a journal is broken"], all_faults=False)[0]


def test_session_password_matches_the_servers() -> None:
    """Expected: `new java.util.Random(0x1000000000000L ^ 0xB3415C00L).nextBytes(16)`."""
    assert password_of(0x1000000000000).hex() == JAVA_SAYS


JAVA_SAYS = "f22acd4a97e69d6d20a49bb638eadb38"


@pytest.mark.processes
@pytest.mark.skipif(Ground().ptrace is not None, reason=f"not run: {Ground().ptrace}")
def test_frozen_main_thread_then_other_threads_continue(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        victim = subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdout=file)
    freezer = None
    try:
        _more(log, "main", 3)
        freezer = subprocess.Popen(
            [sys.executable, freeze.__file__, str(victim.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert freezer.stdout is not None
        assert freezer.stdout.readline() == b"frozen\n"
        before = log.read_text().count("main")
        _more(log, "thread", 20)
        assert log.read_text().count("main") == before
        freezer.communicate()
        _more(log, "main", 3)
    finally:
        victim.kill()
        victim.wait()
        if freezer is not None and freezer.poll() is None:
            freezer.kill()
            freezer.wait()
    assert not os.path.exists(f"/proc/{victim.pid}")


def _more(log: Path, word: str, count: int) -> None:
    """Wait until the word was printed `count` more times."""
    wanted = log.read_text().count(word) + count
    while log.read_text().count(word) < wanted:
        time.sleep(0.01)
