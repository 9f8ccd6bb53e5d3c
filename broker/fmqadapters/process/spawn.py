"""Starts a child process that does not outlive us (or, on purpose, does).

On Linux the kernel kills the child when the thread that started it ends, however that comes about
(PR_SET_PDEATHSIG): so start children from the main thread. Elsewhere only an orderly end of this
process ends them.

The child asks for that itself, in a moment of Python before it becomes the command. Python code
between fork and exec (`preexec_fn`) is no way to do it: with gRPC's threads in the process it was
seen to crash the child.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_DIE_WITH_PARENT: Final = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has ended meanwhile")
os.execvp(sys.argv[2], sys.argv[2:])
"""


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
    wrapper: list[str] = []
    if not detach and sys.platform == "linux":
        wrapper = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*wrapper, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
