"""What the consumer groups of ordered topics have finished here: acked, and stored.

A head may leave a segment once this shows that all up to the segment's end is done (duty HEADS). So
only topics with a head at an ended segment of this broker group are looked at, after each write of
progress: others cost nothing. What is known is noted, waited for until it is stored, and published
then. A seek that comes after the note counts at once: the lower of both values is returned.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.slices import Slices
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.errors import FmqError
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.chain import Chain, PerQueue

_log = structlog.get_logger()


class KnownOffsets(Protocol):
    """The progress that this broker knows, stored or not (`consume/offsets/store.py`)."""

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the newest entry of a key."""
        ...


class StoredProgress:
    """The next offset of each consumer group and queue, for chains whose heads may move."""

    def __init__(
        self,
        cache: ChainCache,
        broker_group: GroupName,
        journal: Journal,
        known: KnownOffsets,
        written: Signal,
        stored: Callable[[], Awaitable[None]],
    ) -> None:
        """`written` fires after writes of progress; `stored` waits for all that is known now."""
        self._cache = cache
        self._broker_group = broker_group
        self._journal = journal
        self._known = known
        self._written = written
        self._wait_stored = stored
        self._due: dict[TopicId, Chain] = {}
        self._stored: dict[TopicId, Mapping[str, PerQueue]] = {}
        self._callbacks: dict[Callable[[TopicId], None], None] = {}
        for chain in cache.topics():
            self._look(chain.topic_id)
        cache.on_changed(self._look)

    def progress(self, topic: Chain) -> Mapping[str, PerQueue]:
        """Return the next offset of each queue by subscription: acked, and stored."""
        stored = self._stored.get(topic.topic_id, {})
        return {
            name: tuple(map(min, values, self._floors(topic, name)))
            for name, values in stored.items()
        }

    def expired(self, topic: Chain) -> frozenset[int]:
        """Return the ended segments of this broker group of which retention has left no record."""
        return frozenset(
            segment.number
            for segment in topic.segments
            if segment.group == self._broker_group
            and segment.end is not None
            and all(
                self._journal.begin_offset(topic.topic_id, queue) >= end
                for queue, end in enumerate(segment.end)
            )
        )

    def on_progress(self, callback: Callable[[TopicId], None]) -> Callable[[], None]:
        """Call `callback` with each topic whose stored progress rose; returns what stops it."""
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None)

    async def run(self) -> None:
        """Publish what is stored, after each write of progress, until cancelled."""
        while True:
            seen = (self._cache.changed.count, self._written.count)
            if self._due:
                await self._publish()
            if seen == (self._cache.changed.count, self._written.count):
                await wait_any(self._cache.changed, self._written)

    # ---- inside
    def _look(self, topic_id: TopicId) -> None:
        """The topic's chain has changed: what was known may be from before a seek."""
        self._stored.pop(topic_id, None)
        chain = self._cache.of(topic_id)
        if chain is not None and self._has_due_head(chain):
            self._due[topic_id] = chain
        else:
            self._due.pop(topic_id, None)

    def _has_due_head(self, chain: Chain) -> bool:
        here = {
            s.number
            for s in chain.segments
            if s.end is not None and (s.group == self._broker_group or s.end == s.start)
        }
        return any(not here.isdisjoint(numbers) for _, numbers in chain.heads)

    async def _publish(self) -> None:
        slices, noted = Slices(), dict[TopicId, tuple[Chain, Mapping[str, PerQueue]]]()
        for topic_id, chain in list(self._due.items()):
            await slices.step(1 + len(chain.heads) * chain.queues // 8)
            noted[topic_id] = chain, {name: self._floors(chain, name) for name, _ in chain.heads}
        try:
            await self._wait_stored()
        except FmqError as error:  # the next reader has what was stored
            _log.info("progress_not_stored", why=str(error))
            return
        for topic_id, (chain, floors) in noted.items():
            if self._due.get(topic_id) is chain and self._stored.get(topic_id) != floors:
                self._stored[topic_id] = floors
                for callback in list(self._callbacks):
                    callback(topic_id)

    def _floors(self, chain: Chain, name: str) -> PerQueue:
        keys = (OffsetKey(name, chain.topic_id, queue) for queue in range(chain.queues))
        entries = (self._known.get(key) for key in keys)
        return tuple(0 if entry is None or entry.deleted else entry.floor for entry in entries)
