"""`fmq dev up|down|status`: a cluster on this machine to write programs against.

`up` leaves it running on purpose. The cluster's address goes to standard output, talk to standard
error. Exit status 69: it could not be started, or there is none. (This module is imported only
when it is asked for.)
"""

import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from fmqclient.cli.common import Output, OutputOption, run, show, talk
from fmqclient.dev.cluster import ClusterFailed, DevCluster
from fmqclient.dev.one_broker import BrokerStatus
from fmqclient.dev.plan import ClusterOptions, state_folder
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.words import Permission

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
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the first broker, if it is free")
    ] = PORT,
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
    needed = how_many or (HowMany.ONE if slaves else HowMany.NONE)
    options = ClusterOptions(
        groups=groups,
        slaves=slaves,
        first_port=port,
        policy=AckPolicy(flush, counts=counts, how_many=needed),
        settings=dict(_pair(change) for change in changes or []),
        zookeeper=zookeeper,
    )
    _run(lambda: _up(directory or state_folder("dev"), options))


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="remove its folder, data and all")] = False,
    directory: Folder = None,
) -> None:
    """Stop the cluster. Its data stay, for the next `up`, unless wiped."""
    _run(lambda: _down(directory or state_folder("dev"), wipe=wipe))


@app.command()
def status(output: OutputOption = Output.TABLE, directory: Folder = None) -> None:
    """Show its brokers and where their logs are."""
    _run(lambda: _status(directory or state_folder("dev"), output))


async def _up(folder: Path, options: ClusterOptions) -> None:
    talk(f"starting ZooKeeper and {options.groups} groups in {folder}")
    cluster = DevCluster(folder, options, detach=True)
    await cluster.start()
    await cluster.leave()
    first = next(iter(cluster.brokers.values()))
    if options.first_port not in (0, first.port):
        talk(f"port {options.first_port} is taken: the first broker listens on {first.port}")
    talk(f"logs and data are in {folder}; it runs until: fmq dev down")
    typer.echo(f"fmq://{first.address}")


async def _down(folder: Path, *, wipe: bool) -> None:
    cluster = _attached(folder)
    was_running = cluster.running
    await cluster.stop()
    if wipe:
        await cluster.wipe()
    what = "stopped" if was_running else "was not running"
    talk(f"{what}; {folder} is removed" if wipe else f"{what}; its data stay in {folder}")


async def _status(folder: Path, output: Output) -> None:
    cluster = _attached(folder)
    if not cluster.running:
        raise ClusterFailed(f"not running; its data are in {folder}; start it: fmq dev up")
    _show(output, await cluster.status())
    talk(f"logs and data are in {folder}")


def _attached(folder: Path) -> DevCluster:
    cluster = DevCluster.attach(folder)
    if cluster is None:
        raise ClusterFailed(f"no cluster in {folder}; start one: fmq dev up")
    return cluster


def _show(output: Output, brokers: list[BrokerStatus]) -> None:
    columns = ("GROUP", "BROKER", "ADDRESS", "PID", "ROLE", "ACCESS", "EPOCH", "WHY")
    rows = [_row(broker) for broker in brokers]
    data = [
        {name.lower(): cell for name, cell in zip(columns, row, strict=True)}
        | {"log": str(broker.plan.log), "data": str(broker.plan.data)}
        for row, broker in zip(rows, brokers, strict=True)
    ]
    show(output, columns, rows, data)


def _row(broker: BrokerStatus) -> tuple[Any, ...]:
    plan, reply = broker.plan, broker.reply
    if reply is None:
        said: tuple[Any, ...] = ("", "NONE", "", "does not answer" if broker.alive else "ended")
    else:
        said = (reply.role, Permission(reply.permission).name, reply.epoch, reply.why)
    return plan.group, plan.id, plan.listen, broker.pid if broker.alive else None, *said


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: must be NAME=VALUE", param_hint="--set")
    return name, value


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    run(work)
