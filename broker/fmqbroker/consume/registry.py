"""The consumer groups in this broker's memory.

Groups are kept while READ is held within one epoch: a reader in between may have moved the offsets.
`group_maker.py` makes them from stored progress; a change is marked dirty, and `progress_writer.py`
stores it. A group without sessions is kept for a while, since it knows how often the records in
flight have been delivered.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.group_maker import GroupMaker
from fmqbroker.consume.group_notes import opening_note
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.progress_writer import ProgressWriter, Waiter
from fmqbroker.consume.queue_moments import QueueMoments
from fmqbroker.consume.unstored import Entries, GroupKey, Unstored
from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Journal
from fmqbroker.journal.state_limits import StateLimits
from fmqbroker.runtime.freeing import Freeing
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import STEPS, Slices
from fmqbroker.runtime.timers import Timers
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.errors import FmqError, NoPermission, Unavailable, UnknownTopic
from fmqcore.ids import Epoch, GroupName, Offset, Permission, TopicId
from fmqcore.ordered.delivery import floor_since_start
from fmqcore.turns import emptying
from fmqcore.zk.chain import PerQueue
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2

IDLE_MS: Final = 5 * 60 * 1000
"""Time for which a group without sessions is kept in memory."""
_MOST_EPOCH_ENDS: Final = 10_000
_START_S: Final = 1
"""Seconds for which an opening waits until its start is stored, before it is refused with why.

A client waits `fmqclient.net.connections.DIAL_TIMEOUT_S` for the answer, and has to learn why.
"""

_log = structlog.get_logger()


class GroupTable(QueueMoments):
    """The consumer groups of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        visible: Visible,
        gate: Gate,
        cluster: ClusterView,
        offsets: OffsetStore,
        timers: Timers,
        chains: ChainReads | None = None,
    ) -> None:
        super().__init__(clock, journal, visible)
        self.chains = chains  # of ordered topics; None: none are served
        self._gate = gate
        self._cluster = cluster
        self._offsets = offsets
        self._timers = timers
        self._broker_group = GroupName(settings.group)
        self._groups: dict[GroupKey, ConsumerGroup] = {}
        self._freeing = Freeing()  # of dropped groups
        self.state_limits = StateLimits(settings, journal)
        self._epoch = Epoch(0)  # in which they were made
        self._unstored = Unstored(offsets)
        self._writer = ProgressWriter(clock, offsets, self._unstored, self.drop)
        self.acked = self._writer.wanted  # progress changed, or a caller waits until it is stored
        self._maker = GroupMaker(
            settings, clock, journal, offsets, self._unstored, self._mark, chains
        )
        offsets.add_source(self._unstored)

    # ---- groups
    def floors(self, name: str, topic_id: TopicId, starts: PerQueue) -> PerQueue:
        """Return the next offset of each queue that the group has not acked, stored or not.

        `starts`: by queue the start number since which acks count (K18).
        """
        group = self.get(name, topic_id)
        if group is not None and len(group.progress) >= len(starts):
            pairs = zip(group.progress, starts, strict=False)
            return tuple(p.floor if p.start_number == start else 0 for p, start in pairs)
        return tuple(
            floor_since_start(self._offsets.get(OffsetKey(name, topic_id, queue)), start)
            for queue, start in enumerate(starts)
        )

    def get(self, name: str, topic_id: TopicId) -> ConsumerGroup | None:
        """Return the group on that topic if it is in memory, or None."""
        return self._groups.get((name, topic_id))

    def ordered(self) -> list[ConsumerGroup]:
        """Return the groups in memory that read ordered topics."""
        return [group for group in self._groups.values() if group.windows is not None]

    def readable(self, group: ConsumerGroup, queue: int) -> Offset:
        """Return one past the newest offset that the group may read now."""
        end = self.visible(group.topic_id, queue).end
        if group.windows is not None:
            end = min(end, group.windows.window(queue, group.progress[queue]).end)
        return end

    def move(
        self,
        group: ConsumerGroup,
        targets: Mapping[int, Offset],
        starts: Mapping[int, int] | None = None,
    ) -> None:
        """Start again at `targets`, by queue; it is not stored yet at return.

        `starts`: of an ordered topic, the start number by queue.
        """
        versions = self._offsets.next_versions([group.key(queue) for queue in targets])
        now_ms = self._clock.monotonic_ms()
        for queue, number in (starts or {}).items():
            group.progress[queue].start_number = number
        group.seek_all(targets, now_ms, {key.queue_id: v for key, v in versions.items()})
        self.changed(group)

    def follow_start(self, group: ConsumerGroup) -> None:
        """Let the group's progress count from its start in the chain (K18).

        Progress from another start is void: the queue begins where its next segment here does.
        """
        numbers = () if group.windows is None else group.windows.starts()
        if group.windows is None or not numbers or numbers == group.windows.start_numbers:
            return
        pairs = enumerate(zip(group.progress, numbers, strict=False))
        starts = {queue: number for queue, (p, number) in pairs if p.start_number != number}
        begin = self._journal.begin_offset
        if starts:
            self.move(group, {queue: begin(group.topic_id, queue) for queue in starts}, starts)
        if len(group.progress) >= len(numbers):
            group.windows.start_numbers = numbers

    def has_started(self, name: str, topic: TopicConfig) -> bool:
        """See `GroupMaker`."""
        return self._maker.has_started(name, topic)

    async def ensure(
        self, name: str, topic: TopicConfig, start: int, start_ms: int, *, temporary: bool = False
    ) -> ConsumerGroup:
        """Return the group on that topic, made with stored progress if it is not in memory.

        Queues without progress start at `start`, which is written at once so that later members
        start there too. If `start` is not the oldest message, it is stored at return: otherwise the
        next reader would start at its own end, and no consumer would get the messages between.
        `temporary`: the group was not named and, if new, is removed soon after its members leave
        (`idle_groups.py`). Raises `NoPermission`.

        Order of effects: the group is made aside, in short turns, until it agrees with what is
        known in the turn that puts it in the table, in the term of the call; then it is stored.
        """
        self.require()
        key, epoch = (name, topic.id), self._epoch
        queues = topic.queues_in(self._broker_group)
        made: ConsumerGroup | None = None
        if key not in self._groups:
            if self.has_started(name, topic):  # a queue that it has not started came after it
                start = client_pb2.START_EARLIEST
            else:
                self.state_limits.require_progress(name, topic.name, queues)
            begins = await self.positions(topic.id, queues, start, start_ms)
            self.require()
            made = await self._maker.make(name, topic, begins)
            self.require()
            if self._epoch != epoch:
                raise NoPermission(
                    f"the broker group is in epoch {self._epoch} now: open the session again"
                )
        if note := self.opening_note(name, topic, temporary=temporary):
            self._unstored.entries |= note
            self.acked.notify()
        if made is not None and key not in self._groups:
            group = self._groups[key] = made
            gone = self.fit(group)  # the topic may have changed during the reads
            if gone is not None:
                raise gone
            self.follow_start(group)
            group.beginning = bool(group.dirty) and start != client_pb2.START_EARLIEST
            self.changed(group)
        group = self._groups[key]
        if group.beginning:
            await self._await_start(group)
        elif group is made:
            await self._pause(group)
        return group

    def opening_note(self, name: str, topic: TopicConfig, *, temporary: bool) -> Entries:
        """Return the notes to store in one write with the group's start (`group_notes.py`)."""
        new = (name, topic.id) not in self._groups and not self.has_started(name, topic)
        known = (self._offsets, self._unstored.entries)
        return opening_note(*known, name, topic.id, new=new, temporary=temporary)

    async def _await_start(self, group: ConsumerGroup) -> None:
        """Return once the group's start is stored. Raises `Unavailable` if that takes long."""
        try:
            async with asyncio.timeout(_START_S):
                await self.stored()
        except TimeoutError:
            cause = self._offsets.unmet_reason or "the write takes long"
            raise Unavailable(
                f"where consumer group {group.name} starts on {group.topic} is not stored yet: "
                f"{cause}; open again, it opens once the start is stored"
            ) from None
        finally:
            self.idle(group)  # if no session joins it
        self.require_known(group)
        group.beginning = False

    async def _pause(self, group: ConsumerGroup) -> None:
        """End the turn that made the group: a session joins it in the next one."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.idle(group)
            raise
        self.require_known(group)

    def require_known(self, group: ConsumerGroup) -> None:
        """Raise `NoPermission` unless the group is in the table now: a session may join it."""
        self.require()
        if self._groups.get((group.name, group.topic_id)) is not group:
            raise NoPermission(f"consumer group {group.name} was dropped meanwhile: open again")

    async def find_epoch_ends(
        self, group: ConsumerGroup, acks: Iterable[client_pb2.AckRange]
    ) -> None:
        """Look up the unknown ends of the epochs of `acks`, before the group processes them."""
        names = sorted({(ack.queue_id, Epoch(ack.epoch)) for ack in acks})
        if len(group.epoch_ends) + len(names) > _MOST_EPOCH_ENDS:  # epochs that no reader saw
            group.epoch_ends.clear()
        while unknown := [name for name in names if group.lacks_epoch_end(*name)]:
            for queue, epoch in unknown:
                end = await self._journal.epoch_end(group.topic_id, queue, epoch)
                group.epoch_ends[queue, epoch] = end

    def forget(self, name: str, topic_id: TopicId) -> None:
        """Drop a group that is being deleted, and its unstored progress."""
        self._groups.pop((name, topic_id), None)
        self._unstored.forget((name, topic_id))

    def require(self) -> None:
        """Raise `NoPermission` unless READ is held now, in the epoch of the groups in memory."""
        try:
            self._gate.require(Permission.READ)
            if self._gate.epoch != self._epoch and self._groups:
                raise NoPermission(
                    f"the broker group is in epoch {self._gate.epoch} now: open the session again"
                )
        except NoPermission as error:
            self.drop(error)
            raise
        self._epoch = self._gate.epoch

    def drop(self, error: FmqError) -> None:
        """End all sessions with `error`; acked progress is still stored if the store takes it."""
        if not self._groups:
            return
        groups, self._groups = self._groups, {}
        self._unstored.drop(groups.values())
        for group in groups.values():
            for session in group.sessions.values():
                session.finish(error)
        _log.info("consumer_groups_dropped", groups=len(groups), reason=str(error))
        self._freeing.add(emptying(groups.popitem, _steps_to_free, STEPS))
        self.acked.notify()

    # ---- storing
    def changed(self, group: ConsumerGroup) -> None:
        """Schedule what a changed group needs: store its dirty queues, call it when it is due."""
        if group.dirty:  # also what was so before it came into the table
            self._mark(group)
        due_ms = group.next_due_ms()
        if due_ms is not None:
            self.wake_at(group, due_ms)

    def _mark(self, group: ConsumerGroup) -> None:
        if self._groups.get((group.name, group.topic_id)) is group:
            self._unstored.mark(group)
            self.acked.notify()

    def wake_at(self, group: ConsumerGroup, due_ms: int) -> None:
        """Call the group's `on_timer` at `due_ms`."""
        if group.timer_ms is None or due_ms < group.timer_ms:
            group.timer_ms = due_ms
            if due_ms not in group.timers:  # a far one is asked for again after each nearer one
                group.timers.add(due_ms)
                self._timers.at(due_ms, lambda: self._on_time(group, due_ms))

    def when_stored(self, waiter: Waiter) -> None:
        """See `ProgressWriter`."""
        self._writer.when_stored(waiter)

    async def stored(self) -> None:
        """See `ProgressWriter`."""
        await self._writer.stored()

    def idle(self, group: ConsumerGroup) -> None:
        """Forget a group without sessions after `IDLE_MS`, unless a session joins."""
        if not group.sessions:
            seen_ms = group.idle_since_ms = self._clock.monotonic_ms()
            self._timers.at(seen_ms + IDLE_MS, lambda: self._forget_idle(group, seen_ms))

    # ---- running
    async def run(self) -> None:
        """Follow commit end, permission and topics, and store progress, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_commit())
            tasks.create_task(self._follow_gate())
            tasks.create_task(self._follow_topics())
            tasks.create_task(self._writer.run())
            tasks.create_task(self._freeing.run())

    async def _follow_commit(self) -> None:
        """Offer starved queues again when something new in them is committed."""
        slices = Slices()
        while True:
            seen = self._visible.now()
            for key in list(self._groups):  # not the groups: they would stay until the last turn
                group = self._groups.get(key)
                if group is None:
                    continue  # it ended in one of those turns
                await slices.step(1 + len(group.starved) // 8)
                ends = self._journal.state.next_offsets  # most often nothing was appended
                news = [q for q, (at, old) in group.starved.items() if ends.get(at, 0) > old]
                for queue in news:
                    if self.readable(group, queue) > group.starved[queue][1]:
                        group.offer(queue)
            if self._visible.now() == seen:  # else it moved in one of those turns
                await self._visible.changed.wait()

    async def _follow_gate(self) -> None:
        while True:
            if self._groups:
                with suppress(NoPermission):  # all sessions get its error
                    self.require()
            await self._gate.changed.wait()

    async def _follow_topics(self) -> None:
        slices = Slices()
        while True:
            seen = self._cluster.changed.count
            for key in list(self._groups):
                group = self._groups.get(key)
                if group is not None:  # else it ended in one of those turns
                    self.fit(group)
                await slices.step()
            if self._cluster.changed.count == seen:  # else topics changed in one of those turns
                await self._cluster.changed.wait()

    # ---- inside
    def fit(self, group: ConsumerGroup) -> UnknownTopic | None:
        """Grow the group with its topic; if the topic is gone, end the group and return the error.

        Queues that are new to this broker may have progress: other brokers may know them already.
        """
        topic = self._cluster.topics_by_id.get(group.topic_id)
        queues = topic.queues_in(self._broker_group) if topic else 0
        other = conflict(topic, self._journal.state.topics) if topic else None
        if topic is None or not queues or other is not None:
            self._unstored.drop((group,))
            del self._groups[group.name, group.topic_id]
            gone = UnknownTopic(f"topic {group.topic} is no longer in group {self._broker_group}")
            error = other or gone
            for session in group.sessions.values():
                session.finish(error)
            return error
        before = topic.queues_before(self._broker_group)
        if queues > len(group.progress) or before != group.before:
            fresh = range(len(group.progress), queues)
            begins = [self._journal.begin_offset(group.topic_id, queue) for queue in fresh]
            _, progress = self._maker.progress(group, begins)
            group.grow(progress, self._clock.monotonic_ms(), before)
            self.follow_start(group)
            self.changed(group)
        return None

    def _on_time(self, group: ConsumerGroup, due_ms: int) -> None:
        group.timers.discard(due_ms)
        if group.timer_ms == due_ms:
            group.timer_ms = None
        if self._groups.get((group.name, group.topic_id)) is group:
            group.on_timer(self._clock.monotonic_ms())
            self.changed(group)

    def _forget_idle(self, group: ConsumerGroup, seen_ms: int) -> None:
        key = (group.name, group.topic_id)
        idle = not group.sessions and group.idle_since_ms == seen_ms
        if idle and self._groups.get(key) is group:
            if group.dirty:  # the store takes nothing now
                self.idle(group)
            else:
                del self._groups[key]


def _steps_to_free(group: ConsumerGroup) -> int:
    return 1 + len(group.progress) // 8
