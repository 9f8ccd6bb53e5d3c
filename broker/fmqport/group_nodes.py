"""Create, delete and reset a broker group's nodes in ZooKeeper, so that no broker recreates them.

Order of effects of a deletion: the group's name is added to the removed groups, its configuration
is deleted (by compare-and-set: from then on the group does not exist), then its other nodes. Each
step can be repeated, so an interrupted caller deletes again. A broker that missed the deletion
finds the note and does not bring the group back, as a broker of an ensemble that lost its data
does.
"""

from collections.abc import Callable

from fmqcore.errors import InvalidArgument, Malformed, NotFound, Unavailable
from fmqcore.ids import Epoch, GroupName
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, config_to_json
from fmqcore.zk.group_state import (
    GroupState,
    Mode,
    begin_again_state,
    state_from_json,
    state_to_json,
)
from fmqcore.zk.removed_groups import removed_from_json, removed_to_json
from fmqport.coordination import BadVersion, Coordination, NoNode

Names = frozenset[GroupName]


async def create_group(coordination: Coordination, cluster: str, config: GroupConfig) -> None:
    """Write the configuration of a new group. Raises `NodeExists`, `Unavailable`."""
    name = config.group
    if await was_removed(coordination, cluster, name):
        await delete_group(coordination, cluster, name, -1)  # what an interrupted removal left
        await _note(coordination, cluster, lambda names: names - {name})
    node = layout.config_node(cluster, name)
    await coordination.create(node, config_to_json(config), make_parents=True)


async def delete_group(
    coordination: Coordination, cluster: str, group: GroupName, version: int
) -> None:
    """Delete a group whose configuration has that version (-1: it has none any more).

    Raises `Unavailable` while a broker of the group is live, or if the group was changed meanwhile.
    """
    root = layout.group_node(cluster, group)
    await _require_no_broker(coordination, cluster, group)
    await _note(coordination, cluster, lambda names: names | {group})
    try:
        if version >= 0:
            await coordination.delete(layout.config_node(cluster, group), version)
        elif await coordination.get(layout.config_node(cluster, group)) is not None:
            raise BadVersion(root)
        await _require_no_broker(coordination, cluster, group)  # one that read the configuration
        state = await coordination.get(layout.state_node(cluster, group))
        if state is not None:
            await coordination.delete(layout.state_node(cluster, group), state.version)
    except BadVersion:
        raise Unavailable(f"{root} was changed by another writer meanwhile: try again") from None
    await coordination.delete(layout.live_node(cluster, group))
    await coordination.delete(layout.chains_node(cluster, group))
    await coordination.delete(root)


async def begin_again(
    coordination: Coordination, cluster: str, group: GroupName, epoch: Epoch
) -> GroupState:
    """Let a group start again with what its journals hold, as a person decided in that epoch.

    Returns the new state; repeated in the same epoch it changes nothing. Raises `NotFound` for a
    group without state, `InvalidArgument` in another epoch, `Unavailable`, also if the state was
    changed meanwhile.
    """
    node = layout.state_node(cluster, group)
    found = await coordination.get(node, synced=True)
    if found is None:
        raise NotFound(f"group {group} of cluster {cluster} has no state: it is new")
    state = state_from_json(found.data)
    if state.epoch != epoch:
        raise InvalidArgument(
            f"group {group} is in epoch {state.epoch}, not {epoch}: check it with fmq status"
        )
    if state.mode is Mode.NEW:
        return state
    after = begin_again_state(state)
    try:
        await coordination.set(node, state_to_json(after), found.version)
    except (BadVersion, NoNode):
        raise Unavailable(f"{node} was changed by another writer meanwhile: try again") from None
    return after


async def make_live_parent(coordination: Coordination, cluster: str, group: GroupName) -> bool:
    """Create the parent of a group's live nodes. False: the group was removed from the cluster.

    Raises `NodeExists` or `NoNode` if the group changed meanwhile.
    """
    node = layout.live_node(cluster, group)
    configured = await coordination.get(layout.config_node(cluster, group), synced=True)
    if configured is None and await was_removed(coordination, cluster, group):
        return False
    # No configuration and no removal: ZooKeeper lost its data, and brokers go on.
    await coordination.create(node, b"", make_parents=configured is None)
    return True


async def was_removed(coordination: Coordination, cluster: str, group: GroupName) -> bool:
    """Whether the group has no configuration because it was removed. Raises `Unavailable`."""
    if await coordination.get(layout.config_node(cluster, group), synced=True) is not None:
        return False
    found = await coordination.get(layout.groups_node(cluster))
    return found is not None and group in _names(layout.groups_node(cluster), found.data)


async def _require_no_broker(coordination: Coordination, cluster: str, group: GroupName) -> None:
    node = layout.live_node(cluster, group)
    await coordination.sync(node)
    if live := await coordination.children(node):
        raise Unavailable(
            f"{layout.group_node(cluster, group)}: its broker {', '.join(live)} still lives: "
            "stop it first"
        )


async def _note(coordination: Coordination, cluster: str, edit: Callable[[Names], Names]) -> None:
    """Change the names of removed groups; try again after a concurrent change."""
    node = layout.groups_node(cluster)
    while (found := await coordination.get(node)) is not None:
        before = _names(node, found.data)
        if (after := edit(before)) == before:
            return
        try:
            await coordination.set(node, removed_to_json(after), found.version)
        except (BadVersion, NoNode):
            continue
        return


def _names(node: str, raw: bytes) -> Names:
    try:
        return removed_from_json(raw)
    except Malformed as error:
        raise Unavailable(
            f'{node} in ZooKeeper does not decode ({error}): it must be {{"removed": [NAMES]}}, or '
            "empty"
        ) from error
