"""The pool's workers belong to the job: none is left when it was killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

JOB = """
import sys
from pathlib import Path
from fmqspark.engines import open_engine
from fmqspark.tests.test_engines import note_and_stay
if __name__ == "__main__":
    with open_engine("pool", 2) as engine:
        list(engine.run(note_and_stay, [Path(sys.argv[1]) / "a", Path(sys.argv[1]) / "b"]))
"""


def note_and_stay(path: Path) -> None:
    """Say who does it, and do not come to an end."""
    path.with_suffix(".part").write_text(str(os.getpid()))
    path.with_suffix(".part").rename(path)
    time.sleep(600)


@pytest.mark.processes
def test_a_killed_job_leaves_no_worker(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    job = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
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
    finally:
        job.kill()
        job.wait()
        for worker in workers:
            if _runs(worker):
                worker.kill()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
