"""Which part of the journal ordered topics still need: what retention must keep.

Records stay until all consumer groups have finished them, as their stored progress says. Positions
are looked up once for each offset.
"""

from functools import partial

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.runtime.slices import Slices
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.errors import CorruptJournal
from fmqcore.ids import GroupName, Offset, Position, TopicId
from fmqcore.ordered.delivery import floor_since_start
from fmqcore.ordered.subscriptions import oldest_kept
from fmqcore.zk.chain import PerQueue
from fmqcore.zk.topic import TopicConfig

_log = structlog.get_logger()
_Place = tuple[TopicId, int, int]  # topic, queue, offset


class KeptSegments:
    """Looks up the oldest position that each ordered topic needs."""

    def __init__(
        self, cache: ChainCache, view: ClusterView, broker_group: GroupName, journal: Journal
    ) -> None:
        self._cache = cache
        self._view = view
        self._broker_group = broker_group
        self._journal = journal
        self._known: dict[_Place, Position] = {}

    async def oldest(self) -> dict[str, Position]:
        """Return, by topic, the position from which its records must stay. Raises `FmqError`.

        A topic whose chain is not known here keeps all that it has.
        """
        slices, oldest, used = Slices(), dict[str, Position](), dict[_Place, Position]()
        for topic in list(self._view.topics.values()):
            chain = self._cache.of(topic.id)
            await slices.step(1 if chain is None else 1 + len(chain.heads) * chain.queues // 8)
            positions: list[Position] = []
            for queue, start in enumerate(self._starts(topic)):
                await slices.step(2)
                place = (topic.id, queue, start)
                position = self._known.get(place)
                if position is None or position < self._journal.journal_start:
                    position = await self._position(place)
                if position is not None:
                    used[place] = position
                    positions.append(position)
            if positions:
                oldest[topic.name] = min(positions)
        self._known = used
        return oldest

    # ---- inside
    def _starts(self, topic: TopicConfig) -> PerQueue:
        """Return the offsets from which the topic's records must stay; empty = no bound."""
        queues = topic.queues_in(self._broker_group)
        if not (topic.ordered and queues):
            return ()
        chain = self._cache.of(topic.id)
        if chain is None:
            return (0,) * queues
        return oldest_kept(chain, self._broker_group, partial(self._floor, topic.id)) or ()

    def _floor(self, topic_id: TopicId, subscription: str, queue: int, start: int) -> int:
        """Return the stored progress since that start, as this journal has it; 0 = none."""
        entry = self._journal.state.offsets.get(OffsetKey(subscription, topic_id, queue))
        return floor_since_start(entry, start)

    async def _position(self, place: _Place) -> Position | None:
        """Return where the first record from an offset on lies; None if none is stored yet.

        In a damaged segment that is not known: then all of the journal counts as needed, and at the
        disk limit it is given up as elsewhere.
        """
        topic_id, queue, start = place
        try:
            found = await self._journal.find(topic_id, queue, Offset(start), 1)
        except CorruptJournal as error:
            _log.error("unread_segment_damaged", topic_id=topic_id, queue=queue, error=str(error))
            return self._journal.journal_start
        return found[0].position if found else None
