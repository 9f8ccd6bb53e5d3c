"""The folder of a demo: locked while one runs in it, and cleared of what an earlier run left."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fmqcore.errors import InvalidArgument
from fmqdev.cluster import ClusterFailed, refuse_if_running
from fmqdev.cluster_plan import read_file, remove_cluster

LOCK_FILE: Final = "demo.lock"
"""Locked by the demo that runs in its folder; holds its process id.

It is never removed: a lock on a removed file excludes no other process.
"""


@contextmanager
def lock_folder(directory: Path) -> Iterator[None]:
    """Let no other demo run in this folder. Raises `ClusterFailed` while one does."""
    _refuse_foreign(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid = file.read().strip()
            process = f" (process {pid})" if pid else ""
            raise ClusterFailed(
                f"a demo runs in {directory} already{process}: wait for its end, or run this one "
                f"in another folder (it uses other ports): fmq demo --dir {directory}-2"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _refuse_foreign(directory: Path) -> None:
    """Raise `InvalidArgument` if the content of this folder is not from an earlier run."""
    names = os.listdir(directory) if directory.is_dir() else []
    if names and LOCK_FILE not in names and read_file(directory) is None:
        raise InvalidArgument(f"{directory} is not empty and holds no cluster: name another")


def clear_folder(directory: Path) -> None:
    """Remove what an earlier run left, and nothing else."""
    refuse_if_running(directory)
    known = read_file(directory)
    if known is not None:
        remove_cluster(directory, known.options)
    elif any(name != LOCK_FILE for name in os.listdir(directory)):
        raise InvalidArgument(f"{directory} is not empty and holds no cluster: name another")
