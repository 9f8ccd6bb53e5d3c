"""The pool's workers belong to the job: none outlives a killed job, none prints at Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fmqspark.tests.kit import write

JOB = """
import sys
from pathlib import Path
from fmqspark.engines.engines import open_engine
from fmqspark.tests.test_engines import note_and_stay
if __name__ == "__main__":
    with open_engine("pool", 2) as engine:
        list(engine.run(note_and_stay, [Path(sys.argv[1]) / "a", Path(sys.argv[1]) / "b"]))
"""


def note_and_stay(path: Path) -> None:
    """Record the worker's process, and do not end."""
    path.with_suffix(".part").write_text(str(os.getpid()))
    path.with_suffix(".part").rename(path)
    time.sleep(600)


@pytest.mark.processes
def test_killed_job_leaves_no_worker_and_prints_nothing(tmp_path: Path) -> None:
    """The process that removes its semaphores does so silently, once the last of these processes is
    gone.
    """
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    workers: list[psutil.Process] = []
    try:
        notes = [tmp_path / "a", tmp_path / "b"]
        while not all(note.exists() for note in notes):
            assert job.poll() is None, "it was to be killed at work"
            time.sleep(0.02)
        workers = [psutil.Process(int(note.read_text())) for note in notes]
        assert len(set(workers)) == 2
        job.send_signal(signal.SIGKILL)
        job.wait()
        while [worker for worker in workers if _runs(worker)]:
            time.sleep(0.02)  # ends by the test's own time limit if they do not
        assert job.communicate(timeout=60)[1] == ""
    finally:
        job.kill()
        job.wait()
        for worker in workers:
            if _runs(worker):
                worker.kill()


INTERRUPTED = """
import sys, time
from pathlib import Path
from fmqspark.engines.engines import open_engine
from fmqspark.tests.test_engines import note_and_stay, note_and_end
here, when = Path(sys.argv[1]), sys.argv[2]
if __name__ == "__main__":
    work = {"importing": note_and_end, "idle": note_and_end, "at work": note_and_stay}[when]
    try:
        with open_engine("pool", 2) as engine:
            for _ in engine.run(work, [here / "a", here / "b"]):
                pass
            (here / "done").touch()
            time.sleep(600)
    except KeyboardInterrupt:
        sys.exit(130)
elif when == "importing":
    (here / "done").touch()
    time.sleep(1)
"""


def note_and_end(path: Path) -> None:
    """A short task."""
    path.touch()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("when", "sign"), [("importing", "done"), ("at work", "b"), ("idle", "done")]
)
def test_ctrl_c_ends_a_pool_silently(tmp_path: Path, when: str, sign: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(INTERRUPTED)
    job = subprocess.Popen(
        [sys.executable, script, tmp_path, when],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C goes to all of them
    )
    try:
        while not (tmp_path / sign).exists():
            assert job.poll() is None, "it was to be interrupted at work"
            time.sleep(0.02)
        os.killpg(job.pid, signal.SIGINT)
        _, output = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, output) == (130, "")


@pytest.mark.spark  # what a check writes is Parquet
@pytest.mark.processes
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_job_asked_to_stop_ends_silently(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """As Kubernetes stops it: its pool and its folders are removed first."""
    command = ["check", str(write(tmp_path / "a")), "--engine", "pool", "--rate", "1k"]
    job = subprocess.Popen(
        [sys.executable, "-m", "fmqspark", *command, "--out", str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not psutil.Process(job.pid).children():
            assert job.poll() is None, "it was to be stopped at work"
            time.sleep(0.02)
        time.sleep(1)  # into the reading, which takes minutes
        job.send_signal(sent)
        output, _ = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, output) == (code, "")


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
