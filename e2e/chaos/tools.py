"""Commands of the system that faults are made with: run them, and say what is missing."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from fmqcore.errors import Unavailable

PATH: Final = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class ToolFailed(Unavailable):
    """A command of the system did not do what it was to do; the message has its own words."""


def run(*command: str, stdin: str = "") -> str:
    """Run it to its end; what it wrote. Raises `ToolFailed`."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env={**os.environ, "PATH": PATH}
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise ToolFailed(f"`{' '.join(command)}` ended with status {done.returncode}: {words}")
    return done.stdout


def missing(tools: Sequence[str], package: str) -> str | None:
    """Why none of it can be used; None if all are there."""
    gone = [tool for tool in tools if shutil.which(tool, path=PATH) is None]
    return f"no {' and no '.join(gone)} here: apt-get install {package}" if gone else None
