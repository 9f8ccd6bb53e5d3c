"""Run a job's tasks in this process, in a pool of processes, or on Spark.

The same function runs over the same tasks on all three; results come as they are ready, in no
order. A task and its result are small and picklable: what is read stays where it is read.
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, TypeVar

from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.extras import install
from fmqspark.engines.engine import AGAIN, Engine, EngineFailed

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine:
    """One task after the other, in this process."""

    workers = 1

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """See `Engine`."""
        return map(work, tasks)


class PoolEngine:
    """Processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor, workers: int) -> None:
        self.workers = workers
        self._pool = pool

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """See `Engine`."""
        try:
            # A worker that starts with SIGINT blocked never gets it: a Ctrl-C is for the job, and a
            # worker interrupted at its imports, or while it waits, would print a traceback.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                under_way = [self._pool.submit(work, task) for task in tasks]
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for done in as_completed(under_way):
                yield done.result()
        except BrokenProcessPool as error:
            raise EngineFailed(
                f"a process of the pool died (killed, or out of memory): {AGAIN}"
            ) from error


def _end_with_the_job(lifeline: Connection) -> None:
    """End this worker when the job's process is gone, however it went, or closes `lifeline`.

    A killed job leaves its lock to the next one, or to a broker, and no worker may be at work in
    that directory then. By itself the pool's worker would do its task and wait for ever.
    """
    job = multiprocessing.parent_process()
    assert job is not None, "a worker has a parent process"
    threading.Thread(target=_exit_with_the_job, args=(job, lifeline), daemon=True).start()


def _track_in_silence() -> None:
    """Start Python's resource tracker so that it does not warn of a killed job.

    The tracker removes a pool's semaphores. It inherits the warning options that its parent passes
    to a Python that it starts.
    """
    sys.warnoptions.append("ignore::UserWarning:multiprocessing.resource_tracker")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


def _exit_with_the_job(job: BaseProcess, lifeline: Connection) -> None:
    wait([job.sentinel, lifeline])
    os._exit(1)


NAMES = ("local", "pool", "spark")
"""The values that `--engine` takes."""
_MASTER: Final = re.compile(r"yarn$|local(-cluster)?(\[[0-9*][0-9*, ]*\])?$|(spark|k8s)://.")


@contextmanager
def open_engine(name: str, workers: int = 0, master: str = "") -> Iterator[Engine]:
    """Open an engine by its name; `workers` 0: as many as there are cores.

    `master` is Spark's. Raises `InvalidArgument` for an unknown name, `Unavailable` if what the
    engine needs is not installed.
    """
    count = workers or len(os.sched_getaffinity(0))
    match name:
        case "local":
            yield LocalEngine()
        case "pool":
            # Not forked: a process that has run gRPC or Java must not be copied as it stands.
            context = multiprocessing.get_context("spawn")
            _track_in_silence()
            lifeline, job_end = context.Pipe(duplex=False)
            pool = ProcessPoolExecutor(
                count, mp_context=context, initializer=_end_with_the_job, initargs=(lifeline,)
            )
            try:
                yield PoolEngine(pool, count)
            except BaseException:
                job_end.close()  # interrupted: no caller waits for what is under way
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                job_end.close()
                lifeline.close()
        case "spark":
            if master and _MASTER.match(master) is None:  # Java would answer with a stack trace
                raise InvalidArgument(
                    f"--master {master} must be like local[2], spark://host:7077, "
                    "k8s://https://host, yarn"
                )
            with _spark(count, master) as engine:
                yield engine
        case _:
            raise InvalidArgument(f"--engine {name} must be one of {', '.join(NAMES)}")


@contextmanager
def _spark(workers: int, master: str) -> Iterator[Engine]:
    try:
        from fmqspark.engines.spark import spark_engine
    except ImportError as error:
        raise Unavailable(
            f"Spark is not installed ({error}): {install('spark')}, or use --engine pool"
        ) from None
    with spark_engine(workers, master) as engine:
        yield engine
