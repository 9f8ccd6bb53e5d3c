"""`fmq demo`: the main job on this machine.

Talk goes to standard error, the report to standard output. Exit status 0: all is well; 1: something
is off; 69: it could not be run; 130, 143: stopped by Ctrl-C, SIGTERM.
"""

import logging
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer

from fmqcli.common import UNAVAILABLE, Terminated, run, talk
from fmqcli.stdio.input_paths import folder
from fmqcore.errors import FmqError

OFF: Final = 1
LEFT_MB: Final = 895
"""Measured: the logs and data of a run with all flights."""

app = typer.Typer(help="Run the main job on this machine.")


@app.command()
def demo(
    messages: Annotated[
        int | None,
        typer.Option(min=300, max=336_776, help="number of flights, or of changes; left out: all"),
    ] = None,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered",
            help="copy a change log through an ordered topic over three groups instead",
        ),
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="FOLDER",
            parser=folder,
            help="directory for logs and data; an earlier run in it is removed",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="keep the data after a run without findings")
    ] = True,
) -> None:
    """Run the main job: a cluster, real data, a killed master, a verdict."""
    from fmqdev.cluster_plan import state_folder

    job = _run_ordered if ordered else _run
    raise typer.Exit(_demo(job, messages, directory or state_folder("demo"), keep=keep))


Job = Callable[[int | None, Path, bool], Coroutine[None, None, bool]]
"""Runs a demo (number of messages, folder, whether data stay), prints its report; returns whether
all is well."""


def _demo(job: Job, messages: int | None, directory: Path, *, keep: bool) -> int:
    """Run it and print what it found; the exit status."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return run(lambda: _finish(job, messages, directory, keep=keep))
    except (KeyboardInterrupt, Terminated):
        talk(f"stopped; no process is left running; logs and data: {directory}")
        raise


async def _finish(job: Job, messages: int | None, directory: Path, *, keep: bool) -> int:
    try:
        good = await job(messages, directory, keep)
    except (FmqError, BaseExceptionGroup) as error:
        reasons = list(_leaves(error))
        if not all(isinstance(reason, FmqError) for reason in reasons):
            raise
        for reason in reasons:
            talk(f"FAILED: {reason}")
        talk(f"logs and data: {directory}")
        return UNAVAILABLE
    if good and not keep:
        _remove_data(directory)
    return 0 if good else OFF


async def _run(messages: int | None, directory: Path, keep: bool) -> bool:
    from fmqdev.demo.display import Show, print_report
    from fmqdev.demo.flights import ALL
    from fmqdev.demo.run import run_demo

    show = Show(messages or ALL)
    show.step(f"a run needs up to {LEFT_MB} MB of logs and data in {directory}")
    report = await run_demo(directory, show, messages=messages or ALL)
    print_report(report, data_stay=keep or not report.good)
    return report.good


async def _run_ordered(messages: int | None, directory: Path, _: bool) -> bool:
    from fmqdev.demo.display import Show
    from fmqdev.demo.ordered.changes import ALL
    from fmqdev.demo.ordered.report import print_ordered_report
    from fmqdev.demo.ordered.run import run_ordered_demo

    total = min(messages or ALL, ALL)
    show = Show(total)
    show.step(f"logs, data and two tables in {directory}")
    report = await run_ordered_demo(directory, show, messages=total)
    print_ordered_report(report)
    return report.good


def _remove_data(directory: Path) -> None:
    for data in directory.glob("*/data"):
        shutil.rmtree(data)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for cause in error.exceptions:
            yield from _leaves(cause)
    else:
        yield error
