"""The failover loop: gather evidence, ask the pure machine, take one step.

The loop waits for a signal or a timer, gathers evidence, asks `fmqcore.failover.decide`, sets the
gate and takes one step (`failover/transitions.py`). It is level-triggered: every step may fail or
be lost and is then decided again from the current state. While ZooKeeper is away nothing is
changed, and only the lease bounds what may be served.

Elsewhere: the protocol (`fmqcore/failover/machine.py`), the evidence (`failover/evidence.py`), the
effects (`failover/transitions.py`), the renewals (`serving/lease.py`), the cached group and its
compare-and-set (`serving/broker_group_state.py`).
"""

import asyncio
from typing import Final, assert_never

import structlog

from fmqbroker.consume.offsets.store import OffsetStore
from fmqbroker.failover.evidence import Gatherer
from fmqbroker.failover.transitions import Frozen, Parts, Received, Terms
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.runtime.state_log import StateLog
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqbroker.serving.lease import Lease
from fmqcore.batch.control import decode_offsets
from fmqcore.errors import FmqError, Malformed, Unavailable
from fmqcore.failover.evidence import Action, Decision, LeaseRule, Params, Part, Record
from fmqcore.failover.machine import decide, part_of
from fmqcore.failover.term_rules import after_announce, record_term
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import GroupState
from fmqcore.zk.live_broker import LiveBroker
from fmqport.clock import Clock
from fmqport.lifecycle import Lifecycle
from fmqport.transport import CallContext, Handlers
from fmqproto.v1 import replication_pb2
from fmqwire.methods import HAND_OVER

_log = structlog.get_logger()

_QUIET_S: Final = 0.01  # between two rounds: a burst of signals makes one
_RETRY_S: Final = 0.2  # after a step that failed
_MOVE_PAUSE_MS: Final = 10_000  # at most, between two tries to give way
_FLUSH_S: Final = 5.0  # maximum wait for the disk at an orderly stop
_LAST_STEPS: Final = (Action.YIELD, Action.HAND_OVER)  # of an orderly stop


class Failover:
    """Drives this broker's part in its group. `run` is a task of the broker's task group."""

    def __init__(
        self,
        gate: Gate,
        group: GroupStore,
        journal: Journal,
        commit: CommitFrontier,
        offsets: OffsetStore,
        master_replication: MasterReplication,
        slave_replication: SlaveReplication,
        settings: BrokerSettings,
        clock: Clock,
        lifecycle: Lifecycle,
        incarnation: str,
    ) -> None:
        self._me = BrokerId(settings.broker)
        self._gate = gate
        self._group = group
        self._journal = journal
        self._offsets = offsets
        self._master = master_replication
        self._slave = slave_replication
        self._settings = settings
        self._clock = clock
        self._lifecycle = lifecycle
        self._incarnation = incarnation
        self._lease = Lease(gate, group, settings, clock)
        parts = Parts(
            self._me,
            gate,
            group,
            journal,
            commit,
            offsets,
            master_replication,
            slave_replication,
            self._lease,
        )
        self._terms = Terms(parts)
        self._gatherer = Gatherer(parts, self._terms, clock, incarnation)
        self._params = Params(
            settings.claim_checks, settings.claim_interval_ms, settings.takeover_wait_ms
        )
        self._wake = Signal()
        self._opened = Signal()  # a term of this broker was opened
        self._announced: LiveBroker | None = None  # this broker's live node, as last announced
        self._sending: asyncio.Task[None] | None = None
        self._handed_over = Epoch(0)  # the slave-consume term whose record its master has installed
        self._complained = ""
        self._state_log = StateLog()
        self._checks = 0
        self._next_check_ms = 0
        self._next_move_ms = 0
        self._move_pause_ms = settings.heartbeat_ms
        slave_replication.upstream.claiming = True  # no grant before the first decision

    # ---- life
    async def run(self) -> None:
        """Run failover until cancelled, or until a requested orderly stop is done."""
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [
                    tasks.create_task(self._lease.run()),
                    tasks.create_task(self._ring_when_stopping()),
                ]
                self._announced = self._live()
                await self._group.announce(self._announced)
                while not self._lifecycle.stopping.is_set():
                    await self._round(tasks)
                if self._sending is not None:
                    helpers.append(self._sending)
                for helper in helpers:
                    helper.cancel()
            await self._leave()
        finally:
            self._gate.close("stopped")

    @property
    def handlers(self) -> Handlers:
        """The calls that this part serves."""
        return {HAND_OVER: self.on_hand_over}

    async def on_hand_over(
        self, _: CallContext, request: replication_pb2.HandOverRequest
    ) -> replication_pb2.HandOverReply:
        """Take a reader's offsets; reply once they are in a term that this broker opened.

        A refusal, or no such term in time, is a reply with `installed=False` and a reason.
        """
        record = Record(BrokerId(request.reader), Epoch(request.epoch))
        refused = self._check_record(request)
        if refused:
            return replication_pb2.HandOverReply(installed=False, reason=refused)
        if self._terms.installed != record:
            state, known = self._group.state.value, self._terms.received
            awaited = Record(state.reader, record_term(state))
            if known is not None and known.record == awaited != record:
                reason = f"{awaited.reader} has handed over the offsets of term {awaited.term}"
                return replication_pb2.HandOverReply(installed=False, reason=reason)
            self._terms.received = Received(record, request.offsets)
            self._wake.notify()
            deadline_ms = self._clock.monotonic_ms() + self._settings.dead_after_ms // 2
            while self._terms.installed != record:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    reason = f"not yet installed: {self._gate.reason}"
                    return replication_pb2.HandOverReply(installed=False, reason=reason)
                await wait_any(self._opened, timeout_s=left_ms / 1000)
        return replication_pb2.HandOverReply(installed=True, epoch=self._terms.held)

    def _check_record(self, request: replication_pb2.HandOverRequest) -> str:
        if request.group != self._settings.group:
            return f"this broker is of group {self._settings.group}, not of {request.group}"
        try:
            decode_offsets(request.offsets)
        except Malformed as error:
            return f"the offsets do not decode: {error}"
        return ""

    async def _ring_when_stopping(self) -> None:
        await self._lifecycle.stopping.wait()
        self._wake.notify()

    async def _leave(self) -> None:
        """Stop in order: serve nothing, flush, remove the live node, give the reads away."""
        reason = "this broker is being stopped"
        edit: GroupState | None = None
        try:
            async with asyncio.timeout(_FLUSH_S):
                edit = await self._last_edit()
                await self._terms.leave(edit, self._group.state.version, reason)
        except (FmqError, TimeoutError) as error:
            self._terms.drop(reason)
            _log.warning("leave_incomplete", reason=str(error) or "time is out")

    async def _last_edit(self) -> GroupState | None:
        """Return the state in which a broker that stops leaves the group; None: as it is.

        A master gives the reads away. A reader without a master leaves its frozen record there.
        """
        involved = self._terms.held or self._terms.frozen is not None
        if not involved or not self._group.connected:
            return None
        if self._terms.held:
            await self._offsets.checkpoint()
        await self._group.refresh()
        decision = self._decide(fresh=True)
        if decision.action is Action.FREEZE:
            await self._terms.freeze(record_term(self._group.state.value), decision.reason)
            decision = self._decide(fresh=True)
        # F16: any other step rests on more than `leave` does.
        return decision.edit if decision.action in _LAST_STEPS else None

    # ---- one round
    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        """Decide, take one step, then wait for a possible change."""
        timeout_s: float | None = None
        try:
            await self._announce_end()
            decision = self._decide(fresh=False)
            if decision.action is Action.LOOK:
                await self._group.refresh()
                decision = self._decide(fresh=True)
            version = self._group.state.version
            self._count(decision)
            self._set_gate(decision)
            if await self._take(decision, version, tasks):
                return  # what stands now is decided upon at once
            timeout_s = self._timeout_s(decision)
            self._complained = ""
        except Unavailable as error:
            self._complain(str(error), error)
            timeout_s = _RETRY_S if self._group.connected else None
        except FmqError as error:
            self._complain(f"{type(error).__name__}: {error}", error)
            timeout_s = _RETRY_S
        await self._wait(timeout_s)

    def _complain(self, reason: str, error: FmqError) -> None:
        """Log a repeated failure once, not at each attempt."""
        if reason != self._complained:
            self._complained = reason
            log = _log.info if isinstance(error, Unavailable) else _log.error
            log("failover_step_failed", reason=reason)

    async def _wait(self, timeout_s: float | None) -> None:
        if self._lifecycle.stopping.is_set():
            return
        replication = (self._master.changed, self._slave.changed)
        # The gate's signal: the end of a lease may be the only event that makes a reader hand over.
        signals = (self._wake, self._group.changed, *replication, self._gate.changed)
        await wait_any(*signals, timeout_s=timeout_s)
        self._lease.recheck()
        await self._clock.sleep(_QUIET_S)

    def _decide(self, *, fresh: bool) -> Decision:
        self._inherit_tenure()
        evidence = self._gatherer.evidence(
            fresh=fresh,
            stopping=self._lifecycle.stopping.is_set(),
            checks=self._checks,
            next_check_ms=self._next_check_ms,
            next_move_ms=self._next_move_ms,
        )
        state, now_ms = self._group.state.value, self._clock.monotonic_ms()
        return decide(self._me, self._group.config, state, evidence, now_ms, self._params)

    def _inherit_tenure(self) -> None:
        """Keep or drop the term after the broker's live node was created again."""
        standing = self._group.standing
        if standing and self._terms.tenure is not None:
            kept = after_announce(
                self._terms.tenure, standing, granted_now=self._gatherer.granted_now()
            )
            if kept is None:
                self._terms.drop("ZooKeeper session lost: another broker may have taken over")
            else:
                self._terms.tenure = kept
                self._lease.hold(kept)

    def _set_gate(self, decision: Decision) -> None:
        """Set the gate as decided; first drop a term that is over, closing the gate first."""
        state = self._group.state.value
        if self._terms.tenure is not None and self._terms.held != state.epoch:
            self._terms.drop(decision.reason)
        self._gate.adopt(state)
        by_grants = decision.lease is LeaseRule.ZOOKEEPER_OR_GRANTS
        self._gate.count_grants(self._gatherer.granted_until if by_grants else None)
        self._gate.grant(decision.permission, decision.reason, decision.remedy)
        self._state_log.note(decision, state.epoch, self._clock.monotonic_ms())
        self._slave.upstream.claiming = not decision.may_grant or self._group.unsettled
        frozen = self._terms.frozen
        if frozen is not None and (frozen.term, self._me) != (record_term(state), state.reader):
            self._terms.forget_record()

    async def _take(self, decision: Decision, version: int, tasks: asyncio.TaskGroup) -> bool:
        """Take the decided step; return whether to decide again at once."""
        edit = decision.edit
        match decision.action:
            case Action.WAIT | Action.LOOK | Action.CHECK | Action.YIELD:
                return False  # a stop yields when its turn comes: `_leave`
            case Action.CLAIM:
                assert edit is not None
                return self._may_still_claim() and await self._terms.claim(edit, version)
            case Action.FREEZE:
                await self._terms.freeze(record_term(self._group.state.value), decision.reason)
                return True
            case Action.HAND_OVER:
                assert edit is not None
                return await self._terms.hand_over(edit, version)
            case Action.SEND_RECORD:
                self._send(tasks)
                return False
            case Action.MOVE:
                assert edit is not None
                return await self._move(edit, version)
            case Action.TAKE_OVER:
                assert edit is not None
                return await self._terms.take_over(edit, version)
            case Action.OPEN:
                assert edit is not None
                done = await self._terms.open(edit, version)
                self._opened.notify()
                return done
            case _:
                assert_never(decision.action)

    def _may_still_claim(self) -> bool:
        """Stop grants first, then check promise and stream once more (F3)."""
        self._slave.upstream.claiming = True
        return self._decide(fresh=True).action is Action.CLAIM

    async def _move(self, edit: GroupState, version: int) -> bool:
        """Give way; on failure this broker opens a term again and pauses before the next try.

        The pause grows, because each try costs a moment without a master.
        """
        self._next_move_ms = self._clock.monotonic_ms() + self._move_pause_ms
        self._move_pause_ms = min(2 * self._move_pause_ms, _MOVE_PAUSE_MS)
        if await self._terms.move(edit, version, self._settings.dead_after_ms / 2000):
            self._next_move_ms, self._move_pause_ms = 0, self._settings.heartbeat_ms
        return True

    def _send(self, tasks: asyncio.TaskGroup) -> None:
        """Send the frozen record to the master in the background, so that the loop keeps running.

        Once it is installed, only the new state is awaited. That may take long without ZooKeeper.
        """
        frozen, busy = self._terms.frozen, self._sending is not None and not self._sending.done()
        if frozen is not None and frozen.term != self._handed_over and not busy:
            self._sending = tasks.create_task(self._send_record(frozen))

    async def _send_record(self, frozen: Frozen) -> None:
        try:
            reason = await self._slave.hand_over(
                frozen.term, frozen.payload, self._settings.dead_after_ms / 1000
            )
        except FmqError as error:  # the master cannot be reached, or refuses
            reason = str(error)
        if reason:
            _log.info("hand_over_retried", term=frozen.term, reason=reason)
            await self._clock.sleep(_RETRY_S)
        else:
            self._handed_over = frozen.term
        self._wake.notify()

    # ---- timers
    def _count(self, decision: Decision) -> None:
        """Count successful claim checks in a row, an interval apart."""
        if decision.action is Action.CHECK:
            self._checks += 1
            self._next_check_ms = self._clock.monotonic_ms() + self._params.claim_interval_ms
        elif not decision.checking:
            self._checks, self._next_check_ms = 0, 0

    def _timeout_s(self, decision: Decision) -> float | None:
        """Return the seconds until the next decision if nothing happens before, or None."""
        if decision.edit is not None:
            return _RETRY_S  # it did not succeed
        wake_ms = self._next_check_ms if decision.action is Action.CHECK else decision.wake_ms
        if wake_ms is None:
            return None
        return max(0, wake_ms - self._clock.monotonic_ms()) / 1000

    async def _announce_end(self) -> None:
        """Announce the journal end once the stream has stopped: rivals compare it by live nodes."""
        if self._slave.upstream.connected:
            return
        live, part = self._live(), part_of(self._me, self._group.config, self._group.state.value)
        if part in (Part.SLAVE, Part.READER) and live != self._announced:
            self._announced = live
            await self._group.announce(live)

    def _live(self) -> LiveBroker:
        member = self._group.config.member(self._me)
        return LiveBroker(
            id=self._me,
            incarnation=self._incarnation,
            address=member.address if member is not None else self._settings.listen,
            epoch=self._journal.epoch,
            end=self._journal.end,
            clean=not self._journal.doubts.lacks,
            supports_switchover=True,
        )
