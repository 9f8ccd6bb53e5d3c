"""Start a child process that does not outlive this process (or, with `detach`, does).

On Linux the kernel kills the child when the thread that started it ends, however that comes about
(PR_SET_PDEATHSIG): so start children from the main thread. Elsewhere only an orderly end of this
process ends them.

The child requests that itself, in a short Python program before it becomes the command. Python code
between fork and exec (`preexec_fn`) crashed the child with gRPC's threads in the process.
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
    """Start `command` with its output appended to `log` and an empty standard input.

    The child gets its own session, so Ctrl-C on the terminal reaches only this process. With
    `detach` it outlives this process.
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
