"""The slave's half of replication: it dials the master, for ever.

Owner: replication. One stream is `replication/slave_stream.py`; this file decides what happens
between them: which broker to dial, how long to wait, what failover may know. A master that comes
back (its live node is new) is dialled at once; the growing, jittered pause is for all else. However
a stream ends, the result is one line in the log and the next dial. Leaves nothing on disk itself.
"""

import asyncio
from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.slave_stream import Upstream
from fmqbroker.replication.view import UpstreamView
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.batch.header import BadBatch
from fmqcore.errors import FmqError
from fmqcore.failover.term_rules import promise_ms
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import NOTHING, flush_mode
from fmqcore.zk.group_config import Member
from fmqport.clock import Clock
from fmqport.transport import Transport
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import HAND_OVER

_log = structlog.get_logger()

_REASONS: Final = 16
"""Maximum number of reasons remembered, so that none of them is logged again."""


class SlaveReplication:
    """See `replication.view.SlaveReplication` for what failover may rely on."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        transport: Transport,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        incarnation: str,
        cutting: asyncio.Lock | None = None,
        granted_ms: int = 0,
    ) -> None:
        # Held while this journal is truncated on a master's order: no term is opened meanwhile.
        self._cutting = asyncio.Lock() if cutting is None else cutting
        self._stream: Upstream | None = None
        # A promise of an earlier incarnation may still run, for `granted_ms` at most.
        longest_ms = max(granted_ms, settings.grant_ms)
        promised_until_ms = clock.monotonic_ms() + promise_ms(longest_ms)
        self.upstream = UpstreamView(promised_until_ms=promised_until_ms)
        self.changed = Signal()
        self._settings = settings
        self._clock = clock
        self._transport = transport
        self._journal = journal
        self._commit = commit
        self._group = group
        self._incarnation = incarnation
        self._dials = 0
        self._me = BrokerId(settings.broker)
        self._delay_ms = settings.redial_min_ms
        self._complained: set[str] = set()  # since the last stream that lasted
        self._reported: set[tuple[str, BrokerId]] = (
            set()
        )  # since the log event that the stream broke
        self._dialed: str | None = None  # who had announced itself as master at the last dial
        commit.advance(min(journal.known_commit_end, journal.end), NOTHING)
        group.on_master(self._forget)

    def _forget(self) -> None:
        """Leave the current stream: another broker acts as master now."""
        if self._stream is not None:
            self._stream.leave()
            self.changed.notify()

    async def hand_over(self, epoch: Epoch, offsets: bytes, timeout_s: float) -> str:
        """See `replication.view.SlaveReplication`."""
        master = self._master()
        if master is None:
            return "no other broker is the master"
        connection = self._transport.connect(master.address)
        request = wire.HandOverRequest(
            group=self._settings.group, epoch=epoch, reader=self._me, offsets=offsets
        )
        try:
            reply: wire.HandOverReply = await connection.call(HAND_OVER, request, timeout_s)
        finally:
            await connection.close()
        return "" if reply.installed else reply.reason or f"{master.id} has not installed them"

    async def run(self) -> None:
        """Follow the master until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_config())
            tasks.create_task(self._follow_master())

    async def _follow_config(self) -> None:
        while True:
            config = self._group.config
            if config.master != self._me:
                sync, interval_ms = flush_mode(config.policy, master=False)
                self._journal.set_flush(sync=sync, interval_ms=interval_ms)
            await self._group.changed.wait()

    async def _follow_master(self) -> None:
        while True:
            master = self._master()
            if master is None:
                await self._group.changed.wait()
                continue
            reason = await self._one_stream(master)
            if reason not in self._complained:  # one line for each reason, not for each try
                if len(self._complained) >= _REASONS:
                    self._complained.clear()
                self._complained.add(reason)
                self._reported.clear()
                _log.info(
                    "master_not_followed", master=master.id, address=master.address, reason=reason
                )
            await self._pause(self._next_delay_ms())

    def _report(self, event: str, master: BrokerId, position: Position) -> None:
        """Log an event once per master until a line says that the stream broke."""
        if (event, master) not in self._reported:
            self._reported.add((event, master))
            _log.info(event, master=master, position=position)

    async def _one_stream(self, master: Member) -> str:
        """Dial, follow until the stream breaks, leave nothing open; return why it broke."""
        self._dialed = self._announced()
        self._dials += 1
        upstream = Upstream(
            settings=self._settings,
            clock=self._clock,
            journal=self._journal,
            commit=self._commit,
            group=self._group,
            view=self.upstream,
            changed=self.changed,
            master=master,
            incarnation=self._incarnation,
            dial=self._dials,
            cutting=self._cutting,
            report=self._report,
        )
        self._stream = upstream
        connection = self._transport.connect(master.address)
        started_ms = self._clock.monotonic_ms()
        try:
            return await upstream.follow(connection)
        except (FmqError, BadBatch) as error:
            return str(error)
        finally:
            self._stream = None
            if upstream.welcomed:
                self._delay_ms = self._settings.redial_min_ms
                if self._clock.monotonic_ms() - started_ms >= self._settings.dead_after_ms:
                    self._complained.clear()
            await connection.close()

    async def _pause(self, delay_ms: float) -> None:
        """Wait `delay_ms` before the next dial, or until the master has a new live node.

        A master with a new live node listens. Each slave then dials once, after a random delay.
        """
        until_ms = self._clock.monotonic_ms() + delay_ms
        while (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            if self._announced() not in (None, self._dialed):
                self._delay_ms = self._settings.redial_min_ms
                await self._clock.sleep(self._clock.uniform(0, self._delay_ms) / 1000)
                return
            await wait_any(self._group.changed, timeout_s=left_ms / 1000)

    def _announced(self) -> str | None:
        """Return the incarnation in the master's live node; None if there is no live node."""
        live = self._group.live.get(self._group.config.master)
        return None if live is None else live.incarnation

    def _next_delay_ms(self) -> float:
        """Double the delay at each failure, up to the bound; jitter spreads the slaves out."""
        delay_ms = min(self._delay_ms, self._settings.redial_max_ms)
        self._delay_ms = min(delay_ms * 2, self._settings.redial_max_ms)
        return self._clock.uniform(delay_ms / 2, delay_ms)

    def _master(self) -> Member | None:
        """Return the broker to dial; None if this broker is the master or no member."""
        config = self._group.config
        if config.master == self._me or config.member(self._me) is None:
            return None
        return config.member(config.master)
