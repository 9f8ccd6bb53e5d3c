"""A consumer group on one topic, in memory: its sessions, who holds which queue, what is under way.

No I/O and no waiting in here: `consume/service.py` drives it, `consume/registry.py` stores what it
marks as dirty. Lost with the broker or its READ permission; what is stored (`OffsetStore`) begins
it again.
"""

from collections.abc import Callable, Iterable, Mapping

from fmqbroker.runtime.notifier import Signal
from fmqcore.batch.offset_entry import OffsetKey, QueueKey
from fmqcore.consume.assignment import Assignments, Move, Moves
from fmqcore.consume.in_flight import QueueProgress
from fmqcore.consume.ranges import Range
from fmqcore.errors import FmqError, UnknownQueue
from fmqcore.ids import Epoch, Offset, TopicId


class Session:
    """One consumer's stream: what it may get, and what it must be told."""

    def __init__(
        self, id: str, client: str, ack_timeout_ms: int, now_ms: int, tear: Callable[[], None]
    ) -> None:
        self.id = id
        self.tear = tear  # ends its stream at once, whatever is under way
        self.client = client
        self.ack_timeout_ms = ack_timeout_ms
        self.credit_bytes = 0
        self.hand_overs = False  # it reports what its program got, and gives credit by count
        self.credit_records = 0
        self.overshoot = 0  # records beyond that credit, rather than split a batch
        self.leases = 0
        self.ready: dict[int, None] = {}  # queues that may have something for it, in turn
        self.resting = (
            False  # it was just sent a little: more leaves in a moment (`consume/pacing.py`)
        )
        # By queue: where it begins, since which seek.
        self.assigned: dict[int, tuple[Move, Offset, int]] = {}
        self.revoked: list[Move] = []
        self._told: dict[int, int] = {}  # the queues that it takes for its own -> generation
        self.ignored: set[tuple[int, int]] = set()  # (queue, generation) of acks that came too late
        self.tokens: list[int] = []  # to be answered: stored
        self.skipped: list[tuple[int, Range]] = []  # (queue, range): deleted before it was acked
        self.batch_once = False  # it knows deliveries without a batch
        self.open_tokens = 0  # asked and not answered
        self.unstorable = False  # it acked what is not here
        self.uncounted = False  # an ack of it was not taken: none of its tokens is answered
        self.heartbeat = False
        self.leaving = False
        self.over = False  # but for its last words
        self.gone = False
        self.error: FmqError | None = None  # told before the stream ends
        self.sent_ms = now_ms
        self.received_ms = now_ms
        self.working_ms = now_ms  # it acked or nacked something
        self.wake = Signal()
        self.stirred = False  # something changed since its deliverer last looked

    def tear_if_there(self) -> None:
        """End its stream, if that has not ended by itself."""
        if not self.gone:
            self.tear()

    @property
    def has_news(self) -> bool:
        """There is something to tell it, beside deliveries."""
        news = (self.assigned, self.revoked, self.ignored, self.skipped, self.tokens)
        return any(news)

    @property
    def hungry(self) -> bool:
        """Whether something may leave for it now."""
        credit = self.credit_bytes > 0 and (self.credit_records > 0 or not self.hand_overs)
        return bool(self.ready) and credit and not self.resting

    def stir(self) -> None:
        """Its deliverer shall look again."""
        self.stirred = True
        self.wake.notify()

    def forget_assigned(self, queue: int) -> None:
        """If it was not told yet that the queue is its own (anew), it need not hear of that."""
        self.assigned.pop(queue, None)

    def revoke(self, move: Move) -> None:
        """It loses a queue; it is told if it takes it for its own, by the generation it knows."""
        self.ready.pop(move.queue_id, None)
        self.forget_assigned(move.queue_id)
        generation = self._told.pop(move.queue_id, None)
        if generation is not None:
            self.revoked.append(move._replace(generation=generation))
            self.stir()

    def take_moves(self) -> tuple[list[Move], list[tuple[Move, Offset, int]]]:
        """What to tell it now: queues that it lost, and then what is its own (anew)."""
        revoked, assigned = self.revoked, list(self.assigned.values())
        self.revoked, self.assigned = [], {}
        self._told.update((move.queue_id, move.generation) for move, *_ in assigned)
        return revoked, assigned

    def finish(self, error: FmqError | None = None) -> None:
        """It ends; `error` is told to it first."""
        if not self.over:
            self.over, self.error = True, error
            self.stir()


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
        self._assignments = Assignments(len(progress), drain_ms)
        self.before: int | None = None  # see `grow`
        self._paused: set[int] = set()
        # One past the newest offset in the journal. Not: that may be read. A master that comes back
        # commits nothing before its slaves do, and what is said again was delivered before.
        self._appended = appended
        # Of what is in the journal. A slave that serves reads gets more of it while it does: where
        # it ends is not known before a later one has begun.
        self._newest = newest
        self.epoch_ends: dict[tuple[int, int], Offset] = {}  # over: (queue, epoch) → its end
        self.beginning = False  # it is not known to be stored where it begins
        self.timer_ms: int | None = None  # when `consume/registry.py` will call `on_time`
        self.timers: set[int] = set()  # all moments at which it will
        self.idle_since_ms = 0  # its last session went then

    def mark(self, queue: int) -> None:
        """Its progress has changed: it is to be stored."""
        self.dirty[queue] = None
        self.on_dirty(self)

    def key(self, queue: int) -> OffsetKey:
        """Under which the queue's progress is stored."""
        return OffsetKey(self.name, self.topic_id, queue)

    def holder(self, queue: int) -> Session | None:
        """Who holds it now (it may be draining)."""
        return self.sessions.get(self._assignments.holdings[queue].session)

    def delivering(self, session: Session, queue: int) -> int:
        """The generation under which the session may get more of the queue; 0 if it may not."""
        holding = self._assignments.holdings[queue]
        if not holding.delivering or self.sessions.get(holding.session) is not session:
            return 0
        return 0 if queue in self._paused else holding.generation

    def must_learn(self, queue: int, epoch: int) -> bool:
        """Whether it must be told where a queue's messages of an epoch end that is over."""
        over = 0 < epoch < self._newest() and 0 <= queue < len(self.progress)
        return over and (queue, epoch) not in self.epoch_ends

    # ---- sessions
    def join(self, session: Session, now_ms: int, held: Iterable[int] = ()) -> Session | None:
        """Take a session in; return an older stream of the same session, which is then void.

        `held`: the queues it had before it lost its last reader.
        """
        older = self.sessions.get(session.id)
        self.sessions[session.id] = session
        if older is not None:
            self._apply(self._assignments.renew(session.id))
        else:
            self._apply(self._assignments.join(session.id, self._busy(), now_ms, held))
        return older

    def leave(self, session: Session, now_ms: int) -> None:
        """Give its queues to others at once; what it had in flight is due again at once."""
        if self.sessions.get(session.id) is session:
            if not session.leaving:
                self._count_last(session)
            del self.sessions[session.id]
            self._apply(self._assignments.leave(session.id, self._busy(), now_ms))

    def _count_last(self, session: Session) -> None:
        """It ended without a farewell, perhaps by a message that its program got and never acked.

        What its program works on is reported soon, but not at once. If nothing is, the next message
        in its line counts: else one that kills every program would always count as the first time.
        """
        held = [(q, self.progress[q]) for q in range(len(self.progress))]
        held = [(q, p) for q, p in held if p.in_flight_records and self.holder(q) is session]
        if not session.hand_overs or any(p.has_seen for _, p in held):
            return
        firsts = [(*first, p) for _, p in held if (first := p.first_unseen()) is not None]
        if firsts:
            _, offset, progress = min(firsts, key=lambda found: found[0])
            progress.handed(offset, Offset(offset + 1))

    def grow(self, more: Iterable[QueueProgress], now_ms: int, before: int | None = None) -> None:
        """The topic has more queues now, here or in the broker groups `before` (see `assign`)."""
        self.progress.extend(more)
        self.before = before
        self._apply(self._assignments.grow(len(self.progress), self._busy(), now_ms, before))

    # ---- what a session says; of an older generation it is ignored
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
        """Done with a range, whoever had delivered it.

        `epoch`: of the batches that the range is of; 0 is not known. What is stored at its offsets
        may be other messages, of a later epoch: those acked were lost then.
        """
        if not self._current(session, queue, generation):
            # Also to who holds it again: it may lose it before it is told of that. Acks that a
            # seek made void are of no generation that it knows then.
            session.ignored.add((queue, generation))
            return
        appended = self._appended(self.topic_id, queue)
        if end > appended:
            session.unstorable = True  # said again to a reader that has less than the one before
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
            self._eased(queue, now_ms)
        elif progress.is_full:
            session.uncounted = True
        if end > progress.next:
            session.unstorable = True  # more of it is set aside than may be

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
        """Not done: again after the delay."""
        if not self._current(session, queue, generation):
            return
        progress = self._touch(session, queue, first, end, now_ms)
        if progress.nack(first, end, now_ms + delay_ms, now_ms, unseen=unseen):
            self._came_back(queue, now_ms)

    def handed(
        self, session: Session, queue: int, generation: int, first: Offset, end: Offset
    ) -> None:
        """Its program got a range."""
        if self._current(session, queue, generation):
            self.progress[queue].handed(first, end)

    def pause(self, session: Session, queue: int, generation: int, paused: bool) -> None:
        """Deliver nothing of a queue for a while, or go on."""
        if not self._current(session, queue, generation):
            return
        if paused:
            self._paused.add(queue)
        else:
            self._paused.discard(queue)
            self.offer(queue)

    def give_back(
        self, queue: int, generation: int, first: Offset, end: Offset, now_ms: int
    ) -> None:
        """It was leased for its holder but could not be sent."""
        if self._assignments.holdings[queue].generation == generation:
            self.progress[queue].unlease(first, end)
            self._came_back(queue, now_ms)

    # ---- what happens
    def on_time(self, now_ms: int) -> None:
        """Deadlines, delays and drains that are over."""
        for queue, progress in enumerate(self.progress):
            holder = self.holder(queue)
            alive_until_ms = holder.working_ms + holder.ack_timeout_ms if holder else 0
            if progress.expire(now_ms, alive_until_ms):
                self.offer(queue)
        self._apply(self._assignments.settle(self._busy(), now_ms))

    def next_due_ms(self) -> int | None:
        """When `on_time` has something to do, at the latest."""
        moments = [p.wake_ms() for p in self.progress]
        moments.append(self._assignments.next_deadline_ms())
        return min((m for m in moments if m is not None), default=None)

    def seek(self, queue: int, offset: Offset, now_ms: int, version: int = 0) -> None:
        """Begin again at `offset` in one queue; see `seek_all`."""
        self.seek_all({queue: offset}, now_ms, {queue: version})

    def seek_all(
        self, targets: Mapping[int, Offset], now_ms: int, versions: Mapping[int, int]
    ) -> None:
        """Begin again there, by queue; live sessions go on from there under new generations.

        `versions`: of a change of each queue's progress made now (`OffsetStore.next_version`).
        """
        bumped = Moves([], [], [])
        for queue, offset in targets.items():
            self.progress[queue].seek(offset, versions[queue])
            self.mark(queue)
            if move := self._assignments.bump(queue):
                bumped.assigned.append(move)
        self._apply(bumped)
        self._apply(self._assignments.settle(self._busy(), now_ms))

    def offer(self, queue: int) -> None:
        """There may be something to deliver."""
        self.starved.pop(queue, None)
        holder = self.holder(queue)
        if holder is not None and self.delivering(holder, queue):
            holder.ready[queue] = None
            if not holder.resting:
                holder.stir()

    # ---- inside
    def _eased(self, queue: int, now_ms: int) -> None:
        """Fewer in flight: room in the window, or a drain that is complete."""
        holding = self._assignments.holdings[queue]
        if holding.delivering:
            if queue not in self.starved:
                self.offer(queue)
        elif not self.progress[queue].in_flight_records:
            self._apply(self._assignments.settle(self._busy(), now_ms))

    def _touch(
        self, session: Session, queue: int, first: Offset, end: Offset, now_ms: int
    ) -> QueueProgress:
        session.working_ms = now_ms
        progress = self.progress[queue]
        progress.touch(first, end, now_ms + session.ack_timeout_ms)
        return progress

    def _came_back(self, queue: int, now_ms: int) -> None:
        self.starved.pop(queue, None)  # it may be due now
        self._eased(queue, now_ms)

    def _current(self, session: Session, queue: int, generation: int) -> bool:
        if not 0 <= queue < len(self.progress):
            raise UnknownQueue(
                f"topic {self.topic} has queues 0 to {len(self.progress) - 1} here, not {queue}"
            )
        holding = self._assignments.holdings[queue]
        return holding.generation == generation and self.sessions.get(holding.session) is session

    def _busy(self) -> set[int]:
        return {q for q, p in enumerate(self.progress) if p.in_flight_records}

    def _apply(self, moves: Moves) -> None:
        for move in moves.revoked:
            self.sessions[move.session].revoke(move)
        for move in moves.released:
            self.progress[move.queue_id].session_gone()
            self._paused.discard(move.queue_id)
        for move in moves.assigned:
            session = self.sessions[move.session]
            session.forget_assigned(move.queue_id)
            progress = self.progress[move.queue_id]
            session.assigned[move.queue_id] = (move, progress.floor, progress.sought)
            self.offer(move.queue_id)
            session.stir()
