"""The produce path: stream → permission → dedup → append → commit end → ack.

`admission.py` decides which topics and batches are taken; `session.py` has the path of a batch,
`ordered_session.py` that of ordered topics. Here sessions are opened and ended.
"""

import asyncio

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqbroker.journal.journal import Journal
from fmqbroker.produce.admission import Admission, require_ordinary
from fmqbroker.produce.ordered_session import OrderedSessions
from fmqbroker.produce.producer_sessions import Sessions
from fmqbroker.produce.session import ProduceSession
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import Gate, stopping_refusal
from fmqcore import errors
from fmqcore.batch.header import MAX_PRODUCER_EPOCH
from fmqcore.errors import FmqError
from fmqcore.ids import Permission
from fmqcore.zk.topic_numbers import conflict
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

_log = structlog.get_logger()


class ProduceService:
    """Opens the produce sessions of a broker, and serves them."""

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
        self.admission = Admission(journal, commit, gate, view, settings, clock)
        self.intake = self.admission.intake
        self.sessions = Sessions()
        self._journal = journal
        self._gate = gate
        self._view = view
        self._settings = settings
        self._ordered = ordered

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
        session = ProduceSession(self.admission, stream, opening)
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
                while self.admission.waiting_bytes:
                    await self.admission.released.wait()
        except TimeoutError:
            _log.warning("stopping_with_unacknowledged_batches", bytes=self.admission.waiting_bytes)

    async def _open(self, stream: Stream, opening: client_pb2.ProduceOpen) -> bool:
        opened = client_pb2.ProduceOpened(
            max_batch_bytes=self._settings.max_payload_bytes,
            max_records=self._settings.max_records,
            window_bytes=self._settings.session_window_bytes,
        )
        refused = False
        try:
            if opening.producer_epoch > MAX_PRODUCER_EPOCH:
                raise errors.InvalidArgument(
                    f"producer epoch {opening.producer_epoch} is above the maximum, "
                    f"{MAX_PRODUCER_EPOCH}"
                )
            opened.settles_only = self._settles_only(opening)
            if not opened.settles_only:
                await self._check_open(opening)
        except FmqError as error:
            _set_error(opened, error)
            refused = True
        await stream.send(client_pb2.ProduceReply(opened=opened, epoch=self._gate.epoch))
        return not refused

    def _settles_only(self, opening: client_pb2.ProduceOpen) -> bool:
        """Return whether the session is to settle repeats at a master that takes no messages."""
        takes = self._gate.permission() & Permission.WRITE
        return opening.settle and not takes and self.admission.is_sole_writer()

    async def _check_open(self, opening: client_pb2.ProduceOpen) -> None:
        self.admission.require_write()
        await self.admission.find_topics(opening.topics)
        for name in opening.topics:
            topic = self.admission.topic_of(name)
            require_ordinary(topic)
            self.admission.queues_here(topic)
            if (reason := conflict(topic, self._journal.state.topics)) is not None:
                raise reason

    async def _serve_sender(self, stream: Stream, opening: client_pb2.ProduceRequest) -> None:
        """Serve the session of an ordered producer: any broker does, whatever its role."""
        name, opened = opening.open.sender.topic, False
        try:
            if self.intake.stopping:
                raise stopping_refusal()
            await self.admission.find_topics((name,))
            topic = self.admission.topic_of(name)
            if not topic.ordered:
                raise errors.InvalidArgument(
                    f"topic {name} is not ordered: use an ordinary producer, or create an ordered "
                    f"topic (fmq topic create NAME --ordered --groups GROUP,GROUP)"
                )
            if opening.open.sender.topic_id not in (0, topic.id):  # or this broker lags behind
                raise errors.UnknownTopic(
                    f"topic {name} was deleted and created again: open the producer again"
                )
            if self._ordered is None:
                raise errors.Unsupported(f"ordered topic {name}: this broker takes no sends")
            async with self._ordered.opened(stream, opening, topic, self.admission) as session:
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
        return client_pb2.ProduceReply(opened=opened, epoch=self._gate.epoch)


def _set_error(opened: client_pb2.ProduceOpened, error: FmqError) -> None:
    opened.error.code = client_pb2.ErrorCode.Name(int(error.code))  # type: ignore[assignment]
    opened.error.message = str(error)
