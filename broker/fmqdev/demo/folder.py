"""The folder of a demo: locked while one runs in it, and cleared of what an earlier run left."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from fmqcore.errors import InvalidArgument
from fmqdev.cluster import ClusterFailed, refuse_if_running
from fmqdev.cluster_plan import (
    CLUSTER_LOCK,
    STATE_FILE,
    ZOOKEEPER,
    ClusterOptions,
    read_file,
    remove_cluster,
)
from fmqdev.folder_lock import LockHeld, hold_lock

LOCK_FILE: Final = "demo.lock"
"""Locked by the demo that runs in its folder; holds its process id.

It is never removed: a lock on a removed file excludes no other process.
"""
DATABASES: Final = frozenset(
    f"{name}.db{suffix}" for name in ("source", "target") for suffix in ("", "-journal")
)
"""The tables of an ordered demo, and what SQLite leaves beside them when it is killed."""

_AT_A_START: Final = DATABASES | {LOCK_FILE, CLUSTER_LOCK, ZOOKEEPER, f"{STATE_FILE}.new"}
"""What a demo may have left that was killed before it wrote which cluster there is."""


@contextmanager
def lock_folder(directory: Path) -> Iterator[None]:
    """Let no other demo run in this folder. Raises `ClusterFailed` while one does."""
    _refuse_foreign(directory)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(directory / LOCK_FILE))
        except LockHeld as held:
            raise ClusterFailed(
                f"a demo runs in {directory} already{held}: wait for its end, or run this one "
                f"in another folder (it uses other ports): fmq demo --dir {directory}-2"
            ) from None
        yield


def _refuse_foreign(directory: Path) -> None:
    """Raise `InvalidArgument` if the content of this folder is not from an earlier run."""
    names = set(os.listdir(directory)) - {CLUSTER_LOCK} if directory.is_dir() else set()
    if LOCK_FILE in names:
        return
    if names and read_file(directory) is None:
        raise _holds_no_cluster(directory)
    if foreign := sorted(names & DATABASES):
        raise InvalidArgument(
            f"{directory} holds {', '.join(foreign)}, which a demo would remove, and no demo ran "
            "there: name another folder"
        )


def clear_folder(directory: Path) -> None:
    """Remove what an earlier run left, also one that was killed at its start; nothing else."""
    refuse_if_running(directory)
    known = read_file(directory)
    if known is None and set(os.listdir(directory)) - _AT_A_START:
        raise _holds_no_cluster(directory)
    options = ClusterOptions() if known is None else known.options
    remove_cluster(directory, options)
    for name in DATABASES:
        (directory / name).unlink(missing_ok=True)


def _holds_no_cluster(directory: Path) -> InvalidArgument:
    return InvalidArgument(f"{directory} is not empty and holds no cluster: name another")
