"""What the tests say about a mutant: caught, survived, timed out or broken.

Only a test that fails by an assertion or an error catches a mutant. A test that runs out of time
says little on a busy machine: the next tests are tried, and if none fails, the mutant has timed
out. A run without a result (an import failed, the process ended) is broken.
"""

import json
import signal
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

OUTCOMES: Final = ("caught", "equivalent", "survived", "timed out", "broken")
TEST_CPU_S: Final = 10.0
"""The processor time of one test. Elapsed time would depend on what else the machine does."""
_PATIENCE: Final = 2
"""Tests that may run out of time before a run ends; a mutant that loops stops all of them."""


@dataclass(slots=True)
class Verdict:
    """The tests that failed, the tests that ran out of time, and why a run has no result."""

    failed: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    broken: str = ""

    @property
    def decided(self) -> bool:
        """Whether more tests could not change the outcome, or would take too long."""
        return bool(self.failed or self.broken) or len(self.late) >= _PATIENCE

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`."""
        if self.failed:
            return "caught"
        if self.broken:
            return "broken"
        return "timed out" if self.late else "survived"

    def write(self, path: Path) -> None:
        """Keep the verdict for another process."""
        path.write_text(self.text())

    def text(self) -> str:
        """Return the verdict as JSON."""
        return json.dumps({"failed": self.failed, "late": self.late, "broken": self.broken})


class Observer:
    """A plugin of pytest that builds the verdict of a run."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self.stops = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        """End a test that has used its processor time."""
        signal.signal(signal.SIGPROF, _time_is_over)
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_S, 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a failure; end the run if it decides."""
        report = yield
        if report.failed:
            late = call.excinfo is not None and is_late(call.excinfo.value)
            (self.verdict.late if late else self.verdict.failed).append(item.nodeid)
            if self.stops and self.verdict.decided:
                item.session.shouldstop = "decided"
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported makes the run broken."""
        if report.failed:
            self.verdict.broken = "(collection)"


class OutOfTime(BaseException):
    """A test has used its processor time. No `except Exception` of a mutant can catch it."""


def _time_is_over(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def is_late(error: BaseException) -> bool:
    """Whether a test failed because its time was over, its own deadline included."""
    return any(
        isinstance(each, TimeoutError | OutOfTime)
        or (isinstance(each, pytest.fail.Exception) and str(each).startswith("Timeout "))
        for each in _behind(error)
    )


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, the members of a group, and for an assertion what it was raised in place of."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _behind(each)
    if isinstance(error, AssertionError) and error.__context__ is not None:
        yield from _behind(error.__context__)
