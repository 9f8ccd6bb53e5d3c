"""A job on Spark whose Java, or worker, is killed while it runs: one line, and exit code 3.

A job that is itself asked to end prints nothing, and leaves no Java.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from fmqspark.cli.errors import Terminated
from fmqspark.engines.engine import AGAIN
from fmqspark.tests.kit import write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_JAVA = "org.apache.spark.deploy.SparkSubmit"


@pytest.mark.parametrize(
    ("victim", "what"), [("java", "check"), ("worker", "check"), ("worker", "archive")]
)
def test_killed_spark_is_reported_in_one_line(tmp_path: Path, victim: str, what: str) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "out"
    command = [sys.executable, "-m", "fmqspark", what, str(data), "--out", str(out)]
    job = _slow(command, tmp_path)
    try:
        _found_at_work(job)[victim].send_signal(signal.SIGKILL)
        stdout, err = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    assert job.returncode == 3, err
    last = err.strip().splitlines()[-1]
    assert last.startswith("fmq job: Spark gave up ("), err
    assert last.endswith(AGAIN)
    assert len(last) < 250, "in short, not in Spark's words"
    assert victim == "java" or "Python worker exited unexpectedly" in last
    assert "clean" not in stdout
    assert "Traceback" not in err
    assert "\tat " not in err
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
@pytest.mark.parametrize("all_of_it", [True, False])
def test_job_asked_to_end_prints_nothing(
    tmp_path: Path, number: signal.Signals, code: int, all_of_it: bool
) -> None:
    """As by Ctrl-C, which every process of the terminal gets, or by `kill`, which one does."""
    command = [sys.executable, "-m", "fmqspark", "check", str(write(tmp_path / "data"))]
    job = _slow(command, tmp_path)
    found: dict[str, psutil.Process] = {}
    try:
        found = _found_at_work(job)
        time.sleep(0.5)
        (os.killpg if all_of_it else os.kill)(job.pid, number)
        out, err = job.communicate(timeout=60)
        assert (job.returncode, out, err) == (code, "", "")
        assert psutil.wait_procs(found.values(), timeout=20)[1] == []
    finally:
        for process in found.values():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        job.kill()
        job.communicate()


class _Hides:
    """A session where leaving an interrupted call fails, as pyspark's may."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        self._interrupt = interrupt

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        from py4j.protocol import Py4JNetworkError

        try:
            try:
                raise self._interrupt
            finally:
                raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError as error:
            raise Py4JNetworkError("Error while sending or receiving") from error


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), Terminated()], ids=["INT", "TERM"])
def test_an_interrupt_that_java_hides_is_one(interrupt: KeyboardInterrupt) -> None:
    from fmqspark.engines.spark import SparkEngine

    session: Any = _Hides(interrupt)
    engine = SparkEngine(session, 1)
    with pytest.raises(KeyboardInterrupt) as raised:
        list(engine.run(str, [1]))
    assert raised.value is interrupt


def _slow(command: list[str], folder: Path) -> "subprocess.Popen[str]":
    deep = ["--level", "deep"] if "check" in command else []
    return subprocess.Popen(
        [*command, "--engine", "spark", "--workers", "1", "--rate", "2k", *deep],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)},
    )


def _found_at_work(job: "subprocess.Popen[str]") -> dict[str, psutil.Process]:
    while not (found := _at_work(job.pid)):
        assert job.poll() is None, "it was to be killed at work"
        time.sleep(0.1)
    return found


def _at_work(pid: int) -> dict[str, psutil.Process]:
    """Return Java and a Spark worker, if one reads a journal; between them is Spark's daemon."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            line, parents = " ".join(process.cmdline()), process.parents()
            if _JAVA in line:
                found["java"] = process
            # A child of a worker has its name for a moment; its parent is no daemon.
            elif (
                "pyspark.daemon" in line
                and _JAVA in " ".join(parents[1].cmdline())
                and any(file.path.endswith(".journal") for file in process.open_files())
            ):
                found["worker"] = process
        except psutil.Error:
            continue  # it has ended meanwhile
    return found if found.keys() == {"java", "worker"} else {}


_STAGE = (
    "Job aborted due to stage failure: Task 2 in stage 0.0 failed 1 times, most recent failure: "
)
_LOST = _STAGE + "Lost task 2.0 in stage 0.0 (TID 2) "
_SET = "Consider setting 'spark.python.worker.faulthandler.enabled' to 'true' for the traceback."


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            f"{_LOST}(10.1.2.3 executor driver): org.apache.spark.SparkException: Python worker "
            f"exited unexpectedly (crashed). {_SET}",
            "10.1.2.3 executor driver: Python worker exited unexpectedly (crashed)",
        ),
        (
            f"{_LOST}(n4 executor 7): ExecutorLostFailure (executor 7 exited) Reason: OOM",
            "n4 executor 7: ExecutorLostFailure (executor 7 exited) Reason: OOM",
        ),
        (f"{_STAGE}something else", f"{_STAGE}something else"),
        (
            f"{_LOST}(n4 executor 7): org.apache.spark.api.python.PythonException: Traceback",
            "n4 executor 7: org.apache.spark.api.python.PythonException: Traceback",
        ),
        ("Job 0 cancelled", "Job 0 cancelled"),
    ],
)
def test_lost_task_message_is_shortened(text: str, short: str) -> None:
    from fmqspark.engines.spark import of_task

    assert of_task(text) == short
