"""One slave's stream at its master, from Hello to its end. Owner: replication.

Order of effects: reconcile, with suffixes pulled and made durable, before anything is appended for
it; a chunk is handed to the stream, then counts as sent; an ack is checked, then taken into the
`LinkView`, then the commit end is computed. No append is sent before the slave's first ack: it
gives the first credit, and shows that the slave has carried out the Welcome.

Appends are pipelined: at most `MAX_MESSAGE_BYTES` of whole batches each, read from the journal's
tail once per wake-up, within the slave's byte credit, so a stalled slave costs no memory here.
Leaves nothing on disk except the batches of a pulled suffix.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import LinkView
from fmqbroker.replication.wire import (
    MAX_MESSAGE_BYTES,
    LinkBroken,
    slave_view,
    until_broken,
    welcome,
)
from fmqbroker.runtime.failure_detector import Silence, WatchedTime
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.steady_clock import peer_clocks
from fmqcore.batch.header import HEADER_LEN, BadBatch, UnknownKind, parse_header
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.replication.epoch_history import EpochStart
from fmqcore.replication.frames import end_of_batches, leading_control, leading_work
from fmqcore.replication.in_sync_set import Lag
from fmqcore.replication.reconciliation import Action, Decision, MasterView, SlaveView, reconcile
from fmqport.clock import Clock
from fmqport.transport import Stream
from fmqport.wakeup_alignment import together, together_s
from fmqproto.v1 import replication_pb2 as wire

_log = structlog.get_logger()

_CONTROL_BYTES: Final = 128 * 1024
"""Maximum control bytes without credit: even with a full disk a slave must know the term."""
COMMIT_LINGER_MS: Final = 10
"""Delay of a commit end that no append carries, so that one message reports many moves."""


class Host(Protocol):
    """The interface that a link needs from the master's half (`replication/master.py`)."""

    @property
    def epoch(self) -> Epoch:
        """The term under which messages are sent."""
        ...

    def pull_refusal(self, link: "MasterLink") -> str | None:
        """Return why nothing from that stream may be appended; None if it may."""
        ...

    def ship_end(self) -> Position:
        """Return the position up to which the journal may leave this broker now."""
        ...

    def held_by_all(self) -> Position:
        """Return the position up to which every in-sync disk has the journal."""
        ...

    def in_sync(self, broker: BrokerId) -> bool:
        """Return whether the slave is in the in-sync set."""
        ...

    def counted_end(self, view: LinkView) -> Position:
        """Return the position up to which a slave counts under the group's policy."""
        ...

    def master_view(self, chain: int | None, *, suffix_fits: bool) -> MasterView:
        """Return this broker's state, for reconciliation."""
        ...

    def acked(self, link: "MasterLink", *, news: bool) -> None:
        """Take note that a link moved; `news`: being level, or bound by a grant, has changed."""
        ...

    async def make_room(self, link: "MasterLink", decision: Decision) -> None:
        """Let the journal end at the decision's position, so that a suffix can be appended.

        The journal is empty, or ends with what never left this broker, or gives way as a whole.
        """
        ...

    def pulled(self) -> None:
        """Take note that bytes of a suffix are now part of the journal, for every slave."""
        ...

    def removal_reason(self, broker: BrokerId) -> str | None:
        """Return why the slave must be disconnected; None if it stays."""
        ...


class MasterLink:
    """One stream of one slave."""

    def __init__(
        self,
        host: Host,
        stream: Stream,
        hello: wire.Hello,
        view: LinkView,
        *,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        commit: CommitFrontier,
        me: str,
        incarnation: str,
    ) -> None:
        self.broker = BrokerId(hello.broker)
        self.incarnation, self.dial = hello.incarnation, hello.connection_number
        self.view = view
        self.slave: SlaveView = slave_view(hello)
        self._watched = WatchedTime()
        self._lag = Lag.begin(journal.end, self._watched.ms)
        self.heard_ms = clock.monotonic_ms()
        self._host = host
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._peer_clocks = peer_clocks(clock)
        self._journal = journal
        self._commit = commit
        self._me, self._my_incarnation = me, incarnation
        self._wake = Signal()
        self._next = Position(0)  # the next position to send
        self._received = Position(0)
        self._credit = 0
        self._answered = False  # it has sent an ack: what the Welcome asked for is done
        self._not_before_ms = 0  # a learner is throttled until then
        self._sent_ms = 0
        self._sent_commit = Position(0)
        self._sent_in_sync = False
        self._last_ack = (False, False)  # (level, bound by a grant) at the last ack
        self._commit_due_ms = 0
        self._farewell = ""  # why the slave is sent away: the last message to it

    # ---- Hello and Welcome
    async def reconcile(self) -> Decision:
        """Agree on where to start, pulling what the slave has more; return the sent decision."""
        fits = True
        while True:
            chain = await _chain_at(self._journal, self.slave.end)
            view = self._host.master_view(chain, suffix_fits=fits)
            decision = reconcile(self.slave, view)
            await self._send_welcome(decision, view.epochs)
            if decision.action is not Action.SEND_SUFFIX:
                self._next = self._received = decision.position
                return decision
            try:
                await self._pull(decision)
            except UnknownKind as newer:  # D12: perhaps acknowledged, so the slave must keep it
                reason = f"{self.broker} holds what {self._me} cannot take: {newer}"
                await self.reject(reason)
                return Decision(Action.REJECT, reason=reason, alarm=True)
            except BadBatch as bad:
                _log.error("suffix_does_not_fit", slave=self.broker, reason=str(bad))
                fits = False

    async def reject(self, reason: str) -> None:
        """Refuse the slave; it dials again later."""
        await self._send_welcome(Decision(Action.REJECT, reason=reason), ())

    async def _send_welcome(self, decision: Decision, epochs: Iterable[EpochStart]) -> None:
        message = self._message(self._clock.monotonic_ms())
        message.welcome.CopyFrom(
            welcome(decision, epochs, self._host.epoch, self._me, self._my_incarnation)
        )
        async with self._in_time():
            await self._stream.send(message)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Bound the wait for a slave that hangs before it is welcomed."""
        try:
            async with asyncio.timeout(self._settings.dead_after_ms / 1000):
                yield
        except TimeoutError:
            raise LinkBroken(f"{self.broker} sent a Hello and no ack after it") from None

    async def _pull(self, decision: Decision) -> None:
        """Append what the slave has and this broker lacks, durably, before any term is opened."""
        journal, position = self._journal, decision.position
        bad: BadBatch | None = None
        self._require_pull()
        if position != journal.end or decision.instead:
            await self._host.make_room(self, decision)
        while True:
            async with self._in_time():
                message = await self._receive_one()
            if not message.HasField("suffix"):
                raise LinkBroken(
                    f"{self.broker} must send its journal from {position}, and sent another message"
                )
            self._require_pull()
            suffix = message.suffix
            if suffix.batches and bad is None:
                snaps = await journal.unpack(suffix.batches)
                self._require_pull()
                try:
                    journal.append_replica(Position(suffix.position), suffix.batches, snaps)
                    self._host.pulled()
                except BadBatch as error:  # read on to its end: the stream may still be of use
                    bad = error
            if suffix.last:
                break
            await asyncio.sleep(0)  # messages that are there already must not make one long turn
            while journal.end - journal.written_end > self._settings.credit_bytes:
                await wait_any(journal.flushed)
        if bad is not None:
            raise bad
        await journal.wait_durable(journal.end)
        _log.info("suffix_pulled", slave=self.broker, start=position, end=journal.end)

    def _require_pull(self) -> None:
        """Check after each wait: the acting master may have changed since the message was sent."""
        if (reason := self._host.pull_refusal(self)) is not None:
            raise LinkBroken(reason)

    # ---- the stream
    async def run(self) -> str:
        """Serve the stream until it breaks; return why it did."""
        reason = await until_broken(self._send(), self._receive(), self._watch())
        return self._farewell or reason

    def cancel(self) -> None:
        """Tear the stream down."""
        self._stream.cancel()

    @property
    def lag_ms(self) -> int:
        """Milliseconds the slave has been behind; a stall of the broker counts as a heartbeat."""
        return self._lag.lag_ms(self._watched.ms)

    @property
    def ready(self) -> bool:
        """Whether the slave has credit left."""
        return self._credit > 0

    def nudge(self) -> None:
        """Wake the sender: something that messages report to the slave has changed."""
        self._wake.notify()

    async def _send(self) -> None:
        signals = (self._journal.appended, self._commit.changed, self._wake)
        while not self._farewell:
            chunk = await self._chunk()
            now = self._clock.monotonic_ms()
            wait_ms = 0 if chunk else self._wait_ms(now)
            if wait_ms > 0:
                await wait_any(*signals, timeout_s=wait_ms / 1000)
                continue
            await self._send_append(chunk, now)
        await self.reject(self._farewell)
        await self._clock.sleep(self._settings.dead_after_ms / 1000)  # `_watch` ends it before

    async def _chunk(self) -> bytes:
        """Return whole batches to send now; empty if there are none, or no credit, or throttled."""
        room = self._received + self._credit - self._next
        if room < MAX_MESSAGE_BYTES or self._clock.monotonic_ms() < self._not_before_ms:
            if self._credit or not self._answered or self._next != self._received:
                return b""
            return leading_control(await self._read_chunk(_CONTROL_BYTES))
        return leading_work(await self._read_chunk(MAX_MESSAGE_BYTES))

    async def _read_chunk(self, max_bytes: int) -> bytes:
        journal, position, end = self._journal, self._next, self._host.ship_end()
        if position >= end:
            return b""
        chunk = journal.read_tail(position, max_bytes)
        if chunk is None:
            chunk = await journal.read_sound(position, max_bytes)
        # An EOF comes last in a chunk, so up to `end` bytes and positions advance together.
        return chunk if position + len(chunk) <= end else chunk[: end - position]

    def _wait_ms(self, now: int) -> int:
        """Return the milliseconds to wait with nothing to append; 0 = a message is due."""
        heartbeat_ms = self._settings.heartbeat_ms
        due = together(self._sent_ms + heartbeat_ms, heartbeat_ms)
        if self._host.in_sync(self.broker) is not self._sent_in_sync:
            due = now
        if self._commit.commit_end > self._sent_commit:
            self._commit_due_ms = self._commit_due_ms or now + COMMIT_LINGER_MS
            due = min(due, self._commit_due_ms)
        if now < self._not_before_ms:
            due = min(due, self._not_before_ms)
        return max(0, due - now)

    async def _send_append(self, chunk: bytes, now: int) -> None:
        message = self._message(now)
        if chunk:
            append = message.append
            append.epoch, append.position, append.batches = message.epoch, self._next, chunk
            self._next = end_of_batches(self._next, chunk)
        self._sent_ms, self._sent_commit = now, self._commit.commit_end
        self._sent_in_sync, self._commit_due_ms = message.in_sync, 0
        await self._stream.send(message)
        if chunk:
            counted = self._host.counted_end(self.view)
            self.view.sent_end = self._next
            self._throttle(len(chunk))
            if self._host.counted_end(self.view) != counted:  # the policy counts what is sent
                self._host.acked(self, news=False)

    def _message(self, now: int) -> wire.MasterMessage:
        return wire.MasterMessage(
            commit_end=self._commit.commit_end,
            sent_ms=now,
            epoch=self._host.epoch,
            in_sync=self._host.in_sync(self.broker),
            end=self._host.ship_end(),
            keep_from=self._host.held_by_all(),
            clock_ahead_ms=self._peer_clocks.ahead_ms(self.broker),
        )

    def _throttle(self, sent_bytes: int) -> None:
        """Delay a learner that is far behind, so that it leaves disk and network to the others."""
        rate = self._settings.learner_bytes_per_s
        if not rate or self._host.in_sync(self.broker) or self.view.caught_up:
            return
        now = self._clock.monotonic_ms()
        self._not_before_ms = max(now, self._not_before_ms) + sent_bytes * 1000 // rate

    # ---- what comes back
    async def _receive(self) -> None:
        while True:
            message = await self._receive_one()
            if not message.HasField("ack"):
                raise LinkBroken(f"{self.broker} sent neither ack nor suffix")
            self._take(message.ack)

    async def _receive_one(self) -> wire.SlaveMessage:
        message: wire.SlaveMessage | None = await self._stream.receive()
        if message is None:
            raise LinkBroken(f"{self.broker} has closed its stream")
        self.heard_ms = self._clock.monotonic_ms()
        return message

    def _take(self, ack: wire.Ack) -> None:
        """Check an ack and apply it. Acks are cumulative: ends never fall within a stream."""
        view, now = self.view, self.heard_ms
        received, durable = Position(ack.received_end), Position(ack.durable_end)
        good = (
            self._received <= received <= self._next
            and view.durable_end <= durable <= received  # R3: nothing counts before it is durable
            and ack.epoch <= self._host.epoch
            and ack.echo_ms <= now
        )
        if not good:
            raise LinkBroken(
                f"the ack of {self.broker} makes no sense: received {received}, durable {durable}, "
                f"epoch {ack.epoch}; sent to it up to {self._next}, had {self._received} before"
            )
        view.received_end, view.durable_end = received, durable
        view.epoch = Epoch(ack.epoch)
        self._received, self._credit, self._answered = received, ack.credit_bytes, True
        self._peer_clocks.heard(self.broker, ack.wall_ms, ack.echo_ms)
        if ack.grant_ms:
            view.lease_until_ms = max(view.lease_until_ms, ack.echo_ms + ack.grant_ms)
        counted, end = self._host.counted_end(view), self._host.ship_end()
        self._lag.note(counted, end, self._watched.ms)
        view.caught_up = end - counted <= self._settings.in_sync_lag_bytes
        before, self._last_ack = self._last_ack, (view.caught_up, view.lease_until_ms > now)
        self._host.acked(self, news=self._last_ack != before)
        if self._next < end:
            self._wake.notify()

    async def _watch(self) -> None:
        """End the stream if the slave is silent, or is no longer this broker's slave."""
        silence = Silence(self._settings.heartbeat_ms, self._settings.dead_after_ms)
        while True:
            now, heartbeat_ms = self._clock.monotonic_ms(), self._settings.heartbeat_ms
            await self._clock.sleep(together_s(now, heartbeat_ms))
            self._watched.waited(self._clock.monotonic_ms() - now, heartbeat_ms)
            if silence.beat(self.heard_ms):
                raise LinkBroken(f"{self.broker} has sent nothing for {silence.silent_ms} ms")
            if (reason := self._host.removal_reason(self.broker)) is not None:
                raise await self._send_away(reason)

    async def _send_away(self, reason: str) -> LinkBroken:
        """Send `reason` as the last message; end the stream only after it has left."""
        self._farewell = reason
        self._wake.notify()
        await self._clock.sleep(self._settings.heartbeat_ms / 1000)
        return LinkBroken(reason)


async def _chain_at(journal: Journal, position: Position) -> int | None:
    """Return the header CRC of the batch that ends at `position`; the next header names it."""
    if position == journal.end:
        return journal.last_header_crc
    if not journal.journal_start <= position < journal.end:
        return None
    try:
        header = parse_header(await journal.read(position, HEADER_LEN))
    except (BadBatch, FmqError):  # no batch begins there, or it is deleted just now
        return None
    return header.prev_header_crc if header.position == position else None
