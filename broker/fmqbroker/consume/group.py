"""A consumer group on one topic, in memory: sessions, queue holders, records in flight.

No I/O and no waiting: `consume/service.py` drives the group, `consume/registry.py` stores what it
marks as dirty. A group is lost with the broker or its READ permission, and created again from
stored progress (`OffsetStore`).
"""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from fmqbroker.consume.session import Session
from fmqcore.batch.offset_entry import OffsetKey, QueueKey
from fmqcore.consume.assignment import Assignments, Moves
from fmqcore.consume.in_flight import NEVER, QueueProgress
from fmqcore.errors import UnknownQueue
from fmqcore.ids import Epoch, Offset, TopicId

if TYPE_CHECKING:
    from fmqbroker.consume.chain_reads import ChainWindows


class ConsumerGroup:
    """Progress and sessions of one consumer group on one topic."""

    def __init__(
        self,
        name: str,
        topic: str,
        topic_id: TopicId,
        progress: list[QueueProgress],
        drain_ms: int,
        appended: Callable[[TopicId, int], Offset],
        newest: Callable[[], Epoch],
    ) -> None:
        self.name = name
        self.topic = topic
        self.topic_id = topic_id
        self.progress = progress
        self.sessions: dict[str, Session] = {}
        # All that is committed has been delivered: queue -> (its key, the offset it waits for).
        self.starved: dict[int, tuple[QueueKey, Offset]] = {}
        self.dirty: dict[int, None] = {}  # changed since it was last stored: see `mark`
        self.on_dirty: Callable[[ConsumerGroup], None] = lambda _: None
        self.windows: ChainWindows | None = None  # of an ordered topic: what may be delivered
        self._assignments = Assignments(len(progress), drain_ms)
        self.before: int | None = None  # see `grow`
        self._paused: set[int] = set()
        # One past the newest offset in the journal, readable or not. A master that comes back
        # commits nothing before its slaves do, and repeated acks are of records delivered before.
        self._appended = appended
        # Newest epoch in the journal. A slave that serves reads still receives its batches, so
        # its end is not known before a later epoch has started.
        self._newest = newest
        self.epoch_ends: dict[tuple[int, int], Offset] = {}  # over: (queue, epoch) → its end
        self.beginning = False  # it is not known to be stored where it begins
        self.timer_ms: int | None = None  # when `consume/registry.py` will call `on_timer`
        self.timers: set[int] = set()  # all moments at which it will
        self.idle_since_ms = 0  # its last session went then
        self.over = False  # dropped: its progress does not change any more

    def mark(self, queue: int) -> None:
        """Mark the queue's progress as changed, so that it is stored."""
        self.dirty[queue] = None
        self.on_dirty(self)

    def key(self, queue: int) -> OffsetKey:
        """Return the key under which the queue's progress is stored."""
        return OffsetKey(self.name, self.topic_id, queue)

    def holder(self, queue: int) -> Session | None:
        """Return the session that holds the queue now (it may be draining)."""
        return self.sessions.get(self._assignments.holdings[queue].session)

    def delivering(self, session: Session, queue: int) -> int:
        """Return the generation under which the session may get more of the queue, or 0."""
        holding = self._assignments.holdings[queue]
        if not holding.delivering or self.sessions.get(holding.session) is not session:
            return 0
        return 0 if queue in self._paused else holding.generation

    def lacks_epoch_end(self, queue: int, epoch: int) -> bool:
        """Return whether the end of a past epoch in the queue still has to be looked up."""
        over = 0 < epoch < self._newest() and 0 <= queue < len(self.progress)
        return over and (queue, epoch) not in self.epoch_ends

    # ---- sessions
    def join(self, session: Session, now_ms: int, held: Iterable[int] = ()) -> Session | None:
        """Add a session; return the earlier stream with its id, which no longer counts; else None.

        `held`: the queues that the session had before it lost its last reader.
        """
        older = self.sessions.get(session.id)
        self.sessions[session.id] = session
        if older is not None:
            self._apply(self._assignments.renew(session.id), now_ms)
            self._apply(self._assignments.settle(self._queues_in_flight(), now_ms), now_ms)
        else:
            self._apply(
                self._assignments.join(session.id, self._queues_in_flight(), now_ms, held), now_ms
            )
        return older

    def leave(self, session: Session, now_ms: int) -> None:
        """Give the session's queues to others; what it had in flight is due again at once."""
        if self.sessions.get(session.id) is session:
            if not session.leaving:
                self._count_last(session)
            del self.sessions[session.id]
            self._apply(
                self._assignments.leave(session.id, self._queues_in_flight(), now_ms), now_ms
            )

    def _count_last(self, session: Session) -> None:
        """Count a delivery for a session that ended without leaving, perhaps due to a message.

        Clients report soon, but not at once, what their program got. If nothing was reported, the
        next message in line counts: else one that kills every program never counts as redelivered.
        """
        if not session.reports_delivered:
            return
        pairs = zip(self.progress, self._assignments.holdings, strict=True)
        held = [p for p, h in pairs if h.session == session.id and p.in_flight_records]
        if any(p.has_seen for p in held):
            return
        firsts = [(*first, p) for p in held if (first := p.first_unseen()) is not None]
        if firsts:
            _, offset, progress = min(firsts, key=itemgetter(0))
            progress.note_handed_over(offset, Offset(offset + 1))

    def grow(self, more: Iterable[QueueProgress], now_ms: int, before: int | None = None) -> None:
        """Add queues that the topic has now, here or in the broker groups `before` (`assign`)."""
        self.progress.extend(more)
        self.before = before
        moves = self._assignments.grow(len(self.progress), self._queues_in_flight(), now_ms, before)
        self._apply(moves, now_ms)

    # ---- requests of a session; those of an older generation are ignored
    def ack(
        self,
        session: Session,
        queue: int,
        generation: int,
        first: Offset,
        end: Offset,
        now_ms: int,
        epoch: int = 0,
    ) -> None:
        """Mark a range as finished, whichever broker delivered it.

        `epoch`: the epoch of the range's batches; 0 = not known. Other messages, of a later epoch,
        may be stored at these offsets: the acked ones were lost then.
        """
        if not self._is_current(session, queue, generation):
            # Also for a session that holds the queue again: it may lose the queue before that is
            # reported to it. Acks that a seek made void are of no generation that it knows then.
            session.ignored.add((queue, generation))
            return
        appended = self._appended(self.topic_id, queue)
        if end > appended:
            session.unstorable = True  # an ack for a reader that had more than this broker
        newest = self._newest()
        if epoch > newest:
            session.unstorable = True  # nothing of that epoch is here
            return
        if 0 < epoch < newest:
            end = min(end, self.epoch_ends.get((queue, epoch), first))
        if first >= end:
            return
        progress = self._touch(session, queue, first, end, now_ms)
        if progress.ack(first, end, appended):
            self.mark(queue)
            self._offer_room(queue, now_ms)
        elif progress.is_full and not progress.has_done(first, end):
            session.refuse(queue, generation, first, min(end, appended))
        if end > progress.next:
            session.unstorable = True  # the range is not delivered here yet, and cannot be stored

    def all_acks_count(self, session: Session) -> bool:
        """Return whether each ack of the session counts, or is reported to it as too late.

        An ack for which there was no room counts once the member has repeated it: its records are
        delivered again.
        """
        for place, refused in list(session.uncounted.items()):
            queue, generation = place
            if not self._is_current(session, queue, generation):
                session.ignored.add(place)
                del session.uncounted[place]
            elif all(self.progress[queue].has_done(*acked) for acked in refused):
                del session.uncounted[place]
        return not session.uncounted

    def nack(
        self,
        session: Session,
        queue: int,
        generation: int,
        first: Offset,
        end: Offset,
        delay_ms: int,
        now_ms: int,
        *,
        unseen: bool = False,
    ) -> None:
        """Mark a range as not finished: deliver it again after `delay_ms`."""
        if not self._is_current(session, queue, generation):
            return
        progress = self._touch(session, queue, first, end, now_ms)
        if progress.nack(first, end, now_ms + delay_ms, now_ms, unseen=unseen):
            self._offer_returned(queue, now_ms)

    def note_handed_over(
        self, session: Session, queue: int, generation: int, first: Offset, end: Offset
    ) -> None:
        """Note that the session's program got a range."""
        if self._is_current(session, queue, generation):
            self.progress[queue].note_handed_over(first, end)

    def pause(self, session: Session, queue: int, generation: int, paused: bool) -> None:
        """Pause or resume the deliveries of a queue."""
        if not self._is_current(session, queue, generation):
            return
        if paused:
            self._paused.add(queue)
        else:
            self._paused.discard(queue)
            self.offer(queue)

    def give_back(
        self, queue: int, generation: int, first: Offset, end: Offset, now_ms: int
    ) -> None:
        """Take back a range that was leased for the queue's holder but could not be sent."""
        if self._assignments.holdings[queue].generation == generation:
            self.progress[queue].unlease(first, end, now_ms)
            self._offer_returned(queue, now_ms)

    # ---- events
    def on_timer(self, now_ms: int) -> None:
        """Process the deadlines, delays and drains that are over."""
        for queue, progress in enumerate(self.progress):
            holder = self.holder(queue)
            alive_until_ms = holder.working_ms + holder.ack_timeout_ms if holder else 0
            if progress.expire(now_ms, alive_until_ms):
                self._store_removed(queue)
                self.offer(queue)
        self._apply(self._assignments.settle(self._queues_in_flight(), now_ms), now_ms)

    def next_due_ms(self) -> int | None:
        """Return when `on_timer` must be called at the latest, or None."""
        moments = [ms for p in self.progress if (ms := p.wake_ms) != NEVER]
        if (drained_ms := self._assignments.next_deadline_ms()) is not None:
            moments.append(drained_ms)
        return min(moments, default=None)

    def seek(self, queue: int, offset: Offset, now_ms: int, version: int = 0) -> None:
        """Start again at `offset` in one queue; see `seek_all`."""
        self.seek_all({queue: offset}, now_ms, {queue: version})

    def seek_all(
        self, targets: Mapping[int, Offset], now_ms: int, versions: Mapping[int, int]
    ) -> None:
        """Start again at `targets`, by queue; live sessions go on under new generations.

        `versions`: the version of this change for each queue (`OffsetStore.next_version`).
        """
        bumped = Moves([], [], [])
        for queue, offset in targets.items():
            self.progress[queue].seek(offset, versions[queue])
            self.mark(queue)
            if move := self._assignments.bump(queue):
                bumped.assigned.append(move)
        self._apply(bumped, now_ms)
        self._apply(self._assignments.settle(self._queues_in_flight(), now_ms), now_ms)

    def offer(self, queue: int) -> None:
        """Offer a queue to its holder: there may be something to deliver."""
        self.starved.pop(queue, None)
        holder = self.holder(queue)
        if holder is not None and self.delivering(holder, queue):
            holder.ready[queue] = None
            if not holder.resting:
                holder.stir()

    # ---- inside
    def _offer_room(self, queue: int, now_ms: int) -> None:
        """Offer the queue, or end its drain: fewer records are in flight."""
        holding = self._assignments.holdings[queue]
        if holding.delivering:
            if queue not in self.starved:
                self.offer(queue)
        elif not self.progress[queue].in_flight_records:
            self._apply(self._assignments.settle(self._queues_in_flight(), now_ms), now_ms)

    def _touch(
        self, session: Session, queue: int, first: Offset, end: Offset, now_ms: int
    ) -> QueueProgress:
        session.working_ms = now_ms
        progress = self.progress[queue]
        progress.touch(first, end, now_ms + session.ack_timeout_ms)
        return progress

    def _store_removed(self, queue: int) -> None:
        """Mark the progress as changed if the delivery policy dropped records."""
        if self.progress[queue].take_removed():
            self.mark(queue)

    def _offer_returned(self, queue: int, now_ms: int) -> None:
        """Offer a queue again: records are to be delivered once more."""
        self._store_removed(queue)
        self.starved.pop(queue, None)  # it may be due now
        self._offer_room(queue, now_ms)

    def _is_current(self, session: Session, queue: int, generation: int) -> bool:
        if not 0 <= queue < len(self.progress):
            raise UnknownQueue(
                f"queue {queue} does not exist: topic {self.topic} has queues 0 to "
                f"{len(self.progress) - 1} in this broker's group"
            )
        holding = self._assignments.holdings[queue]
        holds = self.sessions.get(holding.session) is session
        return holds and holding.generation == generation and not self.over

    def _queues_in_flight(self) -> set[int]:
        return {q for q, p in enumerate(self.progress) if p.in_flight_records}

    def _apply(self, moves: Moves, now_ms: int) -> None:
        for move in moves.revoked:
            self.sessions[move.session].revoke(move)
        for move in moves.released:
            self.progress[move.queue_id].session_gone(now_ms)
            self._store_removed(move.queue_id)
            self._paused.discard(move.queue_id)
        for move in moves.assigned:
            session = self.sessions[move.session]
            session.assigned.pop(move.queue_id, None)  # to the end of the line
            progress = self.progress[move.queue_id]
            session.assigned[move.queue_id] = (move, progress.floor, progress.seek_number)
            self.starved.pop(move.queue_id, None)
            if move.queue_id not in self._paused:  # `offer` to the session that just got it
                session.ready[move.queue_id] = None
        for name in {move.session: None for move in moves.assigned}:
            self.sessions[name].stir()
