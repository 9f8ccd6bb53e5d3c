"""Which tests call a function: recorded in one run, so that a mutant runs only those tests."""

import json
import signal
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

_BUDGET_S: Final = 20.0
"""Tests beyond this processor time, slowest last, are left out of a run."""

_RECORDED_S: Final = 2.0
"""Processor time; a test that repeats itself for longer calls nothing new, and this slows it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Processor time of each test; for each function ("file:Class.name") the tests calling it."""

    took_s: dict[str, float]
    tests: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> "Reach":
        """Read what a recorder noted."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write the record to a file for another run."""
        path.write_text(json.dumps({"took_s": self.took_s, "tests": self.tests}))

    def calls(self, file: str, function: str) -> bool:
        """Whether a test calls the function."""
        return f"{file}:{function}" in self.tests

    def of(self, file: str, function: str) -> list[str]:
        """The tests that call a function, fastest first; if none does, those that use its file.

        What is evaluated at import (a constant, a field of a class, a table that a function makes)
        is checked by every test that calls anything in the file.
        """
        names = self.tests.get(f"{file}:{function}", [])
        if not names:
            names = [n for key, ns in self.tests.items() if key.startswith(f"{file}:") for n in ns]
        chosen: list[str] = []
        total_s = 0.0
        for name in sorted(set(names), key=lambda name: (self.took_s[name], name)):
            total_s += self.took_s[name]
            if total_s > _BUDGET_S and chosen:
                break
            chosen.append(name)
        return chosen


class Recorder:
    """A plugin of pytest that notes the functions of a folder that each test calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self._took_s: dict[str, float] = {}
        self._called: dict[str, set[str]] = {}
        self._now: set[str] = set()
        self._failed: set[str] = set()
        self._enough = False
        self._seen: dict[int, CodeType] = {}

    def notes(self) -> dict[str, Any]:
        """What `Reach.read` reads; a test that failed is as if it were not there."""
        tests: dict[str, list[str]] = {}
        for test, keys in self._called.items():
            for key in keys if test not in self._failed else ():
                tests.setdefault(key, []).append(test)
        return {"took_s": self._took_s, "tests": tests}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed, perhaps for its time."""
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record while the test and its fixtures run."""
        self._now = self._called[item.nodeid] = set()
        self._seen.clear()
        self._enough = False
        signal.signal(signal.SIGVTALRM, self._stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, _RECORDED_S)
        started = time.process_time()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            sys.settrace(None)
            threading.settrace(None)
            self._took_s[item.nodeid] = round(time.process_time() - started, 3)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._enough = True

    def _trace(self, frame: FrameType, _event: str, _arg: object) -> None:
        if self._enough:
            sys.settrace(None)
            return
        code = frame.f_code
        if id(code) not in self._seen:  # the code is kept, so its id stays its own
            self._seen[id(code)] = code
            if key := self._key(code.co_filename, code.co_qualname):
                self._now.add(key)

    def _key(self, path: str, name: str) -> str:
        """Functions inside a function count as the mutants call them: without "<locals>"."""
        if not path.startswith(self._folder) or "/tests/" in path:
            return ""
        inner = [part for part in name.split(".") if not part.startswith("<")]
        return f"{path.removeprefix(self._folder)}:{'.'.join(inner)}"
