"""Handlers of the calls on the chains of ordered topics: status, switch, release.

Any broker answers status and switch alike, from ZooKeeper and from the groups' masters. Release
needs what the members of the segment's group hold, so the broker that serves the group's reads
answers it. `fmqcore.ordered` decides what may be asked; a handler raises what it refuses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.replication.view import MasterReplication
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.errors import InvalidArgument, NotFound, Unavailable, UnknownTopic
from fmqcore.ids import GroupName, Permission, TopicId
from fmqcore.ordered.delivery import floor_since_start
from fmqcore.ordered.evidence import Evidence, GroupView, Params
from fmqcore.ordered.group_views import view_of_nodes
from fmqcore.ordered.requests import release, switch
from fmqcore.ordered.senders import line_of
from fmqcore.ordered.waits import send_state, stuck_segments
from fmqcore.zk.chain import Chain, PerQueue
from fmqcore.zk.chain_json import chain_to_json
from fmqcore.zk.group_state import GroupState
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers
from fmqproto.v1 import admin_pb2
from fmqwire import methods

_REPLY_BYTES: Final = 1 << 20
"""A status reply ends behind the topic with which it exceeds this size."""
_PAGE_MS: Final = 2000
"""Milliseconds after which a status reply ends, at a topic: masters may be slow to answer."""
_AT_ONCE: Final = 32
"""Topics whose status is made at the same time."""
_PARAMS: Final = Params()
_UNKNOWN: Final = "unknown"
"""The phase of a chain that cannot be read now."""
_NOT_KNOWN: Final = (
    "how sends stand is not known, and no segment is opened, ended or left by consumers until it "
    "is back. Start ZooKeeper; if it runs, mend the way to it (`fmq status` shows each broker)"
)
Views = Mapping[GroupName, GroupView]
AskMasters = Callable[[Chain, Views], Awaitable[Views]]
"""Returns groups as their masters see them, from what ZooKeeper shows of them."""


class OrderedAdmin:
    """The handlers of the `Admin` service that read and change chains."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        gate: Gate,
        group: GroupStore,
        view: ClusterView,
        chains: ChainNodes,
        offsets: OffsetStore,
        replication: MasterReplication,
        copies: ChainCopies,
        ask_masters: AskMasters,
        cached: Callable[[TopicId], Chain | None],
    ) -> None:
        self._settings = settings
        self._broker_group = GroupName(settings.group)
        self._clock = clock
        self._journal = journal
        self._gate = gate
        self._group = group
        self._view = view
        self._chains = chains
        self._offsets = offsets
        self._replication = replication
        self._copies = copies
        self._ask_masters = ask_masters
        self._cached = cached  # chains of this group's topics, as read last

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {
            methods.ORDERED_STATUS: self.ordered_status,
            methods.ORDERED_SWITCH: self.ordered_switch,
            methods.ORDERED_RELEASE: self.ordered_release,
        }

    async def ordered_status(
        self, _: CallContext, request: admin_pb2.OrderedStatusRequest
    ) -> admin_pb2.OrderedStatusReply:
        """Return the chain of one ordered topic, or of all, a page at a time.

        The masters of each chain are asked for their ends, too. Without ZooKeeper it raises
        `Unavailable`, or, if the caller accepts that (`last_known`), returns the chains as they
        were read last, in phase "unknown".
        """
        try:
            return await self._status_now(request)
        except Unavailable as error:
            if self._group.connected or not request.last_known:
                raise
            return self._last_known(request, error)

    async def _status_now(
        self, request: admin_pb2.OrderedStatusRequest
    ) -> admin_pb2.OrderedStatusReply:
        reply = admin_pb2.OrderedStatusReply(answered_ms=self._clock.wall_ms())
        if request.topic:
            reply.topics.append(await self._status(request.topic))
            return reply
        await self._fill(reply, [n for n in await self._chains.topics() if n > request.after])
        return reply

    async def _fill(self, reply: admin_pb2.OrderedStatusReply, names: Sequence[str]) -> None:
        """Add the status of each topic until the page is full, in bytes or in time."""
        until_ms = self._clock.monotonic_ms() + _PAGE_MS
        for at in range(0, len(names), _AT_ONCE):
            if reply.topics and self._clock.monotonic_ms() >= until_ms:
                reply.has_more = True
                return
            some = map(self._status, names[at : at + _AT_ONCE])
            made = await asyncio.gather(*some, return_exceptions=True)
            for status in made:
                if isinstance(status, UnknownTopic | InvalidArgument | NotFound):
                    continue  # the chain of a topic that was deleted, or is being created
                if isinstance(status, BaseException):
                    raise status
                if reply.topics and reply.ByteSize() > _REPLY_BYTES:
                    reply.has_more = True
                    return
                reply.topics.append(status)

    async def ordered_switch(
        self, _: CallContext, request: admin_pb2.OrderedSwitchRequest
    ) -> admin_pb2.OrderedSwitchReply:
        """Close a segment, so that sends go on in another group."""
        topic = await self._chains.topic(request.topic)
        reason = request.reason or "a person asked for it"

        # Another group must be whole now, and reach its earlier ends.
        await self._view.refresh_groups()
        now = (await self._chains.read(topic)).value
        views = await self._ask_masters(now, self._groups(now))

        def change(chain: Chain) -> Chain:
            evidence = Evidence(groups=self._groups(chain) | dict(views))
            return switch(chain, evidence, request.chain_segment, _PARAMS, reason)

        chain = await self._chains.edit(topic, change)
        return admin_pb2.OrderedSwitchReply(topic=await self._status_of(topic, chain))

    async def ordered_release(
        self, _: CallContext, request: admin_pb2.OrderedReleaseRequest
    ) -> admin_pb2.OrderedReleaseReply:
        """End a segment of this broker's group where the members that are left end it."""
        topic = await self._chains.topic(request.topic)

        def change(chain: Chain) -> Chain:
            if (reason := self._copies.behind(chain)) is not None:
                raise Unavailable(reason)
            self._require_own(chain, request.chain_segment)
            self._gate.require(Permission.READ)
            return release(
                chain,
                request.chain_segment,
                self._ends(topic, chain),
                self._progress(topic, chain, request.chain_segment),
                accept_loss=request.accepts_loss,
            )

        chain = await self._chains.edit(topic, change)
        return admin_pb2.OrderedReleaseReply(topic=await self._status_of(topic, chain))

    # ---- status
    def _last_known(
        self, request: admin_pb2.OrderedStatusRequest, error: Unavailable
    ) -> admin_pb2.OrderedStatusReply:
        now_ms, since_ms = self._clock.wall_ms(), self._group.disconnected_ms
        topics = [t for t in self._view.topics.values() if t.ordered and t.name > request.after]
        chains = [self._cached(t.id) for t in topics if request.topic in ("", t.name)]
        age = f" for {max(now_ms - since_ms, 0) // 1000} s" if since_ms else ""
        cause = f"broker {self._settings.broker} has no connection to ZooKeeper"
        known = sorted((c for c in chains if c is not None), key=lambda c: c.topic)
        if not known:
            raise Unavailable(f"{cause}{age}: {_NOT_KNOWN}. {error}") from error
        statuses = (
            admin_pb2.OrderedTopicStatus(
                topic=chain.topic,
                chain=chain_to_json(chain),
                phase=_UNKNOWN,
                reason=f"{cause}: {_NOT_KNOWN}. The chain is as it was read last",
                since_ms=since_ms,
            )
            for chain in known
        )
        reply = admin_pb2.OrderedStatusReply(answered_ms=now_ms)
        for status in statuses:
            if reply.ByteSize() > _REPLY_BYTES:
                reply.has_more = True
                break
            reply.topics.append(status)
        return reply

    async def _status(self, name: str) -> admin_pb2.OrderedTopicStatus:
        topic = await self._chains.topic(name)
        chain = (await self._chains.read(topic)).value
        views = await self._ask_masters(chain, self._groups(chain))
        return await self._status_of(topic, chain, views)

    async def _status_of(
        self, topic: TopicConfig, chain: Chain, views: Views | None = None
    ) -> admin_pb2.OrderedTopicStatus:
        """Return the status; `views`: the groups, if not as ZooKeeper shows them."""
        places = await self._chains.senders(topic)
        line = line_of(places, chain.sender.id)
        report = await self._chains.report(chain, places)
        views = self._groups(chain) if views is None else views
        state = send_state(chain, views, line, self._clock.wall_ms(), _PARAMS, report)
        return admin_pb2.OrderedTopicStatus(
            topic=topic.name,
            chain=chain_to_json(chain),
            phase=state.phase.value,
            reason=self._copies.behind(chain) or state.reason,
            since_ms=state.since_ms,
            senders=line,
            groups=[
                admin_pb2.ChainGroupStatus(group=name, obstacle=reason)
                for name, reason in state.obstacles.items()
            ],
            stuck=[
                admin_pb2.StuckSegment(segment=number, remedy=remedy)
                for number, remedy in stuck_segments(chain, views).items()
            ],
        )

    def _groups(self, chain: Chain) -> dict[GroupName, GroupView]:
        view = self._view
        return {
            name: view_of_nodes(
                view.configs[name], view.states.get(name, GroupState()), view.live.get(name, ())
            )
            for name in {g.group for g in chain.groups} | {s.group for s in chain.segments}
            if name in view.configs
        }

    # ---- release
    def _require_own(self, chain: Chain, number: int) -> None:
        segment = chain.segment(number)
        if segment is not None and segment.group != self._broker_group:
            raise InvalidArgument(
                f"segment {number} of {chain.topic} lies in group {segment.group}, and this broker "
                f"is of group {self._broker_group}: ask the broker that serves the other's reads"
            )

    def _ends(self, topic: TopicConfig, chain: Chain) -> PerQueue:
        """Return the queues' ends that this broker and all its linked in-sync slaves hold.

        Raises `Unavailable` while such a slave has not reported in this term what it holds: its
        view says nothing is there, and an end there would lose what it acknowledged.
        """
        held = self._journal.durable_end
        if self._gate.is_master():
            in_sync = self._group.state.value.isr
            links = self._replication.links.items()
            linked = {id: link for id, link in links if link.connected and id in in_sync}
            silent = [id for id, link in linked.items() if link.epoch != self._journal.epoch]
            if silent:
                raise Unavailable(
                    f"slave {', '.join(sorted(silent))} of group {self._broker_group} has linked "
                    "again and not reported yet what it holds: release again in a moment"
                )
            held = min((held, *(link.durable_end for link in linked.values())))
        ends = (self._journal.committed_offset(topic.id, q, held) for q in range(chain.queues))
        return tuple(ends)

    def _progress(self, topic: TopicConfig, chain: Chain, number: int) -> dict[str, PerQueue]:
        """Return the next offset per queue of each subscription that has read here."""
        segment = chain.segment(number)
        if segment is None:
            return {}
        progress = {}
        for name, place in chain.places.items():
            entries = [self._offsets.get(OffsetKey(name, topic.id, q)) for q in range(chain.queues)]
            pairs = zip(entries, place.start_numbers, strict=True)
            floors = (floor_since_start(entry, number) for entry, number in pairs)
            progress[name] = tuple(map(max, floors, segment.start))
        return progress
