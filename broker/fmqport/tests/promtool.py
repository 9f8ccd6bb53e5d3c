"""Prometheus' own checker for a page of metrics."""

import shutil
import subprocess


def complaints(text: str) -> str:
    """Return the complaints of `promtool check metrics`, where installed (Debian: prometheus)."""
    if shutil.which("promtool") is None:
        return ""
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=text, stderr=subprocess.PIPE, text=True)
    return done.stderr or ("" if done.returncode == 0 else f"status {done.returncode}")
