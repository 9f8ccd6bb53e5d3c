"""Freeze a process's main thread while its other threads go on: `python freeze.py PID`.

A broker's main thread is its event loop; kazoo's threads keep its ZooKeeper session alive
meanwhile. The thread is stopped by ptrace where it waits in the kernel, so that it does not hold
Python's lock. Prints a line once the thread is frozen; lets it go when standard input ends (or this
process dies).
"""

import ctypes
import os
import sys
import time

SEIZE, INTERRUPT, CONT, DETACH = 0x4206, 0x4207, 7, 17
WALL = 0x40000000
EPOLL_WAIT, EPOLL_PWAIT = "232", "281"  # of x86_64
_TIMEOUT_S = 20.0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def main() -> int:
    """Freeze the thread, print a line, wait for the end of input, let it go."""
    pid = int(sys.argv[1])
    _ptrace(SEIZE, pid)
    until = time.monotonic() + _TIMEOUT_S
    while not _stopped_while_waiting(pid):
        if time.monotonic() > until:
            sys.stderr.write(f"the main thread of {pid} is never found waiting\n")
            return 1
        _ptrace(CONT, pid)
        time.sleep(0.002)
    sys.stdout.write("frozen\n")
    sys.stdout.flush()
    sys.stdin.read()
    _ptrace(DETACH, pid)
    return 0


def _stopped_while_waiting(pid: int) -> bool:
    _ptrace(INTERRUPT, pid)
    os.waitpid(pid, WALL)
    with open(f"/proc/{pid}/task/{pid}/syscall") as file:
        return file.read().split()[0] in (EPOLL_WAIT, EPOLL_PWAIT)


def _ptrace(request: int, pid: int) -> None:
    if _libc.ptrace(request, pid, None, None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace of {pid}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
