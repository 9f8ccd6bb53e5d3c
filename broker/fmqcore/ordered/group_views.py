"""A group of a chain as its nodes in ZooKeeper show it, before its master is asked. Pure."""

from collections.abc import Collection

from fmqcore.ids import BrokerId, Permission
from fmqcore.ordered.evidence import GroupView
from fmqcore.zk.group_config import GroupConfig, Removal
from fmqcore.zk.group_state import GroupState, Mode


def view_of_nodes(config: GroupConfig, state: GroupState, live: Collection[BrokerId]) -> GroupView:
    """Return the view without what only the group's master knows: its ends, its disk limit."""
    master = state.master or config.master
    reader = master if state.mode is Mode.MASTER else state.reader
    configured = config.member(master)
    may_write = configured is None or bool(configured.permission & Permission.WRITE)
    return GroupView(
        reachable=master in live,
        takes_writes=state.mode is Mode.MASTER and master in live and may_write,
        read_only=state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER),
        members=len(config.members),
        missing=tuple(
            member.id
            for member in config.members
            if member.id not in live or (member.id != master and member.id not in state.isr)
        ),
        serves_reads=state.mode is not Mode.NEW and reader in live,
        away=tuple(member.id for member in config.members if member.id not in live),
        avoid=why_avoided(config),
    )


def why_avoided(config: GroupConfig) -> str:
    """Return why the operator or a person keeps the group out; "" = it may be used."""
    if config.removal is not Removal.NONE:
        return "it is being removed from the cluster"
    return "" if config.kept_out is None else config.kept_out.reason
