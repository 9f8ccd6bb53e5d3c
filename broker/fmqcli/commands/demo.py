"""`fmq demo`: the main job on this machine.

Talk goes to standard error, the report to standard output. Exit status 0: all is well; 1: something
is off; 69: it could not be run; 130, 143: stopped by Ctrl-C, SIGTERM.
"""

import logging
import shutil
from collections.abc import Iterator
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
    messages: Annotated[int, typer.Option(min=300, max=336_776, help="how many flights")] = 336_776,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="FOLDER",
            parser=folder,
            help="where logs and data go; an earlier run there is removed",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="keep the data when all is well")
    ] = True,
) -> None:
    """Run the main job: a cluster, real data, a killed master, a verdict."""
    from fmqdev.cluster_plan import state_folder

    raise typer.Exit(_demo(messages, directory or state_folder("demo"), keep=keep))


def _demo(messages: int, directory: Path, *, keep: bool) -> int:
    """Run it and print what it found; the exit status."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return run(lambda: _run(messages, directory, keep=keep))
    except (KeyboardInterrupt, Terminated):
        talk(f"stopped; no process is left running; logs and data: {directory}")
        raise


async def _run(messages: int, directory: Path, *, keep: bool) -> int:
    from fmqdev.demo.display import Show, print_report
    from fmqdev.demo.run import run_demo

    show = Show(messages)
    kept = "keeps" if keep else "needs meanwhile"
    show.step(f"a run {kept} up to {LEFT_MB} MB of logs and data in {directory}")
    try:
        report = await run_demo(directory, show, messages=messages)
    except (FmqError, BaseExceptionGroup) as error:
        reasons = list(_leaves(error))
        if not all(isinstance(reason, FmqError) for reason in reasons):
            raise
        for reason in reasons:
            show.step(f"FAILED: {reason}")
        show.step(f"logs and data: {directory}")
        return UNAVAILABLE
    print_report(report)
    if report.good and not keep:
        _remove_data(directory)
    return 0 if report.good else OFF


def _remove_data(directory: Path) -> None:
    for data in directory.glob("*/data"):
        shutil.rmtree(data)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for cause in error.exceptions:
            yield from _leaves(cause)
    else:
        yield error
