"""One stream from a slave to its master, from Hello to its end.

Owner: replication. Order of effects: received batches are appended; the slave's own group commit
makes them durable; only then are they acknowledged as durable (R3). A promise not to claim is noted
in the `UpstreamView`, then the ack with the grant is sent. Whatever does not fit (position, chain,
CRC, epoch) ends the stream: the next Hello reports where the slave's journal really ends.

Four duties run concurrently: receive, unpack, acknowledge (which is the heartbeat too), watch. A
message with a long SNAP is decoded in short turns (*unpack*) before it counts, and no later message
counts before it. All are read meanwhile, so the master is heard; its credit bounds how much waits.
Leaves on disk what the journal appends.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import assert_never

import structlog

from fmqbroker.journal.journal import Journal, Snaps, long_snap
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import Held, UpstreamView
from fmqbroker.replication.wire import MAX_MESSAGE_BYTES, LinkBroken, epoch_starts, until_broken
from fmqbroker.runtime.failure_detector import Silence
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.steady_clock import peer_clocks
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.failover.term_rules import promise_ms
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import NOTHING, SlaveCounts
from fmqcore.replication.frames import end_of_batches, leading_work
from fmqcore.replication.reconciliation import Action
from fmqcore.zk.group_config import Member
from fmqcore.zk.group_state import Mode
from fmqport.clock import Clock
from fmqport.transport import Connection, Stream
from fmqport.wakeup_alignment import together_s
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import REPLICATE

_log = structlog.get_logger()

_Ends = tuple[Position, Position, Epoch, int]


class Upstream:
    """One stream to the master."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        view: UpstreamView,
        changed: Signal,
        master: Member,
        incarnation: str,
        dial: int,
        cutting: asyncio.Lock,
        report: Callable[[str, BrokerId, Position], None],
    ) -> None:
        self._report = report  # a line for the log: what, of which master, at which position
        self.welcomed = False
        self._cutting = cutting
        self._left = False
        self._stream: Stream | None = None
        self._settings = settings
        self._clock = clock
        self._peer_clocks = peer_clocks(clock)
        self._journal = journal
        self._commit = commit
        self._group = group
        self._view = view
        self._changed = changed
        self._master = master
        self._incarnation, self._dial = incarnation, dial
        self._me = BrokerId(settings.broker)
        self._wake = Signal()
        # Read, with their batches; the first has a long SNAP, or came behind one.
        self._unread: deque[tuple[wire.MasterMessage, bytes]] = deque()
        self._came = Signal()  # something is in `_unread`
        self._heard_ms = 0
        self._epoch = Epoch(0)  # newest of the messages read
        self._echo_ms = 0
        # The master's commit end; the slave's is bounded by its journal end.
        self._master_commit = NOTHING
        self._level_end: Position | None = None  # where the slave was first level with it, in sync
        self._noted = (False, False)  # (connected, caught up) as last reported to failover

    async def follow(self, connection: Connection) -> str:
        """Dial, agree, follow; return why the stream ended. Raises what the transport raises."""
        stream = await connection.open(REPLICATE, self._settings.dead_after_ms / 1000)
        self._stream = stream
        try:
            await self._send_in_time(stream, wire.SlaveMessage(hello=self._hello()))
            await self._agree(stream)
            self._require_master()
            self.welcomed = self._view.connected = True
            self._journal.follow()
            self._report("master_followed", self._master.id, self._journal.end)
            self._note()
            return await until_broken(
                self._receive(stream), self._unpack(), self._acknowledge(stream), self._watch()
            )
        finally:
            stream.cancel()
            self._view.connected = self._view.caught_up = False
            self._note()

    def leave(self) -> None:
        """End the stream: another broker is the master now, and nothing from this stream counts."""
        self._left = True
        self._view.connected = self._view.caught_up = False
        if self._stream is not None:
            self._stream.cancel()

    def _require_master(self) -> None:
        if self._left:
            raise LinkBroken(f"{self._master.id} is no longer the master")

    # ---- Hello and Welcome
    def _hello(self) -> wire.Hello:
        journal = self._journal
        state, member = self._group.state.value, self._group.config.member(self._me)
        taken_over = state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER)
        return wire.Hello(
            cluster=self._settings.cluster,
            group=self._settings.group,
            broker=self._me,
            incarnation=self._incarnation,
            connection_number=self._dial,
            zone="" if member is None else member.zone,
            epochs=epoch_starts(journal.state.epochs),
            journal_start=journal.journal_start,
            end=journal.end,
            durable_end=journal.durable_end,
            clean=not journal.doubts.lacks,
            tail_lost=journal.doubts.tail_lost,
            emptied=journal.doubts.emptied,
            commit_end=max(self._commit.commit_end, journal.known_commit_end),
            is_reader=taken_over and state.reader == self._me,
            last_header_crc=journal.last_header_crc,
        )

    async def _agree(self, stream: Stream) -> None:
        """Carry out Welcomes until one says APPEND_FROM or orders a truncation or a reset."""
        while True:
            message = await self._read_in_time(stream)
            if not message.HasField("welcome"):
                raise LinkBroken(f"master {self._master.id} must send Welcome first")
            welcome = message.welcome
            position = Position(welcome.position)
            action = self._action(welcome)
            if action not in (Action.APPEND_FROM, Action.REJECT):
                _log.warning(
                    "reconciliation_ordered",
                    action=action.name,
                    position=position,
                    reason=welcome.reason,
                )
            match action:
                case Action.APPEND_FROM:
                    if position != self._journal.end:
                        raise LinkBroken(f"cannot go on from {position}, not the journal end")
                    return
                case Action.TRUNCATE_TO:
                    self._refuse_below_commit(position)
                    async with (
                        self._cutting
                    ):  # D10: this broker may be master by now, and about to append
                        self._require_master()
                        await self._journal.truncate(position)
                    return
                case Action.RESET_TO:
                    self._refuse_reset(position)
                    async with self._cutting:
                        self._require_master()
                        await self._journal.reset(position)
                    return
                case Action.SEND_SUFFIX:
                    await self._send_suffix(stream, position)
                case Action.REJECT:
                    raise LinkBroken(f"refused by {self._master.id}: {welcome.reason}")
                case _:
                    assert_never(action)

    def _action(self, welcome: wire.Welcome) -> Action:
        try:
            return Action(int(welcome.action))
        except ValueError:
            raise LinkBroken(
                f"master {self._master.id} asks for action {welcome.action}, "
                "unknown to this broker: upgrade it"
            ) from None

    async def _read_in_time(self, stream: Stream) -> wire.MasterMessage:
        try:
            async with asyncio.timeout(self._settings.dead_after_ms / 1000):
                return await self._read(stream)
        except TimeoutError:
            raise LinkBroken(f"master {self._master.id} does not answer the Hello") from None

    def _refuse_below_commit(self, position: Position) -> None:
        """R5: refuse a master that asks to truncate committed batches, and raise an alarm."""
        if position < self._commit.commit_end:
            self._alarm(f"cut its journal to {position}")

    def _refuse_reset(self, position: Position) -> None:
        """R5: a reset may drop only what the master's retention deleted, or nothing committed."""
        journal = self._journal
        held = min(self._commit.commit_end, journal.end)
        if journal.journal_start < held and position < held:
            self._alarm(f"drop its journal and begin at {position}")

    def _alarm(self, what: str) -> None:
        reason = (
            f"master {self._master.id} asks {self._me} to {what}, below the commit end "
            f"{self._commit.commit_end}: nothing is truncated; compare the two data directories"
        )
        _log.error("loss_of_committed_data_refused", reason=reason)
        raise LinkBroken(reason)

    async def _send_suffix(self, stream: Stream, position: Position) -> None:
        """Send the journal from `position` to its end to the master, which lacks it.

        In messages that the master applies in a short turn each.
        """
        journal, end = self._journal, self._journal.end
        while position < end:
            rest = await journal.read_sound(position, MAX_MESSAGE_BYTES)
            while rest and position < end:
                chunk = leading_work(rest)
                rest = rest[len(chunk) :]
                suffix = wire.Suffix(position=position, batches=chunk)
                position = end_of_batches(position, chunk)
                suffix.last = position >= end
                await self._send_in_time(stream, wire.SlaveMessage(suffix=suffix))

    async def _send_in_time(self, stream: Stream, message: wire.SlaveMessage) -> None:
        """Bound the send: `_watch` does not run yet, and a master that hangs takes nothing in."""
        try:
            async with asyncio.timeout(self._settings.dead_after_ms / 1000):
                await stream.send(message)
        except TimeoutError:
            raise LinkBroken(f"master {self._master.id} does not take what is sent") from None

    # ---- receive
    async def _receive(self, stream: Stream) -> None:
        while True:
            message = await self._read(stream)
            self._require_master()
            if message.HasField("welcome"):  # its last message: it ends the stream
                raise LinkBroken(f"refused by {self._master.id}: {message.welcome.reason}")
            batches = message.append.batches  # each access is a copy
            if self._unread or long_snap(batches):
                self._unread.append((message, batches))
                self._view.caught_up = self._journal.end >= message.end
                self._came.notify()
            else:
                self._take_in(message, batches)

    async def _unpack(self) -> None:
        """Take in the messages that have to wait, in their order, each in another turn."""
        while True:
            while not self._unread:
                await self._came.wait()
            message, batches = self._unread[0]  # stays there: what comes meanwhile queues behind it
            snaps = await self._journal.unpack(batches)
            await asyncio.sleep(0)
            self._require_master()
            if self._counts(message, Epoch(0)):
                self._take_in(message, batches, snaps)
            self._unread.popleft()

    def _take_in(
        self, message: wire.MasterMessage, batches: bytes, snaps: Snaps | None = None
    ) -> None:
        held = Held(self._master.id, Epoch(message.epoch), Position(message.keep_from))
        self._view.held = held  # before what may not fit: retention makes room by it
        if message.HasField("clock_ahead_ms"):
            self._peer_clocks.report_clock(self._master.id, message.clock_ahead_ms)
        if message.HasField("append"):
            self._append(message.append, batches, snaps)
        self._master_commit = max(self._master_commit, Position(message.commit_end))
        commit_end = min(self._master_commit, self._journal.end)
        if commit_end > self._commit.commit_end:
            self._commit.advance(commit_end, NOTHING)
            self._journal.note_commit_end(commit_end)
        self._view.caught_up = self._journal.end >= message.end
        if self._view.caught_up:
            self._report("caught_up", self._master.id, self._journal.end)
        self._look_whole(message.in_sync)
        if self._view.caught_up and not self._noted[1]:
            self._note()
        self._wake.notify()

    def _look_whole(self, in_sync: bool) -> None:
        """Note that the journal is whole once it has reached the end of a serving master's.

        A master on its way back may lack the same batches.
        """
        journal = self._journal
        if in_sync and self._view.caught_up and self._level_end is None:
            self._level_end = journal.end
        if self._level_end is not None:
            journal.doubts.made_whole(durably=journal.durable_end >= self._level_end)

    async def _read(self, stream: Stream) -> wire.MasterMessage:
        """Return the next message that counts, of a term no older than any that is known here."""
        while True:
            message: wire.MasterMessage | None = await stream.receive()
            if message is None:
                raise LinkBroken(f"master {self._master.id} has closed the stream")
            if message.HasField("welcome") or self._counts(message, self._epoch):
                break
            # Sent before the newer term was known: it extends no lease and is no sign of life.
        self._epoch = max(self._epoch, Epoch(message.epoch))
        self._echo_ms, self._heard_ms = message.sent_ms, self._clock.monotonic_ms()
        self._view.heard_master, self._view.heard_ms = self._master.id, self._heard_ms
        return message

    def _counts(self, message: wire.MasterMessage, read: Epoch) -> bool:
        """Return whether a message's term is as new as `read` and as any term known here."""
        seen = max(read, self._journal.epoch, self._group.state.value.epoch)
        if message.epoch < seen and message.HasField("append"):
            raise LinkBroken(
                f"master {self._master.id} appends in epoch {message.epoch}, but this slave knows "
                f"epoch {seen}"
            )
        return message.epoch >= seen

    def _append(self, append: wire.Append, batches: bytes, snaps: Snaps | None) -> None:
        journal, position = self._journal, Position(append.position)
        if append.epoch < journal.epoch:  # fenced: an old master's bytes never get in
            raise LinkBroken(f"an append of epoch {append.epoch}, the journal has {journal.epoch}")
        if position != journal.end:
            raise LinkBroken(f"an append at {position}, the journal ends at {journal.end}")
        # Checks all of R2 again, CRCs and chain.
        journal.append_replica(position, batches, snaps)

    # ---- acknowledge
    async def _acknowledge(self, stream: Stream) -> None:
        """Send one ack per wake-up, covering all that happened, and one for each heartbeat.

        At rest an ack answers the master's heartbeat: a grant counts from when the master sent its
        message (F7), so an immediate answer is the best. A silent master gets acks all the same.
        """
        heartbeat_ms = self._settings.heartbeat_ms
        sent: _Ends | None = None
        sent_ms = echo_ms = 0
        while True:
            now, ends = self._clock.monotonic_ms(), self._ends()
            spoke = self._echo_ms != echo_ms
            due_ms = sent_ms + (heartbeat_ms // 2 if spoke else heartbeat_ms * 3 // 2)
            if ends == sent and now < due_ms:
                left_s = (due_ms - now) / 1000
                await wait_any(self._journal.flushed, self._wake, timeout_s=left_s)
                continue
            sent, sent_ms, echo_ms = ends, now, self._echo_ms
            await stream.send(wire.SlaveMessage(ack=self._ack(now)))

    def _ends(self) -> _Ends:
        """Return the values of which any change is worth an ack."""
        journal = self._journal
        received = journal.end
        if self._group.config.policy.counts is SlaveCounts.DURABLE:
            received = NOTHING  # goes along with the next durable end
        freed = journal.written_end * 4 // self._settings.credit_bytes  # a quarter of the credit
        return received, journal.durable_end, self._epoch, freed

    def _ack(self, now: int) -> wire.Ack:
        journal = self._journal
        # R3: an ack never runs ahead of the disk.
        assert journal.durable_end <= journal.written_end <= journal.end
        # A full disk gives no credit: the link stays up, but there is nothing to count on.
        room = 0 if journal.full else self._settings.credit_bytes
        unwritten = journal.end - journal.written_end
        return wire.Ack(
            received_end=journal.end,
            durable_end=journal.durable_end,
            credit_bytes=max(0, room - unwritten),
            grant_ms=self._promise(now),
            echo_ms=self._echo_ms,
            epoch=self._epoch,
            wall_ms=self._clock.wall_ms(),
        )

    def _promise(self, now: int) -> int:
        """Promise to claim nothing for the grant, before the ack goes out; 0 = not allowed."""
        view, state, grant_ms = self._view, self._group.state.value, self._settings.grant_ms
        serves = state.mode is Mode.MASTER and state.master == self._master.id
        if view.claiming or not serves:
            return 0
        view.promised_until_ms = max(view.promised_until_ms, now + promise_ms(grant_ms))
        return grant_ms

    # ---- watch
    async def _watch(self) -> None:
        """End the stream if the master is silent or is no longer the configured one."""
        silence = Silence(self._settings.heartbeat_ms, self._settings.dead_after_ms)
        while True:
            now = self._clock.monotonic_ms()
            await self._clock.sleep(together_s(now, self._settings.heartbeat_ms))
            if silence.beat(self._heard_ms):
                reason = f"master {self._master.id} has sent nothing for {silence.silent_ms} ms"
                raise LinkBroken(reason)
            if self._is_elsewhere():
                raise LinkBroken("the configured master, or its address, is another one now")
            self._note()

    def _is_elsewhere(self) -> bool:
        """Return whether the master to dial, or its address, differs from what was dialled."""
        config = self._group.config
        now = config.member(config.master)
        dialed = self._master.id, self._master.address
        return now is None or now.id == self._me or (now.id, now.address) != dialed

    def _note(self) -> None:
        """Notify failover if its last notified state no longer holds."""
        now = (self._view.connected, self._view.caught_up)
        if now != self._noted:
            self._noted = now
            self._changed.notify()
