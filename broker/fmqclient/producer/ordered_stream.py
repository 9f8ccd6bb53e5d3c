"""An ordered producer's stream to the master that takes the open segment.

    dial the segment's group → open → [all without an ack again, then new] ∥ read answers ∥ watch
      ↑                                                                                      │
      └────────────── lost, or sends went on in another group (`move`) ←─────────────────────┘

`ordered_state` decides; here are messages, windows and timers. Everything that may leave when this
wakes goes into one message, and at most `pipeline` messages are unanswered at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from fmqclient.net.connections import Backoff, Connections, ask_whether_alive, open_at_first
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import Routes
from fmqclient.net.tasks import until_one_fails
from fmqclient.producer.error_policy import RETRY_MS
from fmqclient.producer.group_cuts import GroupCuts
from fmqclient.producer.ordered_records import wire_batch
from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_values import Action
from fmqclient.producer.sender import MESSAGE_BYTES, PROBE_AFTER_MS, PROBE_TIMEOUT_S
from fmqclient.settings import ProducerSettings
from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.errors import FmqError, NoPermission, SenderFenced, Unavailable, error_of
from fmqcore.ids import Epoch, GroupName, Offset, Permission
from fmqcore.routing import candidates
from fmqport.clock import Clock
from fmqport.transport import CallRefused, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE


class _Moved(FmqError):
    """Sends go on in another group, or at another broker."""


class SegmentStream:
    """The stream of one ordered producer. `run` until cancelled."""

    def __init__(
        self,
        opening: Callable[[], client_pb2.ProduceOpen],
        state: OrderedState,
        topic_id: int,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        watch: LoopWatch,
        settings: ProducerSettings,
        cut: Callable[[], None],
        apply: Callable[[Iterable[Action]], None],
        learned: Callable[[client_pb2.SenderState], None],
        cuts: GroupCuts,
    ) -> None:
        self.reason = "no segment is open yet"  # nothing is sent, for people
        self.max_batch_bytes = MAX_PAYLOAD  # of this broker
        self.max_batch_records = MAX_RECORDS
        self._opening = opening
        self._state = state
        self._topic_id = topic_id
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._watch = watch
        self._settings = settings
        self._cut = cut  # let the state have what was handed in
        self._apply = apply
        self._learned = learned
        self._cuts = cuts
        self._moved = asyncio.Event()
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._messages: deque[int] = deque()  # last correlation of each unanswered message
        self._correlation = 0
        self._window_bytes = 0
        self._address = ""
        self._heard_ms = 0
        self._epoch = Epoch(0)

    # ---- for the producer

    def move(self) -> None:
        """Dial the state's group again: it is another one, or another broker has to answer."""
        self._moved.set()

    def wake(self) -> None:
        """Send the batches that may leave now."""
        self._work.set()

    def hurry(self) -> None:
        """Send at once, without linger: a caller flushes."""
        self._hurry.set()
        self._work.set()

    # ---- life

    async def run(self) -> None:
        """Dial, serve, and start again, for ever."""
        backoff = Backoff(self._clock, first_ms=50, max_ms=1000)
        while True:
            while not self._state.epoch:
                await self._moved.wait()
                self._moved.clear()
                self.reason = "it connects to the group that takes the sends"
            group = self._state.group
            segment, unacked = self._state.segment, self._state.unacked
            self._moved.clear()
            try:
                await until_one_fails(self._serve(), self._leave())
            except _Moved:
                pass
            except FmqError as error:
                cause = error.error if isinstance(error, CallRefused) else error
                self.reason = str(cause)
                now_ms = self._clock.monotonic_ms()
                if isinstance(cause, (TransportError, NoPermission)):
                    self._cuts.fail(group, now_ms)
                if isinstance(cause, SenderFenced):
                    self._apply(self._state.fenced_by_master(str(cause), now_ms))
            self._routes.request_refresh()
            if self._state.unacked != unacked:
                backoff.reset()
            if self._state.segment == segment:
                self._moved.clear()
                await self._pause(backoff)
            else:
                backoff.reset()

    async def _pause(self, backoff: Backoff) -> None:
        """Wait before the next try, but not when sends go on elsewhere.

        A closing segment takes nothing more, and its acks do not count: it needs no other stream.
        """
        if self._state.frozen:
            await self._moved.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(backoff.next_ms() / 1000):
                await self._moved.wait()

    async def _leave(self) -> None:
        await self._moved.wait()
        raise _Moved("sends go on elsewhere")

    async def _serve(self) -> None:
        stream = await self._open(self._state.group)
        try:
            self._messages.clear()
            self._heard_ms = self._clock.monotonic_ms()
            self.reason = ""
            self._cuts.reach(self._state.group)
            self._state.stream_opened()
            self._work.set()
            await until_one_fails(self._send(stream), self._receive(stream), self._probe())
        finally:
            stream.cancel()
            self._state.stream_lost()

    async def _open(self, group: GroupName) -> Stream:
        route = self._routes.table.groups.get(group)
        if route is None:
            raise Unavailable(
                f"no broker's routes name group {group}: start its brokers, or see the groups"
            )
        broker, stream, answer = await open_at_first(
            self._connections,
            candidates(route, Permission.WRITE),
            PRODUCE,
            client_pb2.ProduceRequest(open=self._opening()),
        )
        opened = answer.opened
        self._epoch = Epoch(answer.epoch)
        self._window_bytes = opened.window_bytes or MESSAGE_BYTES
        self.max_batch_bytes = opened.max_batch_bytes or MAX_PAYLOAD
        self.max_batch_records = opened.max_records or MAX_RECORDS
        self._address = broker.address
        return stream

    # ---- sending

    async def _send(self, stream: Stream) -> None:
        linger_s = self._settings.linger_ms / 1000
        while True:
            now_ms = self._clock.monotonic_ms()
            request = self._next_request(now_ms)
            if request is not None:
                await stream.send(request)
                continue
            self._work.clear()
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry_s(now_ms)):
                    await self._work.wait()
            if linger_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(linger_s):
                        await self._hurry.wait()

    def _retry_s(self, now_ms: int) -> float | None:
        """Return after how many seconds a queue may send again that may not now."""
        retry_ms = self._state.next_retry_ms(now_ms)
        return None if retry_ms is None else (retry_ms - now_ms) / 1000

    def _next_request(self, now_ms: int) -> client_pb2.ProduceRequest | None:
        """Return everything that may leave now as one message, None if nothing may."""
        state = self._state
        if len(self._messages) >= self._settings.pipeline or not state.may_send():
            return None
        request = client_pb2.ProduceRequest()
        size = 0
        while size < MESSAGE_BYTES and state.in_flight_bytes < self._window_bytes:
            self._cut()
            taken = state.take(now_ms)
            if taken is None:
                break
            self._correlation, batch = taken
            size += batch.content.size
            request.batches.append(wire_batch(*taken, self._topic_id, state.segment, state.epoch))
        if not request.batches:
            return None
        self._messages.append(self._correlation)
        return request

    # ---- answers

    async def _receive(self, stream: Stream) -> None:
        while (reply := await stream.receive()) is not None:
            self._heard_ms = self._clock.monotonic_ms()
            if reply.epoch > self._epoch:
                self._epoch = Epoch(reply.epoch)
                self._routes.request_refresh()
            for ack in reply.acks:
                self._take(ack)
            if reply.HasField("sender_state"):
                self._learned(reply.sender_state)
            self._work.set()
            if reply.HasField("error"):
                raise error_of(reply.error.code, reply.error.message)
        raise TransportError(f"{self._address} ended the session")

    def _take(self, ack: client_pb2.ProduceAck) -> None:
        while self._messages and self._messages[0] <= ack.correlation:
            self._messages.popleft()
        if ack.code == 0:
            self._apply(self._state.acknowledged(ack.correlation, Offset(ack.base_offset)))
            return
        error = error_of(ack.code, ack.message)
        pause_ms = int(self._clock.uniform(RETRY_MS / 2, RETRY_MS))
        self._apply(
            self._state.refused(
                ack.correlation, error, ack.expected_sequence, self._heard_ms, pause_ms
            )
        )

    # ---- silence

    async def _probe(self) -> None:
        """Ask a silent broker whether it lives; leave it if it is dead."""
        while True:
            # Time in which this loop was blocked does not count as silence of the broker.
            self._heard_ms += await self._watch.sleep(PROBE_AFTER_MS / 2000)
            if not self._state.in_flight:
                self._heard_ms = self._clock.monotonic_ms()
                continue
            if self._clock.monotonic_ms() - self._heard_ms < PROBE_AFTER_MS:
                continue
            connection = self._connections.to(self._address)
            await ask_whether_alive(
                connection, self._clock, self._watch, lambda: self._heard_ms, PROBE_TIMEOUT_S
            )
            self._heard_ms = self._clock.monotonic_ms()
