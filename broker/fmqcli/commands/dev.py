"""`fmq dev`: a cluster on this machine to write programs against, and its brokers one by one.

`up` leaves it running on purpose. The cluster's address goes to standard output, talk to standard
error. Exit status 69: it could not be started, or there is none. (This module is imported only
when it is asked for.)
"""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from fmqcli.common import Output, OutputOption, counted, run, show, talk
from fmqcli.given_names import name_parser, text_option
from fmqcli.stdio.input_paths import folder
from fmqclient.address import DEFAULT_PORT
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqdev.broker_process import BrokerStatus
from fmqdev.cluster import ZOOKEEPER, ClusterFailed, DevCluster
from fmqdev.cluster_plan import ClusterOptions, broker_names, read_file, state_folder
from fmqdev.folder_lock import lock_cluster

PORT: Final = DEFAULT_PORT
"""The first broker's, so that `fmq` reaches it without --brokers."""

_LOCK_S: Final = 30.0
"""How long the start of one broker waits for another command in its folder."""

app = typer.Typer(no_args_is_help=True, help="A cluster on this machine to program against.")

Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="FOLDER",
        parser=folder,
        help="the cluster's directory: logs, data, running processes",
    ),
]


@app.command()
def up(
    groups: Annotated[
        int | None, typer.Option(min=1, max=50, help="broker groups; left out: as before, or 2")
    ] = None,
    slaves: Annotated[
        int | None,
        typer.Option(min=0, max=9, help="slaves in each group; left out: as before, or 1"),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port of the first broker, if it is free")
    ] = PORT,
    flush: Annotated[
        Flush, typer.Option(help="when the master's copy of a batch counts")
    ] = Flush.FSYNC,
    counts: Annotated[
        SlaveCounts, typer.Option(help="when a slave's copy of a batch counts")
    ] = SlaveCounts.DURABLE,
    how_many: Annotated[
        HowMany | None, typer.Option(help="how many slaves must have a batch before its ack")
    ] = None,
    zookeeper: Annotated[
        str | None,
        text_option(
            "address of ZooKeeper",
            "use this ensemble (host:port,...) instead of starting a server",
            metavar="HOSTS",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a broker setting")
    ] = None,
    directory: Folder = None,
) -> None:
    """Start a cluster and leave it running. What is in its folder from before is used again.

    It waits until all groups are whole: at most 10 minutes, and 60 s without progress.
    """
    where = directory or state_folder("dev")
    known = read_file(where)
    before = ClusterOptions() if known is None else known.options
    slaves = before.slaves if slaves is None else slaves
    needed = how_many or (HowMany.ONE if slaves else HowMany.NONE)
    if not slaves and needed is not HowMany.NONE:
        raise InvalidArgument(f"--how-many {needed.value} can never be met with --slaves 0")
    options = ClusterOptions(
        groups=groups or before.groups,
        slaves=slaves,
        first_port=port,
        policy=AckPolicy(flush, counts=counts, how_many=needed),
        settings=dict(_pair(change) for change in changes or []),
        zookeeper=zookeeper or "",
    )
    _run(lambda: _up(where, options))


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="remove the cluster with its data")] = False,
    directory: Folder = None,
) -> None:
    """Stop the cluster. Its data stay, for the next `up`, unless wiped."""
    _run(lambda: _down(directory or state_folder("dev"), wipe=wipe))


@app.command()
def status(output: OutputOption = Output.TABLE, directory: Folder = None) -> None:
    """Show its brokers and where their logs are."""
    _run(lambda: _status(directory or state_folder("dev"), output))


_NO_ZOOKEEPER: Final = "its ZooKeeper is not running: fmq dev down, then fmq dev up"
Broker = Annotated[
    str,
    typer.Argument(parser=name_parser("broker"), help="the broker's id, as in `fmq dev status`"),
]


@app.command()
def kill(broker: Broker, directory: Folder = None) -> None:
    """Kill a broker's process, as a crash would (SIGKILL)."""
    _run(lambda: _end(directory or state_folder("dev"), broker, in_order=False))


@app.command()
def stop(broker: Broker, directory: Folder = None) -> None:
    """Stop a broker in order (SIGTERM)."""
    _run(lambda: _end(directory or state_folder("dev"), broker, in_order=True))


@app.command()
def start(broker: Broker, directory: Folder = None) -> None:
    """Start a broker that was stopped or killed, however that was."""
    _run(lambda: _start(directory or state_folder("dev"), broker, running=False))


@app.command()
def restart(broker: Broker, directory: Folder = None) -> None:
    """Stop a broker in order, if it runs, and start it again."""
    _run(lambda: _start(directory or state_folder("dev"), broker, running=True))


async def _end(folder: Path, broker: str, *, in_order: bool) -> None:
    cluster = _with(folder, broker)
    if not cluster.alive(broker):
        raise ClusterFailed(f"{broker} is not running; start it: fmq dev start {broker}")
    if in_order:
        await cluster.stop_broker(broker)
    else:
        cluster.kill(broker)
        await cluster.ended(broker)
    talk(f"{broker} (process {cluster.pid(broker)}) is {'stopped' if in_order else 'killed'}")
    if cluster.brokers[broker].port == DEFAULT_PORT and _where(folder):
        talk(f"to reach the others: export FMQ_BROKERS={cluster.url}")


async def _start(folder: Path, broker: str, *, running: bool) -> None:
    _with(folder, broker)
    async with lock_cluster(folder, _LOCK_S):
        cluster = _with(folder, broker)
        if cluster.alive(broker) and not running:
            raise ClusterFailed(f"{broker} runs already, process {cluster.pid(broker)}")
        if not _has_zookeeper(cluster):
            raise ClusterFailed(_NO_ZOOKEEPER)
        _refuse_foreign(cluster)
        await cluster.restart(broker)
    await cluster.wait_answers(broker)
    talk(f"{broker} runs, process {cluster.pid(broker)}")


def _with(folder: Path, broker: str) -> DevCluster:
    cluster = _attached(folder)
    if broker not in cluster.brokers:
        known = ", ".join(cluster.brokers)
        raise InvalidArgument(f"there is no broker {broker!r} in {folder}; there are: {known}")
    return cluster


def _refuse_foreign(cluster: DevCluster) -> None:
    for plan in cluster.in_use:
        raise ClusterFailed(
            f"a process that is not this cluster's works on {plan.data}, and may not be looked at "
            "from here (another user's?): end it where it was started"
        )


async def _up(folder: Path, options: ClusterOptions) -> None:
    if (running := _running(folder, options)) is not None:
        talk(f"it is up already, in {folder}; another one beside it: fmq dev up --dir FOLDER")
        if (running.options.policy, running.options.settings) != (options.policy, options.settings):
            talk("its policy or settings are as it was started, not as asked for now")
        typer.echo(running.url)
        return
    cluster = DevCluster(folder, options, detach=True, report=talk)
    cluster.require_startable()
    talk(f"starting ZooKeeper and {counted(options.groups, 'group')} in {folder}")
    await cluster.start()
    await cluster.leave()
    talk(f"logs and data are in {folder}; it runs until: fmq dev down{_where(folder)}")
    typer.echo(cluster.url)


def _running(folder: Path, options: ClusterOptions) -> DevCluster | None:
    """The cluster in this folder, if all its processes run and its groups and slaves match."""
    attached = DevCluster.attach(folder)
    if attached is None or broker_names(attached.options) != broker_names(options):
        return None
    runs = (*attached.brokers, *(() if attached.options.zookeeper else (ZOOKEEPER,)))
    return attached if all(map(attached.alive, runs)) else None


async def _down(folder: Path, *, wipe: bool) -> None:
    _attached(folder)
    async with lock_cluster(folder):
        cluster = _attached(folder)
        was_running = cluster.running
        await cluster.stop()
        _refuse_foreign(cluster)
        outcome = "stopped" if was_running else "was not running"
        if not wipe:
            talk(f"{outcome}; its data stay in {folder}")
        elif others := await cluster.wipe():
            names = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
            talk(f"{outcome}; it is removed; {folder} stays, as more is in it: {names}")
        else:
            talk(f"{outcome}; {folder} is removed")


async def _status(folder: Path, output: Output) -> None:
    cluster = _attached(folder)
    if not cluster.running:
        shape = f"--groups {cluster.options.groups} --slaves {cluster.options.slaves}"
        raise ClusterFailed(
            f"not running; its data are in {folder}; start it: fmq dev up {shape}{_where(folder)}"
        )
    _show(output, await cluster.status())
    talk(f"logs and data are in {folder}; ZooKeeper is at {cluster.zookeeper_address}")
    if not _has_zookeeper(cluster):
        talk(_NO_ZOOKEEPER)


def _has_zookeeper(cluster: DevCluster) -> bool:
    """Whether the cluster's ZooKeeper runs; True for an ensemble given by `--zookeeper`."""
    return bool(cluster.options.zookeeper) or cluster.alive(ZOOKEEPER)


def _where(folder: Path) -> str:
    """What a command needs to find it again."""
    with suppress(InvalidArgument):  # there is no home directory
        if folder == state_folder("dev"):
            return ""
    return f" --dir {folder}"


def _attached(folder: Path) -> DevCluster:
    cluster = DevCluster.attach(folder)
    if cluster is None:
        raise ClusterFailed(f"no cluster in {folder}; start one: fmq dev up{_where(folder)}")
    return cluster


def _show(output: Output, brokers: list[BrokerStatus]) -> None:
    columns = ("GROUP", "BROKER", "ADDRESS", "PID", "ROLE", "SERVES", "EPOCH", "REASON")
    rows = [_row(broker) for broker in brokers]
    data = [
        {name.lower(): cell for name, cell in zip(columns, row, strict=True)}
        | {"permission": _permission(broker).name}
        | {"log": str(broker.plan.log), "data": str(broker.plan.data)}
        for row, broker in zip(rows, brokers, strict=True)
    ]
    show(output, columns, rows, data)


def _row(broker: BrokerStatus) -> tuple[Any, ...]:
    plan, reply = broker.plan, broker.reply
    if reply is None:
        cells: tuple[Any, ...] = ("", "NONE", "", "does not answer" if broker.alive else "ended")
    else:
        serves = _permission(broker)
        if reply.unwritable_reason or reply.disk_full_reason:
            serves &= ~Permission.WRITE
        cells = (reply.role, serves.name, reply.epoch, reply.reason)
    return plan.group, plan.id, plan.listen, broker.pid if broker.alive else None, *cells


def _permission(broker: BrokerStatus) -> Permission:
    """Return the permission of a broker, as text."""
    return Permission((broker.reply.permission if broker.reply else 0) & Permission.FULL)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: must be NAME=VALUE", param_hint="--set")
    return name, value


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    run(work)
