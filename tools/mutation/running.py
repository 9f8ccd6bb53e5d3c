"""Runs tests on a copy of the sources with one mistake, each run in its own process.

The process is forked from one that has imported the libraries, but nothing of the project, so a
mutant costs little more than its tests. The sources are compiled once, in the copy, by the process
that collects the tests. Runs only read this bytecode: a mutated file has another modification time,
so Python compiles it again.
"""

import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from tools.mutation.operators import optional_fields
from tools.mutation.verdicts import Observer, Verdict

ROOT: Final = Path(__file__).resolve().parents[2]
"""The root of the source tree."""
TEST_S: Final = 300
"""The elapsed time of one test that waits; a busy machine makes it long."""
PATHS: Final = ("broker", "proto", "operator", "spark")
_OURS: Final = re.compile(r"(fmq\w*|pyspark_fmq|e2e|bench|conftest)(\.|$)")
_LIBRARIES: Final = (
    "pytest", "pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin", "hypothesis", "looptime",
    "structlog", "google.protobuf.message", "pydantic", "yaml",
)  # fmt: skip
_MARKED: Final = "not processes and not spark and not kind"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run."""

    verdict: Verdict
    took_s: float
    log: str

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`."""
        return self.verdict.outcome


@cache
def fields() -> frozenset[str]:
    """The optional fields of all classes in the sources, as "Class.field"."""
    paths = (path for top in PATHS for path in (ROOT / top).rglob("*.py"))
    sources = (p for p in paths if "tests" not in p.parts and not p.stem.endswith("_pb2"))
    return frozenset().union(*(optional_fields(path.read_bytes()) for path in sources))


@contextmanager
def copied(root: Path = ROOT) -> Iterator[Path]:
    """Copy the sources into a temporary folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="fmq-mutation-") as folder:
        copy = Path(folder).resolve()
        for name in names.splitlines():
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        yield copy


@contextmanager
def planted(texts: Mapping[Path, bytes]) -> Iterator[None]:
    """Give files other texts, then restore them and their modification times."""
    before = {path: (path.read_bytes(), path.stat()) for path in texts}
    try:
        for n, (path, text) in enumerate(texts.items()):
            path.write_bytes(text)
            os.utime(path, (n, n))
        yield
    finally:
        for path, (text, stat) in before.items():
            path.write_bytes(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def preload() -> None:
    """Import the libraries, which no mutant changes, once for all runs."""
    for name in _LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)


def run(copy: Path, tests: Sequence[str], limit_s: float) -> Ran:
    """Run these tests on the copy until the first failure, in this order."""
    return _forked(copy, limit_s, partial(_child, copy, tests))


def _forked(copy: Path, limit_s: float, body: Callable[[], int]) -> Ran:
    log, notes = copy / "mutation.log", copy / "mutation.json"
    log.write_text("")
    notes.unlink(missing_ok=True)
    started = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=prepare, args=(copy, log, body))
    process.start()
    process.join(limit_s)
    late = process.is_alive()
    assert process.pid is not None
    with suppress(ProcessLookupError):  # the children of the tests are killed too
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    took_s = time.monotonic() - started
    verdict = Verdict(**json.loads(notes.read_text())) if notes.exists() else Verdict()
    if late and not verdict.decided:
        verdict.late.append("(all)")
    elif process.exitcode != 0 and verdict.outcome == "survived":
        verdict.broken = f"(exit status {process.exitcode})"
    return Ran(verdict, took_s, log.read_text(errors="replace"))


def prepare(copy: Path, log: Path, body: Callable[[], int]) -> None:
    """Prepare the forked process and run the body; does not return."""
    os.setpgid(0, 0)  # not a session, which Linux would give another priority
    out = os.open(log, os.O_WRONLY | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    os.chdir(copy)
    for name in [name for name in sys.modules if _OURS.match(name)]:
        del sys.modules[name]
    ours = {str(ROOT), *(str(ROOT / path) for path in PATHS), ""}
    folders = [str(copy / path) for path in PATHS] + [str(copy)]
    sys.path[:] = folders + [path for path in sys.path if path not in ours]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    status = body()
    sys.stdout.flush()
    os._exit(status)


def _child(copy: Path, tests: Sequence[str]) -> int:
    sys.dont_write_bytecode = True
    observer = Observer()
    status = run_pytest(copy, tests, observer)
    observer.verdict.write(copy / "mutation.json")
    return status


def run_pytest(copy: Path, tests: Sequence[str], *plugins: object) -> int:
    """Run pytest; returns its exit status."""
    import pytest

    options = ["-q", "-n", "0", "--tb=line", f"--timeout={TEST_S}", "-m", _MARKED]
    options += ["--hypothesis-seed=0", f"--rootdir={copy}"]
    return int(pytest.main([*options, *tests], plugins=list(plugins)))
