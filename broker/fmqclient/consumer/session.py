"""A consumer's session with one group: with whichever broker of the group serves reads.

    dial → open → read (assignments, deliveries, tokens) ∥ write (acks, credit, beats) ∥ watch
      ↑                                                             │
      └────────── lost: the queues are gone, their acks are kept ───┘

Back-pressure: the broker may send as many bytes as it has credit for; credit returns when the
program has taken a delivery. Acks are gathered for a moment and sent in one message.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.message import DeliveredBatch, nack_of, warn_of_skipped
from fmqclient.consumer.session_requests import BUSY_LINGER_MS, Speaker
from fmqclient.net.connections import Backoff, Connections, ask_whether_alive, open_at_first
from fmqclient.net.loop_turns import LoopTurns, LoopWatch
from fmqclient.net.routes import STRANGE_MS, Routes
from fmqclient.net.tasks import until_one_fails
from fmqclient.settings import ConsumerSettings
from fmqcore.errors import (
    FmqError,
    InvalidArgument,
    Unavailable,
    UnknownTopic,
    Unsupported,
    error_of,
)
from fmqcore.ids import Epoch, GroupName, Permission
from fmqcore.routing import candidates
from fmqport.clock import Clock
from fmqport.transport import Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import CONSUME

LINGER_MS: Final = 5
"""How long acks, nacks and credit are gathered before they are sent."""
PROBE_TIMEOUT_S: Final = 1.5
_STEADY_MS: Final = 1000
_REST_S: Final = 1.0
"""How often a group that left the topic is checked again; it is not dialed meanwhile."""
_FATAL: Final = (InvalidArgument, Unsupported)


class Session(Speaker):
    """One consumer's session with one group. `run` until cancelled."""

    def __init__(
        self,
        group: GroupName,
        session_id: str,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        settings: ConsumerSettings,
        deliver: Callable[[DeliveredBatch], None],
        dropped: Callable[["Session", AckTracker | None], None],
        refine: Callable[["Session"], None],
        *,
        elsewhere: Callable[[], bool] = lambda: False,
        note: Callable[[], None] = lambda: None,
        turns: LoopTurns | None = None,
        watch: LoopWatch | None = None,
    ) -> None:
        super().__init__(clock, settings, note, turns or LoopTurns(clock))
        self.group = group
        self.reason = "connecting"
        self.open = False
        self.skipped: dict[int, int] = {}  # queue -> messages deleted before they were acked
        self._session_id = session_id
        self._connections = connections
        self._routes = routes
        self._deliver = deliver
        self._dropped = dropped
        self._refine = refine
        self._elsewhere = elsewhere  # another group may serve it
        self._loop_watch = watch or LoopWatch(clock)
        self._topic_id = 0
        self._gone = False  # the consumer leaves, or has left: do not open again
        self._heard_ms = 0
        self._beat_ms = 3000
        self._address, self.epoch = "", Epoch(0)
        self._strange_since_ms = 0

    # ---- for the consumer

    def commit(self) -> "asyncio.Future[None]":
        """Return a future that ends when all acks so far are stored; it outlives a lost session."""
        waiter = self.commits.wait()
        self._hurry.set()
        self._wake.set()
        return waiter

    def leave(self) -> None:
        """Send the last acks and give the queues back; `left` is set when the broker has both."""
        self._leaving = self._gone = True
        self._hurry.set()
        self._wake.set()

    @property
    def unstored(self) -> bool:
        """Whether some ack is not known to be stored."""
        return any(tracker.unstored for tracker in self.trackers.values())

    @property
    def may_serve(self) -> bool:
        """Whether the broker group may have the topic: in the cluster, and not refused so far."""
        return self.open or (not self._strange_since_ms and self.group in self._routes.named)

    # ---- life

    async def run(self) -> None:
        """Open, serve, and start again, for ever. Raises errors that the user must act on."""
        backoff = Backoff(self._clock, first_ms=50, max_ms=500)
        while not self._gone:
            if not self._is_in_topic():
                self.reason = f"topic {self._settings.topic} is no longer in group {self.group}"
                await self._clock.sleep(_REST_S)
                continue
            try:
                stream = await self._open()
                opened_ms = self._clock.monotonic_ms()
                try:
                    await self._serve(stream)
                finally:
                    stream.cancel()
                    self._note_stream_lost()
                    if self._clock.monotonic_ms() - opened_ms > _STEADY_MS:
                        backoff.reset()  # not if it breaks as soon as it is open, again and again
            except _FATAL:
                raise
            except FmqError as error:
                self.reason = str(error)
                self._raise_if_topic_unknown(error)
            self._routes.request_refresh()
            await backoff.wait()

    def _is_in_topic(self) -> bool:
        """Whether the group has the topic; a group leaves it when removed from the cluster."""
        topic = self._routes.table.topics.get(self._settings.topic)
        return topic is None or topic.queues_in(self.group) > 0

    def _raise_if_topic_unknown(self, error: FmqError) -> None:
        """Raise once no broker has known the topic for `STRANGE_MS`: that is the user's mistake."""
        if not isinstance(error, UnknownTopic):
            self._strange_since_ms = 0
            return
        now_ms = self._clock.monotonic_ms()
        self._strange_since_ms = self._strange_since_ms or now_ms
        if now_ms - self._strange_since_ms > STRANGE_MS and not self._elsewhere():
            raise error

    async def _open(self) -> Stream:
        route = self._routes.table.groups.get(self.group)
        if route is None:
            raise Unavailable(f"group {self.group} is not in the cluster's routes")
        settings = self._settings
        start, start_ms = settings.start_at()
        if start == client_pb2.START_LATEST and self._topic_id:
            # A queue without progress came since, and belongs to another topic.
            start = client_pb2.START_EARLIEST
        opening = client_pb2.ConsumeOpen(
            topic=settings.topic,
            group=settings.group,
            session_id=self._session_id,
            client=settings.client_name,
            start=start,
            start_ms=start_ms,
            ack_timeout_ms=int(settings.ack_timeout_s * 1000),
            held_queues=[tracker.queue for tracker in self.trackers.values() if tracker.ours],
            accepts_omitted_batch=True,
            reports_delivered=True,
            temporary=settings.temporary,
        )
        self._credit = 0
        self._hands.reset()
        self.stream += 1
        broker, stream, answer = await open_at_first(
            self._connections,
            candidates(route, Permission.READ),
            CONSUME,
            client_pb2.ConsumeRequest(
                open=opening,
                credit_bytes=settings.buffer_bytes,
                credit_records=self._hands.credit,
            ),
        )
        if self._routes.knows_newer(settings.topic, answer.opened.topic_id):
            stream.cancel()
            raise Unavailable(f"{broker.id} knows an older topic of the name {settings.topic!r}")
        if answer.opened.topic_id != self._topic_id:
            self._topic_id = answer.opened.topic_id
            self.trackers.clear()  # recreated under its name: these are of another topic
        self._beat_ms = answer.opened.heartbeat_ms or 3000
        self._address = broker.address
        self.epoch = Epoch(answer.epoch)
        return stream

    async def _serve(self, stream: Stream) -> None:
        self._heard_ms = self._clock.monotonic_ms()
        self.reason, self.open, self._strange_since_ms = "", True, 0
        forget = self._routes.on_change(self._wake.set)
        try:
            await until_one_fails(self._receive(stream), self._send(stream), self._watch())
        finally:
            forget()

    def _note_stream_lost(self) -> None:
        """Drop what belongs to the stream: undelivered batches, nacks, the token in flight."""
        self.open = False
        self._news = False
        self._nacks, self._controls = [], []
        for tracker in self.trackers.values():
            tracker.session_lost()
        self.commits.stream_lost()
        self._dropped(self, None)
        if self._gone:
            self.left.set()

    # ---- reading

    async def _receive(self, stream: Stream) -> None:
        while (reply := await stream.receive()) is not None:
            self._heard_ms = self._clock.monotonic_ms()
            if reply.epoch > self.epoch:
                self.epoch = Epoch(reply.epoch)
                self._routes.request_refresh()
            for move in reply.revoked:
                self._revoke(move)
            for move in reply.assigned:
                self._assign(move)
            before: DeliveredBatch | None = None
            for delivery in reply.deliveries:
                before = self._accept_delivery(delivery, before)
            for skipped in reply.skipped:
                self._note_skipped(skipped)
            for move in reply.stale_assignments:
                self._note_late_acks(move)
            for token in reply.committed_tokens:
                self._resolve_commits(token)
            if reply.HasField("error"):
                raise error_of(reply.error.code, reply.error.message)
            if reply.has_left:
                self.left.set()
        raise TransportError("the broker ended the session")

    def _assign(self, move: client_pb2.Assignment) -> None:
        tracker = self.trackers.get(move.queue_id)
        if tracker is None:
            tracker = self.trackers[move.queue_id] = AckTracker(self.group, move.queue_id)
        self._dropped(self, tracker)
        reassigned = tracker.held  # by a seek: the broker ignored a pause sent meanwhile
        tracker.assigned(move.generation, move.seek_number, self.epoch)
        if tracker.unstored:  # sent again: the token in flight went before that
            self.commits.again()
            self.acked()
        if tracker.paused or reassigned:
            self.control(tracker, pause=tracker.paused)

    def _revoke(self, move: client_pb2.Assignment) -> None:
        tracker = self.trackers.get(move.queue_id)
        if tracker is not None and tracker.held and tracker.generation == move.generation:
            self._dropped(self, tracker)  # what the program has not seen is given back
            tracker.taken()

    def _note_late_acks(self, move: client_pb2.Assignment) -> None:
        """Note that acks of this assignment did not count: the queue was reassigned or sought."""
        tracker = self.trackers.get(move.queue_id)
        if tracker is None or tracker.generation != move.generation:
            return
        if tracker.held:
            self._dropped(self, tracker)
        tracker.came_too_late(move.generation)

    def _accept_delivery(
        self, delivery: client_pb2.Delivery, before: DeliveredBatch | None
    ) -> DeliveredBatch | None:
        """Hand a delivery to the consumer; return its batch, which the next one may share."""
        tracker = self.trackers.get(delivery.queue_id)
        if tracker is None or not tracker.held or tracker.generation != delivery.generation:
            self.give_credit(len(delivery.batch), delivery.end_offset - delivery.first_offset)
            return None
        if tracker.paused:  # sent before the broker knew of the pause: returned, to come in order
            first, end = delivery.first_offset, delivery.end_offset
            self._nacks.append(nack_of(tracker, first, end, unseen=True))
            self._wake.set()
            self.give_credit(len(delivery.batch), end - first)
            return None
        if not delivery.batch and before is not None and before.tracker is tracker:
            batch = before.another(delivery)
        else:
            batch = DeliveredBatch(self._settings.topic, tracker, self, delivery)
        self._deliver(batch)
        return batch

    def _note_skipped(self, what: client_pb2.Skipped) -> None:
        count = what.end_offset - what.first_offset
        self.skipped[what.queue_id] = self.skipped.get(what.queue_id, 0) + count
        warn_of_skipped(self._settings.topic, self._settings.group, self.group, what)

    def _resolve_commits(self, token: int) -> None:
        """Resolve the commits up to this token: their acks are stored."""
        if self.commits.waiting:  # for acks that came after it
            self._wake.set()
        self._refine(self)
        self.commits.answered(token, self.trackers.values())

    # ---- writing

    async def _send(self, stream: Stream) -> None:
        beat_s = self._beat_ms / 2000
        while True:
            request = self._next_request()
            if request is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(beat_s):
                        await self._wake.wait()
                        await self._linger()
                self._wake.clear()
                self._check_route()
                request = self._next_request() or client_pb2.ConsumeRequest()
            self._last_sent_ms = self._clock.monotonic_ms()
            await stream.send(request)

    async def _linger(self) -> None:
        """Gather more to send, unless a caller waits."""
        linger_ms = LINGER_MS
        moving = any(tracker.revoked for tracker in self.trackers.values())
        if not (self._nacks or self._controls or moving or self._short_of_credit):
            quiet_ms = self._clock.monotonic_ms() - self._last_sent_ms
            linger_ms = max(LINGER_MS, BUSY_LINGER_MS - quiet_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(linger_ms / 1000):
                await self._hurry.wait()

    # ---- silence

    def _check_route(self) -> None:
        """Leave a broker that serves no reads in a newer epoch of the group."""
        route = self._routes.table.groups.get(self.group)
        if route is None or route.epoch <= self.epoch:
            return
        own_brokers = [b for b in route.brokers if b.address == self._address]
        if not any(b.permission & Permission.READ for b in own_brokers):
            raise TransportError(f"{self._address} no longer serves reads of group {self.group}")

    async def _watch(self) -> None:
        """Ask a silent broker whether it lives."""
        watch = self._loop_watch
        while True:
            # Time in which this loop was blocked does not count as silence of the broker.
            self._heard_ms += await watch.sleep(self._beat_ms / 4000)
            if self._clock.monotonic_ms() - self._heard_ms > self._beat_ms * 1.3:
                connection = self._connections.to(self._address)
                await ask_whether_alive(
                    connection, self._clock, watch, lambda: self._heard_ms, PROBE_TIMEOUT_S
                )
                self._heard_ms = self._clock.monotonic_ms()
