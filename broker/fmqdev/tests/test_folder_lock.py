"""Two commands in the folder of one cluster: the second waits, or is refused."""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fmqcli.commands import dev
from fmqdev import cluster
from fmqdev.cluster import ClusterFailed, DevCluster
from fmqdev.cluster_plan import CLUSTER_LOCK, ClusterFile, ClusterOptions, write_file
from fmqdev.folder_lock import LockHeld, hold_lock, lock_cluster
from fmqdev.tests.test_cluster import processes_of

BUSY = rf"another command starts or changes the cluster in .* \(process {os.getpid()}\): wait"


class Started(Exception):
    """A process was started, or stopped."""


def refuse(*_: Any, **__: Any) -> Any:
    raise Started


async def test_second_start_in_a_folder_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "EmbeddedZooKeeper", refuse)
    async with lock_cluster(tmp_path):
        with pytest.raises(ClusterFailed, match=BUSY):
            await DevCluster(tmp_path).start()
        assert os.listdir(tmp_path) == [CLUSTER_LOCK]
    with pytest.raises(Started):
        await DevCluster(tmp_path).start()


@pytest.mark.parametrize("wipe", [False, True])
async def test_down_while_a_cluster_starts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wipe: bool
) -> None:
    write_file(tmp_path, ClusterFile(ClusterOptions(), []))
    monkeypatch.setattr(DevCluster, "stop", refuse)
    monkeypatch.setattr(DevCluster, "wipe", refuse)
    async with lock_cluster(tmp_path):
        with pytest.raises(ClusterFailed, match=BUSY):
            await dev._down(tmp_path, wipe=wipe)


async def test_start_of_a_broker_waits_for_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path, ClusterFile(ClusterOptions(), []))
    monkeypatch.setattr(dev, "_has_zookeeper", lambda _: True)
    monkeypatch.setattr(DevCluster, "restart", refuse)
    async with lock_cluster(tmp_path):
        start = asyncio.create_task(dev._start(tmp_path, "g1-0", running=False))
        await asyncio.sleep(0.2)
        assert not start.done()
    with pytest.raises(Started):
        await start


def test_lock_on_a_removed_file_is_taken_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fmq dev down --wipe` removes it between the opening and the lock."""
    path, locks = tmp_path / "folder" / CLUSTER_LOCK, []
    flock = fcntl.flock

    def remove(file: Any, operation: int) -> None:
        locks.append(operation)
        if len(locks) == 1:
            path.unlink()
            path.parent.rmdir()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove)
    with hold_lock(path):
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(LockHeld), hold_lock(path):
            pass
    assert len(locks) == 3


@pytest.mark.processes
def test_two_starts_at_once_leave_one_whole_cluster(tmp_path: Path) -> None:
    here = ("--dir", str(tmp_path / "dev"))
    command = [sys.executable, "-m", "fmqcli.main", "dev"]
    up = [*command, "up", "--groups", "1", "--slaves", "0", "--port", "0", *here]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(up, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    try:
        printed = [process.communicate(timeout=110) for process in both]
        codes = sorted(process.returncode for process in both)
        assert codes in ([0, 0], [0, 69]), printed
        for process, (out, err) in zip(both, printed, strict=True):
            refused = "another command starts" in err or "runs in" in err
            assert refused if process.returncode else out.startswith("fmq://127.0.0.1:"), err
        assert len(processes_of(tmp_path / "dev")) == 2
        status = subprocess.run([*command, "status", *here], capture_output=True, text=True)
        assert "master" in status.stdout, status.stderr
    finally:
        subprocess.run([*command, "down", "--wipe", *here], capture_output=True, check=True)
    assert not (tmp_path / "dev").exists()
