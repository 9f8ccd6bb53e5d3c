"""A cluster's groups in ZooKeeper, as an administrator changes them.

Every write is a compare-and-set on what was read: of two writers, the later one gets an error.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from fmqcore.errors import InvalidArgument, NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName
from fmqcore.zk import layout as paths
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json, chain_to_json
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, config_from_json, config_to_json
from fmqcore.zk.group_state import GroupState, state_from_json
from fmqcore.zk.topic import TopicConfig, topic_from_json, topic_to_json
from fmqport.coordination import BadVersion, Coordination, NodeExists, NoNode
from fmqport.group_nodes import begin_again, create_group, delete_group, was_removed

_START_S: Final = 10.0
_TRIES: Final = 10


class Registry:
    """The groups of one cluster."""

    def __init__(self, coordination: Coordination, cluster: str) -> None:
        self._coordination = coordination
        self._cluster = cluster

    async def groups(self) -> dict[GroupName, Versioned[GroupConfig]]:
        """Return all groups, by name."""
        names = await self._coordination.children(paths.groups_node(self._cluster))
        read = [(GroupName(name), await self.group(GroupName(name))) for name in names]
        return {name: config for name, config in read if config is not None}

    async def group(self, name: GroupName) -> Versioned[GroupConfig] | None:
        """Return one group; None if it is not configured."""
        node = await self._coordination.get(paths.config_node(self._cluster, name))
        return None if node is None else Versioned(config_from_json(node.data), node.version)

    async def state(self, name: GroupName) -> GroupState:
        """Return the group state: which brokers serve the group."""
        node = await self._coordination.get(paths.state_node(self._cluster, name))
        return GroupState() if node is None else state_from_json(node.data)

    async def write(self, config: GroupConfig, version: int) -> None:
        """Write a configuration if the group is unchanged since `version` (-1: not there).

        Raises `InvalidArgument` if it changed, or if a running group cannot be changed so.
        """
        node = paths.config_node(self._cluster, config.group)
        await self.check(config)
        try:
            if version < 0:
                await create_group(self._coordination, self._cluster, config)
            else:
                await self._coordination.set(node, config_to_json(config), version)
        except (BadVersion, NodeExists, NoNode):
            raise changed(config.group) from None

    # ---- to remove a group
    async def live(self, name: GroupName) -> list[str]:
        """Return the brokers of a group that have live nodes."""
        node = paths.live_node(self._cluster, name)
        await self._coordination.sync(node)
        return await self._coordination.children(node)

    async def topics_of(self, name: GroupName) -> list[TopicConfig]:
        """Return the topics that name the group, as new as can be."""
        node = paths.topics_node(self._cluster)
        await self._coordination.sync(node)
        topics = []
        for topic in await self._coordination.children(node):
            read = await self._coordination.get(paths.topic_node(self._cluster, topic))
            if read is not None:
                topics.append(topic_from_json(read.data))
        return [topic for topic in topics if any(g.group == name for g in topic.groups)]

    async def chain_of(self, topic: TopicConfig) -> Chain | None:
        """Return the chain of an ordered topic, as new as can be; None if it has none."""
        node = paths.chain_node(self._cluster, topic.name)
        read = await self._coordination.get(node, synced=True)
        chain = None if read is None else chain_from_json(read.data)
        return chain if chain is not None and chain.topic_id == topic.id else None

    async def edit_chain(self, topic: TopicConfig, edit: Callable[[Chain], Chain]) -> bool:
        """Change an ordered topic's chain, again if others change it; return whether it changed.

        Not for a closing of a group that lives: its lease would not see it.
        """
        node = paths.chain_node(self._cluster, topic.name)
        for _ in range(_TRIES):
            stored = await self._coordination.get(node, synced=True)
            before = None if stored is None else chain_from_json(stored.data)
            if stored is None or before is None or before.topic_id != topic.id:
                return False
            try:
                if (after := edit(before)) == before:
                    return False
                await self._coordination.set(node, chain_to_json(after), stored.version)
            except (BadVersion, NoNode):
                continue
            return True
        raise Unavailable(f"the chain of topic {topic.name} keeps changing: try again")

    async def edit_topic(self, name: str, edit: Callable[[TopicConfig], TopicConfig]) -> None:
        """Change a topic, again if others change it meanwhile; nothing if it is gone."""
        node = paths.topic_node(self._cluster, name)
        for _ in range(_TRIES):
            stored = await self._coordination.get(node, synced=True)
            if stored is None:
                return
            before = topic_from_json(stored.data)
            try:
                if (after := edit(before)) != before:
                    await self._coordination.set(node, topic_to_json(after), stored.version)
            except (BadVersion, NoNode):
                continue
            return
        raise Unavailable(f"topic {name} keeps changing: try again")

    async def was_removed(self, name: GroupName) -> bool:
        """Whether the group has no configuration because it was removed."""
        return await was_removed(self._coordination, self._cluster, name)

    async def is_there(self, name: GroupName) -> bool:
        """Whether anything exists under the group's name."""
        return name in await self._coordination.children(paths.groups_node(self._cluster))

    async def delete(self, name: GroupName, version: int) -> None:
        """Delete the group's nodes if its configuration still has `version` (-1: it has none)."""
        await delete_group(self._coordination, self._cluster, name, version)

    async def check(self, config: GroupConfig) -> None:
        """Raise `InvalidArgument` if the group is in service and cannot become this."""
        before = await self.group(config.group)
        if before is not None:
            _check_running(before.value, config, await self.state(config.group))

    async def edit(
        self, broker: BrokerId, change: Callable[[GroupConfig], GroupConfig]
    ) -> tuple[GroupConfig, GroupConfig]:
        """Change the group that has this broker, again if others change it meanwhile.

        Returns it before and after; raises `NotFound`.
        """
        for _ in range(_TRIES):
            groups = await self.groups()
            found = next((g for g in groups.values() if g.value.member(broker)), None)
            if found is None:
                known = [m.id for g in groups.values() for m in g.value.members]
                raise NotFound(
                    f"cluster {self._cluster} has no broker {broker!r}; "
                    f"there are: {', '.join(known) or 'none'}"
                )
            try:
                after = change(found.value)
                await self.write(after, found.version)
                return found.value, after
            except Changed:
                continue
        raise Unavailable(f"the group of {broker} keeps changing: try again")

    async def begin_again(self, name: GroupName, *, at: int) -> GroupState:
        """Let the group start again with what its journals hold, if its epoch is still `at`.

        Returns the new state; raises `InvalidArgument`, `NotFound`, `Unavailable`.
        """
        return await begin_again(self._coordination, self._cluster, name, Epoch(at))

    async def request_master(
        self, group: GroupName, master: BrokerId, lost: BrokerId
    ) -> GroupState:
        """Make a member the wanted master (`lost` is lost for good; "": no broker is).

        Returns the state as it was then; raises `NotFound`.
        """
        for _ in range(_TRIES):
            config = await self.group(group)
            if config is None:
                known = ", ".join(sorted(await self.groups())) or "none"
                raise NotFound(f"cluster {self._cluster} has no group {group!r}; it has: {known}")
            if config.value.member(master) is None:
                known = ", ".join(m.id for m in config.value.members)
                raise NotFound(f"group {group} has no broker {master!r}; it has: {known}")
            state = await self.state(group)
            if (config.value.master, config.value.declared_lost) == (master, lost):
                return state
            try:
                node = paths.config_node(self._cluster, group)
                data = config_to_json(replace(config.value, master=master, declared_lost=lost))
                await self._coordination.set(node, data, config.version)
            except (BadVersion, NoNode):
                continue
            return state
        raise Unavailable(f"group {group} keeps changing: try again")


class Changed(InvalidArgument):
    """The group changed since it was read."""


def changed(group: GroupName) -> Changed:
    """Return the error for a writer that was too late."""
    return Changed(
        f"group {group} was changed by another command meanwhile and is not written: compare "
        "your file with fmq cluster show -o json, update it, and apply it again"
    )


def _check_running(old: GroupConfig, new: GroupConfig, state: GroupState) -> None:
    """Raise `InvalidArgument` for a change that running brokers cannot follow."""
    if state.epoch == 0:
        return
    if old.master != new.master:
        raise InvalidArgument(
            f"group {new.group} is in service and {old.master} is wanted as its master: to give "
            f"the mastership to {new.master}, fmq failover {new.group} --to {new.master}; else "
            f"name {old.master} in the file"
        )
    gone = {m.id for m in old.members} - {m.id for m in new.members}
    if held := sorted(gone & (state.isr | {state.master, state.reader})):
        raise InvalidArgument(
            f"group {new.group}: {', '.join(held)} is in sync or serves, so it cannot be removed: "
            "stop it, wait until `fmq status` no longer shows it in the ISR, and apply again"
        )


@asynccontextmanager
async def registry(zookeeper: str | None, cluster: str) -> AsyncIterator[Registry]:
    """Open a session for one command."""
    if not zookeeper:
        raise InvalidArgument(
            "ZooKeeper's address is missing: give --zookeeper host:port, or FMQ_ZOOKEEPER"
        )
    # Only now: `fmq broker settings` and help need no ZooKeeper, so not the extra `broker` either.
    from fmqadapters.zookeeper.session import ZooKeeperSession

    session = ZooKeeperSession(zookeeper, timeout_ms=10_000, make_root=False)
    await session.start(_START_S)
    try:
        yield Registry(session, cluster)
    finally:
        await session.close()
