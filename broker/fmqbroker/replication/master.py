"""The master's half of replication. Owner: replication.

The path of a slave through the files: `serve` reads its Hello → `replication/master_stream.py`
reconciles, sends, takes its acks → `replication/commit_end.py` moves the commit end →
`replication/in_sync_set.py` keeps the in-sync set.

A broker serves slaves in any mode in which the group's state names it as master. While it has no
term open (it is on the way back) it reconciles slaves, pulls their suffixes, and sends what its
journal held then, but nothing appended for a term whose compare-and-set may still fail.

Each slave has one stream (`replication/slave_registry.py`): acks count only from the current one,
in the current epoch (R6). Leaves nothing on disk itself.
"""

import asyncio
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Final

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_end import CommitEnd, slave_ends
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.in_sync_set import InSyncSet
from fmqbroker.replication.master_stream import MasterLink
from fmqbroker.replication.shippable_end import Settled
from fmqbroker.replication.slave_registry import Streams
from fmqbroker.replication.view import LinkView
from fmqbroker.replication.wire import LinkBroken
from fmqbroker.runtime.notifier import Signal
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.steady_clock import peer_clocks
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import NOTHING, AckPolicy, Flush, counted_end, flush_mode
from fmqcore.replication.in_sync_set import LinkFacts
from fmqcore.replication.reconciliation import Action, Decision, MasterView
from fmqport.clock import Clock
from fmqport.transport import CallContext, Handlers, Stream
from fmqproto.v1 import replication_pb2 as wire
from fmqwire.methods import REPLICATE

_log = structlog.get_logger()

_NOTIFY_HEARTBEATS: Final = 4
"""Heartbeats between failover's checks of unchanged links: a check costs as much as an ack."""


class MasterReplication:
    """See `replication.view.MasterReplication` for what failover may rely on."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        incarnation: str,
    ) -> None:
        self.links: dict[BrokerId, LinkView] = {}
        self.changed = Signal()
        self.reported = Signal()
        self._settings = settings
        self._clock = clock
        self._journal = journal
        self._commit = commit
        self._group = group
        self._incarnation = incarnation
        self._me = BrokerId(settings.broker)
        self._streams = Streams(settings, clock)
        self._epoch = Epoch(0)  # of the term that is open; 0 = none
        self._settled = Settled(self._me, journal, group)  # without a term: what may leave me
        self._lost: set[BrokerId] = set()  # linked in this term, and the stream broke
        self.reconciling = asyncio.Lock()
        self._notified_ms = 0
        self._ends = CommitEnd(self._me, journal, commit, group)
        self._isr = InSyncSet(settings, clock, journal, commit, group, self._facts, self._refit)
        commit.advance(min(journal.known_commit_end, journal.end), NOTHING)
        group.on_master(self._forget)

    # ---- what failover asks
    def open_for(self, epoch: Epoch) -> None:
        """See `replication.view.MasterReplication`."""
        self._epoch = epoch
        self._ends.open_for(epoch)
        self._lost.clear()
        self._isr.open_for(epoch)
        self._refit()
        self._nudge_all()

    def close_writes(self) -> None:
        """See `replication.view.MasterReplication`."""
        if not self._epoch:
            return
        self._epoch = Epoch(0)
        self._settled.all()
        self._ends.close()
        self._isr.close()
        self._nudge_all()

    def _forget(self) -> None:
        """Drop all state of the links: the acting master has changed, to or from this broker.

        As a slave, this broker appends only what another has shipped; no slave is linked or heard.
        """
        self._settled.all()
        self._streams.end_all()
        self.links.clear()
        self._lost.clear()
        self.changed.notify()

    def keep_from(self) -> Position:
        """See `replication.view.MasterReplication`."""
        return min([self._journal.durable_end, *map(self.counted_end, self._views_in_sync())])

    @property
    def successors(self) -> frozenset[BrokerId]:
        """See `replication.view.MasterReplication`."""
        return self._group.widest_isr.union(*self._isr.sets()) - {self._me}

    def require_on_disk(self, promised: Callable[[], Position]) -> None:
        """See `replication.view.MasterReplication`."""
        self._isr.require_on_disk(promised)

    def held_by_all(self) -> Position:
        """See `Host`: on their disks, whatever the policy counts."""
        ends = [view.durable_end for view in self._views_in_sync()]
        return min([self._journal.durable_end, *ends])

    def _views_in_sync(self) -> list[LinkView]:
        isr = self._group.widest_isr - {self._me}
        return [self.links.get(broker, LinkView()) for broker in sorted(isr)]

    # ---- long-running duties
    async def run(self) -> None:
        """Follow the journal, the group and the in-sync set until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_journal())
            tasks.create_task(self._follow_group())
            tasks.create_task(self._isr.run())

    async def _follow_journal(self) -> None:
        while True:
            self._compute()
            await self._journal.flushed.wait()

    async def _follow_group(self) -> None:
        while True:
            config = self._group.config
            for member in config.slaves:
                self.links.setdefault(member.id, LinkView())
            peer_clocks(self._clock).keep({member.id for member in config.members})
            self._refit()
            self._nudge_all()
            await self._group.changed.wait()

    # ---- one slave's stream
    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {REPLICATE: self.serve}

    async def serve(self, _: CallContext, stream: Stream) -> None:
        """Serve one `Replicate` stream until it breaks."""
        hello = await self._hello(stream)
        broker = BrokerId(hello.broker)
        view = self.links.get(broker)
        link = MasterLink(
            self,
            stream,
            hello,
            LinkView() if view is None else view,
            settings=self._settings,
            clock=self._clock,
            journal=self._journal,
            commit=self._commit,
            me=self._me,
            incarnation=self._incarnation,
        )
        if (twin := self._streams.twin_reason(link)) is not None:
            _log.error("slave_name_in_use_twice", slave=broker, reason=twin)
            await link.reject(f"another process lives under the name {broker}: {twin}; stop one")
            return
        stranger = (hello.cluster, hello.group) != (self._settings.cluster, self._settings.group)
        if stranger or self._group.config.member(broker) is None:
            await link.reconcile()
            return
        refusal = self._streams.overtaken_reason(link) or self._unopenable_reason()
        if refusal is not None:
            await link.reject(refusal)
            return
        self._streams.replace(link)
        reason = "cancelled"
        try:
            reason = await self._welcome_and_run(link)
        finally:
            self._leave(link, reason)

    async def _hello(self, stream: Stream) -> wire.Hello:
        try:
            async with asyncio.timeout(self._settings.dead_after_ms / 1000):
                message: wire.SlaveMessage | None = await stream.receive()
        except TimeoutError:
            raise LinkBroken(f"{stream.peer} has sent no Hello in time") from None
        if message is None or not message.HasField("hello"):
            raise LinkBroken(f"{stream.peer} must send Hello first")
        return message.hello

    async def _welcome_and_run(self, link: MasterLink) -> str:
        async with self.reconciling:  # one suffix at a time, and no decision on a moving end
            refusal = self._unopenable_reason()
            if refusal is not None:  # this broker's term came in doubt while this waited
                await link.reject(refusal)
                return refusal
            decision = await link.reconcile()
        refused_before = link.view.refused
        link.view.refused = decision.reason if decision.action is Action.REJECT else ""
        if not refused_before or refused_before != link.view.refused:  # once, not at each dial
            log = _log.error if decision.alarm else _log.info
            log(
                "slave_welcomed" if not link.view.refused else "slave_refused",
                slave=link.broker,
                action=decision.action.name,
                position=decision.position,
                reason=decision.reason,
            )
        if link.view.refused:
            return decision.reason
        if not self._streams.counts(link):
            return "a newer stream took its place"
        self.links[link.broker] = link.view  # a new slave may dial before this is known
        # A slave that once gave all it had is not emptied, even if its disk is lost later.
        gave = link.view.heard and not link.view.emptied
        link.view.emptied = link.slave.emptied and not gave
        link.view.connected = link.view.heard = True
        link.view.whole = link.view.whole or link.slave.whole  # what it had is here now
        link.view.kept = link.view.kept or not link.slave.tail_lost
        self._isr.recheck()
        self.changed.notify()
        return await link.run()

    def _leave(self, link: MasterLink, reason: str) -> None:
        if not self._streams.counts(link):
            return  # a newer stream has taken its place
        self._streams.remove(link)
        view = link.view
        if view.connected:
            _log.info("slave_lost", slave=link.broker, reason=reason)
            self._lost.add(link.broker)
        view.connected = view.caught_up = False
        self._isr.recheck()
        self.changed.notify()

    # ---- what a link asks (`master_stream.Host`)
    @property
    def epoch(self) -> Epoch:
        """The term under which messages are sent: the open one, or that of the way back.

        Never below the epochs of what is shipped: slaves would take this broker for an old master.
        """
        if self._epoch:
            return self._epoch
        shipped = [e for e, start in self._journal.state.epochs if start < self._settled.end]
        return max([self._group.state.value.epoch, *shipped[-1:]])

    def pull_refusal(self, link: MasterLink) -> str | None:
        """See `Host`."""
        if not self._streams.counts(link):
            return f"the stream of {link.broker} counts no more"
        return "a term was opened while a suffix was on its way" if self._epoch else None

    def ship_end(self) -> Position:
        """See `Host`."""
        return self._journal.end if self._epoch else self._settled.end

    def in_sync(self, broker: BrokerId) -> bool:
        """See `Host`."""
        return broker in (self._isr.current or ())

    def counted_end(self, view: LinkView) -> Position:
        """See `Host`."""
        return counted_end(self._group.config.policy, slave_ends(view, ""))

    def master_view(self, chain: int | None, *, suffix_fits: bool) -> MasterView:
        """See `Host`."""
        journal, state = self._journal, self._group.state.value
        end, epochs = journal.end, journal.state.epochs
        if not self._epoch:
            self._settled.look_back()
        if self._left_over():
            end = self._settled.end
            epochs = [(epoch, start) for epoch, start in epochs if start < end]
        return MasterView(
            cluster=self._settings.cluster,
            config=self._group.config,
            me=self._me,
            epoch=max([state.epoch, *(epoch for epoch, _ in epochs[-1:])]),
            epochs=epochs,
            journal_start=journal.journal_start,
            end=end,
            opening=not self._epoch,
            chain=chain,
            suffix_fits=suffix_fits,
            yields_to=self._yields_to(),
        )

    def _yields_to(self) -> Set[BrokerId]:
        """Return the brokers to yield to if this broker was emptied and is not whole again yet.

        They hold what was acknowledged: in-sync slaves and the reader, else the most advanced one.
        """
        journal, state = self._journal, self._group.state.value
        known = self._commit.commit_end > journal.journal_start
        if self._epoch or not journal.doubts.unproven or known:
            return frozenset()  # R5: also of an emptied one nothing goes that it knows as committed
        sure = (state.isr | {state.reader}) - {self._me, ""}
        return sure or {m.id for m in self._group.config.slaves}

    def kept_end(self) -> Position:
        """See `replication.view.MasterReplication`."""
        if not self._epoch:
            self._settled.look_back()
        return self._settled.end if self._left_over() else self._journal.end

    def _left_over(self) -> bool:
        return not self._epoch and self._settled.left_over()

    async def make_room(self, link: MasterLink, decision: Decision) -> None:
        """See `Host`. Runs under `reconciling`: no term is being opened meanwhile."""
        journal, position = self._journal, decision.position
        if journal.end == journal.journal_start or decision.instead:
            if decision.instead:
                self._forget_others(link)
            try:
                await journal.reset(position)
            finally:  # a started reset is finished, also if the stream is cancelled
                if journal.end == journal.journal_start == position:
                    self._settled.all()
            return
        # R2, R5: no broker ever got what is truncated here, so none can have served it.
        assert self._left_over()
        assert position == self._settled.end
        _log.warning("term_start_truncated", start=position, end=journal.end, epoch=journal.epoch)
        await journal.truncate(position)
        self._settled.all()

    def _forget_others(self, chosen: MasterLink) -> None:
        """Drop what the other slaves contributed: they say Hello again, to a different journal."""
        self._streams.end_all(but=chosen)
        for broker in sorted(self.links.keys() - {chosen.broker}):
            self.links[broker] = LinkView()

    def acked(self, link: MasterLink, *, news: bool) -> None:
        """See `Host`: update the commit end at once, wake the others only for news."""
        if not self._streams.counts(link):
            return
        self._compute()
        in_sync = self.in_sync(link.broker)
        if link.broker == self._isr.awaited or not in_sync:
            self._isr.recheck()
        if not in_sync:
            self.reported.notify()
        now = self._clock.monotonic_ms()
        if news or now - self._notified_ms >= _NOTIFY_HEARTBEATS * self._settings.heartbeat_ms:
            self._notified_ms = now
            self.changed.notify()

    def pulled(self) -> None:
        """See `Host`."""
        assert not self._epoch  # R2: no other broker appends while this broker's term is open
        self._settled.all()

    def removal_reason(self, broker: BrokerId) -> str | None:
        """See `Host`."""
        config = self._group.config
        if config.master != self._me:
            return f"{self._me} is not the master any more: that is {config.master}"
        if config.member(broker) is None:
            return f"{broker} is no member of group {config.group} any more"
        return self._unopenable_reason()

    def _unopenable_reason(self) -> str | None:
        """Return why this broker can open no term now; None if it can.

        While there is a reason, a reader must not stop serving for this master.
        """
        if self._group.unsettled and self._left_over():
            return f"{self._me} does not know yet whether its term stands"
        stuck = "" if self._epoch else self._journal.stuck
        return f"{self._me} cannot open a term: {stuck}" if stuck else None

    # ---- the commit end, and what the in-sync set rests on
    def _compute(self) -> None:
        self._ends.compute(self._policy(), self.links, self._isr.sets())

    def _policy(self) -> AckPolicy:
        """While a slave is leaving, count what is fsynced here: it may soon be the only copy."""
        policy = self._group.config.policy
        return replace(policy, flush=Flush.FSYNC) if self._isr.leaving else policy

    def _refit(self) -> None:
        """Apply a change of the policy, or of what the policy rests on."""
        if self._group.config.master == self._me:
            sync, interval_ms = flush_mode(self._policy(), master=True)
            self._journal.set_flush(sync=sync, interval_ms=interval_ms)
            if self._epoch:
                self._journal.doubts.note_policy(self._group.config.policy_mark)
        self._compute()

    def _facts(self) -> dict[BrokerId, LinkFacts]:
        """Return the facts of every configured slave, for the in-sync set."""
        facts: dict[BrokerId, LinkFacts] = {}
        for member in self._group.config.slaves:
            view = self.links.setdefault(member.id, LinkView())
            link = self._streams.of(member.id)
            facts[member.id] = LinkFacts(
                connected=view.connected,
                lost=member.id in self._lost,
                current=view.epoch == self._epoch,
                ready=link is not None and link.ready,
                counted_end=self.counted_end(view),
                lag_ms=0 if link is None else link.lag_ms,
                durable_end=view.durable_end,
            )
        return facts

    def _nudge_all(self) -> None:
        for link in self._streams:
            link.nudge()
        self.changed.notify()
