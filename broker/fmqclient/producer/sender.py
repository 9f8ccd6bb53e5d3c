"""A producer's sender to one group: a session with whichever broker of the group takes writes.

    dial → open → [send what is unknown again, then what is new] ∥ read acks ∥ watch for silence
      ↑                                                                              │
      └──────────── lost: what was sent is unknown, what was not may go elsewhere ←──┘

A batch of unknown outcome is settled by its own group only. If no broker of the group takes
messages, its master may still open a session in which only such batches are sent again (L10).

Everything that is pending when the sender wakes goes into one message, the unsent batches of all
queue buffers. At most `pipeline` messages are unanswered at a time, so that meanwhile the next one
fills. Order of effects: a batch gets its sequence and is remembered as in flight, then sent; only
an ack, a refusal or its deadline ends it (`producer/queue_buffer.py` has the rules).
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

from fmqclient.net.connections import Backoff, Connections, ask_whether_alive, open_at_first
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import until_one_fails
from fmqclient.producer.batches import InFlightBatch, resolve, resolve_unanswered
from fmqclient.producer.error_policy import ErrorPolicy
from fmqclient.producer.protocols import BufferSource
from fmqclient.producer.queue_buffer import QueueBuffer
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PRODUCER_EPOCH
from fmqcore.errors import FmqError, Unavailable, error_of
from fmqcore.ids import Epoch, GroupName, Permission
from fmqcore.routing import candidates, grants
from fmqport.clock import Clock
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

MESSAGE_BYTES: Final = 1024 * 1024
"""Bytes after which a message is full (it may hold one batch more)."""
PROBE_AFTER_MS: Final = 1000
"""Silence, with something in flight, after which the broker is asked whether it lives."""
PROBE_TIMEOUT_S: Final = 1.0
LEAVE_MS: Final = 1500
"""Time that a broker which takes no more writes has to answer what is in flight."""
AVOID_MS: Final = 1000
"""Time without new records for a group that refused for want of replicas or space."""

_REST_S: Final = 1.0
"""How often a group that left all topics is checked again; it is not dialed meanwhile."""


class _Renew(FmqError):
    """Raised to reopen the stream as the producer's next session, once nothing is in flight."""


class _Settled(FmqError):
    """Raised to reopen the stream for new messages, once all repeats are settled."""


class FixedIdentity(NamedTuple):
    """A producer that outlives its program: the caller keeps its id, sequences and batches.

    Its sender starts no new session of the producer, and splits no batch.
    """

    producer_id: int
    attempts_before: int
    """At least as many as all streams that earlier runs of the producer asked for."""


class Sender:
    """One producer's sender to one group. `run` until cancelled."""

    def __init__(
        self,
        group: GroupName,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        accumulator: BufferSource,
        settings: ProducerSettings,
        watch: LoopWatch | None = None,
        identity: FixedIdentity | None = None,
    ) -> None:
        self.group = group
        self.reason = "connecting"
        self.error: FmqError | None = None
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._accumulator = accumulator
        self._settings = settings
        self._loop_watch = watch or LoopWatch(clock)
        self._identity = identity
        self._error_policy = ErrorPolicy(
            *(clock, accumulator, self.avoid, self.renew, routes.request_refresh),
            fixed=identity is not None,
        )
        self._one_way = settings.level == client_pb2.ONE_WAY
        self._up = grants(routes.table.groups.get(group), Permission.WRITE)
        self._avoid_until_ms = 0
        self._ready: deque[QueueBuffer] = deque()
        # Batches of unknown outcome, to be sent again now.
        self._resends: deque[tuple[QueueBuffer, InFlightBatch]] = deque()
        self._sent: dict[
            int, tuple[QueueBuffer, InFlightBatch]
        ] = {}  # by correlation, on this stream
        self._sent_bytes = 0
        self._messages: deque[int] = deque()  # last correlation of each unanswered message
        self._correlation = 0
        self._producer_id = identity.producer_id if identity else 0
        self._producer_epoch = 0
        self._attempt = identity.attempts_before if identity else 0  # streams asked for
        self._renew = identity is None  # begin the producer's next session at the next opening
        self._work = asyncio.Event()
        self._heard_ms = 0
        self._window_bytes = 0
        self._settles_only = False  # the broker takes no messages, only repeats (L10)
        self._epoch = Epoch(0)  # the newest epoch that a broker of the group has reported
        self._term = Epoch(0)  # in which the present session was opened (P8)
        self._hurry = asyncio.Event()  # a caller flushes: do not linger
        self._leaving: FmqError | None = None
        self._leave_by_ms = 0
        self._address = ""

    # ---- for the accumulator and the producer

    @property
    def usable(self) -> bool:
        """See `Carrier`."""
        return self._up and self._clock.monotonic_ms() >= self._avoid_until_ms

    def offer(self, buffer: QueueBuffer) -> None:
        """See `Carrier`."""
        if not buffer.ready:
            buffer.ready = True
            self._ready.append(buffer)
        self._work.set()

    def renew(self) -> None:
        """See `Carrier`."""
        self._renew = self._identity is None
        self._work.set()

    def hurry(self) -> None:
        """Send at once, without linger: a caller flushes."""
        self._hurry.set()
        self._work.set()

    def tick(self, now_ms: int) -> None:
        """Resume what was held or planned for later and is due now."""
        if self._avoid_until_ms and now_ms >= self._avoid_until_ms:
            self._avoid_until_ms = 0
            self._accumulator.remap()
        for buffer in self._buffers():
            for batch in buffer.in_flight:
                if batch.due_ms and now_ms >= batch.due_ms and self._is_open():
                    batch.due_ms = 0
                    self._resends.append((buffer, batch))
            if buffer.pending:
                self.offer(buffer)
        if self._resends:
            self._work.set()

    # ---- life

    async def run(self) -> None:
        """Open a stream to the group's master and serve it, again and again, until cancelled."""
        backoff = Backoff(self._clock, first_ms=50, max_ms=1000)
        while True:
            if not self._accumulator.needs(self.group):
                self._set_down(f"no topic of this producer is in group {self.group}")
                await self._clock.sleep(_REST_S)
                continue
            try:
                stream = await self._open()
            except FmqError as error:
                self._set_down(str(error))
                self._routes.request_refresh()
                await backoff.wait()
                continue
            sent_before = self._correlation
            try:
                await self._serve(stream)
            finally:
                stream.cancel()
                self._note_stream_lost()
            if self._correlation > sent_before:
                backoff.reset()
            self._routes.request_refresh()
            await backoff.wait()

    async def _open(self) -> Stream:
        if self._renew and not any(buffer.in_flight for buffer in self._buffers()):
            self._renew = False
            self._begin_session()
        route = self._routes.table.groups.get(self.group)
        if route is None:
            raise Unavailable(f"group {self.group} is not in the cluster's routes")
        self._attempt += 1
        opening = client_pb2.ProduceOpen(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            client=self._settings.client_name,
            attempt=self._attempt,
            settle=any(buffer.in_flight for buffer in self._buffers()),
        )
        broker, stream, answer = await open_at_first(
            self._connections,
            candidates(route, Permission.WRITE),
            PRODUCE,
            client_pb2.ProduceRequest(open=opening),
        )
        self._epoch = self._term = Epoch(answer.epoch)
        self._window_bytes = answer.opened.window_bytes
        self._settles_only = answer.opened.settles_only
        self._accumulator.limit(
            answer.opened.max_batch_bytes or self._settings.max_batch_bytes,
            answer.opened.max_records or self._settings.max_batch_records,
        )
        self._address = broker.address
        return stream

    def _begin_session(self) -> None:
        """Start the next session: brokers then refuse late batches of the sessions before (L8)."""
        if self._producer_id and self._producer_epoch < MAX_PRODUCER_EPOCH:
            self._producer_epoch += 1
        else:
            self._producer_id, self._producer_epoch = self._clock.random_id(), 0
        for buffer in self._buffers():
            buffer.renewed()

    async def _serve(self, stream: Stream) -> None:
        self._heard_ms = self._clock.monotonic_ms()
        self._leaving = None
        self._resends.clear()  # each batch once: a refusal is true of one copy only (P9)
        for buffer in self._buffers():
            for batch in buffer.in_flight:
                batch.due_ms = 0
                self._resends.append((buffer, batch))
            if buffer.pending:
                self.offer(buffer)
        if self._settles_only:
            self._set_down(f"group {self.group} takes no messages now")
        else:
            self._up, self.reason, self.error = True, "", None
            self._accumulator.remap()
        self._work.set()
        try:
            await until_one_fails(self._send(stream), self._receive(stream), self._watch())
        except _Renew:
            self.reason = "beginning a new session"
        except FmqError as error:
            self.reason = str(error)

    def _set_down(self, reason: str) -> None:
        self.reason = reason
        if self._up:
            self._up = False
            self._accumulator.remap()

    def _note_stream_lost(self) -> None:
        """Mark what was on the lost stream as unknown: it may be stored or not."""
        if self._one_way:
            self._resolve_one_way()
            self._renew = True  # a late copy must not come after newer records
        for _, batch in self._sent.values():
            batch.unknown = True
        self._accumulator.lift()
        self._sent.clear()
        self._sent_bytes = 0
        self._messages.clear()
        self._resends.clear()
        self._window_bytes = 0  # not open until the next session is
        if self.reason != "beginning a new session":
            self._set_down(self.reason or "the session ended")

    def _is_open(self) -> bool:
        return self._window_bytes > 0 and (self._up or self._settles_only)

    def _buffers(self) -> list[QueueBuffer]:
        return [buffer for buffer in self._accumulator.buffers() if buffer.group == self.group]

    # ---- sending

    async def _send(self, stream: Stream) -> None:
        linger_s = self._settings.linger_ms / 1000
        while True:
            request = self._next_request()
            if request is not None:
                await stream.send(request)
                if self._one_way:
                    self._resolve_one_way()
                continue
            if not any(buffer.in_flight for buffer in self._buffers()):
                if self._settles_only:
                    raise _Settled(self.reason)
                if self._renew:
                    raise _Renew("a new session is due")
            if self._hurry.is_set() and not any(buffer.pending for buffer in self._buffers()):
                self._hurry.clear()  # else the flush waits for records that may not leave yet
            self._work.clear()
            await self._work.wait()
            if linger_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(linger_s):
                        await self._hurry.wait()

    def _next_request(self) -> client_pb2.ProduceRequest | None:
        """Return everything that may leave now as one message, None if nothing may."""
        if len(self._messages) >= self._settings.pipeline or self._leaving is not None:
            return None
        if self._sent_bytes >= (self._window_bytes or MESSAGE_BYTES):
            return None
        request = client_pb2.ProduceRequest()
        size = 0
        while self._resends and size < MESSAGE_BYTES:
            buffer, batch = self._resends.popleft()
            if batch in buffer.in_flight:
                size += self._add(request, buffer, batch)
        now_ms = self._clock.monotonic_ms()
        takes_new = not (self._renew or self._settles_only)
        while self._ready and size < MESSAGE_BYTES and takes_new:
            buffer = self._ready[0]
            if buffer.pending and buffer.may_send(now_ms):
                pending_batch = buffer.pending.popleft()
                if pending_batch is buffer.open:
                    buffer.open = None
                size += self._add(request, buffer, buffer.depart(pending_batch))
            else:
                self._ready.popleft()
                buffer.ready = False
        if not request.batches:
            return None
        self._messages.append(self._correlation)
        return request

    def _add(
        self, request: client_pb2.ProduceRequest, buffer: QueueBuffer, batch: InFlightBatch
    ) -> int:
        self._correlation += 1
        request.batches.add(
            correlation=self._correlation,
            topic_id=buffer.topic_id,
            queue_id=buffer.queue,
            record_count=len(batch.records),
            attrs=batch.attrs,
            payload_crc=batch.crc,
            base_sequence=batch.sequence,
            tag_mask=batch.tag_mask,
            ack=self._settings.level,
            payload=batch.payload,
        )
        self._sent[self._correlation] = (buffer, batch)
        batch.terms.add(self._term)
        size = len(batch.payload)
        self._sent_bytes += size
        if batch.end_sequence > _MAX_SEQUENCE:
            self.renew()
        return size

    def _resolve_one_way(self) -> None:
        """Resolve ONE_WAY records: the stream has them, or was lost with them; no retry."""
        for buffer, batch in self._sent.values():
            if batch not in buffer.in_flight:
                continue  # it expired before the stream took it
            buffer.accepted(batch)
            resolve_unanswered(batch.records, buffer.group, buffer.queue)
            self._accumulator.release(len(batch.records), batch.bytes)
        self._sent.clear()
        self._sent_bytes = 0
        self._messages.clear()

    # ---- acks

    async def _receive(self, stream: Stream) -> None:
        while (reply := await stream.receive()) is not None:
            self._heard_ms = self._clock.monotonic_ms()
            if reply.epoch > self._epoch:
                self._epoch = Epoch(reply.epoch)
                self._routes.request_refresh()
            leave: FmqError | None = None
            for ack in reply.acks:
                found = self._sent.pop(ack.correlation, None)
                while self._messages and self._messages[0] <= ack.correlation:
                    self._messages.popleft()
                if found is None:
                    continue
                buffer, batch = found
                self._sent_bytes -= len(batch.payload)
                if batch not in buffer.in_flight:
                    continue  # it expired meanwhile
                if ack.code == 0:
                    self._accept_ack(buffer, batch, ack.base_offset)
                else:
                    self.error = error_of(ack.code, ack.message)
                    never_in = self._term if ack.never_appended else None
                    if self._error_policy.apply(
                        buffer, batch, self.error, never_appended_in=never_in
                    ):
                        leave = self.error
                if buffer.pending:
                    self.offer(buffer)
            self._accumulator.lift()
            self._work.set()
            if leave is not None and self._leaving is None:
                self._leaving = leave
                self._leave_by_ms = self._heard_ms + LEAVE_MS
                self._set_down(str(leave))
            if self._leaving is not None and not self._sent:
                raise self._leaving
        raise TransportError("the broker ended the session")

    def _accept_ack(self, buffer: QueueBuffer, batch: InFlightBatch, base_offset: int) -> None:
        self.error = None
        buffer.accepted(batch)
        resolve(batch.records, buffer.group, buffer.queue, base_offset)
        self._accumulator.release(len(batch.records), batch.bytes)

    def avoid(self) -> None:
        """Send nothing new to this group for `AVOID_MS`, if there is another group."""
        was_usable = self.usable
        self._avoid_until_ms = self._clock.monotonic_ms() + AVOID_MS
        if was_usable:
            self._accumulator.remap()

    # ---- silence

    async def _watch(self) -> None:
        """Ask a silent broker whether it lives; leave it if it is dead or may write no more."""
        watch = self._loop_watch
        while True:
            # Time in which this loop was blocked does not count as silence of the broker.
            self._heard_ms += await watch.sleep(PROBE_AFTER_MS / 2000)
            if self._leaving is not None and self._clock.monotonic_ms() >= self._leave_by_ms:
                raise self._leaving
            if not self._sent:
                self._heard_ms = self._clock.monotonic_ms()
                continue
            if self._clock.monotonic_ms() - self._heard_ms < PROBE_AFTER_MS:
                continue
            connection = self._connections.to(self._address)
            await ask_whether_alive(
                connection, self._clock, watch, lambda: self._heard_ms, PROBE_TIMEOUT_S
            )
            self._heard_ms = self._clock.monotonic_ms()


_MAX_SEQUENCE: Final = 2**31  # beyond, a new session begins: sequences have 32 bits
