"""Fixtures for all tests.

`zookeeper_server`: a real ZooKeeper (3.9) process on a free port, one for the whole run, started at
first use. `zookeeper`: the address to connect to, e.g. `127.0.0.1:40123/t7`: each test has its own
root on that server (created by the first session), so tests do not see each other. Mark a test that
uses them `@pytest.mark.processes`.
"""

import heapq
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper

_ROOTS = itertools.count(1)
_LOGS, _LOG_LINES = 6, 25  # of the processes of a failed test
_BYTECODE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Set what the processes that tests start inherit from this one.

    A run in the background of a script ignores SIGINT, and one under `nohup` SIGHUP, and so would
    its children. Where Python may not leave bytecode beside its sources, each of a hundred
    processes would compile all of them: they share a folder for it, which is removed with the run.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        config.stash[_BYTECODE] = tempfile.mkdtemp(prefix="fmq-bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = config.stash[_BYTECODE]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the run left."""
    if folder := config.stash.get(_BYTECODE, ""):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs of a failed test's processes: a run elsewhere leaves no files."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        with suppress(OSError):  # a process may still remove its files
            for log in heapq.nlargest(_LOGS, folder.rglob("*.log"), key=_changed_s):
                lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                report.sections.append((f"end of {log.relative_to(folder)}", "\n".join(lines)))
    return report


def _changed_s(file: Path) -> float:
    return file.stat().st_mtime


@pytest.fixture(autouse=True)
def logging_configuration() -> Iterator[None]:
    """Restore structlog's configuration, which commands set for their process.

    A command that silences its log would silence it for each later test of the same process.
    """
    import structlog

    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EmbeddedZooKeeper]":
    """A real ZooKeeper process, ended with the run."""
    from fmqadapters.process.free_ports import free_port
    from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper

    # No test cuts its power; but on a busy disk an fsync may take longer than a session's time-out.
    folder = tmp_path_factory.mktemp("zookeeper")
    server = EmbeddedZooKeeper(folder, free_port(), fsync=False)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def zookeeper(zookeeper_server: "EmbeddedZooKeeper") -> str:
    """`host:port/root`: this test's own tree on the run's ZooKeeper."""
    return f"{zookeeper_server.address}/t{next(_ROOTS)}"
