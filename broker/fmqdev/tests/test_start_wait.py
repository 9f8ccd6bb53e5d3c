"""A start may take long as long as something happens."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from fmqdev.start_wait import IDLE_S, MOST_S, QUIET_S, ClusterFailed, StartWait, Steps


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Case:
    """One wait with a clock that is moved by hand."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.clock, self.lines = Clock(), list[str]()
        self.wait = StartWait(steps or Steps(), self.lines.append, clock=self.clock)

    def after(self, seconds: float, lacking: str) -> str:
        self.clock.now_s += seconds
        return self.wait.over(lacking)


def logging(tmp_path: Path) -> tuple[Steps, Path]:
    log, steps = tmp_path / "broker.log", Steps()
    log.write_text("of an earlier start\n")
    steps.follow(log, os.getpid())
    return steps, log


def test_each_step_extends_the_wait() -> None:
    case = Case()
    for step in "abcde":
        assert case.after(IDLE_S - 1, f"g1 waits for {step}") == ""
    assert case.after(IDLE_S - 1, "g1 waits for e") == ""
    assert "no progress for 60 s" in case.after(1, "g1 waits for e")


def test_other_figures_are_no_step() -> None:
    case = Case()
    assert case.after(0, "g1-1 is 1000 bytes behind") == ""
    assert case.after(IDLE_S, "g1-1 is 990 bytes behind")


def test_steps_without_end_are_bounded() -> None:
    case = Case()
    names = ["".join(chr(ord("a") + int(d)) for d in str(n)) for n in range(int(MOST_S) + 1)]
    ended = [n for n, name in enumerate(names) if case.after(1, name)]
    assert ended == [int(MOST_S) - 1, int(MOST_S)]


def test_new_log_lines_are_steps(tmp_path: Path) -> None:
    steps, log = logging(tmp_path)
    case = Case(steps)
    for event in ("journal_open", "following"):
        with log.open("a") as file:
            file.write(f"timestamp=2026-11-27T08:00:00Z level=info event={event} end=17\n")
        assert case.after(IDLE_S, "g1: g1-1 not in sync") == "", event
    with log.open("a") as file:
        file.write("timestamp=2026-11-27T08:01:00Z level=info event=following end=18\n")
    assert case.after(IDLE_S, "g1: g1-1 not in sync")


def test_work_before_the_first_log_line_is_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it takes minutes until a process has loaded its code."""
    steps, log = logging(tmp_path)
    case, spent_s = Case(steps), [0.0]

    class Process:
        def __init__(self, _: int) -> None:
            self.user = spent_s[0]

        def cpu_times(self) -> "Process":
            return self

    monkeypatch.setattr(psutil, "Process", Process)
    for _ in range(3):
        spent_s[0] += 1
        assert case.after(IDLE_S, "g1 does not answer") == ""
    log.write_text(log.read_text() + "event=journal_open\n")
    assert case.after(IDLE_S, "g1 does not answer") == ""
    spent_s[0] += 1
    assert case.after(IDLE_S, "g1 does not answer")


def test_a_long_wait_reports_what_is_missing_once() -> None:
    case = Case()
    case.after(QUIET_S - 1, "g1 is in mode none")
    assert case.lines == []
    case.after(1, "g1 is in mode none")
    case.after(1, "g1 is in mode none")
    case.after(1, "g1: g1-1 not in sync")
    assert case.lines == ["waiting: g1 is in mode none", "waiting: g1: g1-1 not in sync"]


async def test_the_error_names_what_is_missing() -> None:
    async def missing() -> str:
        return "g1: g1-1 not in sync"

    wait = StartWait(Steps(), lambda _: None, 0.1, 0.2)
    with pytest.raises(ClusterFailed, match=r"not ready.*: g1: g1-1 not in sync"):
        await wait.until(missing)


async def test_a_question_without_an_answer_ends_too() -> None:
    async def missing() -> str:
        await asyncio.Event().wait()
        return ""

    wait = StartWait(Steps(), lambda _: None, 0.1, 0.2)
    with pytest.raises(ClusterFailed, match="nothing answers"):
        await wait.until(missing)
