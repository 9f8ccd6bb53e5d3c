"""Seeks of consumer groups on ordered topics: each is one compare-and-set of the chain.

It gives the group another place there and a new start number, which makes its progress in every
broker group void (K18): a seek over several segments takes effect as a whole, or not at all. Each
broker applies it as soon as it knows the new chain (`GroupTable.follow_start`).

An offset names a record of one broker group's journal, so a seek to one stays in the segment that
the group reads there. The offset of a time, or of the end, is known only in the broker group that
holds that segment: any other one names it, and changes nothing.
"""

from collections.abc import Collection, Mapping
from typing import Final

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.registry import GroupTable
from fmqbroker.consume.subscriptions import place_of
from fmqcore.errors import InvalidArgument, StaleAssignment, Unavailable
from fmqcore.ids import GroupName, Offset
from fmqcore.ordered.delivery import first_offset
from fmqcore.ordered.subscriptions import seek
from fmqcore.zk.chain import Chain, PerQueue
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import admin_pb2, client_pb2

_TRIES: Final = 10


class ChainSeeks:
    """The seeks that one broker makes."""

    def __init__(self, chains: ChainReads, groups: GroupTable) -> None:
        self._chains = chains
        self._groups = groups

    async def seek(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, queues: Collection[int]
    ) -> GroupName | None:
        """Move the group; or return the broker group to ask instead, with nothing moved.

        Raises `InvalidArgument` for what would break the order, `StaleAssignment` after another
        seek, and `Unavailable`.
        """
        if request.by_offset:
            elsewhere = await self._to_offset(topic, request, queues)
        else:
            elsewhere = await self._to_moment(topic, request, queues)
        live = self._groups.get(request.group, topic.id)
        if elsewhere is None and live is not None:
            self._groups.follow_start(live)
        return elsewhere

    # ---- to a moment
    async def _to_moment(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, queues: Collection[int]
    ) -> GroupName | None:
        for _ in range(_TRIES):
            chain = await self._chains.read(topic.name)
            number = place_of(chain, request.to, request.to_ms)
            segment, offsets = chain.segment(number), dict[int, int]()
            if segment is not None and request.to != client_pb2.START_EARLIEST:
                if segment.group != self._chains.broker_group:
                    return segment.group
                moment = request.to, request.to_ms
                for queue in queues:
                    offsets[queue] = await self._groups.position(topic.id, queue, *moment)
            if await self._moved(topic, request, dict.fromkeys(queues, number), offsets):
                return None
        raise Unavailable(
            f"the chain of topic {topic.name} is changed by others at each try: try again"
        )

    async def _moved(
        self,
        topic: TopicConfig,
        request: admin_pb2.SeekRequest,
        numbers: Mapping[int, int],
        offsets: Mapping[int, int],
    ) -> bool:
        """Move the group to those segments; return False if the moment lies elsewhere by now."""
        there = False

        def change(chain: Chain) -> Chain:
            nonlocal there
            _require_place(chain, request, numbers)
            now = place_of(chain, request.to, request.to_ms)
            there = all(number == now for number in numbers.values())
            if not there:
                return chain
            return seek(chain, request.group, numbers, offsets, self._groups.wall_ms())

        await self._chains.edit(topic.name, change)
        return there

    # ---- to an offset
    async def _to_offset(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, queues: Collection[int]
    ) -> GroupName | None:
        chain = await self._chains.read(topic.name)
        heads = _require_place(chain, request, queues)
        read = {chain.segment(heads[queue]) for queue in queues}
        groups = {None if segment is None else segment.group for segment in read}
        if not request.queues and len(groups) == 1:  # whichever group that is
            (group,) = groups
            if group not in (None, self._chains.broker_group):
                return group

        def change(chain: Chain) -> Chain:
            heads = _require_place(chain, request, queues)
            offsets = {queue: self._offset(chain, request, queue, heads[queue]) for queue in queues}
            numbers = {queue: heads[queue] for queue in queues}
            return seek(chain, request.group, numbers, offsets, self._groups.wall_ms())

        await self._chains.edit(topic.name, change)
        return None

    def _offset(
        self, chain: Chain, request: admin_pb2.SeekRequest, queue: int, head: int
    ) -> Offset:
        """Return the offset if it lies in the segment that the group reads, else raise."""
        segment, own = chain.segment(head), self._chains.broker_group
        if segment is None or segment.group != own:
            where = "no group yet" if segment is None else f"group {segment.group}"
            raise InvalidArgument(
                f"consumer group {request.group} reads queue {queue} of ordered topic "
                f"{chain.topic} in segment {head}, in {where}, and an offset names a record of "
                f"group {own}: seek to a time or to earliest"
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
        return self._groups.visible(chain.topic_id, queue).clamp(Offset(request.offset))


def _require_place(
    chain: Chain, request: admin_pb2.SeekRequest, queues: Collection[int]
) -> PerQueue:
    """Return the group's heads; raise if it has none, or was moved by another seek."""
    heads, group = chain.heads_of(request.group), request.group
    if heads is None:
        raise InvalidArgument(
            f"consumer group {group} has no place in the chain of ordered topic {chain.topic} "
            "yet: it gets one when its first consumer starts, where `start` says"
        )
    starts = chain.start_numbers_of(group)
    for queue in queues:
        if request.expected_seek_numbers.get(queue, starts[queue]) != starts[queue]:
            raise StaleAssignment(
                f"another seek has moved consumer group {group} in queue {queue} of topic "
                f"{chain.topic}: read its offsets again (`fmq group lag`), then seek again"
            )
    return heads
