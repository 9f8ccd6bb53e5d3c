"""`fmq demo`: the main job on this machine. Exit status 0: all is well; 1: something is off;
69: it could not be run; 130: stopped by Ctrl-C or SIGTERM.
"""

import asyncio
import logging
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import structlog
import typer

from fmqcore.errors import FmqError

OFF: Final = 1
UNAVAILABLE: Final = 69
INTERRUPTED: Final = 130

app = typer.Typer(help="Run the main job on this machine.")


@app.command()
def demo(
    messages: Annotated[int, typer.Option(min=300, max=336_776, help="how many flights")] = 336_776,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="where logs and data go; an earlier run there is removed"),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="keep the data when all is well")
    ] = True,
) -> None:
    """Run the main job: a cluster, real data, a killed master, a verdict."""
    from fmqclient.dev.plan import state_folder

    raise typer.Exit(run(messages, directory or state_folder("demo"), keep=keep))


def run(messages: int, directory: Path, *, keep: bool) -> int:
    """Run it and print what it found; the exit status."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return asyncio.run(_run(messages, directory, keep=keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write(f"\nstopped; no process is left running; logs and data: {directory}\n")
        return INTERRUPTED


async def _run(messages: int, directory: Path, *, keep: bool) -> int:
    from fmqclient.dev.demo import run_demo
    from fmqclient.dev.show import Show, print_report

    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    show = Show(messages)
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
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
