"""One pytest process per group of tests: it imports and collects once, then forks for each mutant.

The fork replaces the code of the function that a mutant changes, in place, and runs the tests that
reach it. A mutant outside of functions (a constant, a field) needs a new import: `running.run`.
"""

import gc
import json
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NamedTuple

import pytest

from tools.mutation.reach import Reach, Recorder
from tools.mutation.running import Ran, prepare, run_pytest

_UNPLANTED: Final = "(not in a function)"


class Plant(NamedTuple):
    """A changed source, and the function that differs."""

    path: Path
    source: bytes
    function: str


class _Order(NamedTuple):
    plant: Plant | None
    tests: tuple[str, ...]  # none: all
    limit_s: float


class Group:
    """Some test files, collected in a process of their own."""

    def __init__(self, copy: Path, tests: Sequence[str]) -> None:
        self._notes = copy / "mutation.json"
        self._line, line = multiprocessing.Pipe()
        body = partial(_serve, copy, tests, (line, self._line), self._notes)
        fork = multiprocessing.get_context("fork")
        self._log = copy / "mutation.log"
        self._log.write_text("")
        self._process = fork.Process(target=prepare, args=(copy, self._log, body))
        self._process.start()
        line.close()

    def reach(self, limit_s: float) -> tuple[Ran, Reach]:
        """Run all tests, and record which functions each test calls; one that fails is left out."""
        ran = self._ask(_Order(None, (), limit_s))
        whole = not ran.failed or ran.failed[0][0] != "("  # else nothing was recorded
        return ran, Reach.read(self._notes) if whole else Reach({}, {})

    def run(self, plant: Plant, tests: Sequence[str], limit_s: float) -> Ran | None:
        """Run these tests with the mistake, until one fails. None: it is not in a function."""
        ran = self._ask(_Order(plant, tuple(tests), limit_s))
        return None if ran.failed == (_UNPLANTED,) else ran

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._line.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._line.close()

    def _ask(self, order: _Order) -> Ran:
        began = time.monotonic()
        try:
            self._line.send(order)
            failed = self._line.recv()
        except (EOFError, OSError):  # it could not collect
            failed = ("(collection)",)
        return Ran(failed, time.monotonic() - began, self._log.read_text(errors="replace"))


@contextmanager
def group(copy: Path, tests: Sequence[str]) -> Iterator[Group]:
    """A group that is closed at the end."""
    served = Group(copy, tests)
    try:
        yield served
    finally:
        served.close()


def replace_code(plant: Plant) -> bool:
    """Give the living function its changed code; False if there is none."""
    path = str(plant.path)
    changed = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(compile(plant.source, path, "exec", dont_inherit=True))
    }
    done = False
    for each in gc.get_objects():
        if not isinstance(each, FunctionType) or each.__code__.co_filename != path:
            continue
        name = each.__code__.co_qualname
        new = changed.get((name, each.__code__.co_firstlineno))
        if name == plant.function and new and new.co_freevars == each.__code__.co_freevars:
            each.__code__ = new
            done = True
    return done


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _serve(
    copy: Path, tests: Sequence[str], ends: tuple[Connection, Connection], notes: Path
) -> int:
    line, theirs = ends
    theirs.close()  # or this process would outlive the one that asks
    return run_pytest(copy, tests, _Server(line, Recorder(copy), notes))


class _Server:
    """A plugin of pytest that runs what it is asked for instead of all tests."""

    def __init__(self, line: Connection, recorder: Recorder, notes: Path) -> None:
        self._line = line
        self._recorder = recorder
        self._notes = notes
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed."""
        if report.failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer one order after the other, each in a fork."""
        if session.testsfailed:  # an import failed
            return True
        while (order := self._line.recv()) is not None:
            self._line.send(self._forked(session, order))
        return True

    def _forked(self, session: pytest.Session, order: _Order) -> tuple[str, ...]:
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.setsid()
            os.write(theirs, json.dumps(self._tried(session, order)).encode())
            os._exit(0)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], order.limit_s)
        answer = os.read(ours, 1 << 16) if ready else b""
        os.close(ours)
        with suppress(ProcessLookupError):  # the children of the tests are killed too
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not ready:
            return ("(time)",)
        return tuple(json.loads(answer)) if answer else ("(the process ended)",)

    def _tried(self, session: pytest.Session, order: _Order) -> list[str]:
        if order.plant is None:
            session.config.pluginmanager.register(self._recorder)
        elif not replace_code(order.plant):
            return [_UNPLANTED]
        by_id = {item.nodeid: item for item in session.items}
        items = [by_id[test] for test in order.tests or by_id]
        for item, after in zip(items, [*items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed and order.plant is not None:
                break
        if order.plant is None:
            self._notes.write_text(json.dumps(self._recorder.notes()))
        return self._failed[:20]
