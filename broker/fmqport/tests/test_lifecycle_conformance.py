"""What the real adapter of the lifecycle port must do, seen from outside: it is a process's life.

A simulated adapter has no process; its `fatal` raises, and the simulator's own tests check that.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fmqport.process import FATAL_EXIT

WAITS = """
import asyncio
from fmqport.process import ProcessLifecycle

async def main():
    lifecycle = ProcessLifecycle()
    print("ready", flush=True)
    await lifecycle.stopping.wait()
    print("stopping", flush=True)
    try:
        await asyncio.sleep(0)
    finally:
        print("cleaned up", flush=True)

asyncio.run(main())
"""

DIES = """
import asyncio, atexit
from fmqport.process import ProcessLifecycle

async def main():
    atexit.register(print, "cleaned up")
    lifecycle = ProcessLifecycle()
    try:
        lifecycle.fatal("fsync of segment 0 failed")
    finally:
        print("cleaned up", flush=True)

asyncio.run(main())
"""


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_an_event_and_the_end_is_orderly(number: signal.Signals) -> None:
    with running(WAITS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
        assert said == "stopping\ncleaned up\n"
        assert process.returncode == 0


def test_fatal_ends_the_process_at_once_with_the_reason_and_no_clean_up() -> None:
    with running(DIES) as process:
        said, why = process.communicate(timeout=60)
        assert (said, process.returncode) == ("", FATAL_EXIT)
        assert why == "fmq: fatal: fsync of segment 0 failed\n"
