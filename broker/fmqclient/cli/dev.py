"""`fmq dev up|down|status`: a cluster on this machine to write programs against.

`up` leaves it running on purpose. The cluster's address goes to standard output, talk to standard
error. Exit status 69: it could not be started, or there is none.
"""

import asyncio
import logging
import shutil
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import structlog
import typer
from rich.console import Console
from rich.table import Table

from fmqcore.errors import FmqError
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.words import Permission

if TYPE_CHECKING:
    from fmqclient.dev.cluster import BrokerStatus, DevCluster
    from fmqclient.dev.plan import ClusterOptions

UNAVAILABLE: Final = 69
PORT: Final = 9876
"""The first broker's, so that `fmq://127.0.0.1:9876` works."""

app = typer.Typer(no_args_is_help=True, help="A cluster on this machine to program against.")

Folder = Annotated[
    Path | None, typer.Option("--dir", help="the cluster's folder: logs, data, what runs")
]


@app.command()
def up(
    groups: Annotated[int, typer.Option(min=1, max=50, help="broker groups")] = 2,
    slaves: Annotated[int, typer.Option(min=0, max=9, help="slaves in each group")] = 1,
    port: Annotated[int, typer.Option(help="of the first broker, if it is free")] = PORT,
    flush: Annotated[Flush, typer.Option(help="when the master counts a batch")] = Flush.FSYNC,
    counts: Annotated[
        SlaveCounts, typer.Option(help="when a slave counts a batch")
    ] = SlaveCounts.DURABLE,
    how_many: Annotated[HowMany | None, typer.Option(help="slaves that must count")] = None,
    zookeeper: Annotated[
        str, typer.Option(help="use this ensemble (host:port,...) instead of an own server")
    ] = "",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a broker setting")
    ] = None,
    directory: Folder = None,
) -> None:
    """Start a cluster and leave it running. What is in its folder from before is used again."""
    from fmqclient.dev.plan import ClusterOptions

    needed = how_many or (HowMany.ONE if slaves else HowMany.NONE)
    options = ClusterOptions(
        groups=groups,
        slaves=slaves,
        first_port=port,
        policy=AckPolicy(flush, counts=counts, how_many=needed),
        settings=dict(_pair(change) for change in changes or []),
        zookeeper=zookeeper,
    )
    raise typer.Exit(_run(_up(directory or _folder(), options)))


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="remove its folder, data and all")] = False,
    directory: Folder = None,
) -> None:
    """Stop the cluster. Its data stay, for the next `up`, unless wiped."""
    raise typer.Exit(_run(_down(directory or _folder(), wipe=wipe)))


@app.command()
def status(directory: Folder = None) -> None:
    """Show its brokers and where their logs are."""
    raise typer.Exit(_run(_status(directory or _folder())))


async def _up(folder: Path, options: "ClusterOptions") -> int:
    from fmqclient.dev.cluster import DevCluster

    _say(f"starting ZooKeeper and {options.groups} groups in {folder}")
    cluster = DevCluster(folder, options, detach=True)
    await cluster.start()
    await cluster.leave()
    first = next(iter(cluster.brokers.values()))
    if options.first_port not in (0, first.port):
        _say(f"port {options.first_port} is taken: the first broker listens on {first.port}")
    _print_table(await cluster.status())
    _say("it runs until: fmq dev down")
    typer.echo(f"fmq://{first.address}")
    return 0


async def _down(folder: Path, *, wipe: bool) -> int:
    cluster = _attached(folder)
    was_running = cluster.running
    await cluster.stop()
    if wipe:
        shutil.rmtree(folder)
    what = "stopped" if was_running else "was not running"
    _say(f"{what}; {folder} is removed" if wipe else f"{what}; its data stay in {folder}")
    return 0


async def _status(folder: Path) -> int:
    cluster = _attached(folder)
    if not cluster.running:
        _say(f"not running; its data are in {folder}; start it: fmq dev up")
        return UNAVAILABLE
    _print_table(await cluster.status())
    return 0


def _attached(folder: Path) -> "DevCluster":
    from fmqclient.dev.cluster import ClusterFailed, DevCluster

    cluster = DevCluster.attach(folder)
    if cluster is None:
        raise ClusterFailed(f"no cluster in {folder}; start one: fmq dev up")
    return cluster


def _print_table(brokers: "list[BrokerStatus]") -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("GROUP", "BROKER", "ADDRESS", "PID", "ROLE", "ACCESS", "EPOCH", "WHY", "LOG"):
        table.add_column(column, overflow="fold")
    for broker in brokers:
        plan, reply = broker.plan, broker.reply
        if reply is None:
            said = ["", "NONE", "", "does not answer" if broker.alive else "ended"]
        else:
            access = Permission(reply.permission).name or "NONE"
            said = [reply.role, access, str(reply.epoch), reply.why]
        pid = str(broker.pid) if broker.alive else "-"
        table.add_row(plan.group, plan.id, plan.listen, pid, *said, str(plan.log))
    Console(stderr=True).print(table)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: must be NAME=VALUE", param_hint="--set")
    return name, value


def _folder() -> Path:
    from fmqclient.dev.plan import state_folder

    return state_folder("dev")


def _run(work: Coroutine[Any, Any, int]) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return asyncio.run(work)
    except FmqError as error:
        _say(str(error))
        return UNAVAILABLE


def _say(text: str) -> None:
    sys.stderr.write(f"fmq dev: {text}\n")
