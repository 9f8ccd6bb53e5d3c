"""Run the same tasks on Spark's executors.

Tasks go out in waves, so that the driver holds one wave's results at most, and what is finished is
known (and kept, by the caller) if the application dies.
"""

import logging
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fmqspark.engines.engine import AGAIN, Engine, EngineFailed
from fmqspark.spark.session import open_session, raise_interrupt, why

T = TypeVar("T")
R = TypeVar("R")

_WAVE: Final = 16
"""Tasks that a worker gets in one wave."""
_LOST: Final = re.compile(
    r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \(([^()]+)\): "
    r"(?:org\.apache\.spark\.SparkException: )?(.+)"
)
_ADVICE: Final = " Consider setting "


class SparkEngine:
    """See `fmqspark.engines.engine.Engine`."""

    def __init__(self, session: SparkSession, workers: int) -> None:
        self._session = session
        self.workers = workers

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """See `Engine`."""
        wave = self.workers * _WAVE
        for at in range(0, len(tasks), wave):
            some = list(tasks[at : at + wave])
            try:
                yield from (
                    self._session.sparkContext.parallelize(some, len(some)).map(work).collect()
                )
            except (Py4JError, PySparkException, OSError) as error:
                raise_interrupt(error)
                raise EngineFailed(f"Spark gave up ({of_task(why(error))}): {AGAIN}") from error


def of_task(text: str) -> str:
    """Return what became of the task that ended a stage, and where; else Spark's own text."""
    found = _LOST.search(text)
    if found is None:
        return text
    where, reason = found.groups()
    return f"{where}: {reason.split(_ADVICE)[0].rstrip('.')}"


@contextmanager
def spark_engine(workers: int, master: str) -> Iterator[Engine]:
    """Open a session for as long as it is needed. Raises `NoJava`."""
    before = signal.getsignal(signal.SIGINT)
    with _no_traces(), open_session(workers, master) as session:
        if threading.current_thread() is threading.main_thread():
            # Spark's own handler asks Java to cancel all jobs, in the midst of another request. It
            # is not needed here: the session ends.
            signal.signal(signal.SIGINT, before)
        yield SparkEngine(session, max(workers, session.sparkContext.defaultParallelism))


@contextmanager
def _no_traces() -> Iterator[None]:
    """Keep py4j from logging where an interrupt, or the end of Java, met it.

    The code that ends the job reports the cause. py4j logs as the root logger, too, which prints it
    if no logging is configured.
    """
    root, own = logging.getLogger(), logging.getLogger("py4j")
    propagates, own.propagate = own.propagate, False
    root.addFilter(_not_py4js)
    try:
        with warnings.catch_warnings():
            # Java was asked to end, too, and was quicker.
            warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM")
            yield
    finally:
        root.removeFilter(_not_py4js)
        own.propagate = propagates


def _not_py4js(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
