"""Progress as shown to people: one row per queue and consumer group that has to read it.

A broker may have some hundred thousand rows, so a few are made in each turn of the event loop, and
clients ask for them page by page. This module only reads.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from fmqbroker.admin.readers import Readers
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.registry import GroupTable
from fmqbroker.runtime.slices import Slices
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.lag import acked_above
from fmqcore.ids import GroupName, Offset
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import admin_pb2

PAGE_ROWS: Final = 10_000
"""Maximum rows of one reply: the reply is encoded in one turn of the event loop."""

FindTopic = Callable[[str], TopicConfig | None]
"""Returns the topic of that name; None if it has no queue here."""


class RowPlace(NamedTuple):
    """A row's place among all rows, which are sorted by it."""

    topic: str
    queue: int
    group: str  # "" stands for a queue that no consumer group has read


BEFORE_ALL = RowPlace("", -1, "")


class OffsetRows:
    """Makes rows from what the broker knows at that moment."""

    def __init__(self, broker_group: GroupName, offsets: OffsetStore, groups: GroupTable) -> None:
        self._broker_group = broker_group
        self._offsets = offsets
        self._groups = groups
        self._readers = Readers(broker_group, offsets, groups.chains)

    async def fill(
        self,
        reply: admin_pb2.OffsetsReply,
        names: Sequence[str],
        topic_here: FindTopic,
        request: admin_pb2.OffsetsRequest,
    ) -> None:
        """Add the rows of these topics, sorted by name, after the requested place: one page."""
        after = BEFORE_ALL
        if request.HasField("after"):
            after = RowPlace(request.after.topic, request.after.queue_id, request.after.group)
            names = names[bisect_left(names, after.topic) :]
        limit = min(request.limit or PAGE_ROWS, PAGE_ROWS)
        async for topic, queue, group in self._places(names, topic_here, request, after):
            if len(reply.queues) >= limit:
                reply.has_more = True
                return
            self.add(reply.queues, topic, queue, group)

    def add(
        self,
        rows: RepeatedCompositeFieldContainer[admin_pb2.QueueOffsets],
        topic: TopicConfig,
        queue: int,
        group: str,
    ) -> None:
        """Add the row of one queue and consumer group."""
        begin, end = visible = self._groups.visible(topic.id, queue)
        row = rows.add(
            broker_group=self._broker_group,
            topic=topic.name,
            queue_id=queue,
            group=group,
            committed=begin,
            begin=begin,
            end=end,
            stored_end=visible.stored_end(self._groups.next_offset(topic.id, queue)),
        )
        entry = self._offsets.get(OffsetKey(group, topic.id, queue))
        chains = self._groups.chains if topic.ordered else None
        if chains is None:
            row.seek_number = self.seek_numbers_in(topic, group, (queue,))[queue]
        else:
            entry = chains.since_start(group, topic.id, queue, entry)
            row.seek_number = chains.start_number(group, topic.id, queue)
        if entry is not None and not entry.deleted:
            row.committed = entry.floor
            row.acked_ahead = acked_above(entry, begin, end)
        if chains is not None:
            row.committed = max(row.committed, chains.started_at(group, topic.id, queue))
            # So that the row's lag is what the segments here still have to give.
            left = chains.to_come(group, topic.id, queue, entry, begin, end)
            row.acked_ahead = max(end - max(row.committed, begin) - left, 0)
            row.end_to_come = chains.end_to_come(group, topic.id, queue, Offset(0), end)
            row.stored_end = chains.end_to_come(group, topic.id, queue, end, Offset(row.stored_end))
        live = self._groups.get(group, topic.id)
        if live is not None and queue < len(live.progress):
            row.in_flight = live.progress[queue].in_flight_records
            holder = live.holder(queue)
            if holder is not None:
                row.session, row.client = holder.id, holder.client

    def seek_numbers_in(
        self, topic: TopicConfig, group: str, queues: Collection[int]
    ) -> dict[int, int]:
        """Return, by queue, the version of the last seek; 0 = none so far."""
        live = self._groups.get(group, topic.id)
        progress = [] if live is None else live.progress
        entries = self._offsets.get_all([OffsetKey(group, topic.id, queue) for queue in queues])
        seek_number = dict.fromkeys(queues, 0)
        for key, entry in entries.items():
            seek_number[key.queue_id] = entry.version if entry.deleted else entry.seek_number
        held = {queue: progress[queue].seek_number for queue in queues if queue < len(progress)}
        return seek_number | held

    async def _places(
        self,
        names: Iterable[str],
        topic_here: FindTopic,
        request: admin_pb2.OffsetsRequest,
        after: RowPlace,
    ) -> AsyncIterator[tuple[TopicConfig, int, str]]:
        slices, group = Slices(), request.group
        for topic_name in names:
            await slices.step()
            topic = topic_here(topic_name)
            if topic is None:
                continue
            groups = [group] if group else self._readers.names(topic)
            readers = {g for g in groups if await self._readers.reads_all(g, topic, slices)}
            first = max(after.queue, 0) if topic.name == after.topic else 0
            for queue in range(first, topic.queues_in(self._broker_group)):
                unread = not group
                for name in groups:
                    await slices.step()
                    key = OffsetKey(name, topic.id, queue)
                    if name not in readers and not self._has_row(key, request):
                        continue
                    unread = False
                    if RowPlace(topic.name, queue, name) > after:
                        yield topic, queue, name
                if unread:
                    await slices.step()
                    if RowPlace(topic.name, queue, "") > after:
                        yield topic, queue, ""

    def _has_row(self, key: OffsetKey, request: admin_pb2.OffsetsRequest) -> bool:
        entry = self._offsets.get(key)
        return entry is not None and (request.with_deleted or not entry.deleted)
