"""The steps that start and end a term, each with a fixed order of effects.

`failover/loop.py` decides when to take a step. Every step may stop anywhere (a crash, a lost
connection) and be made again from its beginning.

- *open* (master): no suffix is pulled from here on; the EPOCH batch is appended, handed-over
  offsets are installed, and both are durable; then compare-and-set MASTER(e+1); only then offsets
  are kept, acks counted, the lease renewed, the gate opened. What is appended before the
  compare-and-set leaves this broker only after it.
- *claim* (slave): no more grants; promise and stream are checked once more; compare-and-set
  SLAVE_CONSUME(e+1, this broker); then the side journal is started, the commit end moves to this
  broker's durable end, the lease is renewed, the gate opened.
- *yield* (master, an orderly stop): the gate is closed and the tenure given up; what was appended
  is durable; the broker's live node is removed; then compare-and-set SLAVE_CONSUME(e+1, a slave).
- *leave record* (reader, an orderly stop while the master is gone): *freeze*; what was appended is
  durable; compare-and-set HANDOVER(e+1) with the record; then the broker's live node is removed. In
  the other order another slave could claim in between, without the record.
- *move* (master): the gate is closed and the tenure given up; what was appended is durable, and the
  successor has all that; then compare-and-set SLAVE_CONSUME(e+1, the successor).
- *take over* (reader): it serves nothing (nothing yet, or its record is frozen); its journal is
  durable; then compare-and-set MASTER(e+1, this broker). That is no term: *open* comes next, as for
  any master.
- *freeze* (reader): the gate is closed and the tenure given up for good; then the offsets are
  frozen and fsynced.
- *drop*: the gate is closed first, then all other parts follow.

Only the journal and the offset store write to disk.
"""

import asyncio
import base64
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import structlog

from fmqbroker.consume.offsets.store import MAX_CHECKPOINT_CHARS, OffsetStore
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.runtime.notifier import wait_any
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqbroker.serving.lease import Lease
from fmqcore.batch.control import encode_epoch, encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.consume.offsets.takeover_record import chars_of
from fmqcore.errors import FmqError, Malformed
from fmqcore.failover.evidence import Record
from fmqcore.failover.term_rules import Tenure, record_term
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import SlaveCounts
from fmqcore.zk.group_state import GroupState, Mode

_log = structlog.get_logger()

_POLL_S: Final = 0.01  # while no broker serves: the poll of the successor's end


@dataclass(frozen=True, slots=True)
class Frozen:
    """The broker's takeover record when it stopped serving a slave-consume term."""

    term: Epoch
    payload: bytes
    text: str | None  # as the group's state holds it; None = too large for ZooKeeper

    @classmethod
    def of(cls, term: Epoch, payload: bytes) -> "Frozen":
        """Return the frozen record of `term`, encoded once."""
        fits = chars_of(len(payload)) <= MAX_CHECKPOINT_CHARS
        return cls(term, payload, base64.b64encode(payload).decode() if fits else None)


@dataclass(frozen=True, slots=True)
class Received:
    """A reader's frozen record, as its master received it."""

    record: Record
    payload: bytes


@dataclass(slots=True)
class Parts:
    """The parts of a broker that the steps of a term use."""

    me: BrokerId
    gate: Gate
    group: GroupStore
    journal: Journal
    commit: CommitFrontier
    offsets: OffsetStore
    master: MasterReplication
    slave: SlaveReplication
    lease: Lease


class Terms:
    """The term that the broker holds, if any, and the steps from one term to the next."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.tenure: Tenure | None = None
        self.frozen: Frozen | None = None
        self.received: Received | None = None
        self.installed: Record | None = None  # the last record that went into this broker's term

    @property
    def held(self) -> Epoch:
        """The epoch of the broker's tenure; 0 = none."""
        return Epoch(0) if self.tenure is None else self.tenure.epoch

    async def open(self, edit: GroupState, version: int) -> bool:
        """Open a term as master (*open* above); return False if another change came first."""
        # F14: a slave's longer suffix is pulled before the EPOCH batch, or it could never come.
        heard = self._heard()
        async with self._parts.master.reconciling:
            if not heard <= self._heard():  # a more advanced journal has replaced what they sent
                return False
            return await self._open(edit, version)

    def _heard(self) -> set[BrokerId]:
        return {broker for broker, view in self._parts.master.links.items() if view.heard}

    async def _open(self, edit: GroupState, version: int) -> bool:
        p, state = self._parts, self._parts.group.state.value
        # F15: no other broker starts this term, so no number can start two histories.
        assert edit.master == p.me
        if state.master not in ("", p.me):  # another change came first
            return False
        self.drop(edit.reason)
        if p.journal.epoch > edit.epoch:  # a suffix that was pulled meanwhile brought it
            return False
        if p.journal.epoch < edit.epoch:
            payload = encode_epoch(edit.epoch, p.me)
            p.journal.append(BatchDraft(BatchType.EPOCH, payload, crc32c(payload)))
        # F2: a term's number is one above any in the journal, or left from this broker's last try.
        assert p.journal.epoch == edit.epoch
        received = self.received
        if received is None or received.record != Record(state.reader, record_term(state)):
            received = None
            await self._install_from_state(state, lacking=edit.max_delivered_position > 0)
        else:
            await p.offsets.install(received.payload, lacking=edit.max_delivered_position > 0)
        # This broker may have been the reader, or the one before the current reader: its side
        # journal is the only whole copy of a record too large for the state.
        await p.offsets.install_own(
            state.last_opened_epoch, lacking=edit.max_delivered_position > 0
        )
        await p.journal.wait_durable(p.journal.end)
        standing = p.group.standing
        if not standing or await p.group.change(lambda _: edit, version) is None:
            return False
        self.tenure = Tenure(edit.epoch, standing)
        p.journal.doubts.made_whole()  # whoever could have had more was heard
        self.installed = received.record if received is not None else None
        self.received = None
        log = _log.error if edit.degraded else _log.info
        log("master_opened", epoch=edit.epoch, reason=edit.reason, end=p.journal.end)
        await self._or_drop(p.offsets.become_master())
        p.master.open_for(edit.epoch)  # F9: nothing of this term was sent before
        p.lease.hold(self.tenure)
        await p.lease.renew()
        return True

    async def claim(self, edit: GroupState, version: int) -> bool:
        """Take over the reads (*claim* above); return False if another change came first.

        The caller has stopped this broker's grants and checked its promise since.
        """
        p = self._parts
        assert p.slave.upstream.claiming  # F3: no grant may be given while a claim is under way
        record = p.group.state.value.offsets
        standing = p.group.standing
        self.drop(edit.reason)
        if not standing or await p.group.change(lambda _: edit, version) is None:
            return False
        self.tenure, self.frozen = Tenure(edit.epoch, standing), None
        _log.info("reads_claimed", epoch=edit.epoch, reason=edit.reason, end=p.journal.durable_end)
        committed, served = p.commit.commit_end, p.journal.durable_end
        await self._or_drop(self._become_taker(record, committed))
        p.commit.advance(served, p.commit.all_end)
        p.journal.note_commit_end(served)  # R5: what is served is never cut off
        p.lease.hold(self.tenure)
        await p.lease.renew()
        return True

    async def move(self, edit: GroupState, version: int, within_s: float) -> bool:
        """Give way to `edit.reader` (*move* above); return whether that succeeded."""
        p = self._parts
        self.drop(edit.reason)
        try:
            async with asyncio.timeout(within_s):
                await p.journal.wait_durable(p.journal.end)
                while not self._has_all(edit.reader, edit.successor_incarnation):
                    await wait_any(p.master.changed, timeout_s=_POLL_S)
        except TimeoutError:
            _log.warning("move_timed_out", to=edit.reader, reason="it did not have all in time")
            return False
        done = await p.group.change(lambda _: edit, version) is not None
        if done:
            _log.info("mastership_handed_over", epoch=edit.epoch, to=edit.reader, end=p.journal.end)
        return done

    def _has_all(self, successor: BrokerId, incarnation: str) -> bool:
        """Return whether the slave's process has the whole journal; durable, if the policy asks."""
        p = self._parts  # F16: by its acks, and of the stream that it has now
        view = p.master.links.get(successor)
        if view is None or not view.connected or view.incarnation != incarnation:
            return False
        durable = p.group.config.policy.counts is SlaveCounts.DURABLE
        return (view.durable_end if durable else view.received_end) >= p.journal.end

    async def take_over(self, edit: GroupState, version: int) -> bool:
        """Become the acting master (*take over* above); return False if another change won."""
        p = self._parts
        self.drop(edit.reason)
        await p.journal.wait_durable(p.journal.end)
        given = bool(p.group.state.value.successor_incarnation)
        if not p.group.standing or await p.group.change(lambda _: edit, version) is None:
            return False
        if given:  # F16: a successor has all that its master had, and here it is on its disk
            p.journal.doubts.made_whole()
        _log.info("mastership_claimed", epoch=edit.epoch, reason=edit.reason, end=p.journal.end)
        return True

    async def leave(self, edit: GroupState | None, version: int, reason: str) -> None:
        """Stop in order (*yield* and *leave record* above); `edit`: what it leaves to others."""
        p = self._parts
        self.drop(reason)
        await p.journal.wait_durable(p.journal.end)
        if edit is not None and edit.mode is Mode.HANDOVER:
            await self.hand_over(edit, version)
            edit = None
        await p.group.withdraw()
        if edit is not None and await p.group.change(lambda _: edit, version) is not None:
            _log.info("reads_handed_over", epoch=edit.epoch, reader=edit.reader)

    async def freeze(self, term: Epoch, reason: str) -> None:
        """Stop serving in `term` for good; then freeze its record."""
        p, held = self._parts, self.held
        p.gate.close(reason)
        self._give_up()
        if held != term:  # restarted since it served: what it had acknowledged is on its disk
            await self._become_taker(p.group.state.value.offsets, p.commit.commit_end)
        self.frozen = Frozen.of(term, await p.offsets.freeze())
        _log.info("offsets_frozen", term=term, record_bytes=len(self.frozen.payload))

    async def hand_over(self, edit: GroupState, version: int) -> bool:
        """Record in the group's state that this reader stopped; return whether that succeeded."""
        # F4: a hand-over is announced only after its record is frozen.
        assert self.frozen is not None
        assert self.frozen.term == edit.epoch - 1
        done = await self._parts.group.change(lambda _: edit, version) is not None
        if done:
            _log.info("hand_over", epoch=edit.epoch, reason=edit.reason)
        return done

    def drop(self, reason: str) -> None:
        """End the broker's term, if it holds one: close the gate first, then the rest."""
        p = self._parts
        p.gate.close(reason)
        if self.tenure is not None:
            _log.info("term_over", epoch=self.held, reason=reason)
            self._give_up()
            p.master.close_writes()
            p.offsets.retire()

    def forget_record(self) -> None:
        """Forget the frozen record of a past term: it was handed over, or overtaken."""
        if self.frozen is not None:
            self.frozen = None
            self._parts.offsets.retire()

    async def _or_drop(self, step: Awaitable[None]) -> None:
        """Run `step`; on failure drop the term, which cannot keep offsets, to open it again."""
        try:
            await step
        except FmqError as error:
            self.drop(f"offsets cannot be kept: {error}")
            raise

    def _give_up(self) -> None:
        self.tenure = None
        self._parts.lease.hold(None)

    async def _install_from_state(self, state: GroupState, *, lacking: bool) -> None:
        """Install the record that the reader checkpointed (or sealed) in the group's state."""
        if not state.offsets and not lacking:
            return
        try:
            payload = base64.b64decode(state.offsets, validate=True) or encode_offsets({})
            await self._parts.offsets.install(payload, lacking=lacking)
        except (ValueError, Malformed) as error:
            _log.error("takeover_record_unreadable", reason=str(error), lost="it is not installed")

    async def _become_taker(self, record: str, committed: Position) -> None:
        try:
            await self._parts.offsets.become_taker(record, committed)
        except Malformed as error:
            _log.error("takeover_record_unreadable", reason=str(error), lost="going on without it")
            await self._parts.offsets.become_taker("", committed)
