"""System commands that faults are made with: run them, and report missing ones."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from fmqcore.errors import Unavailable

PATH: Final = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


class ToolFailed(Unavailable):
    """A system command failed; the message has its own output."""


def run(*command: str, stdin: str = "") -> str:
    """Run a command to its end and return its output. Raises `ToolFailed`."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env={**os.environ, "PATH": PATH}
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise ToolFailed(f"`{' '.join(command)}` ended with status {done.returncode}: {words}")
    return done.stdout


def missing(tools: Sequence[str], package: str) -> str | None:
    """Return why the tools cannot be used; None if all are there."""
    gone = [tool for tool in tools if shutil.which(tool, path=PATH) is None]
    return f"no {' and no '.join(gone)} here: apt-get install {package}" if gone else None
