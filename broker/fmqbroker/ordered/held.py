"""What this broker's group holds of an ordered topic: the ends per queue.

The ends that all members hold follow from `member_ends` and the journal's index. For a member that
fell far behind, the index has to be read from disk: the first question starts that, and a later one
gets the answer.
"""

from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.ordered.member_ends import Links, MemberEnds
from fmqbroker.ordered.term import Term
from fmqbroker.replication.view import LinkView
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, Offset, Permission, Position, TopicId
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.group_views import why_avoided
from fmqcore.zk.chain import Chain, PerQueue
from fmqcore.zk.group_state import Mode

_log = structlog.get_logger()

_MAX_FAR: Final = 1024
"""Most topics whose ends at an old position are kept."""


class Holdings:
    """The ends of queues: on all members, and on this broker."""

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        term: Term,
        ends: MemberEnds,
        group: GroupStore,
        links: Links,
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._term = term
        self._ends = ends
        self._group = group
        self._links = links
        self._far: dict[TopicId, tuple[Position, PerQueue]] = {}
        self._asked: dict[TopicId, tuple[Position, int]] = {}
        self._asked_more = Signal()
        self._complaints: dict[TopicId, str] = {}  # why a read failed, as last logged

    @property
    def known(self) -> Signal:
        """Fires when `held` may be known where it was not."""
        return self._ends.known

    def held(self, topic: Chain) -> PerQueue | None:
        """Return the ends that every configured member is known to hold, durably.

        None: not known, or not yet. `known` fires when it may be.
        """
        end = self._ends.all_end()
        if end is None:
            return None
        if end >= self._journal.index_start:
            return self._at(topic, end)
        known = self._far.get(topic.topic_id)
        if known is not None and known[0] == end:
            return known[1]
        self._asked[topic.topic_id] = end, topic.queues
        self._asked_more.notify()
        return None

    def held_end(self, topic_id: TopicId, queue: int) -> Offset | None:
        """Return the end of one queue as `held` does; None also if a member is far behind."""
        end = self._ends.all_end()
        if end is None or end < self._journal.index_start:
            return None
        return self._journal.committed_offset(topic_id, queue, end)

    def durable_ends(self, topic: Chain) -> PerQueue:
        """Return the ends of this broker's own journal, as far as it is fsynced.

        A takeover reader's: every record that was acknowledged is below, because an ack needs all
        members' disks.
        """
        return self._at(topic, self._journal.durable_end)

    def is_full(self) -> bool:
        """Return whether this broker's journal takes no records for want of room."""
        return bool(self._journal.full)

    def own_view(self, topic: Chain) -> GroupView:
        """Return the group as this broker sees it; it must be the master to be asked.

        Its `ends` hold for a chain that was read before, and only until a record is appended.
        """
        config, gate, journal = self._group.config, self._gate, self._journal
        missing = tuple(m.id for m in config.slaves if not self._in_sync(m.id))
        held = self.held(topic)
        here = tuple(journal.next_offset(topic.topic_id, q) for q in range(topic.queues))
        return GroupView(
            reachable=True,
            takes_writes=bool(self._term.held and gate.permission() & Permission.WRITE),
            read_only=gate.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER),
            members=len(config.members),
            missing=missing,
            ends=held if held == here else None,
            full=self.is_full(),
            avoid=why_avoided(config),
        )

    async def run(self) -> None:
        """Read the ends at old positions from disk, until cancelled.

        A read that fails leaves its topic's ends unknown until `held` is asked for them again.
        """
        while True:
            while self._asked:
                topic_id, (end, queues) = self._asked.popitem()
                try:
                    await self._read(topic_id, end, queues)
                except FmqError as error:  # of one segment, or one that was just removed
                    self._complain(topic_id, str(error))
            await self._asked_more.wait()

    async def _read(self, topic_id: TopicId, end: Position, queues: int) -> None:
        found = [await self._journal.offset_at(topic_id, queue, end) for queue in range(queues)]
        self._complaints.pop(topic_id, None)
        self._far.pop(topic_id, None)
        self._far[topic_id] = end, tuple(found)
        if len(self._far) > _MAX_FAR:
            del self._far[next(iter(self._far))]
        self.known.notify()

    def _complain(self, topic_id: TopicId, reason: str) -> None:
        if self._complaints.get(topic_id) != reason:
            self._complaints[topic_id] = reason
            _log.error("ordered_ends_unknown", topic_id=topic_id, reason=reason)

    def _in_sync(self, slave: BrokerId) -> bool:
        link = self._links.links.get(slave, LinkView())
        return link.connected and slave in self._group.state.value.isr

    def _at(self, topic: Chain, end: Position) -> PerQueue:
        at = self._journal.committed_offset
        return tuple(at(topic.topic_id, queue, end) for queue in range(topic.queues))
