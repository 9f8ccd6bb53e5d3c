"""A server process whose standard error is not read for a while."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fmqadapters.process.lifecycle import FATAL_EXIT
from fmqadapters.process.stderr_lines import BACKLOG_BYTES

LINES = 3000
SOME = """
import os, sys, structlog
from fmqadapters.process.logs import log_to_stderr
log_to_stderr()
for number in range({lines}):
    structlog.get_logger().info("line", number=number, filling={filling!r})
os.write(1, b"working")
sys.stdin.readline()
structlog.get_logger().info("last")
"""
FATAL = (
    SOME
    + """
import asyncio
from fmqadapters.process.lifecycle import ProcessLifecycle

async def main():
    ProcessLifecycle().fatal("the disk fails")

asyncio.run(main())
"""
)


class Unread:
    """A process with a standard error that only `read_rest` reads."""

    def __init__(self, program: str, filling: str) -> None:
        self.reading, writing = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", program.format(lines=LINES, filling=filling)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=writing,
        )
        os.close(writing)

    def wait_until_it_works(self) -> bool:
        """Return whether it went on behind its log lines, none of which was read."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        return bool(ready) and self.process.stdout.read(7) == b"working"

    def end(self) -> None:
        """Let it log its last line, and end."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def read_rest(self) -> list[str]:
        """Return all that it logs until its end."""
        with os.fdopen(self.reading, closefd=False) as log:
            return log.read().splitlines()

    def close(self) -> None:
        os.close(self.reading)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[Unread]:
    unread = Unread(*request.param)
    yield unread
    unread.close()


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split("number=")[1].split()[0]) for line in lines if "number=" in line]


@pytest.mark.parametrize("started", [(SOME, "x" * 100)], indirect=True)
def test_unread_lines_hold_nothing_up_and_come_later(started: Unread) -> None:
    """The pipe took 64 KiB, and the next line waited for ever, with the event loop."""
    assert started.wait_until_it_works()
    started.end()
    lines = started.read_rest()
    assert numbers(lines) == list(range(LINES))
    assert "event=last" in lines[-1]


@pytest.mark.parametrize("started", [(SOME, "x" * 1000)], indirect=True)
def test_lines_beyond_the_backlog_are_dropped_and_counted(started: Unread) -> None:
    assert started.wait_until_it_works()
    started.end()
    lines = started.read_rest()
    kept = numbers(lines)
    assert kept == list(range(len(kept)))
    assert BACKLOG_BYTES // 1200 < len(kept) < LINES
    (notice,) = [line for line in lines if "event=log_lines_dropped" in line]
    dropped = int(notice.split("count=")[1].split()[0])
    assert lines.index(notice) >= len(kept)
    assert len(kept) + dropped + ("event=last" in "".join(lines)) == LINES + 1


@pytest.mark.parametrize("started", [(FATAL, "x" * 1000)], indirect=True)
def test_unread_standard_error_does_not_hold_up_a_fatal_end(started: Unread) -> None:
    assert started.wait_until_it_works()
    started.end()
    assert started.process.wait(30) == FATAL_EXIT
