"""Ports of the loopback address for servers that are started next.

They lie below the range of outgoing connections, so no connection takes one while its server is
down (killed and not yet back). A port is given once: this process claims it until it ends, and no
other process of this user (another test worker) draws it meanwhile, whether its server runs or not.

Leaves one empty file in the temporary directory.
"""

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path

LOWEST = 12_000
HIGHEST = 30_000  # Kubernetes gives the next ones to its node ports
TRIES = 200
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


class _Claims:
    """The ports of this process, each a byte of one file, locked until the process ends.

    Record locks (POSIX `fcntl`) belong to a process: a child has none from its parent, and the
    kernel frees them with the process, however it ends. So the file is never closed.
    """

    def __init__(self) -> None:
        self._process = 0
        self._held = set[int]()
        self._file = -1

    def add(self, port: int, *, again: bool) -> bool:
        """Claim a port; `again`: it may be one of this process. Return False if it is claimed.

        Without a file to lock, only this process counts.
        """
        if self._process != os.getpid():
            self._process, self._held, self._file = os.getpid(), set(), _open_claims()
        if port in self._held:
            return again
        if self._file >= 0:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, by system
                return False
            except OSError:  # a file system without locks
                self._file = -1
        self._held.add(port)
        return True


_claims = _Claims()


def free_port() -> int:
    """Return a port that is free now."""
    return free_ports(1)[0]


def free_ports(count: int, preferred: Sequence[int] = ()) -> list[int]:
    """Return `count` different ports that are free now; preferred ones where those are free.

    A preferred port may be one that this process was given before. 0 is no preference. Raises
    OSError if there are none.
    """
    found: list[int] = []
    with ExitStack() as held:
        for place in range(count):
            first = [port for port in preferred[place : place + 1] if port and port not in found]
            found.append(_take(_free(held, first), first))
    return found


def _take(free: Iterator[int], preferred: Sequence[int]) -> int:
    """Return the first port that can be claimed."""
    return next(port for port in free if _claims.add(port, again=port in preferred))


def _open_claims() -> int:
    """Return the descriptor of the file whose bytes are locked, -1 if it cannot be opened."""
    path = Path(tempfile.gettempdir()) / f"fmq-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1


def _free(held: ExitStack, first: Sequence[int]) -> Iterator[int]:
    """Yield `first` if it is free, then free random ones, then ports chosen by the kernel."""
    end = _end()
    drawn = (random.randrange(LOWEST, end) for _ in range(TRIES if end > LOWEST else 0))
    for wanted in chain(first, drawn, repeat(0)):
        probe = held.enter_context(socket.socket())
        # As a server does: a connection that has ended does not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            if not wanted:
                raise
        else:
            yield int(probe.getsockname()[1])


def _end() -> int:
    """Return one past the highest port to draw from."""
    try:
        lowest_outgoing = int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # another kernel: what IANA says, 49152
        return HIGHEST
    return min(HIGHEST, lowest_outgoing)
