"""Starts a child process that does not outlive us (or, on purpose, does).

On Linux the kernel kills the child when the thread that started it ends, however that comes about
(PR_SET_PDEATHSIG): so start children from the main thread. Elsewhere only an orderly end of this
process ends them.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    detach: bool = False,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command`, its output appended to `log`, nothing to read on its standard input.

    In a session of its own, so that Ctrl-C on the terminal reaches us alone. `detach`: it lives on.
    """
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            preexec_fn=None if detach or _LIBC is None else lambda: _die_with(parent),
        )


def _die_with(parent: int) -> None:
    """In the child, before it becomes the command. The parent may have died meanwhile."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
