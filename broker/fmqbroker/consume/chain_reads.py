"""Which part of an ordered topic's queues a consumer group may see here: its delivery source.

Ordinary topics have none: their queues can be read from the beginning to the commit end. Of an
ordered topic, the chain decides (`fmqcore.ordered.delivery`): the segment that the group's head
names, if it lies in this broker group, from what no earlier segment delivers up to its known end,
as far as readers may see the journal here; of an open segment as far as all members hold it. Asked
of the cached chain at each pull, without any I/O. A stale chain is safe: heads pass only what is
done, a known end never rises, and no record is appended above a lowered one before this broker has
read the chain. But a stale *open* segment is not, as another term may have sealed it lower. So a
consumer group comes into memory, in each term, after a read of the chain as it is in that term
(`subscriptions.py`).
"""

from collections.abc import Callable, Sequence
from typing import Final

from fmqbroker.consume.visible import Visible
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.errors import Unavailable
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.ordered.delivery import Window, shown_end, window
from fmqcore.ordered.evidence import Serving
from fmqcore.ordered.lag import end_to_come, started_at, to_come
from fmqcore.ordered.subscriptions import remove_subscription
from fmqcore.zk.chain import Chain, PerQueue
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic import TopicConfig

HeldEnd = Callable[[TopicId, int], int | None]
"""The end of a queue that every configured member is known to hold; None = not known."""

_TRIES: Final = 10


class ChainWindows:
    """The source of one consumer group on one ordered topic."""

    __slots__ = (
        "_chains",
        "_segments",
        "_subscription",
        "_topic_id",
        "had_place",
        "start_numbers",
    )

    def __init__(self, chains: "ChainReads", subscription: str, topic_id: TopicId) -> None:
        self._chains = chains
        self._subscription = subscription
        self._topic_id = topic_id
        self._segments: dict[int, int] = {}  # by queue: entered last
        self.had_place = False  # it was seen with heads in the chain
        self.start_numbers: PerQueue = ()  # of the chain that the progress follows

    def window(self, queue: int, progress: QueueProgress) -> Window:
        """Return what may be delivered of a queue now. `progress`: the queue's here."""
        return self._chains.window(self._subscription, self._topic_id, queue, progress)

    def starts(self) -> PerQueue:
        """Return the start numbers that progress is to follow; () = none are known."""
        return self._chains.starts(self._subscription, self._topic_id)

    def enter(self, queue: int, progress: QueueProgress) -> Window:
        """Return the queue's window, and keep the segment's number for the delivery."""
        found = self.window(queue, progress)
        self._segments[queue] = found.segment
        return found

    def segment(self, queue: int) -> int:
        """Return the segment that was entered last."""
        return self._segments.get(queue, 0)


class ChainReads:
    """The chains of this broker's topics, as consumer groups need them."""

    def __init__(
        self,
        cache: ChainCache,
        broker_group: GroupName,
        gate: Gate,
        copies: ChainCopies,
        visible: Visible,
        held_end: HeldEnd = lambda _topic, _queue: None,
        held_changed: Sequence[Signal] = (),
    ) -> None:
        """`held_changed` fire when `held_end` may have risen without a commit."""
        self.broker_group = broker_group
        self.changed = cache.changed
        self.held_changed = held_changed
        self._cache = cache
        self._gate = gate
        self._copies = copies
        self._visible = visible
        self._held_end = held_end

    # ---- cached
    def of(self, topic_id: TopicId) -> Chain | None:
        """Return the topic's chain as it was read last."""
        return self._cache.of(topic_id)

    def windows(self, subscription: str, topic: TopicConfig) -> ChainWindows | None:
        """Return the source of a consumer group; None for an ordinary topic."""
        return ChainWindows(self, subscription, topic.id) if topic.ordered else None

    def window(
        self, subscription: str, topic_id: TopicId, queue: int, progress: QueueProgress
    ) -> Window:
        """Return what this broker may deliver of a queue to a consumer group now."""
        chain = self._cache.of(topic_id)
        heads = None if chain is None else chain.heads_of(subscription)
        if chain is None or queue >= chain.queues:
            return Window(0, Offset(0), Offset(0), "its chain is not known yet")
        if (behind := self._copies.behind(chain)) is not None:
            return Window(0, Offset(0), Offset(0), behind)
        if progress.start_number != chain.start_numbers_of(subscription)[queue]:
            return Window(0, Offset(0), Offset(0), "it starts again: `GroupTable.follow_start`")
        visible, segment = 0, None if heads is None else chain.segment(heads[queue])
        if segment is not None and segment.group == self.broker_group:
            held = self._held_end(topic_id, queue) if segment.end is None else None
            readable = self._visible.queue(topic_id, queue).end
            visible = shown_end(chain, segment, queue, self._serving(), held, readable)
        return window(chain, subscription, queue, self.broker_group, progress.floor, visible)

    def since_start(
        self, subscription: str, topic_id: TopicId, queue: int, entry: OffsetEntry | None
    ) -> OffsetEntry | None:
        """Return the stored progress, or None if it counts from another start (K18)."""
        number = self.start_number(subscription, topic_id, queue)
        return None if entry is None or entry.start_number != number else entry

    def starts(self, subscription: str, topic_id: TopicId) -> PerQueue:
        """Return the consumer group's start numbers; () without a place in a chain that counts."""
        chain = self._cache.of(topic_id)
        placed = chain is not None and chain.heads_of(subscription) is not None
        if chain is None or not placed or self._copies.behind(chain) is not None:
            return ()  # by a chain that is behind, progress that is restored later would be void
        return chain.start_numbers_of(subscription)

    def start_number(self, subscription: str, topic_id: TopicId, queue: int) -> int:
        """Return from which start the consumer group's progress counts now; 0 = none."""
        chain = self._cache.of(topic_id)
        if chain is None or queue >= chain.queues:
            return 0
        return chain.start_numbers_of(subscription)[queue]

    def to_come(
        self,
        subscription: str,
        topic_id: TopicId,
        queue: int,
        entry: OffsetEntry | None,
        begin: Offset,
        end: Offset,
    ) -> int:
        """Return how many records in [begin, end) of a queue here are still to come (its lag)."""
        chain = self._cache.of(topic_id)
        if chain is None or queue >= chain.queues:
            return 0
        return to_come(chain, subscription, self.broker_group, queue, entry, begin, end)

    def end_to_come(
        self, subscription: str, topic_id: TopicId, queue: int, end: Offset, stored_end: Offset
    ) -> Offset:
        """Return the end of what is to come of the records below `stored_end`, `end` or above."""
        chain = self._cache.of(topic_id)
        if chain is None or queue >= chain.queues or end >= stored_end:
            return stored_end
        return end_to_come(chain, subscription, self.broker_group, queue, end, stored_end)

    def started_at(self, subscription: str, topic_id: TopicId, queue: int) -> Offset:
        """Return the offset at which its last seek lets it start in a queue here; 0 = anywhere."""
        chain = self._cache.of(topic_id)
        if chain is None or queue >= chain.queues:
            return Offset(0)
        return started_at(chain, subscription, self.broker_group, queue)

    def may_expire(self, subscription: str, topic_id: TopicId) -> bool:
        """Return whether this broker group may delete a group that has no members here.

        Members connect to every broker group that they can reach, so only where its lowest head
        lies is their absence a reason: nothing of the chain is read without that broker group.
        """
        if self._cache.is_unknown(topic_id):
            return False
        chain = self._cache.of(topic_id)
        heads = None if chain is None else chain.heads_of(subscription)
        if chain is None or heads is None:
            return True
        segment = chain.segment(min(heads))
        if segment is None:
            return chain.groups[0].group == self.broker_group
        return segment.group == self.broker_group

    def _serving(self) -> Serving:
        return Serving.MASTER if self._gate.mode is Mode.MASTER else Serving.READER

    # ---- now
    async def read(self, topic: str) -> Chain:
        """Return the chain as it is now. Raises `NotFound`, `Unavailable`."""
        await self._copies.compare()
        return (await self._cache.read(topic)).value

    async def edit(self, topic: str, change: Callable[[Chain], Chain]) -> Chain:
        """Change the chain by compare-and-set and return it; again after a concurrent change.

        Raises `NotFound`, `Unavailable`, and what `change` raises.
        """
        for _ in range(_TRIES):
            stored = await self._cache.read(topic)
            after = change(stored.value)
            if after == stored.value or await self._cache.edit(stored, after):
                return after
        raise Unavailable(f"the chain of topic {topic} is changed by others at each try: try again")

    async def remove(self, subscription: str, topic: str) -> None:
        """Take a consumer group out of the chain: it holds nothing back any more."""
        await self.edit(topic, lambda chain: remove_subscription(chain, subscription))
