"""`fmq failover`: another broker becomes a group's master (ADR 0022).

The command writes one wish into the group's configuration: who is wanted as master. The brokers
do the rest by themselves, at once or when they can; the command only watches, and whoever ends it
withdraws nothing. To withdraw a wish, want the present master.
"""

import asyncio
import time
from typing import Annotated

import typer

from fmqcli.cluster_registry import Registry, registry
from fmqcli.commands.cluster import Cluster, ZooKeeper, cluster_name, quietly
from fmqcli.common import talk
from fmqcli.given_names import name_option, name_parser
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk.group_state import GroupState, Mode

app = typer.Typer(help="Make another broker the group's master.")

_POLL_S = 0.05


@app.command()
def failover(
    group: Annotated[str, typer.Argument(parser=name_parser("group"), help="the group")],
    to: Annotated[
        str,
        name_option("broker", "the broker to make master", "--to", metavar="BROKER"),
    ],
    lost: Annotated[
        str | None,
        name_option(
            "broker",
            "this master is lost for good: give up what it alone acknowledged",
            "--lost",
            metavar="BROKER",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0, help="seconds to watch the switchover; 0: only request it"
        ),
    ] = 60.0,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Make another broker the group's master.

    A live master hands over once the other broker has all its data: nothing is lost, and for a
    moment no broker serves. If the master is lost for good, name it with --lost, and name with --to
    the slave that serves the reads (`fmq status`): it becomes master after hearing every member.
    """
    name = cluster_name(cluster)

    async def work() -> None:
        async with registry(zookeeper, name) as groups:
            await _move(groups, GroupName(group), BrokerId(to), BrokerId(lost or ""), timeout)

    quietly(work)


async def _move(
    groups: Registry, group: GroupName, to: BrokerId, lost: BrokerId, timeout_s: float
) -> None:
    if lost:
        master = (await groups.state(group)).master
        # `request_master` reports a missing group.
        if lost != master and await groups.group(group) is not None:
            instead = f"that is {master}" if master else "it has none yet"
            raise InvalidArgument(f"{lost} is not the master of group {group}: {instead}")
    state = await groups.request_master(group, to, lost)
    if state.mode is Mode.SLAVE_CONSUME and to not in (state.reader, state.master):
        talk(
            f"master {state.master} is gone and {state.reader} serves the reads: only it can be "
            f"promoted, {to} has to wait until {state.master} is back"
        )
    started, reported = time.monotonic(), ""
    while not _done(state, to):
        if time.monotonic() - started >= timeout_s:
            if not timeout_s:
                return
            raise Unavailable(_not_yet(state, group, to))
        if state.reason != reported:
            reported = state.reason
            talk(f"{group}, epoch {state.epoch}: {reported}")
        await asyncio.sleep(_POLL_S)
        state = await groups.state(group)
    if state.mode is Mode.NEW:
        talk(
            f"group {group} has no master yet ({state.reason or 'it was never in service'}): "
            f"{to} is recorded as the wanted one; fmq status shows when it serves"
        )
    else:
        talk(f"{to} is master of {group} in epoch {state.epoch}")


def _not_yet(state: GroupState, group: GroupName, to: BrokerId) -> str:
    """Return why the wish is not fulfilled, and how to withdraw it while another one is master."""
    reason = f"{to} is not master of {group} yet ({state.reason or 'see fmq status'})"
    if state.master == to:
        return f"{reason}: it has the mastership, and its term is not open"
    return f"{reason}; it stays wanted: to withdraw that, fmq failover {group} --to {state.master}"


def _done(state: GroupState, to: BrokerId) -> bool:
    """Its term is open, or no broker has opened one that it could take over."""
    opened = state.mode is Mode.MASTER and state.master == to and not state.required_epoch
    return opened or state.mode is Mode.NEW
