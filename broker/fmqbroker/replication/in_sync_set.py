"""The in-sync set, changed by the master alone, by compare-and-set.

Owner: replication. Order of effects.
- A slave is lost: until the compare-and-set is answered the policy must hold with *and* without it
  (R6). A master that acknowledges before it fsyncs fsyncs first (`leaving`): what was safe through
  that slave's copy is on the master's own disk before the slave is out, because after a crash of
  the master no broker waits for that slave any more. Then the slave is out; only then, if the
  policy can no longer be met, the batches that wait on it fail at once. While ZooKeeper does not
  answer, nothing that needs that slave is acknowledged.
- A learner has caught up: from then on the policy must hold with and without it, too. When it holds
  all that was committed before that moment, and has on its disk what was promised to be on all
  disks (ordered topics), compare-and-set; only then does it count.

A stall of the master is not the slaves' fault: how long they are behind, and how old the term is,
is counted in time in which the master could have heard them (`WatchedTime`).

The decisions are pure (`fmqcore.replication.in_sync_set`, `fmqcore.policy`). Leaves nothing on
disk.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.failure_detector import WatchedTime
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.errors import DeliveryUnknown, Unavailable
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import can_meet
from fmqcore.replication.in_sync_set import IsrLimits, LinkFacts, candidates, leavers
from fmqcore.zk.group_state import GroupState, Mode
from fmqport.clock import Clock
from fmqport.wakeup_alignment import together_s

_log = structlog.get_logger()

Isr = frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class _Joining:
    """A learner about to join: it must hold all that was committed when its joining started."""

    broker: BrokerId
    mark: Position


class InSyncSet:
    """The in-sync set of the term that this broker serves as master."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        journal: Journal,
        commit: CommitFrontier,
        group: GroupStore,
        facts: Callable[[], Mapping[BrokerId, LinkFacts]],
        moved: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._journal = journal
        self._commit = commit
        self._group = group
        self._facts = facts
        self._promised_end: Callable[[], Position] = lambda: Position(0)
        self._moved = moved  # what the policy rests on has changed: compute the commit end
        self._me = BrokerId(settings.broker)
        self._limits = IsrLimits(settings.dead_after_ms, settings.in_sync_lag_bytes)
        self._pause_ms = settings.heartbeat_ms
        self._wake = Signal()
        self._epoch = Epoch(0)  # of the term; 0 = none is open
        self._term_age = WatchedTime()
        self._pending: Isr | None = None  # asked for, not yet known to stand
        self._joining: _Joining | None = None
        self._failed_change: tuple[Isr, Isr, str] | None = None  # logged since the last success

    # ---- what stands
    def open_for(self, epoch: Epoch) -> None:
        """Start keeping the in-sync set of the term `epoch`, which this broker serves as master."""
        self._epoch, self._term_age = epoch, WatchedTime()
        self._pending = self._joining = None
        self._notify()
        self._wake.notify()

    def close(self) -> None:
        """Stop: this broker is no longer master."""
        self._epoch, self._pending, self._joining = Epoch(0), None, None

    @property
    def current(self) -> Isr | None:
        """The in-sync set in the group state; None unless this broker's term is current there."""
        state = self._group.state.value
        is_master = state.mode is Mode.MASTER and state.master == self._me
        return state.isr if self._epoch and is_master and state.epoch == self._epoch else None

    def sets(self) -> list[Isr]:
        """Return every in-sync set that may stand now (R6); empty without a term of this broker."""
        current = self.current
        if current is None:
            return []
        asked = self._pending
        if asked is None and self._joining is not None:
            asked = current | {self._joining.broker}
        return [current] if asked is None or asked == current else [current, asked]

    def require_on_disk(self, promised: Callable[[], Position]) -> None:
        """Let no learner join whose disk holds less than up to `promised()`, whatever the policy.

        Ordered topics promise their records on all members' disks.
        """
        self._promised_end = promised

    @property
    def leaving(self) -> bool:
        """Whether a slave may already be out: its copy must be on this broker's disk (R6)."""
        current, asked = self.current, self._pending
        return current is not None and asked is not None and not asked >= current

    def recheck(self) -> None:
        """Check for changes: a link or an ack brought news. Cheap while no learner is joining."""
        self._wake.notify()

    @property
    def awaited(self) -> BrokerId | None:
        """The joining learner, whose acks must be checked; None if there is none."""
        return None if self._joining is None else self._joining.broker

    # ---- keeping it
    async def run(self) -> None:
        """Keep the in-sync set up to date until cancelled."""
        looked_ms = self._clock.monotonic_ms()
        while True:
            now_ms = self._clock.monotonic_ms()
            self._term_age.waited(now_ms - looked_ms, self._pause_ms)
            looked_ms = now_ms
            self._drop_settled()
            step = self._next_step()
            if step is None:
                self._notify()
                rest_s = together_s(self._clock.monotonic_ms(), self._pause_ms)
                await wait_any(self._wake, self._group.changed, timeout_s=rest_s)
            else:
                await self._change(*step)

    def _next_step(self) -> tuple[Isr, Isr, str] | None:
        """Return the brokers to remove, those to add, and why; None if nothing has to change."""
        current = self.current
        if current is None or self._pending is not None:  # one change at a time may be in doubt
            return None
        facts = self._facts()
        if out := leavers(current, facts, self._term_age.ms, self._limits):
            self._joining = None
            reasons = (f"{b} is out of sync: {reason}" for b, reason in out.items())
            return frozenset(out), frozenset(), "; ".join(reasons)
        joining = self._next_joining(current, facts)
        if joining is None or facts[joining.broker].counted_end < joining.mark:
            return None
        if facts[joining.broker].durable_end < self._promised_end():
            return None
        return frozenset(), frozenset({joining.broker}), f"{joining.broker} is in sync"

    def _next_joining(self, current: Isr, facts: Mapping[BrokerId, LinkFacts]) -> _Joining | None:
        able = candidates(current, facts, self._journal.end, self._limits)
        if self._joining is not None and self._joining.broker not in able:
            self._joining = None
            self._moved()
        if self._joining is None and able:
            self._joining = _Joining(able[0], max(self._commit.commit_end, self._commit.all_end))
        return self._joining

    async def _change(self, out: Isr, joining: Isr, reason: str) -> None:
        epoch = self._epoch

        def edit(state: GroupState) -> GroupState | None:
            is_master = state.mode is Mode.MASTER and state.master == self._me
            if not is_master or state.epoch != epoch:
                return None
            return replace(state, isr=(state.isr - out) | joining, reason=reason)

        current = self.current
        assert current is not None
        self._pending = (current - out) | joining
        self._joining = None
        self._moved()
        try:
            if out:
                await self._journal.wait_durable(self._commit.commit_end)
            stands = await self._group.change(edit)
        except DeliveryUnknown:  # the journal was cut: this term is over
            return
        except Unavailable as error:  # in doubt until the group store has settled it
            # Log once for each change and kind of failure: both texts may carry figures.
            failed = (out, joining, type(error).__name__)
            if failed != self._failed_change:
                self._failed_change = failed
                _log.warning("in_sync_set_unchanged", reason=reason, error=str(error))
            await self._clock.sleep(self._pause_ms / 1000)
            return
        self._pending = None
        self._failed_change = None
        if stands is not None:
            log = _log.info if stands.isr else _log.warning
            log("in_sync_set", epoch=epoch, isr=sorted(stands.isr), reason=reason)
        self._moved()
        self._notify()

    def _drop_settled(self) -> None:
        """Drop a pending change that got no answer, once the store knows whether it stands."""
        if self._pending is not None and not self._group.unsettled:
            self._pending = None
            self._moved()

    def _notify(self) -> None:
        """Publish whether the policy can be met; fail what waits if it no longer can."""
        current = self.current
        if current is None:
            return
        config = self._group.config
        zones = {member.id: member.zone for member in config.slaves}
        me = config.member(self._me)
        reason = can_meet(config.policy, zones, "" if me is None else me.zone, current)
        if not reason:
            if self._commit.unwritable_reason is not None:
                _log.info("writes_accepted", epoch=self._epoch, isr=sorted(current))
            self._commit.accept()
        elif reason != self._commit.unwritable_reason:
            _log.warning("writes_refused", epoch=self._epoch, isr=sorted(current), reason=reason)
            self._commit.refuse(reason, self._journal.end)
