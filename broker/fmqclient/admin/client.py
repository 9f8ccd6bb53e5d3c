"""The admin: topics, consumer groups, offsets, seek, status. Plain values in and out.

Any broker answers for topics. A consumer group's offsets are kept by the broker that serves the
reads of each broker group, so those calls go to one broker per group and the replies are merged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from fmqclient.admin.calls import AdminCalls
from fmqclient.admin.infos import (
    NO_PROGRESS,
    BrokerStatus,
    GroupInfo,
    QueueOffsets,
    TopicInfo,
    offsets_of,
    status_of,
)
from fmqclient.admin.lag import group_infos, not_reported, to_read
from fmqclient.admin.ordered import OrderedAdmin
from fmqclient.admin.topic_changes import alter_request, check_number
from fmqclient.arguments import as_places, check_text
from fmqclient.net.connections import Backoff, Connections
from fmqclient.net.routes import Routes, topic_of
from fmqclient.producer.accumulator import pinned_group
from fmqclient.settings import Start, start_at
from fmqcore.errors import (
    AlreadyExists,
    FmqError,
    InvalidArgument,
    Malformed,
    NotFound,
    StaleAssignment,
    Unavailable,
)
from fmqcore.ids import MAX_QUEUES, GroupName
from fmqcore.names import require_name
from fmqcore.routing import GroupRoute
from fmqport.clock import Clock
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire.methods import (
    ALTER_TOPIC,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    OFFSETS,
    SEEK,
    STATUS,
)

_SEEKS: Final = 5
_UINT32: Final = 2**32
_PAGE: Final = 1000
"""Rows in one reply, at most."""


class Admin:
    """Administers the cluster by calls to its brokers. Holds no state."""

    def __init__(self, connections: Connections, routes: Routes, clock: Clock) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._calls = AdminCalls(connections, routes, clock)

    @property
    def ordered(self) -> OrderedAdmin:
        """Calls on ordered topics."""
        return OrderedAdmin(self._calls, self._routes)

    # ---- topics

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        groups: Sequence[str] | Mapping[str, int] | None = None,
        if_not_exists: bool = False,
    ) -> TopicInfo:
        """Create a topic with `queues` queues in each group, and return it.

        `groups`: names, or names with weights; None means every group of the cluster. Raises
        `AlreadyExists`, `InvalidArgument`, `NotFound` (a group). A topic that was absent before and
        matches the request after a try without an answer counts as created by that try.
        """
        require_name("topic", name)
        if isinstance(groups, str) or not isinstance(groups, Iterable | None):
            raise InvalidArgument(
                f"groups={groups!r} must be a list of group names, or a mapping of names to weights"
            )
        weights = groups if isinstance(groups, Mapping) else dict.fromkeys(groups or (), 1)
        for group, weight in weights.items():
            check_text("group", group)
            _number(f"weight of {group}", weight, _UINT32)
        check_number("queues", queues, 1, MAX_QUEUES)
        request = admin_pb2.CreateTopicRequest(
            name=name,
            queues=queues,
            groups=[
                client_pb2.TopicGroup(group=g, weight=w, queues=queues) for g, w in weights.items()
            ],
            if_not_exists=if_not_exists,
        )
        await self._routes.look_up(name)
        existed = name in self._routes.table.topics
        try:
            topic = topic_of((await self._calls.ask_any(CREATE_TOPIC, request)).topic)
        except AlreadyExists as refused:
            if existed or not _tried_before(refused):
                raise
            topic = await self._as_asked(request, refused)
        self._routes.keep_created(topic)
        return topic

    async def alter_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        groups: Sequence[str] | Mapping[str, int | None] | None = None,
        all_groups: bool = False,
    ) -> TopicInfo:
        """Change a topic and return it: more queues per group, more groups, other weights.

        Weight 0: no new messages. No queue that holds messages is removed. Raises `UnknownTopic`,
        `NotFound`, `InvalidArgument`.
        """
        request = alter_request(name, queues, groups, all_groups=all_groups)
        topic = topic_of((await self._calls.ask_any(ALTER_TOPIC, request)).topic)
        self._routes.keep_created(topic)
        return topic

    async def _as_asked(
        self, request: admin_pb2.CreateTopicRequest, refused: AlreadyExists
    ) -> TopicInfo:
        """Return the existing topic if an earlier try of this call would have created the same."""
        anyhow = admin_pb2.CreateTopicRequest()
        anyhow.CopyFrom(request)
        anyhow.if_not_exists = True  # only a broker that reads ZooKeeper knows whether it exists
        topic = topic_of((await self._calls.ask_any(CREATE_TOPIC, anyhow)).topic)
        asked = {g.group: g.weight for g in request.groups} or dict.fromkeys(self._routes.named, 1)
        if {g.group: (g.weight, g.queues) for g in topic.groups} != {
            group: (weight, request.queues) for group, weight in asked.items()
        }:
            raise refused
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; retention removes its messages. Raises `NotFound`.

        It does not raise if the topic was there and is gone after a try without an answer.
        """
        require_name("topic", name)
        await self._routes.look_up(name)
        known = self._routes.table.topics.get(name)
        number = 0 if known is None else known.id  # not one that has its name by the time it comes
        try:
            await self._calls.ask_any(
                DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name=name, id=number)
            )
        except NotFound as refused:
            if known is None or not _tried_before(refused):
                raise
        self._routes.forget(name)
        await self._routes.look_up(name)

    async def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        await self._routes.refresh(everything=True)
        return [topic for _, topic in sorted(self._routes.table.topics.items())]

    async def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises `UnknownTopic`."""
        await self._routes.look_up(name)
        return await self._routes.topic(name)

    # ---- consumer groups

    async def groups(self) -> list[GroupInfo]:
        """Return all consumer groups, by name and topic."""
        rows = await self.offsets()
        await self._routes.look_up(*{row.topic for row in rows if row.group})
        return group_infos(rows, self._routes.table.topics)

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        """Return progress per queue; empty names mean all. Group "" is a queue that none has read.

        Raises `Unavailable` if some group's reader does not answer: there are no partial results.
        """
        check_text("group", group)
        check_text("topic", topic)
        rows: list[QueueOffsets] = []
        for name in await self._groups_of(topic):
            found, reason = await self._rows(name, topic, group)
            rows += [offsets_of(row, reason) for row in found]
        return sorted(rows, key=_in_order)

    async def _rows(
        self, name: GroupName, topic: str, group: str, *, with_deleted: bool = False
    ) -> tuple[list[admin_pb2.QueueOffsets], str]:
        """Return one broker group's rows, and the lasting reason why it withholds records.

        Page by page: a broker has other work in between.
        """
        request = admin_pb2.OffsetsRequest(
            topic=topic, group=group, limit=_PAGE, with_deleted=with_deleted
        )
        rows: list[admin_pb2.QueueOffsets] = []
        after, more = ("", -1, ""), True
        while more:
            reply = await self._calls.ask_reader(name, OFFSETS, request)
            rows += reply.queues
            if more := reply.has_more:
                last = reply.queues[-1] if reply.queues else admin_pb2.QueueOffsets()
                place = (last.topic, last.queue_id, last.group)
                if place <= after:
                    raise Malformed(
                        f"a page of offsets in group {name} ends at {place}: {NO_PROGRESS}"
                    )
                request.after.topic, request.after.queue_id, request.after.group = after = place
        return rows, reply.withheld_reason

    async def lag(self, group: str) -> list[QueueOffsets]:
        """Return one consumer group's progress in every queue it has to read. Raises `NotFound`."""
        require_name("consumer group", group)
        rows = await self.offsets(group)
        if not rows:
            raise NotFound(f"there is no consumer group {group!r}")
        names = {row.topic for row in rows}
        await self._routes.look_up(*names)
        known = [self._routes.table.topics.get(name) for name in names]
        for topic in filter(None, known):  # one that was deleted meanwhile has nothing to read
            lacking = not_reported(topic, rows)
            for name in sorted(lacking.keys() & self._routes.named):
                found, reason = await self._rows(name, topic.name, "")
                filled = to_read(group, [offsets_of(row, reason) for row in found])
                rows += [row for (_, queue), row in filled.items() if queue in lacking[name]]
        return sorted(rows, key=_in_order)

    async def seek(
        self,
        group: str,
        topic: str,
        to: Start | None = None,
        *,
        offset: int | None = None,
        queues: Sequence[tuple[str, int]] | None = None,
    ) -> list[QueueOffsets]:
        """Move a consumer group on a topic to a moment, or (`offset`) to an offset.

        `queues` are (group, queue) pairs; None means all of the topic. Live members go on from
        there. Returns the new progress. Raises `InvalidArgument`, `Unavailable`.
        """
        if (to is None) == (offset is None):
            raise InvalidArgument("a seek goes either to a moment or to an offset: give one")
        require_name("consumer group", group)
        check_text("topic", topic)
        request = admin_pb2.SeekRequest(topic=topic, group=group)
        if offset is not None:
            request.by_offset, request.offset = True, _number("offset", offset)
        else:
            assert to is not None, "one of the two is given"
            request.to, request.to_ms = start_at(to)
        wanted = await self._wanted(topic, queues)
        if wanted and (await self._routes.topic(topic)).ordered:
            return await self._seek_chain(request, wanted)
        rows: list[QueueOffsets] = []
        for name, numbers in wanted:
            request.queues[:] = numbers
            with _naming_done({row.broker_group for row in rows}, "moved"):
                rows += map(offsets_of, (await self._seek(name, request)).queues)
        return rows

    async def _seek_chain(
        self, request: admin_pb2.SeekRequest, wanted: Sequence[tuple[GroupName, list[int]]]
    ) -> list[QueueOffsets]:
        """Seek on an ordered topic: one broker group does it for all, and others name that one."""
        names = [name for name, _ in wanted]
        if request.by_offset and len(names) > 1 and wanted[0][1]:
            raise InvalidArgument(
                f"an offset names a record of one broker group: give queues of one, not of "
                f"{', '.join(names)}"
            )
        request.queues[:] = sorted({queue for _, numbers in wanted for queue in numbers})
        name = names[0]
        for _ in range(_SEEKS):
            reply = await self._seek(name, request)
            if not reply.ask_group:
                return [offsets_of(row) for row in reply.queues]
            name = GroupName(reply.ask_group)
        raise Unavailable(
            f"ordered topic {request.topic} moves from group to group: seek once more"
        )

    async def _seek(self, name: GroupName, request: admin_pb2.SeekRequest) -> admin_pb2.SeekReply:
        """Seek in one group; each try names the seek it follows, and is refused after another one.

        So a try that the network delays cannot undo a later seek.
        """
        queues = request.queues or range((await self._routes.topic(request.topic)).queues_in(name))
        backoff, reason = Backoff(self._clock), ""
        for _ in range(_SEEKS):
            known, _ = await self._rows(name, request.topic, request.group, with_deleted=True)
            request.expected_seek_numbers.clear()
            request.expected_seek_numbers.update(dict.fromkeys(queues, 0))
            request.expected_seek_numbers.update({row.queue_id: row.seek_number for row in known})
            try:
                reply: admin_pb2.SeekReply = await self._calls.ask_reader(name, SEEK, request)
            except StaleAssignment as stale:
                reason = str(stale)  # also if an earlier try was received after all
            else:
                return reply
            await backoff.wait()
        raise Unavailable(f"another client moves the consumer group at each try: {reason}")

    async def delete_group(self, group: str, topic: str = "") -> int:
        """Delete a consumer group's progress; return in how many queues. Raises `NotFound`.

        It does not raise if there was progress that is gone after a try without an answer.
        """
        require_name("consumer group", group)
        check_text("topic", topic)
        request = admin_pb2.DeleteGroupRequest(group=group, topic=topic)
        deleted: dict[str, int] = {}
        for name in await self._groups_of(topic):
            with _naming_done(deleted, "deleted"):
                rows = len((await self._rows(name, topic, group))[0])
                try:
                    reply = await self._calls.ask_reader(name, DELETE_GROUP, request)
                    count = reply.deleted
                except NotFound as refused:
                    count = rows if _tried_before(refused) else 0
            if count:
                deleted[name] = count
        if not deleted:
            raise NotFound(f"there is no consumer group {group!r}")
        return sum(deleted.values())

    # ---- the cluster

    async def status(self) -> list[BrokerStatus]:
        """Return every broker's status; for one that does not answer, `error` has the reason."""
        await self._routes.look_up()
        rows = []
        for _, route in sorted(self._routes.table.groups.items()):
            rows += [await self._status_of(route, b.id, b.address) for b in route.brokers]
        return rows

    async def _status_of(self, route: GroupRoute, broker: str, address: str) -> BrokerStatus:
        try:
            reply = await self._connections.to(address).call(
                STATUS, admin_pb2.StatusRequest(), STATUS.timeout_s
            )
        except TransportError as error:
            return BrokerStatus(
                group=route.group,
                broker=broker,
                address=address,
                mode=route.mode,
                epoch=int(route.epoch),
                error=str(error),
            )
        return status_of(reply, address)

    # ---- inside

    async def _groups_of(self, topic: str) -> Iterable[GroupName]:
        await (self._routes.look_up(topic) if topic else self._routes.look_up())
        if not topic:
            return sorted(self._routes.named)  # not those that have left the cluster
        return sorted(g.group for g in (await self._routes.topic(topic)).groups)

    async def _wanted(
        self, topic: str, queues: Sequence[tuple[str, int]] | None
    ) -> list[tuple[GroupName, list[int]]]:
        places = None if queues is None else as_places(queues)
        names = await self._groups_of(topic)
        if places is None:
            return [(name, []) for name in names]
        known = await self._routes.topic(topic)
        for group, queue in places:
            pinned_group(known, group, queue)
        return [
            (name, wanted)
            for name in names
            if (wanted := sorted({q for g, q in places if g == name}))
        ]


@contextmanager
def _naming_done(groups: Collection[str], done: str) -> Iterator[None]:
    """Add to an `Unavailable` the broker groups in which a consumer group is `done` by then."""
    try:
        yield
    except Unavailable as error:
        if not groups:
            raise
        names = ", ".join(sorted(groups))
        raise Unavailable(f"{error}; it is {done} in {names} already: try again") from error


def _tried_before(refused: FmqError) -> bool:
    """Whether an earlier try may have done what this one was refused for."""
    return refused.__cause__ is not None


def _in_order(row: QueueOffsets) -> tuple[str, str, str, int]:
    return row.group, row.topic, row.broker_group, row.queue


def _number(what: str, value: int, below: int = 2**63) -> int:
    if not isinstance(value, int) or not 0 <= value < below:
        bound = f"2**{below.bit_length() - 1}"
        raise InvalidArgument(f"{what}={value!r} must be a whole number from 0, below {bound}")
    return value
