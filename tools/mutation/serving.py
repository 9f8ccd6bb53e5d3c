"""One pytest process per group of tests: it imports and collects once, then forks for each mutant.

The fork replaces the code of the function that a mutant changes, in place, and runs the tests that
reach it. A lambda of a module is a function, too. A mutant outside of functions (a constant, a
field) needs a new import: `running.run`.
"""

import gc
import inspect
import json
import multiprocessing
import os
import select
import signal
import sys
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
from tools.mutation.verdicts import Observer, Verdict

_UNPLANTED: Final = "(not in a function)"


class Plant(NamedTuple):
    """A changed source."""

    path: Path
    source: bytes


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
        """Run all tests and record which functions each calls; failing tests are left out."""
        ran = self._ask(_Order(None, (), limit_s))
        whole = not ran.verdict.broken and "(all)" not in ran.verdict.late  # else not recorded
        return ran, Reach.read(self._notes) if whole else Reach({}, {})

    def run(self, plant: Plant, tests: Sequence[str], limit_s: float) -> Ran | None:
        """Run these tests with the mistake, until one fails; None: the mistake is in no function.

        If the failed test also fails without the mistake, the run is broken.
        """
        ran = self._ask(_Order(plant, tuple(tests), limit_s))
        if ran.verdict.broken == _UNPLANTED:
            return None
        if ran.outcome == "caught":
            again = self._ask(_Order(None, tuple(ran.verdict.failed), limit_s))
            if again.outcome != "survived":
                verdict = Verdict(broken=f"(fails without it: {ran.verdict.failed[0]})")
                return Ran(verdict, ran.took_s, ran.log)
        return ran

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
        started = time.monotonic()
        try:
            self._line.send(order)
            verdict = self._line.recv()
        except (EOFError, OSError):  # it could not collect
            verdict = Verdict(broken="(collection)")
        return Ran(verdict, time.monotonic() - started, self._log.read_text(errors="replace"))


@contextmanager
def group(copy: Path, tests: Sequence[str]) -> Iterator[Group]:
    """A group that is closed at the end."""
    served = Group(copy, tests)
    try:
        yield served
    finally:
        served.close()


def replace_code(plant: Plant) -> bool:
    """Give the living functions their changed code; False if code outside of functions differs."""
    path = str(plant.path)
    before, after = (
        list(_codes(compile(source, path, "exec", dont_inherit=True)))
        for source in (plant.path.read_bytes(), plant.source)
    )
    if len(before) != len(after):
        return False
    living = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    living = [each for each in living if each.__code__.co_filename == path]
    for old, new in zip(before, after, strict=True):
        if _content(old) == _content(new):
            continue
        if not old.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or a class
            if _own(old) != _own(new):
                return False
            continue
        same = [each for each in living if _is_of(each.__code__, old)]
        if not same and "<locals>" not in old.co_qualname:  # an outer function makes the others
            return False
        for each in same:
            if each.__code__.co_freevars != new.co_freevars:
                return False
            each.__code__ = new
    return True


def _own(code: CodeType) -> tuple[object, ...]:
    """Return the code object's own instructions, without those of nested ones."""
    consts = [None if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts


def _content(code: CodeType) -> tuple[object, ...]:
    """What a code does, without its place in the file."""
    inner = [_content(each) for each in code.co_consts if isinstance(each, CodeType)]
    return *_own(code), inner


def _is_of(living: CodeType, old: CodeType) -> bool:
    place = (old.co_qualname, old.co_firstlineno)
    return place == (living.co_qualname, living.co_firstlineno) and _own(living) == _own(old)


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
    sys.dont_write_bytecode = False
    return run_pytest(copy, tests, _Server(line, Recorder(copy), notes))


class _Server:
    """A plugin of pytest that runs what it is asked for instead of all tests."""

    def __init__(self, line: Connection, recorder: Recorder, notes: Path) -> None:
        self._line = line
        self._recorder = recorder
        self._notes = notes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer one order after the other, each in a fork."""
        if session.testsfailed:  # an import failed
            return True
        while (order := self._line.recv()) is not None:
            self._line.send(self._forked(session, order))
        return True

    def _forked(self, session: pytest.Session, order: _Order) -> Verdict:
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os.write(theirs, self._tried(session, order).text().encode())
            os._exit(0)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], order.limit_s)
        answer = os.read(ours, 1 << 16) if ready else b""
        os.close(ours)
        with suppress(ProcessLookupError):  # the children of the tests are killed too
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not ready:
            return Verdict(late=["(all)"])
        return Verdict(**json.loads(answer)) if answer else Verdict(broken="(the process ended)")

    def _tried(self, session: pytest.Session, order: _Order) -> Verdict:
        recorded = order.plant is None and not order.tests
        if order.plant is not None and not replace_code(order.plant):
            return Verdict(broken=_UNPLANTED)
        observer = Observer()
        observer.stops = not recorded
        for plugin in [observer, self._recorder] if recorded else [observer]:
            session.config.pluginmanager.register(plugin)
        by_id = {item.nodeid: item for item in session.items}
        items = [by_id[test] for test in order.tests or by_id]
        for item, after in zip(items, [*items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if observer.stops and observer.verdict.decided:
                break
        if recorded:
            self._notes.write_text(json.dumps(self._recorder.notes()))
        observer.verdict.failed[20:] = []
        observer.verdict.late[20:] = []
        return observer.verdict
