"""What the consumer groups of ordered topics have finished here: acked, stored or not.

A head may leave a segment once this shows that all up to the segment's end is done (duty HEADS). So
only topics with a head at an ended segment of this broker group are looked at, after each ack:
others cost nothing. The moved head is itself the durable record of those acks (ADR 0067): it need
not wait until this group, which may lack a slave, can store them.
"""

from collections.abc import Callable, Mapping

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.slices import Slices
from fmqcore.ids import GroupName, TopicId
from fmqcore.zk.chain import Chain, PerQueue

Floors = Callable[[str, TopicId, PerQueue], PerQueue]
"""Returns by queue what a consumer group has finished of a topic since these starts (K18)."""


class FinishedProgress:
    """The next offset of each consumer group and queue, for chains whose heads may move."""

    def __init__(
        self,
        cache: ChainCache,
        broker_group: GroupName,
        journal: Journal,
        floors: Floors,
        acked: Signal,
    ) -> None:
        """`acked` fires after acks of any group."""
        self._cache = cache
        self._broker_group = broker_group
        self._journal = journal
        self._floors = floors
        self._acked = acked
        self._due: dict[TopicId, Chain] = {}
        self._published: dict[TopicId, Mapping[str, PerQueue]] = {}
        self._callbacks: dict[Callable[[TopicId], None], None] = {}
        for chain in cache.topics():
            self._note_chain(chain.topic_id)
        cache.on_changed(self._note_chain)

    def progress(self, topic: Chain) -> Mapping[str, PerQueue]:
        """Return the next offset of each queue by subscription: all before it is acked."""
        if topic.topic_id not in self._due:
            return {}
        return {
            name: self._floors(name, topic.topic_id, place.start_numbers)
            for name, place in topic.places.items()
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
        """Call `callback` with each topic whose progress rose; returns what stops it."""
        self._callbacks[callback] = None
        return lambda: self._callbacks.pop(callback, None)

    async def run(self) -> None:
        """Publish what is acked, until cancelled."""
        changed, acked = self._cache.changed, self._acked
        while True:
            seen = (changed.count, acked.count)
            await self._publish()
            if seen == (changed.count, acked.count):
                await (wait_any(changed, acked) if self._due else changed.wait())

    # ---- inside
    def _note_chain(self, topic_id: TopicId) -> None:
        self._published.pop(topic_id, None)
        chain = self._cache.of(topic_id)
        if chain is not None and any(True for _ in chain.ended_heads(self._broker_group)):
            self._due[topic_id] = chain
        else:
            self._due.pop(topic_id, None)

    async def _publish(self) -> None:
        slices = Slices()
        for topic_id, chain in list(self._due.items()):
            await slices.step(1 + len(chain.heads) * chain.queues // 8)
            if self._due.get(topic_id) is not chain:
                continue  # it changed in one of those turns
            progress = self.progress(chain)
            if self._published.get(topic_id) != progress:
                self._published[topic_id] = progress
                for callback in list(self._callbacks):
                    callback(topic_id)
