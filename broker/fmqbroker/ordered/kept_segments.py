"""Which part of the journal ordered topics still need: what retention must keep.

A segment stays until all consumer groups have left it and it is dropped from the chain. Positions
are looked up once for each segment: its start does not change.
"""

from collections.abc import Iterator

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.runtime.slices import Slices
from fmqcore.ids import GroupName, Offset, Position, TopicId
from fmqcore.ordered.requests import oldest_kept
from fmqcore.zk.chain import PerQueue

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
        for name, topic_id, starts in list(self._starts()):
            positions: list[Position] = []
            for queue, start in enumerate(starts):
                await slices.step(2)
                place = (topic_id, queue, start)
                position = self._known.get(place)
                if position is None or position < self._journal.journal_start:
                    position = await self._position(place)
                if position is not None:
                    used[place] = position
                    positions.append(position)
            if positions:
                oldest[name] = min(positions)
        self._known = used
        return oldest

    # ---- inside
    def _starts(self) -> Iterator[tuple[str, TopicId, PerQueue]]:
        for topic in self._view.topics.values():
            queues = topic.queues_in(self._broker_group)
            if not (topic.ordered and queues):
                continue
            chain = self._cache.of(topic.id)
            starts = (0,) * queues if chain is None else oldest_kept(chain, self._broker_group)
            if starts is not None:
                yield topic.name, topic.id, starts

    async def _position(self, place: _Place) -> Position | None:
        """Return where the first record from an offset on lies; None if none is stored yet."""
        topic_id, queue, start = place
        found = await self._journal.find(topic_id, queue, Offset(start), 1)
        return found[0].position if found else None
