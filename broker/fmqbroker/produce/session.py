"""One producer's stream: its batches are appended, and acknowledged at their ack level.

A `ProduceSession` has two tasks: one reads messages and appends their batches, in memory and at
once; the other waits until appended batches have reached their ack level and sends all due acks in
one message. The journal fsyncs and `replication/master.py` replicates in between; no task here
waits for either batch by batch.

Order of effects: append, then (elsewhere, in parallel) fsync and replicate, then acknowledge.
`produce/pending_acks.py` decides when an ack may be OK.

Batches that arrive late, over a connection that was given up, are not stored after newer ones: a
session ends when its producer opens a later one (P7), and with its term (P8).

A producer sends a batch of unknown outcome only to its own group again. So a master that takes no
messages (its group is drained or removed, its disk is full, replicas are missing) still answers
these repeats: with their offset, or as never appended (P9, `_settle`, ADR 0060).

Deduplication is in `fmqcore.journal.state`. No work is done per record, and a batch's content is
never parsed. Appended to the journal: DATA.
"""

import asyncio
from typing import Final

from fmqbroker.journal.journal import Appended, BatchDraft
from fmqbroker.produce.admission import LEVELS, Admission
from fmqbroker.produce.pending_acks import FSYNCED, AckQueue, PendingAck
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqcore import errors
from fmqcore.batch.header import BatchType
from fmqcore.errors import FmqError
from fmqcore.ids import Position, TopicId
from fmqcore.journal.state import ProducedBatch
from fmqport.transport import Stream
from fmqproto.v1 import client_pb2

_ONE_WAY: Final = int(client_pb2.ONE_WAY)
_BY_POLICY: Final = (int(client_pb2.REPLICATED), int(client_pb2.ALL))
_FULL_CHECK_S: Final = 0.25


class ProduceSession:
    """One producer's stream; see the module."""

    def __init__(
        self, admission: Admission, stream: Stream, opening: client_pb2.ProduceRequest
    ) -> None:
        self._admission = admission
        self._stream = stream
        self._opening: client_pb2.ProduceRequest = opening
        self.producer_id = opening.open.producer_id
        self.producer_epoch = opening.open.producer_epoch
        self.superseded = False  # the producer has opened a later one (P7)
        self.attempt = opening.open.attempt
        self.settle = opening.open.settle and self.producer_id > 0 < self.attempt  # P9
        self.epoch = admission.gate.epoch  # P8
        self._journal = admission.journal
        self._commit = admission.commit
        self._clock = admission.clock
        self._settings = admission.settings
        self._acks = AckQueue(admission.journal, admission.commit, admission.gate, admission.clock)
        self._queued = Signal()  # something waits that did not, or nothing more will come
        self._reading = True
        self._persist_to = Position(0)
        self._persist = Signal()
        self._looked_up_topics: set[int] = set()  # topics asked for once, in vain

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
        await self._accept(self._opening)
        while (request := await self._stream.receive()) is not None:
            if request.HasField("open"):
                raise errors.Malformed("`open` again: a produce session has one, in its beginning")
            await self._accept(request)
            while (
                self._acks.bytes > self._settings.session_window_bytes or self._admission.is_full()
            ):
                signals = (self._admission.released, self._journal.flushed)
                await wait_any(*signals, timeout_s=_FULL_CHECK_S)
        self._reading = False
        self._queued.notify()

    async def _accept(self, request: client_pb2.ProduceRequest) -> None:
        """Append a message's batches; of a refused batch, queue only the refusal (P6)."""
        await self._look_up_topics(request)
        refusal: FmqError | None = None
        try:
            self._require_newest()
            self._admission.require_write()
            self._require_epoch()
        except FmqError as error:
            refusal = error
        for batch in request.batches:
            try:
                waiting = self._append_or_settle(batch, refusal)
            except FmqError as error:
                waiting = PendingAck(
                    batch.correlation,
                    int(batch.ack),
                    code=int(error.code),
                    message=str(error),
                    never_appended=self._is_new(batch),
                )
            if waiting.level != _ONE_WAY:
                held = self._acks.bytes
                self._acks.add(waiting)
                self._admission.waiting_bytes += self._acks.bytes - held
        self._queued.notify()

    def _append_or_settle(
        self, batch: client_pb2.ProduceBatch, refusal: FmqError | None
    ) -> PendingAck:
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
                f"{self.producer_epoch}: its late batches are not stored"
            )

    def _require_epoch(self) -> None:
        """P8: another broker may have written since; these batches may be older than its."""
        now = self._admission.gate.epoch
        if self.epoch != now:
            raise errors.NoPermission(
                f"this session was opened in epoch {self.epoch}, but the broker is in epoch {now}: "
                "open a new session"
            )

    async def _look_up_topics(self, request: client_pb2.ProduceRequest) -> None:
        known = self._admission.view.topics_by_id
        strange = {batch.topic_id for batch in request.batches if batch.topic_id not in known}
        if strange - self._looked_up_topics:
            self._looked_up_topics |= strange
            await self._admission.find_ids(strange)

    # ---- repeats where no messages are taken (P9)

    def _settle(self, batch: client_pb2.ProduceBatch, refusal: FmqError) -> PendingAck:
        """Return the ack of a batch that is in the journal already; raise `refusal` for others.

        Its topic may have left the group since, as the topics of a group that is removed do.
        """
        known = self._stored_batch(batch) if self._may_settle(batch) else None
        if known is None:
            raise refusal
        return self._pending_ack(batch, known)

    def _is_new(self, batch: client_pb2.ProduceBatch) -> bool:
        """Return whether a refused batch is not in the journal, and no copy can get into it (P9).

        An earlier attempt can only be in the journal, whose last term this broker opened, or on its
        way over another session: of another term (P8), or one that this session has superseded. A
        table that may have forgotten the producer does not show what is in the journal. Journals
        that this term left behind may have shown an attempt of earlier terms: the client counts it.
        """
        key = TopicId(batch.topic_id), batch.queue_id
        forgotten = self._admission.limits.may_have_forgotten(self.producer_id, key)
        if forgotten or not self._may_settle(batch):
            return False
        try:
            return self._stored_batch(batch) is None
        except (errors.OutOfSequence, errors.ProducerFenced):
            return False

    def _may_settle(self, batch: client_pb2.ProduceBatch) -> bool:
        newest = self.settle and not self.superseded
        answered = batch.ack in LEVELS and batch.ack != _ONE_WAY  # it was not checked
        same_term = self.epoch == self._admission.gate.epoch
        return newest and answered and same_term and self._admission.is_sole_writer()

    def _stored_batch(self, batch: client_pb2.ProduceBatch) -> ProducedBatch | None:
        key = TopicId(batch.topic_id), batch.queue_id
        check = self._journal.state.check_sequence
        count = batch.record_count
        return check(self.producer_id, self.producer_epoch, key, batch.base_sequence, count)

    # ---- appending

    def _append(self, batch: client_pb2.ProduceBatch) -> PendingAck:
        payload, level = batch.payload, int(batch.ack)
        topic_id, queue_id, count = TopicId(batch.topic_id), batch.queue_id, batch.record_count
        self._admission.check(batch)
        if queue_id >= (queues := self._admission.queues_of(topic_id)):
            raise errors.UnknownQueue(
                f"queue {queue_id} does not exist: topic id {topic_id} has queues 0 to "
                f"{queues - 1} in this broker's group"
            )
        done: ProducedBatch | Appended | None = None
        size = 0
        producer_id = 0 if level == _ONE_WAY else self.producer_id  # no retry: nothing to know
        if producer_id:
            done = self._stored_batch(batch)
        if done is None:
            if producer_id:
                self._admission.limits.require_producer(
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
        return self._pending_ack(batch, done, size)

    def _pending_ack(
        self, batch: client_pb2.ProduceBatch, done: ProducedBatch | Appended, size: int = 0
    ) -> PendingAck:
        """Return the pending ack of a batch in the journal; request the fsync that it needs."""
        level = int(batch.ack)
        if level in FSYNCED and done.end > self._persist_to:
            self._persist_to = done.end
            self._persist.notify()
        return PendingAck(
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
                reply = client_pb2.ProduceReply(acks=acks, epoch=self._admission.gate.epoch)
                await self._stream.send(reply)
            elif self._acks:
                await self._acks.wait()
            else:
                await self._queued.wait()

    def _release(self, size: int) -> None:
        if size:
            self._admission.waiting_bytes -= size
            self._admission.released.notify()

    async def _persist_on_demand(self) -> None:
        """Request the fsyncs that batches need and the group's policy does not make itself."""
        while True:
            if self._persist_to > self._journal.durable_end:
                await self._journal.wait_durable(self._persist_to)
            else:
                await self._persist.wait()
