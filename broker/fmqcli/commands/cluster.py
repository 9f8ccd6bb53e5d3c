"""`fmq cluster`: what the broker groups consist of, in your own ZooKeeper.

The only commands, with `fmq broker permit`, that talk to ZooKeeper and not to a broker: they work
before there is one. Data on standard output, talk on standard error.
"""

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from fmqcli.cluster_file import ClusterSpec, as_data, differences, is_current, version_of
from fmqcli.cluster_registry import Registry, changed, registry
from fmqcli.common import Output, OutputOption, confirm, run, show, talk
from fmqcli.given_names import name_parser, text_parser
from fmqcli.group_removal import GroupRemoval
from fmqcli.stdio.input_paths import file_to_read, name_of, only_file
from fmqcore.errors import FmqError, InvalidArgument, NotFound
from fmqcore.ids import GroupName
from fmqcore.names import require_name
from fmqcore.policy import AckPolicy
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Removal

Before = Versioned[GroupConfig] | None

app = typer.Typer(
    no_args_is_help=True, help="The configuration of the broker groups, in ZooKeeper."
)

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        envvar="FMQ_ZOOKEEPER",
        metavar="HOSTS",
        parser=text_parser("address of ZooKeeper"),
        help="host:port, or several separated by commas; /root after the last",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        envvar="FMQ_CLUSTER",
        metavar="NAME",
        parser=name_parser("cluster"),
        help="the cluster's name",
    ),
]
Group = Annotated[str, typer.Argument(parser=name_parser("group"), help="the broker group")]


@app.command()
def apply(
    file: Annotated[
        list[Path],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            parser=file_to_read,
            help="a .toml or .json file; -: standard input",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only print what would change")
    ] = False,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Bring the groups in ZooKeeper to what a file describes. Groups that it does not name stay.

    A file looks like what `fmq cluster show -o json` prints, or like the one in README.md.

    Members, policy and strict_takeover are wishes: the group becomes what the file says. The
    master is a wish until the group is in service for the first time; from then on it is a fact
    that only `fmq failover` changes, and apply keeps it.
    """
    path = only_file(file)
    spec = ClusterSpec(path)
    if cluster and spec.cluster and cluster != spec.cluster:
        raise InvalidArgument(
            f"{path} describes cluster {spec.cluster}, but --cluster or FMQ_CLUSTER names "
            f"{cluster}: make both name the same cluster"
        )
    name = cluster_name(cluster or spec.cluster)

    async def work() -> None:
        async with registry(zookeeper or spec.zookeeper, name) as groups:
            await _apply(groups, spec, dry_run=dry_run)

    quietly(work)
    talk(f"cluster {name}: {'would be' if dry_run else 'is'} as {name_of(path)} describes it")


@app.command("show")
def show_cluster(
    output: OutputOption = Output.TABLE, zookeeper: ZooKeeper = None, cluster: Cluster = None
) -> None:
    """Show the groups as they are configured (`fmq status`: how they are)."""
    name = cluster_name(cluster)

    async def work() -> dict[GroupName, Versioned[GroupConfig]]:
        async with registry(zookeeper, name) as groups:
            return await groups.groups()

    found = quietly(work)
    columns = ("GROUP", "BROKER", "ADDRESS", "ZONE", "PERMISSION", "MASTER", "POLICY")
    rows = [
        (g, m.id, m.address, m.zone, m.permission.name, "yes" if m.id == c.value.master else "",
         _policy(c.value.policy))
        for g, c in found.items()
        for m in c.value.members
    ]  # fmt: skip
    groups = {g: {"version": version_of(c.value), **as_data(c.value)} for g, c in found.items()}
    data = {"cluster": name, "groups": groups}
    show(output, columns, rows, data)
    for group, config in found.items():
        if config.value.removal is not Removal.NONE:
            talk(f"group {group} is being removed ({config.value.removal.value})")
    if not found:
        talk(
            f"{zookeeper} has no group of cluster {name}: check the name and the root after the "
            "last port; to create a group: fmq cluster apply -f FILE"
        )


@app.command("begin-again")
def begin_again(
    group: Group,
    epoch: Annotated[
        int,
        typer.Option(
            "--epoch", min=0, help="the group's current epoch, as a confirmation; 0: only print it"
        ),
    ] = 0,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Let a group go on without journals that are lost, or above a state that is too old.

    The master opens a new term with what the members' journals hold now, once it has heard every
    member of the configuration. This gives up what only lost journals held, and the progress
    that a slave keeps for a master that is away.
    """
    name = cluster_name(cluster)

    async def work() -> None:
        async with registry(zookeeper, name) as groups:
            state = await groups.state(GroupName(group))
            if not epoch:
                if not state.epoch:
                    raise NotFound(
                        f"group {group} of cluster {name} has no state: it is new, or not "
                        "configured (fmq cluster show)"
                    )
                talk(f"group {group} is in epoch {state.epoch}, {state.mode.value}: {state.reason}")
                raise InvalidArgument(
                    f"if its journals are lost for good, run this again with --epoch {state.epoch}"
                )
            after = await groups.begin_again(GroupName(group), at=epoch)
            talk(f"group {group}: {after.reason}; fmq status shows when it serves")

    quietly(work)


@app.command("remove-group")
def remove_group(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="all journals of the group are lost for good: give up what they held"
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="maximum seconds for each step")
    ] = 60.0,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Remove a broker group once everything in it is consumed.

    Refused while a topic has no other group, or holds what a consumer group has not read. Else the
    group gets no new messages (weight 0, then READ only) and is read to its end; it leaves its
    topics, you stop its brokers, and its nodes in ZooKeeper are deleted. The command may be
    interrupted at any point: run again, it goes on. Data directories stay as they are.
    """
    name, group_name = cluster_name(cluster), GroupName(group)

    async def drain() -> bool:
        async with registry(zookeeper, name) as groups:
            return await GroupRemoval(groups, group_name, timeout, lost=lost).drain()

    async def finish() -> None:
        async with registry(zookeeper, name) as groups:
            await GroupRemoval(groups, group_name, timeout, lost=lost).finish()

    if not quietly(drain):
        return
    if not yes:
        given_up = ", and what is in it is given up" if lost else ""
        confirm(
            f"Remove group {group} from cluster {name}{given_up}?",
            "the group is not removed; if its topics' weights were set to 0, they stay so "
            f"(fmq topic alter TOPIC --group {group}:1)",
        )
    quietly(finish)


async def _apply(groups: Registry, spec: ClusterSpec, *, dry_run: bool) -> None:
    now = await groups.groups()
    states = {group: await groups.state(group) for group in now}
    in_service = {group for group, state in states.items() if state.epoch > 0}
    for group, version in spec.versions.items():
        # In an ensemble without any group it is no change since: ZooKeeper is new, or was lost.
        known = group in now and is_current(version, now[group], in_service=group in in_service)
        if now and not known:
            raise changed(group)
    _check_apart(spec, now)
    plan = []
    for desired in spec.groups:
        config, before = desired, now.get(desired.group)
        if before is not None and desired.group in in_service:
            config = _with_facts(spec, before.value, desired)
        await groups.check(config)
        plan.append((config, before))
    await _write(groups, plan, dry_run=dry_run)
    for other in now.keys() - {config.group for config in spec.groups}:
        talk(
            f"group {other} is not in the file and stays as it is; to remove it: "
            f"fmq cluster remove-group {other}"
        )


async def _write(
    groups: Registry, plan: Sequence[tuple[GroupConfig, Before]], *, dry_run: bool
) -> None:
    """Write what differs, group by group, and print it; an error names what is written by then."""
    written: list[GroupName] = []
    for config, before in plan:
        changes = ["new"] if before is None else differences(before.value, config)
        try:
            if changes and not dry_run:
                await groups.write(config, -1 if before is None else before.version)
                written.append(config.group)
        except (FmqError, OSError):
            if written:
                talk(
                    f"stopped at group {config.group}: written are {', '.join(written)}; apply "
                    "again for the rest"
                )
            raise
        for change in changes or ["no change"]:
            talk(f"group {config.group}: {change}")


def _with_facts(spec: ClusterSpec, now: GroupConfig, desired: GroupConfig) -> GroupConfig:
    """The wishes of the file with the facts of a group in service: the wanted master, and the
    broker that is lost for good. Only `fmq failover` changes these. Raises `InvalidArgument`."""
    group = now.group
    if desired.member(now.master) is None:
        raise InvalidArgument(
            f"group {group} is in service, and the file lacks {now.master}, which is wanted as "
            f"its master: run fmq failover {group} --to BROKER first, or add "
            f"{now.master} to the file"
        )
    config = replace(
        desired, master=now.master, declared_lost=now.declared_lost, kept_out=now.kept_out
    )
    spec.check_policy(config)
    if spec.masters.get(group, now.master) != now.master:
        talk(
            f"group {group} is in service and keeps {now.master} as its master, not the file's "
            f"{desired.master}: to change it, fmq failover {group} --to {desired.master}"
        )
    return config


def _check_apart(spec: ClusterSpec, now: dict[GroupName, Versioned[GroupConfig]]) -> None:
    """No broker of the file has the name or the address of one in a group that stays."""
    ours = {config.group for config in spec.groups}
    others = [m for g, c in now.items() if g not in ours for m in c.value.members]
    there: set[str] = {m.id for m in others} | {m.address for m in others}
    for config in spec.groups:
        for member in config.members:
            if twice := there & {member.id, member.address}:
                raise InvalidArgument(
                    f"group {config.group}: {', '.join(twice)} belongs to another group of the "
                    "cluster already: fmq cluster show"
                )


def _policy(policy: AckPolicy) -> str:
    """`fsync, durable on one`."""
    if policy.how_many.value == "none":
        return f"{policy.flush.value}, no slave"
    strict = " strict" if policy.strict else ""
    return f"{policy.flush.value}, {policy.counts.value} on {policy.how_many.value}{strict}"


def cluster_name(text: str | None) -> str:
    """As given. Raises `InvalidArgument`."""
    if not text:
        raise InvalidArgument("the cluster's name is missing: give --cluster NAME, or FMQ_CLUSTER")
    require_name("cluster", text)
    return text


def quietly(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run `work` without the log of the ZooKeeper session: a failure is reported in one line."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return run(work)
