"""Limits of the tables that share a SNAP: a full table refuses, and displaces no other.

Consumer progress and the producer table each have reserved room in every segment's SNAP
(`fmqcore.journal.segments`). A new consumer group is refused when no room for progress is left; a
new producer when it would evict one that may still retry.
"""

from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.errors import InvalidArgument
from fmqcore.journal.segments import producer_room, progress_room
from fmqport.clock import Clock

_EVERY_S: Final = 10.0
_NEARLY: Final = 0.8
_ENTRY_BYTES: Final = 64  # more than a new entry takes beside its group's name

_log = structlog.get_logger()


class StateLimits:
    """Room and use of the journal's tables."""

    def __init__(self, settings: BrokerSettings, journal: Journal) -> None:
        self.producer_room = producer_room(settings.segment_bytes)
        self.progress_room = progress_room(settings.segment_bytes)
        self._journal = journal
        self._forgotten = 0
        self._nearly_full = False

    @property
    def progress_bytes(self) -> int:
        """Bytes that consumer progress takes now."""
        return self._journal.state.progress_bytes

    @property
    def producers(self) -> int:
        """Entries of the producer table, one for each producer and queue."""
        return len(self._journal.state.producers)

    @property
    def producer_limit(self) -> int:
        """Maximum entries of the producer table."""
        return self._journal.state.producers.limit(self.producer_room)

    def require_producer(self, producer_id: int, key: QueueKey, now_ms: int) -> None:
        """Raise `Overloaded` if a new producer would evict one that may still retry (P5)."""
        producers = self._journal.state.producers
        producers.require_room(producer_id, key, now_ms, self.producer_room)

    def may_have_forgotten(self, producer_id: int, key: QueueKey) -> bool:
        """Return whether the producer table lacks this producer but may have known it (P9).

        What a table that is not full has dropped was idle for a day, or is counted.
        """
        state = self._journal.state
        if state.producers.knows(producer_id, key):
            return False
        return state.forgotten_producers > 0 or self.producers >= self.producer_limit

    def require_progress(self, group: str, topic: str, queues: int) -> None:
        """Raise `InvalidArgument` if there is no room for the progress of a new group."""
        used = self.progress_bytes
        if used + queues * (_ENTRY_BYTES + len(group.encode())) > self.progress_room:
            raise InvalidArgument(
                f"consumer group {group} cannot begin on topic {topic}: progress of consumer "
                f"groups takes {used} of {self.progress_room} bytes here. Delete groups that "
                "no consumer reads (fmq group delete), lower offsets_retention_ms, or set larger "
                "segment_bytes"
            )

    async def run(self, clock: Clock) -> None:
        """Log nearly full tables and forgotten producers, until cancelled."""
        while True:
            await clock.sleep(_EVERY_S)
            self.check_once()

    def check_once(self) -> None:
        """See `run`."""
        forgotten = self._journal.state.forgotten_producers
        if forgotten > self._forgotten:
            _log.warning(
                "producers_forgotten",
                entries=forgotten - self._forgotten,
                kept=self.producers,
                limit=self.producer_limit,
                reason="more producers wrote within a day than are remembered; a retry that comes "
                "later from one of these is stored twice",
            )
        self._forgotten = forgotten
        nearly = self.progress_bytes > _NEARLY * self.progress_room
        if nearly and not self._nearly_full:
            _log.warning(
                "consumer_progress_nearly_full",
                bytes=self.progress_bytes,
                room=self.progress_room,
                reason="at the limit new consumer groups are refused",
            )
        self._nearly_full = nearly
