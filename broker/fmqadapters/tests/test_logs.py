"""The events that a server process logs."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, structlog
from fmqadapters.process.logs import log_to_stderr, set_log_level
log_to_stderr()
log = structlog.get_logger()
log.info("before")
set_log_level(sys.argv[1])
for level in ("debug", "info", "warning", "error", "critical"):
    getattr(log, level)("a_" + level)
"""


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("debug", ["debug", "info", "warning", "error", "critical"]),
        ("info", ["info", "warning", "error", "critical"]),
        ("error", ["error", "critical"]),
    ],
)
def test_log_level_drops_less_severe_lines(level: str, logged: list[str]) -> None:
    """Even from a logger that was used before."""
    command = [sys.executable, "-c", PROGRAM, level]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    events = [line.partition("event=")[2].split()[0] for line in done.stderr.splitlines()]
    assert events == ["before", *(f"a_{name}" for name in logged)]
