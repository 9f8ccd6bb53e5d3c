"""Plants one mutant in a copy of the sources and lets the simulator (or tests) look for it.

A seed counts only if the sources as they are pass it: what fails anyway catches nothing. Leaves
nothing: each copy lies in a temporary directory and goes with it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from fmqsim.mutants.mutant import Mutant
from fmqsim.scenario.scene import Focus

ROOT: Final = Path(__file__).resolve().parents[3]
"""Of the sources."""
_COPIED: Final = ("broker", "e2e", "proto")
_FILES: Final = ("pyproject.toml", "conftest.py")
_SKIPPED: Final = shutil.ignore_patterns("*.egg-info", ".mypy_cache", ".ruff_cache")


@dataclass(frozen=True, slots=True)
class Catch:
    """What became of a mutant."""

    mutant: Mutant
    by: tuple[str, ...] = ()  # checks, or tests; empty: it survived
    seed: int | None = None
    tried: int = 0  # seeds, the one that caught it included
    took_s: float = 0.0
    reason: str = ""

    @property
    def caught(self) -> bool:
        """Some test or seed failed because of the mutant."""
        return bool(self.by)


@contextmanager
def copied(mutant: Mutant | None, source: Path = ROOT) -> Iterator[Path]:
    """A copy of the sources with the mistake in it."""
    with tempfile.TemporaryDirectory(prefix="fmq-mutant-") as folder:
        root = Path(folder)
        for name in _COPIED:
            shutil.copytree(source / name, root / name, ignore=_SKIPPED)
        for name in _FILES:
            shutil.copy2(source / name, root / name)
        if mutant is not None:
            mutant.plant(root)
        yield root


class Hunter:
    """Hunts mutants; what the sources as they are do with a seed is asked once.

    `source`: a copy of them, so that edits made meanwhile do not count as mistakes.
    """

    def __init__(self, source: Path, limit: int) -> None:
        self._source = source
        self._limit = limit  # seeds for one mutant at most
        self._clean: dict[tuple[Focus | None, int], bool] = {}
        self._asking = Lock()

    def hunt(self, mutant: Mutant, seeds: Sequence[int] | None = None) -> Catch:
        """Look for it with its known seeds, then with others; or with these only."""
        started = time.monotonic()
        with copied(mutant, self._source) as root:
            catch = self._by_tests(mutant, root) if mutant.tests else None
            if catch is None:
                catch = self._by_seeds(mutant, root, seeds)
        took_s = time.monotonic() - started
        return Catch(mutant, catch.by, catch.seed, catch.tried, took_s, catch.reason)

    def _by_seeds(self, mutant: Mutant, root: Path, seeds: Sequence[int] | None) -> Catch:
        if seeds is None:
            others = [seed for seed in range(self._limit) if seed not in mutant.seeds]
            seeds = [*mutant.seeds, *others][: self._limit]
        tried = 0
        while tried < len(seeds):
            for seed, broken, reason in _probe(root, mutant, seeds[tried:]):
                tried += 1
                if broken and self._passes(mutant, seed):
                    return Catch(mutant, broken, seed, tried, reason=reason)
                if broken:
                    break  # it fails anyway: go on behind it
            else:
                break
        return Catch(mutant, tried=tried)

    def _by_tests(self, mutant: Mutant, root: Path) -> Catch:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", *mutant.tests]
        with _started(root, command) as process:
            output, _ = process.communicate()
        failed = [line for line in output.splitlines() if line.startswith("FAILED")]
        by = tuple(line.split()[1].rpartition("::")[2] for line in failed)
        return Catch(mutant, by, reason=output[-500:])

    def _passes(self, mutant: Mutant, seed: int) -> bool:
        """Whether the sources as they are pass that seed."""
        key = mutant.focus, seed
        with self._asking:
            if key not in self._clean:
                found = [broken for _, broken, _ in _probe(self._source, mutant, [seed])]
                self._clean[key] = not any(found)
            return self._clean[key]


def _probe(
    root: Path, mutant: Mutant, seeds: Sequence[int]
) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """(seed, what was broken, what was found) for each seed, up to the first that is broken."""
    command = [sys.executable, "-m", "fmqsim.mutants.probe", mutant.name, *map(str, seeds)]
    with _started(root, command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output = json.loads(line)
            yield output["seed"], tuple(output["broken"]), output["reason"]


@contextmanager
def _started(root: Path, command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that finds nothing of the real sources before the copy; ended on the way out."""
    path = os.pathsep.join(str(root / name) for name in ("broker", "proto", ""))
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
