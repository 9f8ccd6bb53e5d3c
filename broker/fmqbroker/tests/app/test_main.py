"""The end of a broker process."""

import subprocess
import sys

from fmqadapters.process.lifecycle import FATAL_EXIT

PROGRAM = """
import sys
from fmqbroker.app import main
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.errors import NotFound

async def run(_):
    raise ExceptionGroup("of a task group", [eval(sys.argv[1])])

main._run = run
settings = BrokerSettings(cluster="c", group="g", broker="b", data_dir="-", zookeeper="-")
sys.exit(main.run_broker(settings))
"""


def ends(error: str) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, error]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stderr


def test_a_bug_leaves_its_trace_in_the_log() -> None:
    """The command line prints one line and asks to run it again, which a broker cannot do."""
    status, log = ends("KeyError('oops')")
    assert status == FATAL_EXIT
    assert "this is a bug" in log
    assert "asyncio/runners.py" in log
    assert log.count("\n") == 1


def test_expected_error_is_logged_without_traceback() -> None:
    status, log = ends("NotFound('no such group')")
    assert (status, "Traceback" in log) == (78, False)
    assert "no such group" in log
