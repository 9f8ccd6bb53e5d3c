"""Makes consumer groups, and their new queues, from the progress that is known, stored or not."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.unstored import Entries, Unstored
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.batch.offset_entry import OffsetKey, merge
from fmqcore.consume.in_flight import Limits, QueueProgress
from fmqcore.ids import GroupName, Offset
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock

_RANGE_SHARE: Final = 32
"""Segment bytes per acked range of a queue: a range takes 16 in its entry, which must fit."""
_QUEUES_A_TURN: Final = 128
"""Queues whose progress is made in one turn of the loop."""


class GroupMaker:
    """Makes groups for the table of one broker; the table keeps them."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        offsets: OffsetStore,
        unstored: Unstored,
        on_dirty: Callable[[ConsumerGroup], None],
        chains: ChainReads | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._journal = journal
        self._offsets = offsets
        self._unstored = unstored
        self._on_dirty = on_dirty
        self._chains = chains
        self._broker_group = GroupName(settings.group)
        limits = Limits(settings.max_in_flight_records, settings.max_ack_ranges)
        most = min(limits.most_ranges, limits.most_acked, settings.segment_bytes // _RANGE_SHARE)
        self._limits = limits._replace(most_acked=most)

    def has_started(self, name: str, topic: TopicConfig) -> bool:
        """Return whether the group has progress on that topic."""
        self._unstored.make_ready((name, topic.id))
        queues = topic.queues_in(self._broker_group)
        if self._offsets.has_progress(name, topic.id, queues):
            return True
        unstored = self._unstored.entries
        keys = (OffsetKey(name, topic.id, q) for q in range(queues if unstored else 0))
        return any(key in unstored and not unstored[key].deleted for key in keys)

    async def make(self, name: str, topic: TopicConfig, begins: list[Offset]) -> ConsumerGroup:
        """Return a new group with its progress as it is known at return; built in short turns."""
        while True:
            group, used = self._empty(name, topic), Entries()
            for at in range(0, len(begins), _QUEUES_A_TURN):
                keys, progress = self.progress(group, begins[at : at + _QUEUES_A_TURN])
                used |= keys
                before = topic.queues_before(self._broker_group)
                group.grow(progress, self._clock.monotonic_ms(), before)
                await asyncio.sleep(0)
            if used == self._known(group, range(len(begins))):
                return group

    def _empty(self, name: str, topic: TopicConfig) -> ConsumerGroup:
        drain_ms = self._settings.consumer_drain_ms
        appended, newest = self._journal.next_offset, lambda: self._journal.epoch
        group = ConsumerGroup(name, topic.name, topic.id, [], drain_ms, appended, newest)
        group.on_dirty = self._on_dirty
        if self._chains is not None:
            group.windows = self._chains.windows(name, topic)
        return group

    def _known(self, group: ConsumerGroup, queues: Iterable[int]) -> Entries:
        """Return the entries of these queues, stored or not."""
        keys = [group.key(queue) for queue in queues]
        self._unstored.make_ready((group.name, group.topic_id))
        known, unstored = self._offsets.get_all(keys), self._unstored.entries
        if unstored:
            merge(known, {key: unstored[key] for key in keys if key in unstored})
        return known

    def progress(
        self, group: ConsumerGroup, begins: Sequence[Offset]
    ) -> tuple[Entries, list[QueueProgress]]:
        """Return the entries and the progress of the group's next queues.

        Queues without known progress, or with progress of another start (K18), start at their
        place in `begins` and are marked dirty.
        """
        progress: list[QueueProgress] = []
        queues = range(len(group.progress), len(group.progress) + len(begins))
        known, limits = self._known(group, queues), self._limits
        starts = () if group.windows is None else group.windows.starts()
        for queue, begin in zip(queues, begins, strict=True):
            entry = known.get(group.key(queue))
            start = starts[queue] if queue < len(starts) else None
            if entry is None or entry.deleted or start not in (None, entry.start_number):
                # Acks from before count no more; a reader after this one gives the same number.
                seek_number = 0 if entry is None else entry.version
                progress.append(
                    QueueProgress(begin, (), limits, seek_number, start_number=start or 0)
                )
                group.mark(queue)
            else:
                stored = QueueProgress(entry.floor, entry.ranges, limits, entry.seek_number)
                stored.start_number = entry.start_number
                progress.append(stored)
        return known, progress
