"""`python -m bench`: start clusters, run the cells, print a table, write `build/bench.json`."""

import asyncio
import json
import logging
import os
import shutil
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import raw
from bench.cells import POLICIES, Cell, all_cells, chosen, median_cpu, median_run, row
from bench.load import Load
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

_COLUMNS = {
    "flush": "flush",
    "replication": "replication",
    "size_bytes": "bytes",
    "topics": "topics",
    "consume": "consume",
    "messages_per_s": "messages/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p999 ms",
    "client_cpu_us": "client CPU µs",
    "master_cpu_us": "master",
    "slave_cpu_us": "slave",
    "raw_fdatasync_per_s": "raw fdatasync/s",
    "raw_stream_messages_per_s": "raw stream/s",
}


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="run only cells whose name begins so, e.g. fsync+sync/1024/1; may be repeated"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="one short run a cell instead of three")] = False,
    seconds: Annotated[float, typer.Option(help="seconds of one run")] = 5.0,
    out: Annotated[Path, typer.Option(help="file for the rows")] = Path("build/bench.json"),
    names: Annotated[bool, typer.Option("--list", help="only list the cells")] = False,
) -> None:
    """Measure one-by-one sends with 128 outstanding on a cluster on this machine."""
    cells = chosen(all_cells(), only or [])
    if names:
        for cell in cells:
            typer.echo(cell.name)
        return
    if not cells:
        typer.echo(f"no cell begins with {', '.join(only or [])}: see --list", err=True)
        raise typer.Exit(64)
    runs, seconds = (1, min(seconds, 1.5)) if quick else (3, seconds)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = asyncio.run(_measure(cells, runs, seconds, out.parent))
    out.write_text(json.dumps(rows, indent=1) + "\n")
    Console(width=None if sys.stdout.isatty() else 160).print(_table(rows))
    typer.echo(f"written to {out}", err=True)


async def _measure(
    cells: list[Cell], runs: int, seconds: float, build: Path
) -> list[dict[str, Any]]:
    rows = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=len(cells))
        for policy, some in groupby(cells, lambda cell: (cell.flush, cell.replication)):
            folder = Path(tempfile.mkdtemp(prefix="bench-", dir=build))
            progress.update(task, description=f"logs of the brokers: {folder}/cluster")
            options = ClusterOptions(groups=1, slaves=1, policy=POLICIES[policy])
            async with DevCluster(folder / "cluster", options) as cluster:
                pids = [os.getpid(), *(cluster.pid(broker) for broker in cluster.brokers)]
                load = Load(cluster.url, pids)
                for cell in some:
                    progress.update(task, description=cell.name)
                    machine = await raw.measure(cell, folder, min(1.0, seconds / 2))
                    done = [await load.run(cell, seconds) for _ in range(runs)]
                    rates, cpus = zip(*done, strict=True)
                    rows.append(row(cell, median_run(rates), median_cpu(cpus), machine))
                    progress.advance(task)
            shutil.rmtree(folder)  # kept, with its logs, if anything went wrong
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="one-by-one sends, 128 outstanding, one master and one slave")
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    for each in rows:
        table.add_row(*(_text(each[key]) for key in _COLUMNS))
    return table


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return f"{value}"


if __name__ == "__main__":
    typer.run(main)
