"""One ordered producer's stream: its place in the line, news of the chain, and its batches.

A stream whose `SenderOpen` names no place gets one (`ordered/senders.py`), and keeps it
until the stream ends or its client is silent for longer than `consumer_dead_after_ms`. Whatever
this broker's role is, the sender gets a `SenderState` at each change, and its reports are taken.
Its batches go to `ordered/append.py`: only the master of the open segment's group stores them.

The session ends once a later sender is active (SENDER_FENCED) or its place is lost (UNAVAILABLE):
its last message has the error, and the client closes the stream. A batch that then waits for its
ack may be stored: the next sender learns which record is the last.

Order of effects at an orderly stop: each session with a place gets NO_PERMISSION, the client takes
a place at another broker, then closes the stream, and only then is the place here given up. So the
active sender's role does not go to the one that is next in line.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

import structlog

from fmqbroker.ordered.append import OrderedAppend
from fmqbroker.ordered.group_ends import GroupEndsCaller
from fmqbroker.ordered.last_records import last_records
from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.ordered.senders import Senders
from fmqbroker.ordered.session_batches import SessionBatches
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.gate import stopping_refusal
from fmqcore import errors
from fmqcore.errors import FmqError
from fmqcore.ids import Epoch, TopicId
from fmqcore.ordered.senders import Standing
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import client_pb2

_log = structlog.get_logger()

_FULL_CHECK_S: Final = 0.25


class ProduceHost(Protocol):
    """What all produce sessions of a broker share."""

    waiting_bytes: int  # of all sessions
    released: Signal

    def is_full(self) -> bool:
        """Return whether too many bytes wait to read any stream."""
        ...

    def check(self, batch: client_pb2.ProduceBatch) -> None:
        """Validate a batch's content; raise a typed error if it is invalid."""
        ...

    def require_ordered(self, topic_id: TopicId) -> int:
        """Raise unless batches of the topic are taken now; return its number of queues here."""
        ...


class OrderedSessions:
    """Makes and serves the sessions of ordered producers."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        senders: Senders,
        caller: GroupEndsCaller,
        append: OrderedAppend,
        term: Callable[[], Epoch],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.senders = senders
        self.caller = caller
        self.append = append
        self.term = term
        self.stopping = False
        self.ending = Signal()  # `stopping` was set
        self._places = 0  # sessions with a place in the line
        self._left = Signal()

    async def drain(self, timeout_s: float) -> None:
        """Ask all senders with a place here to take another one; wait until they have left."""
        self.stopping = True
        self.ending.notify()
        try:
            async with asyncio.timeout(timeout_s):
                while self._places:
                    await self._left.wait()
        except TimeoutError:
            _log.warning("stopping_with_senders", senders=self._places)

    @asynccontextmanager
    async def opened(
        self,
        stream: Stream,
        request: client_pb2.ProduceRequest,
        topic: TopicConfig,
        host: ProduceHost,
    ) -> AsyncIterator["OrderedSession"]:
        """Give the sender its place, answer `open`, and yield the session, which is to be run.

        Raises `NoPermission` if the broker is stopping, and what `Senders.standing` raises.
        """
        sender_open = request.open.sender
        if self.stopping and not sender_open.sender_id:
            raise stopping_refusal()
        with self._counting_place(sender_open):
            async with self._opened(stream, sender_open, topic, host) as session:
                yield session

    @asynccontextmanager
    async def _opened(
        self,
        stream: Stream,
        opening: client_pb2.SenderOpen,
        topic: TopicConfig,
        host: ProduceHost,
    ) -> AsyncIterator["OrderedSession"]:
        async with self.senders.standing(topic, opening) as sender:
            opened = client_pb2.ProduceOpened(
                max_batch_bytes=self.settings.max_payload_bytes,
                max_records=self.settings.max_records,
                window_bytes=self.settings.session_window_bytes,
                heartbeat_ms=self.settings.consumer_heartbeat_ms if sender.own else 0,
                sender_id=sender.place,
            )
            await stream.send(client_pb2.ProduceReply(opened=opened, epoch=self.term()))
            _log.info("sender_opened", topic=topic.name, sender=sender.id, peer=stream.peer)
            try:
                yield OrderedSession(self, stream, sender, host)
            finally:
                _log.info("sender_closed", topic=topic.name, sender=sender.id)

    @contextmanager
    def _counting_place(self, opening: client_pb2.SenderOpen) -> Iterator[None]:
        """Count a session that asks for a place, from before it has one until it has left."""
        asks = not opening.sender_id
        self._places += asks
        try:
            yield
        finally:
            self._places -= asks
            self._left.notify()


class OrderedSession:
    """The session of one sender, on one stream."""

    def __init__(
        self, sessions: OrderedSessions, stream: Stream, sender: SenderStanding, host: ProduceHost
    ) -> None:
        self._sessions = sessions
        self._stream = stream
        self._sender = sender
        self._host = host
        timeout_ms = sessions.settings.ack_timeout_ms
        self._batches = SessionBatches(
            sessions.append,
            sender.topic.id,
            sender.id,
            host.check,
            host.require_ordered,
            timeout_ms,
        )
        self._news: client_pb2.SenderState | None = None  # to be sent
        self._queued = Signal()  # there is something to send, or nothing more will come
        self._reading = True
        self._counted = 0  # bytes of this session in `host.waiting_bytes`
        self._over: FmqError | None = None  # why the session ends before its stream

    async def run(self, request: client_pb2.ProduceRequest) -> None:
        """Serve the stream until it ends. `request`: the first message. Raises `Malformed`."""
        broken: FmqError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [tasks.create_task(self._follow()), tasks.create_task(self._compose())]
                answering = tasks.create_task(self._answer())
                answering.add_done_callback(lambda _: [helper.cancel() for helper in helpers])
                tasks.create_task(self._read(request))
        except* TransportError:
            pass  # the sender is gone: its place goes with the session
        except* FmqError as raised:
            broken = next(e for e in raised.exceptions if isinstance(e, FmqError))
        finally:
            self._count(0)
        if broken is not None:
            raise broken

    # ---- reading

    async def _read(self, request: client_pb2.ProduceRequest | None) -> None:
        window_bytes = self._sessions.settings.session_window_bytes
        while request is not None:
            await self._take(request)
            # Only batches add bytes. A report or heartbeat, which the place in line and the next
            # segment hang on, waits for nothing that other producers hold.
            while request.batches and (self._batches.bytes > window_bytes or self._host.is_full()):
                await wait_any(self._host.released, timeout_s=_FULL_CHECK_S)
            request = await self._receive()
            if request is not None and request.HasField("open"):
                raise errors.Malformed("`open` again: a produce session has one, in its beginning")
        self._reading = False
        self._queued.notify()

    async def _receive(self) -> client_pb2.ProduceRequest | None:
        """Return the next message. Raises `TransportError` also when the client is silent."""
        limit_s = self._sessions.settings.consumer_dead_after_ms / 1000
        try:
            async with asyncio.timeout(limit_s if self._sender.own else None):
                request: client_pb2.ProduceRequest | None = await self._stream.receive()
                return request
        except TimeoutError:
            topic, id = self._sender.topic.name, self._sender.id
            _log.warning("sender_silent", topic=topic, sender=id, silent_s=limit_s)
            raise TransportError(f"sender {id} was silent for {limit_s} s") from None

    async def _take(self, request: client_pb2.ProduceRequest) -> None:
        if self._over is not None:
            return
        if request.HasField("sender_report"):
            self._sender.note_report(request.sender_report)
            self._sessions.senders.has_moved(self._sender.topic.id)
        if request.HasField("sender_links"):
            self._sender.note_links(request.sender_links)
            self._sessions.senders.has_moved(self._sender.topic.id)
        if request.batches:
            await self._batches.take(request.batches)  # `_answer` may run meanwhile
            self._count()
            self._queued.notify()

    # ---- answering

    async def _follow(self) -> None:
        try:
            await self._sessions.senders.follow(self._sender)
        except FmqError as error:
            self._over = error
            self._queued.notify()

    async def _compose(self) -> None:
        """Keep the news up to date: what the sender has to know of the chain."""
        sender, sent, records_sent = self._sender, None, False
        while True:
            seen = sender.moved.count
            state = sender.state()
            if state.active and not records_sent:
                chain, clock = sender.chain, self._sessions.clock
                caller = self._sessions.caller
                records = await last_records(caller, clock, chain, sender.epoch)
                if sender.standing is not Standing.ACTIVE:
                    continue
                state, records_sent = sender.state(), True
                for queue, record in records.items():
                    state.last_records[queue].CopyFrom(record)
            if state != sent:
                self._offer(state)
                sent = sender.state()
            if sender.moved.count == seen:
                await sender.moved.wait()

    def _offer(self, state: client_pb2.SenderState) -> None:
        """Send this state next, with the last records of one that is not sent yet."""
        unsent = self._news
        if unsent is not None:
            for queue, record in unsent.last_records.items():
                state.last_records[queue].CopyFrom(record)
        self._news = state
        self._queued.notify()

    async def _answer(self) -> None:
        while self._reading or self._batches.bytes:
            acks, news = self._batches.take_due(), self._news
            self._count()
            if self._sessions.stopping and self._sender.own and not self._batches.bytes:
                self._over = self._over or stopping_refusal()
            if self._over is not None:
                await self._end(self._over, acks)
                return
            if acks or news is not None:
                self._news = None
                reply = client_pb2.ProduceReply(
                    acks=acks, epoch=self._sessions.term(), sender_state=news
                )
                await self._stream.send(reply)
            else:
                signals = (self._queued, self._sessions.ending, *self._batches.signals)
                await wait_any(*signals, timeout_s=self._batches.wait_s())

    async def _end(self, error: FmqError, acks: list[client_pb2.ProduceAck]) -> None:
        """Send the error, and give the client time to read it and close the stream."""
        reply = client_pb2.ProduceReply(acks=acks, epoch=self._sessions.term())
        reply.error.code = client_pb2.ErrorCode.Name(int(error.code))  # type: ignore[assignment]
        reply.error.message = str(error)
        await self._stream.send(reply)
        clock, limit_ms = self._sessions.clock, self._sessions.settings.consumer_dead_after_ms
        until_ms = clock.monotonic_ms() + limit_ms
        while self._reading and (left_ms := until_ms - clock.monotonic_ms()) > 0:
            await wait_any(self._queued, timeout_s=left_ms / 1000)
        if self._reading:
            raise TransportError(f"sender {self._sender.id} does not close its stream")

    def _count(self, size: int | None = None) -> None:
        """Let the host count what this session holds now, or `size`, in place of before."""
        size = self._batches.bytes if size is None else size
        self._host.waiting_bytes += size - self._counted
        if size < self._counted:
            self._host.released.notify()
        self._counted = size
