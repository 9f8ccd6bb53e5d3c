"""The call `GroupEnds`: what a group has of an ordered topic, asked by a chain's coordinator.

Order of effects at the broker that answers: it reads the chain as it is stored now, then looks at
its journal. A master that has read that no segment is open here appends no record of the topic any
more, so the ends that it returns cannot move until the next segment starts at them (K6). Without
the read, a batch of an earlier segment could come to lie at the start of the next one.

The same call reads the last records of an earlier segment for a new sender. Leaves nothing behind.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqcore.errors import FmqError, NotFound, Unavailable
from fmqcore.ids import BrokerId, GroupName, Offset, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.zk.chain import Chain
from fmqcore.zk.group_config import Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.transport import CallContext, Connection, Handlers, Transport, TransportError
from fmqproto.v1.replication_pb2 import GroupEndsReply, GroupEndsRequest
from fmqwire.methods import GROUP_ENDS


class OwnGroup(Protocol):
    """The broker's own group, as this broker sees it."""

    def own_view(self, topic: Chain) -> GroupView:
        """Return the group as its master sees it; of a broker that is not, what it can say."""
        ...


class GroupEnds:
    """The handler."""

    def __init__(
        self, journal: Journal, chains: ChainCache, own: OwnGroup, copies: ChainCopies
    ) -> None:
        self._copies = copies
        self._journal = journal
        self._chains = chains
        self._own = own

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {GROUP_ENDS: self.group_ends}

    async def group_ends(self, _: CallContext, request: GroupEndsRequest) -> GroupEndsReply:
        """Read the chain, then return this group's ends. Raises `NotFound`, `Unavailable`."""
        return await self.answer(request)

    async def answer(self, request: GroupEndsRequest) -> GroupEndsReply:
        """As `group_ends`, for this broker's own coordinator."""
        chain = (await self._chains.read(request.topic)).value
        if chain.topic_id != request.topic_id:
            raise NotFound(
                f"topic {request.topic} has number {chain.topic_id} now, not {request.topic_id}: "
                "it was deleted and created again"
            )
        if (reason := self._copies.behind(chain)) is not None:
            raise Unavailable(reason)
        view = self._own.own_view(chain)
        reply = GroupEndsReply(
            takes_writes=view.takes_writes,
            read_only=view.read_only,
            members=view.members,
            missing=view.missing,
            ends=view.ends or (),
            full=view.full,
        )
        for queue, offset in request.offsets.items():
            batch = await self._batch(chain.topic_id, queue, Offset(offset))
            if batch:
                reply.batches[queue] = batch
        return reply

    async def _batch(self, topic: TopicId, queue: int, offset: Offset) -> bytes:
        """Return the stored batch that has this offset; empty if there is none."""
        for entry in await self._journal.find(topic, queue, offset, 1):
            header, data = await self._journal.read_batch(entry)
            if header.base_offset <= offset < header.base_offset + header.record_count:
                return data
        return b""


@dataclass(slots=True)
class _Line:
    """A connection and the number of calls under way on it."""

    connection: Connection
    calls: int = 0


class GroupEndsCaller:
    """Asks brokers of any group. A connection lives as long as a call is under way on it."""

    def __init__(
        self,
        transport: Transport,
        view: ClusterView,
        group: GroupName,
        broker: BrokerId,
        own: GroupEnds,
    ) -> None:
        self._transport = transport
        self._view = view
        self._me = group, broker
        self._own = own
        self._lines: dict[str, _Line] = {}

    async def views(
        self, chain: Chain, nodes: Mapping[GroupName, GroupView]
    ) -> dict[GroupName, GroupView]:
        """Return the groups as their masters see them, all asked at the same time.

        `nodes`: the groups as ZooKeeper shows them. One that could not be chosen anyway is not
        asked; one that does not answer counts as silent.
        """
        asked = [name for name, view in nodes.items() if _is_whole(view)]
        views = await asyncio.gather(*(self._view_of(chain, name, nodes[name]) for name in asked))
        return {**nodes, **dict(zip(asked, views, strict=True))}

    async def ask(
        self, group: GroupName, chain: Chain, offsets: Mapping[int, int] | None = None
    ) -> GroupEndsReply:
        """Ask the broker that serves the group. Raises `FmqError` if it does not answer."""
        request = GroupEndsRequest(
            topic=chain.topic, topic_id=chain.topic_id, offsets=dict(offsets or {})
        )
        server = self._server_of(group)
        if (group, server.id) == self._me:
            return await self._own.answer(request)
        async with self._connected(server.address) as connection:
            reply: GroupEndsReply = await connection.call(GROUP_ENDS, request, GROUP_ENDS.timeout_s)
            return reply

    async def _view_of(self, chain: Chain, group: GroupName, nodes: GroupView) -> GroupView:
        try:
            return view_of_reply(nodes, await self.ask(group, chain))
        except FmqError:
            return replace(nodes, reachable=False)

    def _server_of(self, group: GroupName) -> Member:
        """Return the broker that serves the group's reads. Raises `TransportError`."""
        config = self._view.configs.get(group)
        state = self._view.states.get(group, GroupState())
        if config is None:
            raise TransportError(
                f"there is no group {group}: it is not in the cluster configuration"
            )
        id = state.reader if state.mode is Mode.SLAVE_CONSUME else state.master or config.master
        member = config.member(id)
        if member is None:
            raise TransportError(f"group {group} has no broker that serves its reads")
        return member

    @asynccontextmanager
    async def _connected(self, address: str) -> AsyncIterator[Connection]:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(self._transport.connect(address))
        line.calls += 1
        try:
            yield line.connection
        finally:
            line.calls -= 1
            if not line.calls:
                del self._lines[address]
                await line.connection.close()


def _is_whole(view: GroupView) -> bool:
    """A group that is kept out counts: it takes the sends if no other can."""
    return view.takes_writes and not view.missing


def view_of_reply(nodes: GroupView, reply: GroupEndsReply) -> GroupView:
    """Return the group as its answer and ZooKeeper (`nodes`) show it: troubles of both count."""
    return replace(
        nodes,
        reachable=True,
        takes_writes=reply.takes_writes,
        read_only=nodes.read_only or reply.read_only,
        members=reply.members,
        missing=tuple(sorted({*nodes.missing, *map(BrokerId, reply.missing)})),
        ends=tuple(reply.ends) or None,
        full=reply.full,
    )
