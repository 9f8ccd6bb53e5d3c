"""The produce path: stream → permission → dedup → append → commit end → ack.

Each stream has one `ProduceSession` with two tasks: one reads messages and appends their batches,
in memory and at once; the other waits until appended batches have reached their ack level and sends
all due acks in one message. The journal fsyncs and `replication/master.py` replicates in between;
no task here waits for either batch by batch.

Order of effects: append, then (elsewhere, in parallel) fsync and replicate, then acknowledge.
`produce/pending_acks.py` decides when an ack may be OK.

Batches that arrive late, over a connection that was given up, are not stored after newer ones: a
session ends when its producer opens a later one (P7), and with its term (P8).

A producer sends a batch of unknown outcome only to its own group again. So a master that takes no
messages (its group is drained or removed, its disk is full, replicas are missing) still answers
these repeats: with their offset, or as never appended (P9, `_settle`, ADR 0060).

Deduplication is in `fmqcore.journal.state`. No work is done per record, and a batch's content is
never parsed. Appended to the journal: DATA, and a topic's CONFIG.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Appended, BatchDraft, Journal
from fmqbroker.journal.state_limits import StateLimits
from fmqbroker.produce.intake import Intake
from fmqbroker.produce.ordered_session import OrderedSessions
from fmqbroker.produce.pending_acks import FSYNCED, AckQueue, Waiting
from fmqbroker.produce.producer_sessions import Sessions
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate
from fmqcore import errors
from fmqcore.batch.control import encode_topic
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import KNOWN_ATTRS, MAX_PRODUCER_EPOCH, Attrs, BatchType
from fmqcore.errors import FmqError
from fmqcore.ids import GroupName, Permission, Position, TopicId
from fmqcore.journal.state import ProducedBatch
from fmqcore.ordered.copies import keep_copy
from fmqcore.properties import NONE
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

_log = structlog.get_logger()

_ONE_WAY: Final = int(client_pb2.ONE_WAY)
_BY_POLICY: Final = (int(client_pb2.REPLICATED), int(client_pb2.ALL))
_LEVELS: Final = frozenset(client_pb2.AckLevel.values())

_REFRESH_S: Final = 1.0
"""Time limit for asking ZooKeeper about a topic that may have just been created elsewhere."""
_FULL_CHECK_S: Final = 0.25


class ProduceService:
    """State that all produce sessions of a broker share."""

    def __init__(
        self,
        journal: Journal,
        commit: CommitFrontier,
        gate: Gate,
        view: ClusterView,
        settings: BrokerSettings,
        clock: Clock,
        ordered: OrderedSessions | None = None,
    ) -> None:
        self.journal = journal
        self.commit = commit
        self.gate = gate
        self.view = view
        self.settings = settings
        self.clock = clock
        self.waiting_bytes = 0  # of all sessions: appended, not yet acknowledged
        self.released = Signal()  # `waiting_bytes` fell
        self.intake = Intake(gate, commit, journal)
        self._group = GroupName(settings.group)
        self._ordered = ordered
        self.sessions = Sessions()
        self.limits = StateLimits(settings, journal)
        self._queues: dict[int, tuple[TopicConfig, int]] = {}  # whose CONFIG is in the journal
        self._queues_of_epoch = journal.epoch  # a journal is only ever cut between two epochs

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {PRODUCE: self.serve}

    async def serve(self, _: CallContext, stream: Stream) -> None:
        """Serve one producer session; raise `FmqError` if it breaks the protocol."""
        opening = await stream.receive()
        if opening is None:
            return
        if not opening.HasField("open"):
            raise errors.Malformed("the first message of a produce session has no `open`")
        if opening.open.HasField("sender"):
            await self._serve_sender(stream, opening)
            return
        session = ProduceSession(self, stream, opening)
        broken: FmqError | None = None
        try:
            self.sessions.opened(session)
            if not await self._open(stream, opening.open):
                return
            async with asyncio.TaskGroup() as tasks:
                session.start(tasks)
        except* TransportError:
            pass  # the producer is gone; what it sent is in the journal all the same
        except* FmqError as raised:  # it broke the protocol, or the term is over
            broken = next(e for e in raised.exceptions if isinstance(e, FmqError))
        finally:
            session.forget()
            self.sessions.closed(session)
        if broken is not None:
            raise broken

    async def drain(self, timeout_s: float) -> None:
        """Refuse new batches, and wait up to `timeout_s` for acks of pending ones."""
        self.intake.stopping = True
        try:
            async with asyncio.timeout(timeout_s):
                while self.waiting_bytes:
                    await self.released.wait()
        except TimeoutError:
            _log.warning("stopping_with_unacknowledged_batches", bytes=self.waiting_bytes)

    async def _open(self, stream: Stream, opening: client_pb2.ProduceOpen) -> bool:
        opened = client_pb2.ProduceOpened(
            max_batch_bytes=self.settings.max_payload_bytes,
            max_records=self.settings.max_records,
            window_bytes=self.settings.session_window_bytes,
        )
        refused = False
        try:
            if opening.producer_epoch > MAX_PRODUCER_EPOCH:
                raise errors.InvalidArgument(
                    f"producer epoch {opening.producer_epoch} is over {MAX_PRODUCER_EPOCH}"
                )
            opened.settles_only = self._settles_only(opening)
            if not opened.settles_only:
                await self._check_open(opening)
        except FmqError as error:
            _set_error(opened, error)
            refused = True
        await stream.send(client_pb2.ProduceReply(opened=opened, epoch=self.gate.epoch))
        return not refused

    def _settles_only(self, opening: client_pb2.ProduceOpen) -> bool:
        """Return whether the session is to settle repeats at a master that takes no messages."""
        takes = self.gate.permission() & Permission.WRITE
        return opening.settle and not takes and self.is_sole_writer()

    def is_sole_writer(self) -> bool:
        """Return whether no broker appends messages now unless this one does."""
        return self.gate.is_master() and not self.intake.stopping

    async def _check_open(self, opening: client_pb2.ProduceOpen) -> None:
        self.require_write()
        await self.find_topics(self.view.find_topics(*opening.topics))
        for name in opening.topics:
            topic = self._topic_of(name)
            _require_ordinary(topic)
            self._queues_here(topic)
            if (reason := conflict(topic, self.journal.state.topics)) is not None:
                raise reason

    def _topic_of(self, name: str) -> TopicConfig:
        topic = self.view.topics.get(name)
        if topic is None:
            raise errors.UnknownTopic(f"no topic called {name}: create it first")
        return topic

    async def _serve_sender(self, stream: Stream, opening: client_pb2.ProduceRequest) -> None:
        """Serve the session of an ordered producer: any broker does, whatever its role."""
        name, opened = opening.open.sender.topic, False
        try:
            if self.intake.stopping:
                raise errors.NoPermission("this broker is stopping: ask for the routes again")
            await self.find_topics(self.view.find_topics(name))
            topic = self._topic_of(name)
            if not topic.ordered:
                raise errors.InvalidArgument(
                    f"topic {name} is not ordered: use an ordinary producer, or create an ordered "
                    f"topic (fmq topic create NAME --ordered --groups GROUP,GROUP)"
                )
            if self._ordered is None:
                raise errors.Unsupported(f"ordered topic {name}: this broker takes no sends")
            async with self._ordered.opened(stream, opening, topic, self) as session:
                opened = True
                await session.run(opening)
        except TransportError:
            return  # the sender is gone, and its place with it
        except FmqError as error:
            if opened:
                raise
            await stream.send(self._refused(error))

    def _refused(self, error: FmqError) -> client_pb2.ProduceReply:
        opened = client_pb2.ProduceOpened()
        _set_error(opened, error)
        return client_pb2.ProduceReply(opened=opened, epoch=self.gate.epoch)

    async def find_topics(self, search: Awaitable[None]) -> None:
        """Let the view search ZooKeeper for topics; without an answer it stays as it is."""
        try:
            async with asyncio.timeout(_REFRESH_S):
                await search
        except (errors.Unavailable, TimeoutError):
            _log.info("topics_not_refreshed")

    def require_write(self) -> None:
        """Raise `NoPermission` if this broker is stopping or may not serve writes."""
        if self.intake.stopping:
            raise errors.NoPermission("this broker is stopping: ask for the routes again")
        self.gate.require(Permission.WRITE)

    def is_full(self) -> bool:
        """Return whether too many bytes wait for acks or for the disk to read any stream."""
        limit = self.settings.total_window_bytes
        unwritten = self.journal.end - self.journal.written_end
        return self.waiting_bytes > limit or unwritten > limit

    def require_ordered(self, topic_id: TopicId) -> int:
        """Raise unless batches of this ordered topic are taken now; return its queue count."""
        self.require_write()
        return self.queues_of(topic_id, ordered=True)

    def queues_of(self, topic_id: TopicId, *, ordered: bool = False) -> int:
        """Return the topic's queue count in this group; append its CONFIG first if needed.

        Raises `UnknownTopic`, `InvalidArgument` if the topic is of the other kind, or the conflict
        between the topic and the journal.
        """
        if self._queues_of_epoch != self.journal.epoch:
            self._queues.clear()
            self._queues_of_epoch = self.journal.epoch
        topic = self.view.topics_by_id.get(topic_id)
        if topic is not None and topic.ordered != ordered:  # also of a known one: K3
            raise _other_kind(topic)
        known = self._queues.get(topic_id)
        if known is not None and known[0] is topic:
            return known[1]
        if topic is None:
            raise errors.UnknownTopic(f"no topic with id {topic_id}: it may have been deleted")
        queues = self._queues_here(topic)
        state = self.journal.state
        noted = state.topic_properties.get(topic_id, NONE)
        if (reason := conflict(topic, state.topics)) is not None:
            raise reason
        properties = keep_copy(topic.noted_properties, noted) if ordered else topic.noted_properties
        if (state.topics.get(topic_id), noted) != ((topic.name, queues), properties):
            payload = encode_topic(topic_id, topic.name, queues, properties)
            self.journal.append(BatchDraft(BatchType.CONFIG, payload, crc32c(payload)))
        self._queues[topic_id] = (topic, queues)
        return queues

    def check(self, batch: client_pb2.ProduceBatch) -> None:
        """Validate a batch without parsing its columns; raise a typed error if it is invalid."""
        payload, count, settings = batch.payload, batch.record_count, self.settings
        size = len(payload)
        if size > settings.max_payload_bytes or count > settings.max_records:
            raise errors.TooLarge(
                f"a batch of {size} bytes and {count} records is too large: this broker takes at "
                f"most {settings.max_payload_bytes} bytes and {settings.max_records} records"
            )
        if batch.attrs & ~KNOWN_ATTRS:
            if batch.attrs & Attrs.CODEC_MASK:
                raise errors.Unsupported(
                    f"codec {batch.attrs & Attrs.CODEC_MASK} of the batch is not supported: send "
                    "it uncompressed"
                )
            raise errors.Malformed(f"attrs {batch.attrs:#06x} of the batch has unknown bits")
        if not count or size < 4 * (count + 1):
            raise errors.Malformed(f"{size} bytes of payload cannot hold {count} records")
        if batch.deliver_at_ms:
            raise errors.Unsupported(
                "deliver_at_ms is set, but this version delivers at once only: leave it out"
            )
        if batch.ack not in _LEVELS:
            raise errors.Unsupported(f"ack level {batch.ack} of the batch is not supported")
        if crc32c(payload) != batch.payload_crc:
            raise errors.BadCrc(f"the payload's CRC32C is not {batch.payload_crc:#010x}")
        if self.waiting_bytes > 2 * settings.total_window_bytes:
            raise errors.Overloaded(
                f"{self.waiting_bytes} bytes of all producers wait in this broker, over twice "
                "total_window_bytes: send again later"
            )

    def _queues_here(self, topic: TopicConfig) -> int:
        queues = topic.queues_in(self._group)
        if not queues:
            raise errors.UnknownTopic(f"topic {topic.name} has no queue in group {self._group}")
        return queues


def _set_error(opened: client_pb2.ProduceOpened, error: FmqError) -> None:
    opened.error.code = client_pb2.ErrorCode.Name(int(error.code))  # type: ignore[assignment]
    opened.error.message = str(error)


def _require_ordinary(topic: TopicConfig) -> None:
    """Refuse ordinary batches of an ordered topic: offsets and sequences would drift apart (K3)."""
    if topic.ordered:
        raise _other_kind(topic)


def _other_kind(topic: TopicConfig) -> errors.InvalidArgument:
    if topic.ordered:
        return errors.InvalidArgument(
            f"topic {topic.name} is ordered: it takes the sends of one active sender; use "
            "`ordered_producer` (fmq produce --ordered), not an ordinary producer"
        )
    return errors.InvalidArgument(f"topic {topic.name} is not ordered: use an ordinary producer")


class ProduceSession:
    """One producer's stream; the module docstring has the order of effects."""

    def __init__(
        self, service: ProduceService, stream: Stream, opening: client_pb2.ProduceRequest
    ) -> None:
        self._service = service
        self._stream = stream
        self._opening: client_pb2.ProduceRequest = opening
        self.producer_id = opening.open.producer_id
        self.producer_epoch = opening.open.producer_epoch
        self.superseded = False  # the producer has opened a later one (P7)
        self.attempt = opening.open.attempt
        self.settle = opening.open.settle and self.producer_id > 0 < self.attempt  # P9
        self.epoch = service.gate.epoch  # P8
        self._journal = service.journal
        self._commit = service.commit
        self._clock = service.clock
        self._settings = service.settings
        self._acks = AckQueue(service.journal, service.commit, service.gate, service.clock)
        self._queued = Signal()  # something waits that did not, or nothing more will come
        self._reading = True
        self._persist_to = Position(0)
        self._persist = Signal()
        self._strange: set[int] = set()  # topics asked for once, in vain

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the tasks that read, answer, and request the fsyncs that batches ask for."""
        persisting = tasks.create_task(self._persist_on_demand())
        answering = tasks.create_task(self._answer())
        answering.add_done_callback(lambda _: persisting.cancel())
        tasks.create_task(self._read())

    def forget(self) -> None:
        """Release the bytes that the session held; it is over."""
        self._release(self._acks.bytes)

    # ---- reading

    async def _read(self) -> None:
        await self._take(self._opening)
        while (request := await self._stream.receive()) is not None:
            if request.HasField("open"):
                raise errors.Malformed("`open` again: a produce session has one, in its beginning")
            await self._take(request)
            while self._acks.bytes > self._settings.session_window_bytes or self._service.is_full():
                signals = (self._service.released, self._journal.flushed)
                await wait_any(*signals, timeout_s=_FULL_CHECK_S)
        self._reading = False
        self._queued.notify()

    async def _take(self, request: client_pb2.ProduceRequest) -> None:
        """Append a message's batches; of a refused batch, queue only the refusal (P6)."""
        await self._learn_topics(request)
        refusal: FmqError | None = None
        try:
            self._require_newest()
            self._service.require_write()
            self._require_epoch()
        except FmqError as error:
            refusal = error
        for batch in request.batches:
            try:
                waiting = self._append_or_settle(batch, refusal)
            except FmqError as error:
                waiting = Waiting(
                    batch.correlation,
                    int(batch.ack),
                    code=int(error.code),
                    message=str(error),
                    never_appended=self._is_new(batch),
                )
            if waiting.level != _ONE_WAY:
                held = self._acks.bytes
                self._acks.add(waiting)
                self._service.waiting_bytes += self._acks.bytes - held
        self._queued.notify()

    def _append_or_settle(
        self, batch: client_pb2.ProduceBatch, refusal: FmqError | None
    ) -> Waiting:
        if refusal is not None:
            return self._settle(batch, refusal)
        try:
            return self._append(batch)
        except (errors.UnknownTopic, errors.UnknownQueue) as error:
            return self._settle(batch, error)

    def _require_newest(self) -> None:
        if self.superseded:
            raise errors.ProducerFenced(
                f"producer {self.producer_id} has opened a later session than this one, "
                f"{self.producer_epoch}: what comes late is not stored after what is newer"
            )

    def _require_epoch(self) -> None:
        """P8: another broker may have written since; these batches may be older than its."""
        now = self._service.gate.epoch
        if self.epoch != now:
            raise errors.NoPermission(
                f"this session was opened in epoch {self.epoch}, but the broker is in epoch {now}: "
                "open a new session"
            )

    async def _learn_topics(self, request: client_pb2.ProduceRequest) -> None:
        known = self._service.view.topics_by_id
        strange = {batch.topic_id for batch in request.batches if batch.topic_id not in known}
        if strange - self._strange:
            self._strange |= strange
            await self._service.find_topics(self._service.view.find_ids(map(TopicId, strange)))

    # ---- repeats where no messages are taken (P9)

    def _settle(self, batch: client_pb2.ProduceBatch, refusal: FmqError) -> Waiting:
        """Return the ack of a batch that is in the journal already; raise `refusal` for others.

        Its topic may have left the group since, as the topics of a group that is removed do.
        """
        known = self._known(batch) if self._may_settle(batch) else None
        if known is None:
            raise refusal
        return self._waiting(batch, known)

    def _is_new(self, batch: client_pb2.ProduceBatch) -> bool:
        """Return whether a refused batch is not in the journal, and no copy can get into it (P9).

        An earlier attempt can only be in the journal, whose last term this broker opened, or on its
        way over another session: of another term (P8), or one that this session has superseded. A
        table that may have forgotten the producer does not show what is in the journal. Journals
        that this term left behind may have shown an attempt of earlier terms: the client counts it.
        """
        key = TopicId(batch.topic_id), batch.queue_id
        forgotten = self._service.limits.may_have_forgotten(self.producer_id, key)
        if forgotten or not self._may_settle(batch):
            return False
        try:
            return self._known(batch) is None
        except (errors.OutOfSequence, errors.ProducerFenced):
            return False

    def _may_settle(self, batch: client_pb2.ProduceBatch) -> bool:
        newest = self.settle and not self.superseded and batch.ack != _ONE_WAY
        same_term = self.epoch == self._service.gate.epoch
        return newest and same_term and self._service.is_sole_writer()

    def _known(self, batch: client_pb2.ProduceBatch) -> ProducedBatch | None:
        key = TopicId(batch.topic_id), batch.queue_id
        check = self._journal.state.check_sequence
        count = batch.record_count
        return check(self.producer_id, self.producer_epoch, key, batch.base_sequence, count)

    # ---- appending

    def _append(self, batch: client_pb2.ProduceBatch) -> Waiting:
        payload, level = batch.payload, int(batch.ack)
        topic_id, queue_id, count = TopicId(batch.topic_id), batch.queue_id, batch.record_count
        self._service.check(batch)
        if queue_id >= (queues := self._service.queues_of(topic_id)):
            raise errors.UnknownQueue(
                f"queue {queue_id} does not exist: topic id {topic_id} has queues 0 to "
                f"{queues - 1} in this broker's group"
            )
        done: ProducedBatch | Appended | None = None
        size = 0
        producer_id = 0 if level == _ONE_WAY else self.producer_id  # no retry: nothing to know
        if producer_id:
            done = self._known(batch)
        if done is None:
            if producer_id:
                self._service.limits.require_producer(
                    producer_id, (topic_id, queue_id), self._clock.wall_ms()
                )
            unmet = self._commit.unwritable_reason
            if unmet is not None and level in _BY_POLICY:
                raise errors.NotEnoughReplicas(unmet)
            draft = BatchDraft(
                BatchType.DATA,
                payload,
                batch.payload_crc,
                topic_id,
                queue_id,
                count,
                batch.attrs,
                producer_id,
                self.producer_epoch,
                batch.base_sequence,
                batch.tag_mask,
            )
            done, size = self._journal.append(draft), len(payload)
        return self._waiting(batch, done, size)

    def _waiting(
        self, batch: client_pb2.ProduceBatch, done: ProducedBatch | Appended, size: int = 0
    ) -> Waiting:
        """Return the pending ack of a batch in the journal; request the fsync that it needs."""
        level = int(batch.ack)
        if level in FSYNCED and done.end > self._persist_to:
            self._persist_to = done.end
            self._persist.notify()
        return Waiting(
            batch.correlation,
            level,
            done.end,
            done.base_offset,
            done.store_ms,
            size,
            self._clock.monotonic_ms() + (batch.timeout_ms or self._settings.ack_timeout_ms),
            self._journal.epoch,
            self._commit.failed_below,
        )

    # ---- answering

    async def _answer(self) -> None:
        while self._reading or self._acks:
            held = self._acks.bytes
            if acks := self._acks.take_due():
                self._release(held - self._acks.bytes)
                reply = client_pb2.ProduceReply(acks=acks, epoch=self._service.gate.epoch)
                await self._stream.send(reply)
            elif self._acks:
                await self._acks.wait()
            else:
                await self._queued.wait()

    def _release(self, size: int) -> None:
        if size:
            self._service.waiting_bytes -= size
            self._service.released.notify()

    async def _persist_on_demand(self) -> None:
        """Request the fsyncs that batches need and the group's policy does not make itself."""
        while True:
            if self._persist_to > self._journal.durable_end:
                await self._journal.wait_durable(self._persist_to)
            else:
                await self._persist.wait()
