"""Find the offset of a moment (beginning, end or time) within the readable part of a queue.

Store times decrease only where a correction begins a segment. After a master stored with a clock
that was ahead, messages carry that time until the correction; a time has no place among them and is
refused until then. Afterwards a time among them leads to the first of those messages.
"""

from datetime import UTC, datetime

from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.slices import Slices
from fmqcore.clocks import FUTURE_MS
from fmqcore.consume.visibility import VisibleRange
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Offset, TopicId
from fmqport.clock import Clock
from fmqproto.v1 import client_pb2


class QueueMoments:
    """Translates the start that a consumer asks for into offsets."""

    def __init__(self, clock: Clock, journal: Journal, visible: Visible) -> None:
        self._clock = clock
        self._journal = journal
        self._visible = visible

    def visible(self, topic_id: TopicId, queue: int) -> VisibleRange:
        """Return what may be read of a queue."""
        return self._visible.queue(topic_id, queue)

    def next_offset(self, topic_id: TopicId, queue: int) -> Offset:
        """Return one past the newest stored offset of a queue, readable or withheld."""
        return self._journal.next_offset(topic_id, queue)

    def wall_ms(self) -> int:
        """Return this broker's wall clock."""
        return self._clock.wall_ms()

    async def position(self, topic_id: TopicId, queue: int, start: int, start_ms: int) -> Offset:
        """Return the offset of `start` in a queue now, within what is stored and committed.

        Raises `InvalidArgument` for a time whose place the stored times do not show.
        """
        visible = self.visible(topic_id, queue)
        match start:
            case client_pb2.START_LATEST:
                wanted = visible.end
            case client_pb2.START_TIME:
                wanted = await self._journal.find_time(topic_id, queue, start_ms)
                await self._require_past(topic_id, queue, wanted, start_ms)
            case _:
                wanted = visible.first
        return visible.clamp(wanted)

    async def _require_past(
        self, topic_id: TopicId, queue: int, found: Offset, asked_ms: int
    ) -> None:
        """Raise `InvalidArgument` if the batch at a past time was stored with a wrong clock."""
        now_ms = self._clock.wall_ms()
        if asked_ms > now_ms or self._journal.last_ms <= now_ms + FUTURE_MS:
            return
        for entry in await self._journal.find(topic_id, queue, found, 1):
            if entry.store_ms > now_ms + FUTURE_MS:
                raise InvalidArgument(
                    f"queue {queue} has no place for {_time(asked_ms)}: from offset "
                    f"{entry.base_offset} on its messages carry the store time "
                    f"{_time(entry.store_ms)} or later, as the clock of a broker was ahead, and "
                    f"when they were stored is not known; begin at offset {entry.base_offset}, "
                    "earliest or latest"
                )

    async def positions(
        self, topic_id: TopicId, queues: int, start: int, start_ms: int
    ) -> list[Offset]:
        """Return `position` for each of the first `queues` queues."""
        slices, offsets = Slices(), list[Offset]()
        for queue in range(queues):
            await slices.step()
            offsets.append(await self.position(topic_id, queue, start, start_ms))
        return offsets


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
