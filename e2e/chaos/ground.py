"""What this machine supports: each need with the reason why not, or None.

`enter` gives the whole run its own namespaces where it may; it comes first in the process.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from e2e.chaos.tools import PATH, missing

_INSIDE: Final = "FMQ_CHAOS_INSIDE"
_SIOCSIFFLAGS: Final = 0x8914  # netdevice(7)
_IFF_UP: Final = 1
_NOT_ROOT: Final = "needs root"
_FAKETIME: Final = "faketime/libfaketime.so.1"
_LIBRARIES: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")


def enter(arguments: list[str]) -> None:
    """Restart this command in its own network and mount namespaces, if root may have them.

    The same process goes on as that command, so a process that waits for it notices nothing.
    """
    if os.environ.get(_INSIDE):
        _loopback_up()
        return
    if _no_namespaces():
        return
    os.environ[_INSIDE] = "1"
    own = [sys.executable, "-m", "e2e.chaos", *arguments]
    os.execvpe("unshare", ["unshare", "--net", "--mount", "--", *own], os.environ)


def _loopback_up() -> None:
    """Bring up the loopback of a new network namespace, which is down.

    All of a run may be on it: without nft, for example. Does not use `ip`, which may be missing,
    too.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _no_namespaces() -> str | None:
    if os.geteuid() != 0:
        return f"{_NOT_ROOT} (network namespaces)"
    if gone := missing(("unshare", "nsenter"), "util-linux"):
        return gone
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--", "true"], capture_output=True, text=True
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass
class Ground:
    """Each property is computed once. `loopback`: no namespaces and no disks, as without root."""

    loopback: bool = False

    @cached_property
    def namespaces(self) -> str | None:
        """Network namespaces and their packet filter."""
        if self.loopback:
            return "--loopback was asked for"
        if not os.environ.get(_INSIDE):
            return _no_namespaces() or "this process has no separate namespaces"
        if gone := missing(("ip", "nft"), "iproute2 nftables"):
            return gone
        tried = subprocess.run(
            ["nft", "add", "table", "ip", "fmq"],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": PATH},
        )
        return f"no packet filter here: {tried.stderr.strip()}" if tried.returncode else None

    @cached_property
    def disks(self) -> str | None:
        """File systems on loop devices."""
        if self.loopback:
            return "--loopback was asked for"
        if os.geteuid() != 0:
            return f"{_NOT_ROOT} (a file system on a loop device)"
        if not os.environ.get(_INSIDE):
            return "this process has no separate mount namespace"
        if not Path("/dev/loop-control").exists():
            return "no loop devices here"
        return missing(("mkfs.ext4", "mount", "umount"), "e2fsprogs")

    @cached_property
    def strace(self) -> str | None:
        """Failing system calls."""
        if os.geteuid() != 0:
            return f"{_NOT_ROOT} (strace attaches to a running process)"
        return missing(("strace",), "strace")

    @cached_property
    def ptrace(self) -> str | None:
        """Freezing one thread."""
        if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
            return "written for Linux on x86_64"
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        allowed = not scope.exists() or scope.read_text().strip() == "0" or os.geteuid() == 0
        if not allowed:
            return "ptrace is not allowed here (kernel.yama.ptrace_scope)"
        return None if hasattr(ctypes.CDLL(None), "ptrace") else "no ptrace here"

    @cached_property
    def prlimit(self) -> str | None:
        """Limits of a running process."""
        return None if sys.platform.startswith("linux") else "written for Linux"

    @cached_property
    def faketime(self) -> str | None:
        """Wall clocks that jump."""
        return None if faketime_library() else "no libfaketime here: apt-get install libfaketime"


def faketime_library() -> str:
    """Return the library to preload to move a program's clock; "" if there is none."""
    found = (Path(folder) / _FAKETIME for folder in _LIBRARIES)
    return next((str(path) for path in found if path.exists()), "")
