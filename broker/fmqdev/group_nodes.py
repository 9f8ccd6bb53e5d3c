"""Groups of a development cluster in ZooKeeper: read them, and change configurations."""

import asyncio

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.errors import NotFound
from fmqcore.ids import GroupName
from fmqcore.zk import layout as paths
from fmqcore.zk.group_config import GroupConfig, config_from_json, config_to_json
from fmqcore.zk.group_state import GroupState, state_from_json
from fmqport.coordination import NodeExists


class Groups:
    """The groups of one cluster, over a ZooKeeper session opened at first use; close it."""

    def __init__(self, zookeeper: str, cluster: str) -> None:
        self._session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
        self._cluster = cluster
        self._started = False
        self._starting = asyncio.Lock()

    async def session(self) -> ZooKeeperSession:
        """Return the session, for uses that this class does not cover."""
        async with self._starting:
            if not self._started:
                await self._session.start(30)
                self._started = True
        return self._session

    async def close(self) -> None:
        """End the session."""
        await self._session.close()

    async def state(self, group: str) -> GroupState:
        """Return which brokers serve, as ZooKeeper has it now."""
        session = await self.session()
        node = await session.get(paths.state_node(self._cluster, GroupName(group)))
        return state_from_json(node.data) if node else GroupState()

    async def config(self, group: str) -> GroupConfig:
        """Return the configuration of a group. Raises `NotFound`."""
        session = await self.session()
        node = await session.get(paths.config_node(self._cluster, GroupName(group)))
        if node is None:
            raise NotFound(f"ZooKeeper has no configuration of group {group}")
        return config_from_json(node.data)

    async def live(self, group: str) -> list[str]:
        """Return the brokers that have ephemeral nodes."""
        session = await self.session()
        return await session.children(paths.live_node(self._cluster, GroupName(group)))

    async def forget_cluster(self) -> None:
        """Remove all that ZooKeeper holds of the cluster."""
        await self._remove(paths.cluster_root(self._cluster))

    async def _remove(self, node: str) -> None:
        session = await self.session()
        for child in await session.children(node):
            await self._remove(f"{node}/{child}")
        await session.delete(node)

    async def put_config(self, config: GroupConfig) -> None:
        """Write a configuration, new or changed, as an administrator does."""
        session = await self.session()
        node, data = paths.config_node(self._cluster, config.group), config_to_json(config)
        try:
            await session.create(node, data, make_parents=True)
        except NodeExists:
            found = await session.get(node)
            await session.set(node, data, found.version if found else 0)
