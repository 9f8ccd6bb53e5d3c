"""Chains of ordered topics as ZooKeeper has them: read here, changed by brokers alone.

A Topic's round reads its own chain, and a watch wakes it: an idle topic costs no more than another.
The chains of all topics are read when a broker of a group is about to be stopped, and now and then
while a group may be in one: then once for all groups.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from fmqcore.errors import FmqError, Malformed
from fmqcore.ids import BrokerId, GroupName, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.group_views import view_of_nodes
from fmqcore.ordered.senders import line_of
from fmqcore.zk import layout as paths
from fmqcore.zk.chain import Chain
from fmqcore.zk.chain_json import chain_from_json
from fmqcore.zk.group_config import config_from_json
from fmqcore.zk.group_state import GroupState, state_from_json
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqport.coordination import Coordination
from fmqport.sequential_nodes import in_sequence

_VIEW_S: Final = 2.0
"""Age up to which one read of a group's state is used for all topics."""


_NAMED_S: Final = 20.0
"""Age up to which one read of all chains is used for all groups."""
_NAMED_TIMEOUT_S: Final = 2.0


class _Group(NamedTuple):
    view: GroupView | None  # None: there is no such group
    addresses: tuple[str, ...]  # its live brokers, the master first
    read_s: float


class ChainReader:
    """Reads chains, and the groups that they depend on, of one ensemble."""

    def __init__(self, session: Coordination) -> None:
        self._session = session
        self._groups: dict[tuple[str, GroupName], _Group] = {}
        self._named: dict[str, tuple[frozenset[GroupName] | None, float]] = {}
        self._reading = asyncio.Lock()

    async def read(
        self, cluster: str, topic: str, number: TopicId, groups: Iterable[GroupName]
    ) -> ChainSeen:
        """Return the topic's chain and its groups, and those in `groups`. Raises `Malformed`."""
        node = await self._session.get(paths.chain_node(cluster, topic))
        chain = None if node is None else chain_from_json(node.data)
        if chain is not None and chain.topic_id != number:  # a deleted topic's
            chain = None
        return await self._seen(cluster, topic, chain, groups)

    async def names(self, cluster: str, group: GroupName) -> bool:
        """Whether a chain names the group, or that is not known; up to `_NAMED_S` late.

        A group that has left all chains keeps its node of closings, so that alone proves nothing.
        """
        async with self._reading:
            known = self._named.get(cluster)
            if known is None or time.monotonic() - known[1] > _NAMED_S:
                known = await self._names(cluster), time.monotonic()
                self._named[cluster] = known
        return known[0] is None or group in known[0]

    async def _names(self, cluster: str) -> frozenset[GroupName] | None:
        """Return the groups that chains name; None if they cannot be read, or not soon."""
        try:
            async with asyncio.timeout(_NAMED_TIMEOUT_S):
                chains = await self._all(cluster)
        except (FmqError, TimeoutError):
            return None
        return frozenset(name for chain in chains for name in _groups_of(chain))

    async def with_group(self, cluster: str, group: GroupName) -> tuple[ChainSeen, ...]:
        """Return the chains that may send to this group, or have their last segment in it.

        One that cannot be decoded is left out: no broker can act on it either.
        """
        chains = [c for c in await self._all(cluster) if group in _groups_of(c)]
        return tuple([await self._seen(cluster, c.topic, c, ()) for c in chains])

    async def addresses(self, cluster: str, groups: Iterable[GroupName]) -> list[str]:
        """Return the live brokers of these groups, masters first."""
        found = [(await self._group(cluster, group)).addresses for group in groups]
        firsts, others = [a[:1] for a in found], [a[1:] for a in found]
        return [address for part in (*firsts, *others) for address in part]

    async def _all(self, cluster: str) -> list[Chain]:
        """Return the chains of all topics, without those that cannot be decoded."""
        await self._session.sync(paths.ordered_node(cluster))
        names = await self._session.children(paths.ordered_node(cluster))
        found = await asyncio.gather(*(self._chain(cluster, name) for name in names))
        return [chain for chain in found if chain is not None]

    async def _chain(self, cluster: str, topic: str) -> Chain | None:
        node = await self._session.get(paths.chain_node(cluster, topic))
        try:
            return None if node is None else chain_from_json(node.data)
        except Malformed:
            return None

    async def _seen(
        self, cluster: str, topic: str, chain: Chain | None, groups: Iterable[GroupName]
    ) -> ChainSeen:
        wanted = {*groups, *(() if chain is None else _groups_of(chain))}
        if chain is not None:  # what to do about an end depends on who can give it
            wanted |= {segment.group for segment in chain.segments if segment.end_unknown}
        views = {group: (await self._group(cluster, group)).view for group in sorted(wanted)}
        places = in_sequence(await self._session.children(paths.senders_node(cluster, topic)))
        known = {group: view for group, view in views.items() if view is not None}
        return ChainSeen(chain, known, line_of(places, "" if chain is None else chain.sender.id))

    async def _group(self, cluster: str, group: GroupName) -> _Group:
        key, now_s = (cluster, group), time.monotonic()
        known = self._groups.get(key)
        if known is None or now_s - known.read_s > _VIEW_S:
            known = self._groups[key] = await self._read_group(cluster, group, now_s)
        return known

    async def _read_group(self, cluster: str, group: GroupName, now_s: float) -> _Group:
        config_node = await self._session.get(paths.config_node(cluster, group))
        state_node = await self._session.get(paths.state_node(cluster, group))
        if config_node is None:
            return _Group(None, (), now_s)
        config = config_from_json(config_node.data)
        state = GroupState() if state_node is None else state_from_json(state_node.data)
        names = await self._session.children(paths.live_node(cluster, group))
        live = {BrokerId(name) for name in names}
        members = sorted(config.members, key=lambda m: m.id != state.master)
        addresses = tuple(m.address for m in members if m.id in live)
        return _Group(view_of_nodes(config, state, live), addresses, now_s)


def _groups_of(chain: Chain) -> set[GroupName]:
    """The groups whose brokers take, or may take, the sends."""
    last = chain.last
    return {g.group for g in chain.groups} | ({last.group} if last is not None else set())
