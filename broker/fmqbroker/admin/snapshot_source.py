"""Takes the broker snapshot from the parts of a running broker; no other module reads them for it.

Values are read from state that the parts keep anyway: nothing is counted on the hot path. What
grows with the number of queues is summed in short turns of the event loop. Nothing is written.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

from fmqbroker.admin.readers import Readers
from fmqbroker.admin.served_periods import ServedPeriods
from fmqbroker.admin.snapshot import (
    BrokerSnapshot,
    ConsumerLag,
    Positions,
    SlaveLink,
    TableUse,
    TopicsSnapshot,
)
from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.idle_groups import IdleGroups
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.service import FetchService
from fmqbroker.data.segment_service import SegmentService
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_figures import ChainFigures, TopicFigures
from fmqbroker.produce.intake import Intake
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.slices import Slices
from fmqbroker.runtime.steady_clock import clock_doubt
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.consume.offsets.lag import acked_above, lag
from fmqcore.consume.visibility import withheld_reason
from fmqcore.ids import BrokerId, GroupName, Permission, TopicId
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock

_ORDERED_STEPS: Final = 10
"""Steps (`runtime.slices`) that the figures of one ordered topic take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSource:
    """The parts of a broker that has joined its group, and the snapshots of them."""

    settings: BrokerSettings
    clock: Clock
    started_ms: int  # monotonic
    gate: Gate
    group: GroupStore
    journal: Journal
    commit: CommitFrontier
    view: ClusterView
    offsets: OffsetStore
    fetch: FetchService
    master: MasterReplication
    slave: SlaveReplication
    segments: SegmentService
    intake: Intake
    idle_groups: IdleGroups
    periods: ServedPeriods
    ordered: ChainFigures

    def take(self) -> BrokerSnapshot:
        """Return the broker as it is now."""
        journal, gate, intake = self.journal, self.gate, self.intake
        return BrokerSnapshot(
            cluster=self.settings.cluster,
            group=GroupName(self.settings.group),
            broker=BrokerId(self.settings.broker),
            config=self.group.config,
            state=self.group.state.value,
            uptime_ms=self.clock.monotonic_ms() - self.started_ms,
            registered=bool(self.group.standing),
            zookeeper_connected=self.group.connected,
            granted=gate.permission(),
            grant_reason=gate.reason,
            remedy=gate.remedy,
            serves=intake.serves(),
            refusal=intake.refusal(),
            served=self.periods.report(),
            positions=Positions(
                start=journal.journal_start,
                commit=self.commit.commit_end,
                durable=journal.durable_end,
                written=journal.written_end,
                end=journal.end,
            ),
            disk_full_reason=journal.full,
            unwritable_reason=self.commit.unwritable_reason,
            withheld_reason=self.withheld_reason(),
            damage="" if journal.damage is None else str(journal.damage),
            store_time_ahead_ms=max(journal.last_ms - self.clock.wall_ms(), 0),
            clock_doubt=clock_doubt(self.clock),
            tables=self._tables(),
            slaves=self._slaves(),
            upstream_connected=self.slave.upstream.connected,
            scanned_bytes=self.segments.sent_bytes,
            refused_scans=self.segments.refused,
        )

    async def topics(self) -> TopicsSnapshot:
        """Return the topics; the figures are of moments that lie some turns apart."""
        stored, slices = dict[TopicId, int](), Slices()
        for (topic_id, _), offset in list(self.journal.state.next_offsets.items()):
            await slices.step()
            stored[topic_id] = stored.get(topic_id, 0) + offset
        noted = self.journal.state.topics
        names = sorted(
            (topic.name, of)
            for of, topic in self.view.topics_by_id.items()
            if conflict(topic, noted) is None
        )
        consumers = None
        if self.gate.permission() & Permission.READ:
            consumers = tuple([found async for found in self._consumers()])
        ordered = tuple([found async for found in self._ordered()])
        return TopicsSnapshot(stored, tuple(names), consumers, ordered)

    def withheld_reason(self) -> str:
        """Return why records are withheld, if that may last; see `fmqcore.consume.visibility`."""
        state, config = self.group.state.value, self.group.config
        me = BrokerId(self.settings.broker)
        away = {member.id for member in config.slaves} - state.isr
        master = state.master or config.master
        return withheld_reason(me, master, self.commit.unwritable_reason, away)

    def served_withheld_reason(self) -> str:
        """Return the reason why records are withheld, if this broker serves the reads."""
        return self.withheld_reason() if self.gate.permission() & Permission.READ else ""

    async def withheld_records(self) -> int:
        """Return how many records are withheld: none are looked for where no reason lasts."""
        if not self.served_withheld_reason():
            return 0
        total, slices, groups = 0, Slices(), self.fetch.groups
        for topic_id, queue in list(self.journal.state.next_offsets):
            await slices.step()
            topic = self.view.topics_by_id.get(topic_id)
            if topic is None:
                continue  # deleted: its records go
            visible = groups.visible(topic_id, queue)
            stored_end = visible.stored_end(groups.next_offset(topic_id, queue))
            if topic.ordered and groups.chains is not None:
                stored_end = groups.chains.end_to_come("", topic_id, queue, visible.end, stored_end)
            total += stored_end - visible.end
        return total

    # ---- inside
    def _tables(self) -> TableUse:
        limits = self.fetch.groups.state_limits
        return TableUse(
            limits.progress_bytes,
            limits.progress_room,
            limits.producers,
            limits.producer_limit,
            self.journal.state.forgotten_producers,
            self.idle_groups.forgotten,
        )

    def _slaves(self) -> tuple[SlaveLink, ...]:
        isr = self.group.state.value.isr
        slaves = {member.id for member in self.group.config.slaves}  # a removed one may be linked
        return tuple(
            SlaveLink(broker, link.connected, broker in isr, link.received_end, link.durable_end)
            for broker, link in sorted(self.master.links.items())
            if broker in slaves
        )

    async def _consumers(self) -> AsyncIterator[ConsumerLag]:
        readers = Readers(self.group.config.group, self.offsets, self.fetch.groups.chains)
        slices = Slices()
        for topic in self._read_topics():
            for group in readers.names(topic):
                await slices.step()
                if topic.id not in self.view.topics_by_id:  # deleted meanwhile
                    break
                if readers.is_temporary(group, topic):
                    continue
                behind = await self._behind(readers, topic, group, slices)
                if behind is None:
                    continue
                live = self.fetch.groups.get(group, topic.id)
                members = 0 if live is None else len(live.sessions)
                yield ConsumerLag(topic.name, group, behind, members)

    def _read_topics(self) -> list[TopicConfig]:
        """Return the topics that a consumer group may read here, by number."""
        noted, here = self.journal.state.topics, self.group.config.group
        known = self.view.topics_by_id
        chained = {of for of, topic in known.items() if topic.ordered}
        found = [known[of] for of in sorted({*self.offsets.topics(), *chained}) if of in known]
        return [topic for topic in found if topic.queues_in(here) and not conflict(topic, noted)]

    async def _behind(
        self, readers: Readers, topic: TopicConfig, group: str, slices: Slices
    ) -> int | None:
        """Return the group's lag on the topic here; None if it does not read the topic."""
        here = topic.queues_in(self.group.config.group)
        if not await readers.reads_all(group, topic, slices):
            queues = [queue for queue in self.offsets.queues_of(group, topic.id) if queue < here]
            await slices.step(1 + len(queues) // 4)
            return await self._lag_of(topic, group, queues, slices) if queues else None
        behind = await self._lag_of(topic, group, range(here), slices)
        # A group that was deleted meanwhile would look as if it had all to read.
        return behind if await readers.reads_all(group, topic, slices) else None

    async def _lag_of(
        self, topic: TopicConfig, group: str, queues: Iterable[int], slices: Slices
    ) -> int:
        behind = 0
        for queue in queues:
            await slices.step()
            behind += self._lag(topic, OffsetKey(group, topic.id, queue))
        return behind

    def _lag(self, topic: TopicConfig, key: OffsetKey) -> int:
        entry, groups = self.offsets.get(key), self.fetch.groups
        if entry is not None and entry.deleted:
            entry = None
        begin, end = groups.visible(key.topic_id, key.queue_id)
        if topic.ordered and (chains := groups.chains) is not None:
            return chains.to_come(key.group, key.topic_id, key.queue_id, entry, begin, end)
        if entry is None:  # a member starts at the oldest message
            return lag(begin, begin, end)
        return lag(entry.floor, begin, end, acked_above(entry, begin, end))

    async def _ordered(self) -> AsyncIterator[TopicFigures]:
        slices = Slices()
        for found in self.ordered:
            await slices.step(_ORDERED_STEPS)
            yield found
