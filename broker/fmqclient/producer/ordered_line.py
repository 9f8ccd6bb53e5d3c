"""An ordered producer's place in the line of senders: one session with any broker, kept alive.

    dial → open (the broker makes a node) → [roles in] ∥ [heartbeats, reports out] ∥ watch
      ↑                                                                              │
      ├──────────────── lost: ask again, behind all who wait by then ←───────────────┤
      └──────── its broker stops: take another place, then leave this one ←──────────┘

The place lives as long as this session, and a broker drops a silent one. So heartbeats do not wait
for anything, and brokers outside of the group that takes the sends are preferred: such a place is
not lost together with the segment.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fmqclient.net.connections import Backoff, Connections, ask_whether_alive, open_at_first
from fmqclient.net.loop_turns import LoopWatch
from fmqclient.net.routes import STRANGE_MS, Routes
from fmqclient.net.tasks import until_one_fails
from fmqclient.producer.group_cuts import GroupCuts
from fmqclient.producer.ordered_state import OrderedState
from fmqclient.producer.ordered_values import Report
from fmqclient.producer.sender import PROBE_AFTER_MS, PROBE_TIMEOUT_S
from fmqcore.error_spec import RetryAction, spec_of
from fmqcore.errors import (
    FmqError,
    InvalidArgument,
    NoPermission,
    Unavailable,
    UnknownTopic,
    error_of,
)
from fmqcore.ids import GroupName
from fmqcore.routing import BrokerRoute
from fmqcore.zk.topic import TopicConfig
from fmqport.clock import Clock
from fmqport.transport import CallRefused, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqwire.methods import PRODUCE

HEARTBEAT_MS: Final = 3000
"""Where a broker names no other."""

_log = logging.getLogger("fmqclient")


class _BrokerStops(NoPermission):
    """The place's broker stops: it keeps the place until this side has closed the stream."""


async def ordered_topic(routes: Routes, topic: str) -> TopicConfig:
    """Return an ordered topic; raise `UnknownTopic`, or `InvalidArgument` if it is not ordered."""
    try:
        config = await routes.topic(topic)
    except UnknownTopic:
        raise UnknownTopic(
            f"there is no topic {topic!r}; create it: fmq topic create {topic} "
            "--ordered --groups GROUP,GROUP, or admin().ordered.create()"
        ) from None
    if not config.ordered:
        raise InvalidArgument(
            f"topic {topic} is not ordered: use `producer()` (fmq produce without "
            "--ordered), or create an ordered topic (fmq topic create NAME --ordered --groups "
            "GROUP,GROUP)"
        )
    return config


class Line:
    """The session that keeps one sender's place. `run` until cancelled."""

    def __init__(
        self,
        opening: client_pb2.ProduceOpen,
        topic_id: int,
        state: OrderedState,
        connections: Connections,
        routes: Routes,
        clock: Clock,
        watch: LoopWatch,
        learned: Callable[[client_pb2.SenderState], None],
        cuts: GroupCuts,
    ) -> None:
        self.sender_id = ""  # the newest place; "" = none yet
        self.reason = "connecting"  # it has none, for people
        self._opening = opening
        self._topic_id = topic_id
        self._state = state
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._watch = watch
        self._learned = learned
        self._cuts = cuts
        self._address = ""
        self._beat_ms = HEARTBEAT_MS
        self._heard_ms = 0
        self._report: Report | None = None
        self._wake = asyncio.Event()
        self._unknown_since_ms = 0
        self._stream: Stream | None = None  # of the newest place: kept until the next one

    def report(self, report: Report) -> None:
        """Send a report over the present session."""
        self._report = report
        self._wake.set()

    async def run(self) -> None:
        """Keep a place in line; ask for another when it is lost. Raises what lasts."""
        try:
            await self._run()
        finally:
            self._leave()

    async def _run(self) -> None:
        backoff = Backoff(self._clock)
        while True:
            try:
                stream = await self._open()
            except FmqError as error:
                await self._require_topic(error)
                self._require_passing(error)
                self.reason = str(error)
                self._routes.request_refresh()
                await backoff.wait()
                continue
            self._leave()  # an earlier one, whose broker stops
            self._stream, started_ms = stream, self._clock.monotonic_ms()
            if not await self._keep(stream):
                self._leave()
            if self._clock.monotonic_ms() - started_ms > self._beat_ms:
                backoff.reset()
            self._routes.request_refresh()
            await backoff.wait()

    def _leave(self) -> None:
        """Give up the newest place."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def _require_topic(self, error: FmqError) -> None:
        """Raise `UnknownTopic` if the topic in which this sender has had a place was deleted.

        One broker may be cut off from ZooKeeper: it is deleted if none that answers knows it.
        """
        name = self._opening.sender.topic
        if not self.sender_id or not isinstance(error, UnknownTopic):
            return
        with suppress(Unavailable):
            try:
                await self._routes.look_up(name)
                config = await self._routes.topic(name)
            except UnknownTopic:
                raise UnknownTopic(f"ordered topic {name} was deleted") from None
            if config.id != self._topic_id:
                raise UnknownTopic(f"ordered topic {name} was deleted and created again")

    def _require_passing(self, error: FmqError) -> None:
        """Raise an error that the next try would meet again."""
        action = spec_of(error).retry
        if action is RetryAction.FAIL:
            raise error
        if action is not RetryAction.REFRESH_ROUTES:
            self._unknown_since_ms = 0
            return
        now_ms = self._clock.monotonic_ms()
        self._unknown_since_ms = self._unknown_since_ms or now_ms
        if now_ms - self._unknown_since_ms > STRANGE_MS:
            raise error

    # ---- opening

    async def _open(self) -> Stream:
        """Open at one broker after the other: two at a time would take two places."""
        request = client_pb2.ProduceRequest(open=self._opening)
        errors = []
        for broker in self._brokers():
            try:
                _, stream, answer = await open_at_first(
                    self._connections, (broker,), PRODUCE, request
                )
            except FmqError as error:
                if spec_of(error).retry is RetryAction.FAIL:
                    raise
                errors.append(error)
                continue
            self.sender_id = answer.opened.sender_id
            self.reason = ""
            self._address = broker.address
            self._beat_ms = answer.opened.heartbeat_ms or HEARTBEAT_MS
            self._unknown_since_ms = 0
            return stream
        gone = next((e for e in errors if isinstance(e, UnknownTopic)), None)
        if gone is not None and self.sender_id:  # brokers that are down may not hide it
            raise gone
        if errors and all(type(error) is type(errors[0]) for error in errors):
            raise errors[0]
        raise Unavailable(
            "; ".join(map(str, errors)) or "no broker is known: check the addresses in the URL"
        )

    def _brokers(self) -> list[BrokerRoute]:
        """All brokers, the best first: live, elsewhere than the segment, not the one just lost."""
        brokers = [
            (broker, route.group == self._state.group)
            for route in self._routes.table.groups.values()
            for broker in route.brokers
        ]
        brokers.sort(key=lambda _: self._clock.random_id())
        brokers.sort(key=lambda row: (not row[0].live, row[0].address == self._address, row[1]))
        return [broker for broker, _ in brokers]

    # ---- the session

    async def _keep(self, stream: Stream) -> bool:
        """Wait until the place is lost; return True if its broker stops and still keeps it."""
        self._heard_ms = self._clock.monotonic_ms()
        self._report = None
        self._state.session_opened()
        try:
            await until_one_fails(self._receive(stream), self._send(stream), self._probe())
        except _BrokerStops:
            return True
        except FmqError as error:
            cause = error.error if isinstance(error, CallRefused) else error
            await self._require_topic(cause)
            self._require_passing(cause)
            self.reason = str(cause)
        finally:
            self._state.session_lost()
        if self._state.error is None:
            _log.warning(
                "sender %s lost its place in the line of ordered topic %s, and asks again: %s",
                self.sender_id or self._opening.sender.name,
                self._opening.sender.topic,
                self.reason,
            )
        return False

    async def _receive(self, stream: Stream) -> None:
        while (reply := await stream.receive()) is not None:
            self._heard_ms = self._clock.monotonic_ms()
            if reply.HasField("sender_state"):
                self._learned(reply.sender_state)
            if reply.HasField("error"):  # the broker waits until this side closes the stream
                if reply.error.code == client_pb2.NO_PERMISSION:
                    raise _BrokerStops(reply.error.message)
                raise error_of(reply.error.code, reply.error.message)
        raise TransportError(f"{self._address} ended the session")

    async def _send(self, stream: Stream) -> None:
        """Send the report that is due, and a heartbeat at half of the agreed time.

        A heartbeat says which groups are cut off, if they are other ones than before.
        """
        sent: frozenset[GroupName] = frozenset()
        while True:
            request = client_pb2.ProduceRequest()
            report, self._report = self._report, None
            if report is not None:
                request.sender_report.chain_segment = report.segment
                request.sender_report.first_unacked.update(dict(enumerate(report.unacked)))
            if (cut := self._cuts.groups(self._clock.monotonic_ms())) != sent:
                request.sender_links.cut_groups.extend(sorted(cut))
                request.sender_links.SetInParent()
                sent = cut
            await stream.send(request)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._beat_ms / 2000):
                    await self._wake.wait()
            self._wake.clear()

    async def _probe(self) -> None:
        """Ask a silent broker whether it lives: it speaks only when the chain changes."""
        while True:
            # Time in which this loop was blocked does not count as silence of the broker.
            self._heard_ms += await self._watch.sleep(PROBE_AFTER_MS / 2000)
            if self._clock.monotonic_ms() - self._heard_ms < PROBE_AFTER_MS:
                continue
            connection = self._connections.to(self._address)
            await ask_whether_alive(
                connection, self._clock, self._watch, lambda: self._heard_ms, PROBE_TIMEOUT_S
            )
            self._heard_ms = self._clock.monotonic_ms()
