"""A check on Spark whose Java, or whose worker, is killed at work: one line, and exit code 3."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fmqspark.tests.kit import write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("victim", ["java", "worker"])
def test_spark_that_is_killed_is_told_in_one_line(tmp_path: Path, victim: str) -> None:
    data, out = write(tmp_path / "data"), tmp_path / "out"
    command = [sys.executable, "-m", "fmqspark", "check", str(data), "--out", str(out)]
    job = subprocess.Popen(
        [*command, "--engine", "spark", "--workers", "1", "--rate", "2k", "--level", "deep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    )
    try:
        while not (found := _at_work(job.pid)):
            assert job.poll() is None, "it was to be killed at work"
            time.sleep(0.1)
        found[victim].send_signal(signal.SIGKILL)
        said, told = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    assert job.returncode == 3, told
    last = told.strip().splitlines()[-1]
    assert last.startswith("fmq job: Spark gave up ("), told
    assert last.endswith("run the same command again, it goes on where this one ended if it has "
                         "an --out folder")  # fmt: skip
    assert "clean" not in said
    assert "Traceback" not in told
    assert "\tat " not in told
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr


def _at_work(pid: int) -> dict[str, psutil.Process]:
    """Java and a worker of Spark's, if there is one at work; its daemon is the worker's parent."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            line, parent = " ".join(process.cmdline()), process.parent()
            if "org.apache.spark.deploy.SparkSubmit" in line:
                found["java"] = process
            elif "pyspark.daemon" in line and parent and "pyspark.daemon" in parent.cmdline():
                found["worker"] = process
        except psutil.Error:
            continue  # gone meanwhile
    return found if found.keys() == {"java", "worker"} else {}
