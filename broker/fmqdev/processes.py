"""Processes of a development cluster, also those that an earlier command left running.

A process is identified by its id and its time of creation, so that an id which the system reuses is
never mistaken for the cluster's.
"""

import asyncio
import contextlib
import fcntl
import signal
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

TERM_S: Final = 15.0
"""How long an orderly stop may take before the process is killed."""

_POLL_S: Final = 0.02


@dataclass(slots=True)
class Child:
    """One process; `popen` if it is a child of this process (then it is reaped here)."""

    pid: int
    born: float
    popen: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, popen: subprocess.Popen[bytes]) -> "Child":
        """Return the process just started, which may have ended already."""
        try:
            born = psutil.Process(popen.pid).create_time()
        except psutil.NoSuchProcess:
            born = 0.0
        return cls(popen.pid, born, popen)

    def alive(self) -> bool:
        """Whether the process still runs (or is stopped by SIGSTOP)."""
        if self.popen is not None:
            return self.popen.poll() is None
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.born) < 0.05
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                psutil.Process(self.pid).send_signal(number)

    async def ended(self, within_s: float) -> bool:
        """Wait for the end of the process; False if it still runs after `within_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.alive():  # noqa: ASYNC110 - the system reports it in no other way
                    await asyncio.sleep(_POLL_S)
                return True
        return False

    async def stop(self) -> bool:
        """SIGTERM and SIGCONT, after `TERM_S` SIGKILL; return whether it ended in order."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        if await self.ended(TERM_S):
            return True
        self.kill()
        await self.ended(TERM_S)
        return False

    def kill(self) -> None:
        """Send SIGKILL without waiting."""
        self.send(signal.SIGKILL)


def holders(locks: Collection[Path]) -> dict[Path, Child]:
    """Return the process that has each lock file open, as far as processes can be inspected."""
    wanted = {str(path): path for path in locks if path.exists()}
    found: dict[Path, Child] = {}
    for process in psutil.process_iter() if wanted else ():
        with contextlib.suppress(psutil.Error):
            for file in process.open_files():
                if file.path in wanted:
                    found[wanted[file.path]] = Child(process.pid, process.create_time())
    return found


def is_locked(path: Path) -> bool:
    """Whether any process holds this lock, also one that cannot be inspected."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def owner_of(port: int, pids: Mapping[str, int]) -> str:
    """Return which process has a TCP socket with this local port; "" if none has (Linux).

    Called for every connection of a link that is cut, so it must be cheap: each socket is in the
    kernel's table once, whichever process has it.
    """
    wanted = f":{port:04X}"
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with contextlib.suppress(OSError), table.open() as lines:
            rows = (line.split() for line in lines)
            sockets |= {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted)}
    for name, pid in pids.items():
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # it, or all of the process, has just gone
                if str(descriptor.readlink()) in sockets:
                    return name
    return ""
