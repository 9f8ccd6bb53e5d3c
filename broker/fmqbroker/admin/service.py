"""Handlers of the calls of people and the operator: consumer groups, broker status.

A handler raises what it refuses; an interceptor puts the error into the reply
(`app/interceptors.py`). The broker that holds READ serves offsets, seek and deletion: the master,
or the slave in slave-consume. Order of effects: a seek or deletion is stored (`OffsetStore`) before
it is answered.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from fmqbroker.admin.chain_seeks import ChainSeeks
from fmqbroker.admin.offset_rows import OffsetRows
from fmqbroker.admin.snapshot_source import SnapshotSource
from fmqbroker.admin.status_reply import status_reply
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.service import FetchService
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import Slices
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.errors import (
    InvalidArgument,
    NotFound,
    StaleAssignment,
    UnknownQueue,
    UnknownTopic,
)
from fmqcore.ids import GroupName, Offset, Permission, TopicId
from fmqcore.names import require_name
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.transport import CallContext, Handlers
from fmqproto.v1 import admin_pb2, client_pb2
from fmqwire import methods

_DELETED_AT_ONCE: Final = 500
"""Maximum entries that one write deletes, unless one topic has more."""
_MOVED_AT_ONCE: Final = 200
"""Maximum queues that a seek moves in one turn of the event loop."""


class AdminService:
    """The handlers of the `Admin` service."""

    def __init__(
        self,
        settings: BrokerSettings,
        journal: Journal,
        gate: Gate,
        cluster: ClusterView,
        offsets: OffsetStore,
        fetch: FetchService,
        snapshots: SnapshotSource,
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._cluster = cluster
        self._offsets = offsets
        self._groups = fetch.groups
        self._snapshots = snapshots
        self._broker_group = GroupName(settings.group)
        self._rows = OffsetRows(self._broker_group, offsets, fetch.groups)
        self._chains = chains = fetch.groups.chains
        self._seeks = None if chains is None else ChainSeeks(chains, fetch.groups)

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {
            methods.OFFSETS: self.offsets,
            methods.SEEK: self.seek,
            methods.DELETE_GROUP: self.delete_group,
            methods.STATUS: self.status,
        }

    # ---- consumer groups
    async def offsets(
        self, _: CallContext, request: admin_pb2.OffsetsRequest
    ) -> admin_pb2.OffsetsReply:
        """Return progress per queue and consumer group (lag: `fmqcore.consume.offsets.lag`)."""
        reply = admin_pb2.OffsetsReply()
        self._gate.require(Permission.READ)
        if request.topic:
            self._topic(request.topic)  # raises where it is unknown
        names = [request.topic] if request.topic else sorted(self._cluster.topics)
        await self._rows.fill(reply, names, self._topic_here, request)
        self._gate.require(Permission.READ)  # rows take many turns of the loop
        reply.withheld_reason = self._snapshots.withheld_reason()
        return reply

    async def seek(self, _: CallContext, request: admin_pb2.SeekRequest) -> admin_pb2.SeekReply:
        """Move a consumer group; its live sessions go on from the new offsets."""
        return await self._seek(request)

    async def delete_group(
        self, _: CallContext, request: admin_pb2.DeleteGroupRequest
    ) -> admin_pb2.DeleteGroupReply:
        """Delete a consumer group's progress; refused while the group has live sessions."""
        deleted = await self._delete_group(request.group, request.topic)
        return admin_pb2.DeleteGroupReply(deleted=deleted)

    # ---- status
    async def status(
        self, _: CallContext, _request: admin_pb2.StatusRequest
    ) -> admin_pb2.StatusReply:
        """Return the status of this broker."""
        withheld = await self._snapshots.withheld_records()
        return status_reply(self._snapshots.take(), withheld)

    # ---- inside
    def _topic_here(self, name: str) -> TopicConfig | None:
        """Return the topic; None if it has no queue here. Raises its conflict with the journal."""
        topic = self._cluster.topics.get(name)
        if topic is None or not topic.queues_in(self._broker_group):
            return None
        if (reason := conflict(topic, self._journal.state.topics)) is not None:
            raise reason  # left out in silence, its lag would look like nothing
        return topic

    def _topic(self, name: str) -> TopicConfig:
        """Return the topic. Raises `UnknownTopic`, also for its conflict with the journal."""
        topic = self._topic_here(name)
        if topic is None:
            raise UnknownTopic(f"topic {name} has no queue in group {self._broker_group}")
        return topic

    async def _seek(self, request: admin_pb2.SeekRequest) -> admin_pb2.SeekReply:
        self._gate.require(Permission.READ)
        require_name("consumer group", request.group)
        if request.to not in client_pb2.StartAt.values():
            raise InvalidArgument(f"seek target {request.to} is not a value of StartAt")
        if not request.topic:
            raise InvalidArgument("the seek names no topic: set topic")
        topic = self._topic(request.topic)
        count = topic.queues_in(self._broker_group)
        queues = sorted(set(request.queues)) or list(range(count))
        if queues[-1] >= count:
            raise UnknownQueue(
                f"queue {queues[-1]} does not exist: topic {topic.name} has queues 0 to "
                f"{count - 1} in group {self._broker_group}"
            )
        slices, reply = Slices(), admin_pb2.SeekReply()
        if topic.ordered and self._seeks is not None:
            reply.ask_group = await self._seeks.seek(topic, request, queues) or ""
        else:
            await self._seek_here(topic, request, queues)
        for queue in [] if reply.ask_group else queues:
            await slices.step()
            self._rows.add(reply.queues, topic, queue, request.group)
        return reply

    async def _seek_here(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, queues: Iterable[int]
    ) -> None:
        slices, targets = Slices(), dict[int, Offset]()
        for queue in queues:
            await slices.step()
            targets[queue] = await self._target(topic, queue, request)
        self._gate.require(Permission.READ)
        await self._move(topic, request, targets)

    async def _target(
        self, topic: TopicConfig, queue: int, request: admin_pb2.SeekRequest
    ) -> Offset:
        """Return the target of a seek in one queue, within what is stored and committed."""
        if not request.by_offset:
            return await self._groups.position(topic.id, queue, request.to, request.to_ms)
        return self._groups.visible(topic.id, queue).clamp(Offset(request.offset))

    async def _move(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, targets: dict[int, Offset]
    ) -> None:
        if self._groups.get(request.group, topic.id) is None:
            await self._groups.stored()  # what it had acked before it was dropped comes first
            if not self._groups.has_started(request.group, topic):
                limits = self._groups.state_limits
                limits.require_progress(request.group, topic.name, len(targets))
        queues = list(targets)
        for at in range(0, len(queues), _MOVED_AT_ONCE):
            self._gate.require(Permission.READ)
            part = {queue: targets[queue] for queue in queues[at : at + _MOVED_AT_ONCE]}
            await self._move_some(topic, request, part)
        await self._groups.stored()

    async def _move_some(
        self, topic: TopicConfig, request: admin_pb2.SeekRequest, targets: dict[int, Offset]
    ) -> None:
        """Check and move queues in one turn of the event loop."""
        group = request.group
        for queue, now in self._rows.seek_numbers_in(topic, group, targets).items():
            if request.expected_seek_numbers.get(queue, now) != now:
                raise StaleAssignment(
                    f"another seek has moved consumer group {group} in queue {queue} of topic "
                    f"{topic.name}: read its offsets again (`fmq group lag`), then seek again"
                )
        live = self._groups.get(group, topic.id)
        if live is not None and (gone := self._groups.fit(live)):  # it may not have heard yet
            raise gone
        if live is None:
            keys = [OffsetKey(group, topic.id, queue) for queue in targets]
            versions = self._offsets.next_versions(keys)
            moved = {k: OffsetEntry(v, targets[k.queue_id], (), v) for k, v in versions.items()}
            note = self._groups.opening_note(group, topic, temporary=False)
            await self._offsets.put(note | moved)
            return
        self._groups.move(live, targets)
        await asyncio.sleep(0)

    async def _delete_group(self, group: str, topic: str) -> int:
        self._gate.require(Permission.READ)
        slices, pending = Slices(), list[tuple[TopicId, list[int]]]()
        for topic_id in [self._topic(topic).id] if topic else self._offsets.topics():
            queues = self._offsets.queues_of(group, topic_id)
            await slices.step(1 + len(queues))
            if queues:
                pending.append((topic_id, queues))
        for topic_id, _ in pending:
            self._require_unused(group, topic_id)
        left = await self._leave_chains(group, topic)
        if not pending and not left:
            raise NotFound(f"consumer group {group} has no progress in group {self._broker_group}")
        deleted = 0
        while pending:
            topics = [pending.pop()]
            entries = len(topics[0][1])
            while pending and entries + len(pending[-1][1]) <= _DELETED_AT_ONCE:
                topics.append(pending.pop())
                entries += len(topics[-1][1])
            await self._forget(group, topics)
            deleted += entries
        return deleted

    async def _leave_chains(self, group: str, name: str) -> int:
        """Take the group out of the chains of that topic, or of all; return how many it left."""
        if self._chains is None:
            return 0
        left, slices = 0, Slices()
        for topic in [self._topic(name)] if name else list(self._cluster.topics.values()):
            await slices.step()
            chain = self._chains.of(topic.id) if topic.ordered else None
            if chain is not None and chain.heads_of(group) is not None:
                self._require_unused(group, topic.id)
                await self._chains.remove(group, topic.name)
                left += 1
        return left

    async def _forget(self, group: str, topics: list[tuple[TopicId, list[int]]]) -> None:
        """Delete in one write, without a loop turn before it: no session may join in between."""
        self._gate.require(Permission.READ)
        for topic_id, _ in topics:
            self._require_unused(group, topic_id)
            self._groups.forget(group, topic_id)
        keys = [OffsetKey(group, topic_id, q) for topic_id, queues in topics for q in queues]
        versions = self._offsets.next_versions(keys)
        await self._offsets.put({key: tombstone(version) for key, version in versions.items()})

    def _require_unused(self, group: str, topic_id: TopicId) -> None:
        live = self._groups.get(group, topic_id)
        if live is not None and live.sessions:
            raise InvalidArgument(
                f"consumer group {group} has {len(live.sessions)} live sessions on topic "
                f"{live.topic}: stop them first"
            )
