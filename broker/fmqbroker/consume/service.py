"""The fetch path: permission → range lease → journal → send → ack → offsets.

Each consumer session has one stream and two tasks: one reads the consumer's messages, the other
sends everything that is pending in one message, then sleeps until the commit end, credit, acks or a
timer wake it. The sessions of a consumer group share a topic's queues (`consume/group.py`).
`delivery.py` chooses and reads deliveries; `consume/registry.py` stores progress and decides how
long groups live.

Order of effects: lease, read, send; ack in memory, store (`OffsetStore`), and only then answer a
commit token. The same code serves on the master and, in slave-consume, on the slave. No work is
done per record. Only the offset store writes to disk.

For clients: in one message `assigned` and `revoked` come before `deliveries`. A `revoked` queue
gets no more deliveries; acks and nacks of that generation still count until no such record is in
flight or `consumer_drain_ms` have passed, so nack (without delay) records not being worked on.
`assigned` for a queue that is already held means: start again under that generation. If
`seek_number` differs from the one before, the group was moved meanwhile: acks from before that seek
are void.
"""

import asyncio
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.consume.chain_reads import ChainReads
from fmqbroker.consume.delivery import Puller
from fmqbroker.consume.group import ConsumerGroup
from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.consume.pacing import Pace
from fmqbroker.consume.registry import GroupTable
from fmqbroker.consume.session import Session
from fmqbroker.consume.subscriptions import Subscriptions
from fmqbroker.consume.visible import Visible
from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.timers import Timers
from fmqbroker.runtime.wire_errors import as_error
from fmqbroker.serving.gate import Gate, stopping_refusal
from fmqcore.errors import (
    FmqError,
    InvalidArgument,
    Malformed,
    NoPermission,
    StaleAssignment,
    Unavailable,
    UnknownTopic,
)
from fmqcore.ids import GroupName, Offset
from fmqcore.names import require_name
from fmqcore.zk.group_state import Mode
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import CONSUME

_REFRESH_S: Final = 1.0
"""Time limit for asking ZooKeeper about a topic that may have just been created elsewhere."""
_LAST_WORDS_S: Final = 1.0
"""Time for the consumer to end its side after the last message before reading is stopped."""
_MAX_ID: Final = 256

_log = structlog.get_logger()


class FetchService:
    """All consumer sessions of a broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        visible: Visible,
        gate: Gate,
        cluster: ClusterView,
        offsets: OffsetStore,
        chains: ChainReads | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._journal = journal
        self._gate = gate
        self._cluster = cluster
        self._broker_group = GroupName(settings.group)
        self._draining = False
        self._timers = Timers(clock)
        self._puller = Puller(journal, visible, clock)
        self._pace = Pace()
        self.groups = GroupTable(
            settings, clock, journal, visible, gate, cluster, offsets, self._timers, chains
        )
        self._subscriptions = None if chains is None else Subscriptions(self.groups, chains, gate)

    async def run(self) -> None:
        """Run timers, wake-ups and storing until cancelled; `serve` depends on this task."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._timers.run())
            tasks.create_task(self.groups.run())
            if self._subscriptions is not None:
                tasks.create_task(self._subscriptions.run())

    async def drain(self, timeout_s: float) -> None:
        """End all sessions before an orderly stop; store their acks within `timeout_s`."""
        self._draining = True
        self.groups.drop(stopping_refusal())
        try:
            async with asyncio.timeout(timeout_s):
                await self.groups.stored()
        except (TimeoutError, FmqError) as error:
            _log.warning("stopping_with_unstored_acks", error=str(error))

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {CONSUME: self.serve}

    async def serve(self, _: CallContext, stream: Stream) -> None:
        """Serve one consumer session, from its first message to its end."""
        opening = await stream.receive()
        if opening is None:
            return
        try:
            group, session = await self._open(opening, stream)
        except FmqError as error:
            opened = client_pb2.ConsumeOpened(error=as_error(error))
            await stream.send(client_pb2.ConsumeReply(opened=opened, epoch=self._gate.epoch))
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(stream, group, session, opening))
                await self._send_replies(stream, group, session)
                await asyncio.wait((reading,), timeout=_LAST_WORDS_S)
                reading.cancel()
        except* TransportError:
            pass  # the consumer is gone; what it has not acked goes to another
        finally:
            session.gone = True
            session.finish()
            group.leave(session, self._clock.monotonic_ms())
            self.groups.changed(group)
            self.groups.idle(group)

    # ---- opening
    async def _open(
        self, opening: client_pb2.ConsumeRequest, stream: Stream
    ) -> tuple[ConsumerGroup, Session]:
        if not opening.HasField("open"):
            raise Malformed("the first message of a consume session has no `open`")
        wanted = opening.open
        if self._draining:
            raise stopping_refusal()
        self.groups.require()
        require_name("consumer group", wanted.group)
        if not 0 < len(wanted.session_id) <= _MAX_ID:
            raise InvalidArgument(f"a session id has 1 to {_MAX_ID} characters")
        if wanted.start not in client_pb2.StartAt.values():
            raise InvalidArgument(
                f"start={wanted.start} is unknown to this broker: upgrade it, or use another start"
            )
        topic = await self._topic(wanted.topic)
        begin = (wanted.group, topic, wanted.start, wanted.start_ms)
        opener = self._subscriptions if topic.ordered else None
        group = await (opener or self.groups).ensure(*begin, temporary=wanted.temporary)
        self.groups.require_known(group)
        if self._draining:  # since it was asked above
            raise stopping_refusal()
        now_ms = self._clock.monotonic_ms()
        timeout_ms = wanted.ack_timeout_ms or self._settings.consumer_ack_timeout_ms
        client = wanted.client[:_MAX_ID]
        session = Session(wanted.session_id, client, timeout_ms, now_ms, stream.cancel)
        session.accepts_omitted_batch = wanted.accepts_omitted_batch
        session.reports_delivered = wanted.reports_delivered
        session.overshoot = opening.credit_records // 4
        older = group.join(session, now_ms, wanted.held_queues)
        if older is not None:
            older.finish(StaleAssignment(f"session {session.id} has opened a newer stream"))
        self.groups.changed(group)
        self._schedule_check(session)
        return group, session

    async def _topic(self, name: str) -> TopicConfig:
        try:
            async with asyncio.timeout(_REFRESH_S):
                await self._cluster.find_topics(name)
        except (Unavailable, TimeoutError):
            _log.info("topics_not_refreshed")
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}: create it first")
        if not topic.queues_in(self._broker_group):
            raise UnknownTopic(f"topic {name} has no queue in group {self._broker_group}")
        if (reason := conflict(topic, self._journal.state.topics)) is not None:
            raise reason
        return topic

    # ---- messages from the consumer
    async def _read(
        self,
        stream: Stream,
        group: ConsumerGroup,
        session: Session,
        request: client_pb2.ConsumeRequest | None,
    ) -> None:
        """Process the consumer's messages; any end of the stream ends the session."""
        error: FmqError | None = None
        try:
            while request is not None:
                await self.groups.find_epoch_ends(group, request.acks)
                self._apply_request(group, session, request)
                request = await stream.receive()
        except TransportError:
            pass
        except FmqError as refused:
            error = refused
        session.finish(error)

    def _apply_request(
        self, group: ConsumerGroup, session: Session, request: client_pb2.ConsumeRequest
    ) -> None:
        now_ms = session.received_ms = self._clock.monotonic_ms()
        session.credit_bytes += request.credit_bytes
        session.credit_records += request.credit_records
        if request.acks or request.nacks or request.controls or request.delivered:
            self.groups.require()
        for ack in request.acks:
            first, end = Offset(ack.first_offset), Offset(ack.end_offset)
            group.ack(session, ack.queue_id, ack.generation, first, end, now_ms, ack.epoch)
        for handed in request.delivered:
            first, end = Offset(handed.first_offset), Offset(handed.end_offset)
            group.note_handed_over(session, handed.queue_id, handed.generation, first, end)
        for nack in request.nacks:
            first, end = Offset(nack.first_offset), Offset(nack.end_offset)
            delay_ms = nack.delay_ms
            place = (session, nack.queue_id, nack.generation)
            group.nack(*place, first, end, delay_ms, now_ms, unseen=nack.not_delivered)
            if delay_ms:
                self.groups.wake_at(group, now_ms + delay_ms)
        for control in request.controls:
            if control.pause or control.resume:
                paused = control.pause and not control.resume
                group.pause(session, control.queue_id, control.generation, paused)
        self._note_token(group, session, request.commit_token)
        if request.leave and not session.leaving:
            session.leaving = True
            if not request.commit_token:  # else the token covers the acks that came with it
                self._answer_when_stored(session, 0)
            group.leave(session, now_ms)
            self.groups.changed(group)
        credit = request.credit_bytes or request.credit_records
        if session.leaving or (credit and session.hungry):
            session.stir()

    def _note_token(self, group: ConsumerGroup, session: Session, token: int) -> None:
        """Answer a commit token (0: none came) once all acks before it count and are stored."""
        session.waiting_token = token or session.waiting_token
        if session.waiting_token and group.all_acks_count(session):
            self._answer_when_stored(session, session.waiting_token)
            session.waiting_token = 0
        elif token:
            self._answer_when_stored(session, 0)

    def _answer_when_stored(self, session: Session, token: int) -> None:
        """Answer the token when all acks so far are stored; 0: only a leaving session waits."""

        def stored(error: FmqError | None) -> None:
            session.open_tokens -= 1
            # A reader in slave-consume may lack the acked records: the master must store the ack.
            lacks = session.unstorable and self._gate.mode is not Mode.MASTER
            if token and error is None and not lacks:
                session.tokens.append(token)
            session.stir()  # a leaving session waits for the last of them, answered or not

        session.open_tokens += 1
        self.groups.when_stored(stored)

    # ---- messages to the consumer
    async def _send_replies(self, stream: Stream, group: ConsumerGroup, session: Session) -> None:
        """Send pending messages until the session is over and its last message is sent."""
        reply: client_pb2.ConsumeReply | None = client_pb2.ConsumeReply(
            opened=client_pb2.ConsumeOpened(
                topic_id=group.topic_id,
                queues=len(group.progress),
                heartbeat_ms=self._settings.consumer_heartbeat_ms,
            ),
            epoch=self._gate.epoch,
        )
        while True:
            if reply is not None:
                await stream.send(reply)
                session.sent_ms = self._clock.monotonic_ms()
                if reply.has_left or reply.HasField("error"):
                    session.finish()
                    return
                look = session.hungry or session.over  # there is more than fits into a message
            elif session.over:
                return
            else:
                look = False
            if not (look or session.stirred):
                await session.wake.wait()
            session.stirred = False
            reply = await self._next_reply(group, session)

    async def _next_reply(
        self, group: ConsumerGroup, session: Session
    ) -> client_pb2.ConsumeReply | None:
        """Return one message with everything that is pending, or None if nothing is."""
        reply = client_pb2.ConsumeReply(epoch=self._gate.epoch)
        something = False
        if session.hungry and not (session.over or session.leaving):
            something = await self._pull(group, session, reply)
        if session.over:
            if session.error is None:
                return None
            return client_pb2.ConsumeReply(error=as_error(session.error), epoch=self._gate.epoch)
        if something or session.has_news:
            something = True
            self._add_news(session, reply)
        if session.leaving and not session.open_tokens:
            reply.has_left = something = True
        if session.heartbeat and not something:
            reply.heartbeat = something = True
        session.heartbeat = False
        return reply if something else None

    async def _pull(
        self, group: ConsumerGroup, session: Session, reply: client_pb2.ConsumeReply
    ) -> bool:
        """Add deliveries and return whether any were added.

        READ is required both when they are leased and when they are sent.
        """
        try:
            self.groups.require()
            sent = await self._puller.pull(group, session, reply)
            self.groups.require()
        except NoPermission:
            return False  # all sessions have been asked to end
        except FmqError as error:  # the journal cannot be read there: it says where and why
            _log.error("cannot_deliver", group=group.name, topic=group.topic, error=str(error))
            session.finish(error)
            return False
        if sent:
            self._pace.sent(session, sent)
            self.groups.wake_at(group, self._clock.monotonic_ms() + session.ack_timeout_ms)
        return sent > 0

    def _add_news(self, session: Session, reply: client_pb2.ConsumeReply) -> None:
        revoked, assigned = session.take_moves()
        for move in revoked:
            reply.revoked.add(queue_id=move.queue_id, generation=move.generation)
        for move, begins_at, seek_number in assigned:
            reply.assigned.add(
                queue_id=move.queue_id,
                generation=move.generation,
                next_offset=begins_at,
                seek_number=seek_number,
            )
        for queue, generation in sorted(session.ignored):
            reply.stale_assignments.add(queue_id=queue, generation=generation)
        for queue, (first, end) in session.skipped:
            reply.skipped.add(queue_id=queue, first_offset=first, end_offset=end)
        reply.committed_tokens.extend(session.tokens)
        session.tokens, session.skipped = [], []
        session.ignored.clear()

    # ---- time
    def _schedule_check(self, session: Session) -> None:
        settings = self._settings
        dead_ms = session.received_ms + settings.consumer_dead_after_ms
        now_ms = self._clock.monotonic_ms()
        # A heartbeat that is due but cannot be sent (the consumer does not read) is not repeated.
        beat_ms = settings.consumer_heartbeat_ms
        beat_ms += now_ms if session.heartbeat else session.sent_ms
        due_ms = max(min(beat_ms, dead_ms), now_ms + 1)
        self._timers.at(due_ms, lambda: self._check_liveness(session))

    def _check_liveness(self, session: Session) -> None:
        """Send a due heartbeat, end a dead consumer's stream, or notice an expired lease."""
        now_ms = self._clock.monotonic_ms()
        try:
            if not session.over:
                self.groups.require()
        except NoPermission:
            over = True  # this session like all others: an expired lease sends no signal
        else:
            over = session.over
        if over:
            # A consumer that ignores its last message keeps its queues no longer than a silent one.
            if not session.gone:
                last_ms = now_ms + self._settings.consumer_dead_after_ms
                self._timers.at(last_ms, session.tear_if_there)
            return
        silent_ms = now_ms - session.received_ms
        if silent_ms >= self._settings.consumer_dead_after_ms:
            _log.info("consumer_silent", session=session.id, silent_ms=silent_ms)
            session.tear()
            return
        if now_ms - session.sent_ms >= self._settings.consumer_heartbeat_ms:
            session.heartbeat = True
            session.stir()
        self._schedule_check(session)
