"""Delete progress in deleted topics, a day later, so that SNAP does not grow for ever.

Only the master does this: each entry becomes a tombstone, as in `DeleteGroup`, and leaves SNAP a
day after that. A topic is gone if ZooKeeper, asked each hour for a day, had given out its number
and had no topic of that number: numbers are never given twice, so no client can read on by it, and
a person has a day to bring a topic's node back. A ZooKeeper that was lost and counts from 1 again
proves nothing about numbers that it has not given yet.

Messages are deleted by `data/retention.py`. The topic's name and its next offsets stay in the
journal's state, so its stored messages can be read by its name. Written to the journal: OFFSETS
batches.
"""

from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.registry import GroupTable
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.slices import Slices
from fmqbroker.serving.gate import Gate
from fmqcore.batch.offset_entry import OffsetKey, tombstone
from fmqcore.errors import FmqError
from fmqcore.ids import Permission, TopicId
from fmqport.clock import Clock

EVERY_S: Final = 3600.0
"""Interval between two checks."""
GONE_S: Final = 24 * 3600.0
"""Time for which one master must have seen a topic as gone before its progress is deleted."""
AT_ONCE: Final = 5_000
"""Maximum entries made tombstones in one check."""
_A_WRITE: Final = 500

_log = structlog.get_logger()


class TopicSweep:
    """The check for progress in deleted topics, which `run` makes each hour."""

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        view: ClusterView,
        offsets: OffsetStore,
        groups: GroupTable,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._view = view
        self._offsets = offsets
        self._groups = groups
        self._clock = clock
        self._gone_since_ms: dict[TopicId, int] = {}

    async def run(self) -> None:
        """Check every `EVERY_S` seconds until cancelled."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.check_once()

    async def check_once(self) -> int:
        """Delete progress in long-gone topics (C7); return the number of entries deleted."""
        if not self._gate.permission() & Permission.WRITE:
            self._gone_since_ms.clear()  # another master, or none, has looked meanwhile
            return 0
        try:
            topics = await self._long_gone()
            return await self._sweep(topics) if topics else 0
        except FmqError as error:
            _log.warning("deleted_topics_not_swept", reason=str(error))
            return 0

    async def _long_gone(self) -> frozenset[TopicId]:
        gone = await self._view.gone_topics(self._journal.state.offsets.topics())
        now_ms = self._clock.monotonic_ms()
        since = {topic: self._gone_since_ms.get(topic, now_ms) for topic in gone}
        self._gone_since_ms = since
        return frozenset(topic for topic in gone if now_ms - since[topic] >= GONE_S * 1000)

    async def _sweep(self, topics: frozenset[TopicId]) -> int:
        found, dropped = await self._entries(topics), list[OffsetKey]()
        for at in range(0, len(found), _A_WRITE):
            # Checked and forgotten in one turn of the loop: a session must not join in between.
            part = found[at : at + _A_WRITE]
            keys = [k for k in part if not self._is_read(k.group, k.topic_id)]
            for group, topic_id in {(key.group, key.topic_id) for key in keys}:
                self._groups.forget(group, topic_id)
            versions = self._offsets.next_versions(keys)
            await self._offsets.put({key: tombstone(v) for key, v in versions.items()})
            dropped += keys
        if dropped:
            topics_shown = sorted({key.topic_id for key in dropped})[:10]
            _log.info(
                "progress_in_deleted_topics_dropped", entries=len(dropped), topics=topics_shown
            )
        return len(dropped)

    async def _entries(self, topics: frozenset[TopicId]) -> list[OffsetKey]:
        """Return at most `AT_ONCE` entries of groups without members."""
        slices, keys = Slices(), list[OffsetKey]()
        for topic_id in sorted(topics):
            for group in self._offsets.groups_in(topic_id):
                queues = self._offsets.queues_of(group, topic_id)
                await slices.step(1 + len(queues))
                if not self._is_read(group, topic_id):
                    keys += [OffsetKey(group, topic_id, queue) for queue in queues]
                if len(keys) >= AT_ONCE:
                    return keys[:AT_ONCE]
        return keys

    def _is_read(self, group: str, topic_id: TopicId) -> bool:
        live = self._groups.get(group, topic_id)
        return live is not None and bool(live.sessions)
