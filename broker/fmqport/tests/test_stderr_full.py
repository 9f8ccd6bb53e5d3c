"""A server process whose standard error cannot be written: a full disk, a dead collector."""

import os
import subprocess
import sys

import pytest

from fmqadapters.process.lifecycle import FATAL_EXIT

LOG = """
import os, structlog
from fmqadapters.process.logs import log_to_stderr
log_to_stderr()
for _ in range(1000):
    structlog.get_logger().warning("the disk is full", where="/data")
os._exit(3)
"""
FATAL = """
import asyncio
from fmqadapters.process.lifecycle import ProcessLifecycle

async def main():
    ProcessLifecycle().fatal("the disk fails")

asyncio.run(main())
"""


@pytest.fixture(params=["a full disk", "no reader"])
def stderr(request: pytest.FixtureRequest) -> int:
    if request.param == "a full disk":
        return os.open("/dev/full", os.O_WRONLY)
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(("program", "status"), [(LOG, 3), (FATAL, FATAL_EXIT)])
def test_full_stderr_loses_log_lines_and_nothing_else(
    stderr: int, program: str, status: int
) -> None:
    """A log line used to raise in the middle of an action, and `fatal` did not end a broker."""
    ended = subprocess.run([sys.executable, "-c", program], stderr=stderr, check=False)
    os.close(stderr)
    assert ended.returncode == status
