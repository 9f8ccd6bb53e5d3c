"""Seeks of consumer groups on ordered topics: within the segment that they read, or over the chain.

An offset names a record of this broker group's journal, so a seek to one stays in the segment that
the group reads here. A seek to a moment moves the heads, and each broker group sets its progress
back in its own segments: a client asks all of them. Until it has, a broker group that was not asked
yet would pass its segments as done. So the consumers must be stopped for such a seek.

Order of effects: progress stored, heads moved.
"""

from collections.abc import Collection, Mapping

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.registry import GroupTable
from fmqbroker.consume.subscriptions import place_of
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Offset
from fmqcore.ordered.delivery import first_offset
from fmqcore.ordered.subscriptions import seek
from fmqcore.zk.chain import Chain
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import admin_pb2


class ChainSeeks:
    """What a seek on an ordered topic needs besides the progress of this broker group."""

    def __init__(self, chains: ChainReads, groups: GroupTable) -> None:
        self._chains = chains
        self._groups = groups

    async def check(
        self,
        topic: TopicConfig,
        request: admin_pb2.SeekRequest,
        targets: Mapping[int, Offset],
    ) -> None:
        """Raise `InvalidArgument` for a seek that would break the order; `Unavailable`."""
        chain = await self._chains.read(topic.name)
        if chain.heads_of(request.group) is None:
            raise InvalidArgument(
                f"consumer group {request.group} has no place in the chain of ordered topic "
                f"{topic.name} yet: it gets one when its first consumer starts, where `start` says"
            )
        if request.by_offset:
            self._require_in_segment(chain, request, targets)
        elif self._moved(chain, request, targets) != chain:
            self._require_stopped(topic, request.group)

    async def move_heads(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, queues: Collection[int]
    ) -> None:
        """Move the heads to the segment of the asked moment; a seek to an offset moves none."""
        if not request.by_offset:
            await self._chains.edit(topic.name, lambda chain: self._moved(chain, request, queues))

    # ---- inside
    def _moved(
        self, chain: Chain, request: admin_pb2.SeekRequest, queues: Collection[int]
    ) -> Chain:
        number = place_of(chain, request.to, request.to_ms)
        return seek(chain, request.group, dict.fromkeys(queues, number))

    def _require_in_segment(
        self, chain: Chain, request: admin_pb2.SeekRequest, targets: Mapping[int, Offset]
    ) -> None:
        heads = chain.heads_of(request.group)
        assert heads is not None
        for queue in targets:
            segment = chain.segment(heads[queue])
            if segment is None or segment.group != self._chains.broker_group:
                where = "no group yet" if segment is None else f"group {segment.group}"
                raise InvalidArgument(
                    f"consumer group {request.group} reads queue {queue} of ordered topic "
                    f"{chain.topic} in segment {heads[queue]}, in {where}, and an offset names a "
                    f"record of group {self._chains.broker_group}: seek to a time or to earliest"
                )
            first = first_offset(chain, segment, request.group, queue) or segment.start[queue]
            end = None if segment.end is None else segment.end[queue]
            if request.offset < first or (end is not None and request.offset > end):
                raise InvalidArgument(
                    f"offset {request.offset} of queue {queue} lies outside of segment "
                    f"{segment.number} of ordered topic {chain.topic}, which consumer group "
                    f"{request.group} reads now (from {first}"
                    f"{'' if end is None else f' to {end}'}): seek to a time or to earliest"
                )

    def _require_stopped(self, topic: TopicConfig, name: str) -> None:
        live = self._groups.get(name, topic.id)
        if live is not None and live.sessions:
            raise InvalidArgument(
                f"consumer group {name} has {len(live.sessions)} live sessions on ordered topic "
                f"{topic.name}, and this seek leads over several segments: stop its consumers, "
                f"then `fmq group seek {name} {topic.name}`"
            )
