"""Ordered topics: create one, see its chain, switch its sends to another group, release an end.

Any broker answers, except that a release goes to the broker that serves the reads of the segment's
group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fmqclient.admin.calls import AdminCalls
from fmqclient.admin.infos import NO_PROGRESS, OrderedTopicStatus, TopicInfo, ordered_status_of
from fmqclient.admin.topic_changes import check_number
from fmqclient.arguments import check_text
from fmqclient.net.routes import Routes, topic_of
from fmqcore.errors import AlreadyExists, InvalidArgument, Malformed, Unavailable
from fmqcore.ids import MAX_QUEUES
from fmqcore.names import require_name
from fmqproto.v1 import admin_pb2
from fmqwire.methods import (
    ALTER_TOPIC,
    CREATE_TOPIC,
    ORDERED_RELEASE,
    ORDERED_STATUS,
    ORDERED_SWITCH,
)

_UINT32: Final = 2**32


class OrderedAdmin:
    """The part of the admin for ordered topics: `Admin.ordered`."""

    def __init__(self, calls: AdminCalls, routes: Routes) -> None:
        self._calls = calls
        self._routes = routes

    async def create(
        self,
        name: str,
        groups: Sequence[str] | Mapping[str, int],
        *,
        queues: int = 1,
        allow_single: bool = False,
        if_not_exists: bool = False,
    ) -> TopicInfo:
        """Create an ordered topic over two groups or more, and return it.

        `groups`: names, or names with weights (1 or more): of drained groups the heaviest is
        used. Each has two brokers or more, unless `allow_single` (for tries). With more than one
        queue the order is kept per queue. Raises `AlreadyExists`, `InvalidArgument`, `NotFound` (a
        group).
        """
        require_name("topic", name)
        check_number("queues", queues, 1, MAX_QUEUES)
        wanted = _chain_groups(groups)
        request = admin_pb2.CreateTopicRequest(
            name=name,
            queues=queues,
            if_not_exists=if_not_exists,
            ordered=admin_pb2.OrderedTopic(groups=wanted, allow_single=allow_single),
        )
        await self._routes.look_up(name)
        existed = name in self._routes.table.topics
        try:
            topic = topic_of((await self._calls.ask_any(CREATE_TOPIC, request)).topic)
        except AlreadyExists as refused:
            if existed or refused.__cause__ is None:
                raise
            # An earlier try without an answer may have created it, but for its chain.
            request.if_not_exists = True
            topic = topic_of((await self._calls.ask_any(CREATE_TOPIC, request)).topic)
            asked = {g.group: (g.weight, queues) for g in wanted}
            if {g.group: (g.weight, g.queues) for g in topic.groups} != asked:
                raise
        self._routes.keep_created(topic)
        return topic

    async def set_groups(self, name: str, groups: Sequence[str] | Mapping[str, int]) -> TopicInfo:
        """Let the chain use these groups from now on, and no others. Returns the topic.

        A group that leaves gets no new segment; consumers still read its old ones. Raises
        `UnknownTopic`, `InvalidArgument`, `NotFound` (a group).
        """
        require_name("topic", name)
        request = admin_pb2.AlterTopicRequest(name=name, chain_groups=_chain_groups(groups))
        topic = topic_of((await self._calls.ask_any(ALTER_TOPIC, request)).topic)
        self._routes.keep_created(topic)
        return topic

    async def status(self, topic: str = "") -> list[OrderedTopicStatus]:
        """Return one ordered topic, or all, by name. Raises `UnknownTopic`, `InvalidArgument`.

        If no broker reaches ZooKeeper, phase "unknown": the chain as it was read last.
        """
        check_text("topic", topic)
        request = admin_pb2.OrderedStatusRequest(topic=topic)
        try:
            return await self._rows(request)
        except Unavailable:
            request = admin_pb2.OrderedStatusRequest(topic=topic, last_known=True)
            return await self._rows(request)

    async def _rows(self, request: admin_pb2.OrderedStatusRequest) -> list[OrderedTopicStatus]:
        found: list[OrderedTopicStatus] = []
        more = True
        while more:
            reply = await self._calls.ask_any(ORDERED_STATUS, request)
            rows = [ordered_status_of(row, reply.answered_ms) for row in reply.topics]
            if request.topic and [row.topic for row in rows] != [request.topic]:
                raise Malformed(f"the status of ordered topic {request.topic} has {len(rows)} rows")
            found += rows
            if more := reply.has_more:
                last = rows[-1].topic if rows else ""
                if last <= request.after:
                    raise Malformed(f"a page of ordered topics ends at {last!r}: {NO_PROGRESS}")
                request.after = last
        return found

    async def switch(self, topic: str, *, off: str = "", reason: str = "") -> OrderedTopicStatus:
        """Close the open segment, so that sends go on in another group; return the chain then.

        `off`: only if the segment lies in that group. Nothing changes if it does not, or if the
        segment is closing already. `switched_segment` of the result is the segment, 0 if the sends
        go to another group than `off`, or to none. By then the next segment may be open, also in
        the group `off`. Raises `InvalidArgument` if no other group may take the sends.
        """
        check_text("group", off)
        check_text("reason", reason)
        (now,) = await self._named(topic)
        last = now.chain.last
        if last is None or (off and last.group != off):
            return now
        request = admin_pb2.OrderedSwitchRequest(
            topic=topic, chain_segment=last.number, reason=reason
        )
        await self._calls.ask_any(ORDERED_SWITCH, request)
        (after,) = await self._named(topic)
        return replace(after, switched_segment=last.number)

    async def release(
        self, topic: str, segment: int, *, accept_loss: bool = False
    ) -> OrderedTopicStatus:
        """End a segment of unknown end at the highest end that its remaining members have.

        Raises `InvalidArgument`, also if acknowledged records would be in no segment then, unless
        `accept_loss`; `Unavailable` if no broker serves the reads of the segment's group.
        """
        if not isinstance(segment, int) or not 0 <= segment < 2**63:
            raise InvalidArgument(
                f"segment={segment!r} must be the number of a segment, 0 or above"
            )
        (now,) = await self._named(topic)
        found = now.chain.segment(segment)
        request = admin_pb2.OrderedReleaseRequest(
            topic=topic, chain_segment=segment, accepts_loss=accept_loss
        )
        if found is None:
            raise InvalidArgument(
                f"ordered topic {topic} has no segment {segment}: `fmq ordered status` lists them"
            )
        await self._calls.ask_reader(found.group, ORDERED_RELEASE, request)
        return (await self._named(topic))[0]

    async def _named(self, topic: str) -> list[OrderedTopicStatus]:
        """Return the topic as it is now: no step rests on an older chain."""
        require_name("topic", topic)
        return await self._rows(admin_pb2.OrderedStatusRequest(topic=topic))


def _chain_groups(groups: Sequence[str] | Mapping[str, int]) -> list[admin_pb2.ChainGroup]:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise InvalidArgument(f"groups={groups!r} must be a list of names, or have weights")
    pairs = groups.items() if isinstance(groups, Mapping) else [(name, 1) for name in groups]
    rows = []
    for name, weight in pairs:
        check_text("group", name)
        # A broker refuses 0, and names the way out.
        if not isinstance(weight, int) or not 0 <= weight < _UINT32:
            raise InvalidArgument(
                f"weight of {name}={weight!r} must be a whole number from 1, below 2**32"
            )
        rows.append(admin_pb2.ChainGroup(group=name, weight=weight))
    return rows
