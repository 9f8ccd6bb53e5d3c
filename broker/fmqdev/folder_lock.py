"""One command at a time in a folder: a lock that the kernel releases when its process ends."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

from fmqdev.cluster_plan import CLUSTER_LOCK
from fmqdev.start_wait import ClusterFailed

_POLL_S = 0.05


class LockHeld(Exception):
    """Another process has the lock: `str` is "" or " (process 17)"."""


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file, made with its folder if need be; the process id is in it meanwhile.

    Raises `LockHeld`. The holder may remove the file: another process then locks a new one.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("a+")
        except FileNotFoundError:
            continue  # its holder has just removed the folder
        with file:
            _lock(file)
            if not _is_at(file, path):
                continue
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield
            return


@asynccontextmanager
async def lock_cluster(directory: Path, within_s: float = 0) -> AsyncIterator[None]:
    """Let no other command start, change or remove the cluster in this folder.

    Raises `ClusterFailed` if another one still does after `within_s` seconds.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold_lock(directory / CLUSTER_LOCK))
                break
            except LockHeld as held:
                if loop.time() >= until_s:
                    raise ClusterFailed(
                        f"another command starts or changes the cluster in {directory}{held}: "
                        "wait for its end, or name another folder with --dir"
                    ) from None
            await asyncio.sleep(_POLL_S)
        yield


def _lock(file: TextIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        pid = file.read().strip()
        raise LockHeld(f" (process {pid})" if pid else "") from None


def _is_at(file: TextIO, path: Path) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
