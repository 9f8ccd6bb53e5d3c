"""Gather a broker's evidence for `fmqcore.failover.decide`.

The gatherer only reads: the cached group, the journal, the views of replication, the gate and the
broker's terms. It remembers since when the reader is gone or the journal is too short, and members
that were seen with an epoch which the state lacks. Nothing is written to disk.
"""

from fmqbroker.failover.transitions import Parts, Terms
from fmqbroker.replication.view import LinkView
from fmqcore.failover.evidence import Evidence, Link
from fmqcore.failover.term_rules import granted_until, record_term
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_state import Mode
from fmqport.clock import Clock


class Gatherer:
    """Makes `Evidence` from the broker's current state."""

    def __init__(
        self,
        parts: Parts,
        terms: Terms,
        clock: Clock,
        incarnation: str,
    ) -> None:
        self._parts = parts
        self._terms = terms
        self._clock = clock
        self._incarnation = incarnation
        self._reader_gone: tuple[BrokerId, int] | None = None
        self._lacking_since_ms: int | None = None
        self._newer: dict[BrokerId, Epoch] = {}  # announced by members, and not in the state

    def evidence(
        self, *, fresh: bool, stopping: bool, checks: int, next_check_ms: int, next_move_ms: int
    ) -> Evidence:
        """Return the current evidence; `fresh`: the group was just read, in the required order."""
        p, terms = self._parts, self._terms
        group, journal, upstream = p.group, p.journal, p.slave.upstream
        frozen, received = terms.frozen, terms.received
        behind, kept_end = journal.doubts.lacks, p.master.kept_end()
        return Evidence(
            session_live=group.changeable,
            fresh=fresh,
            wanted=group.wanted,
            incarnation=self._incarnation,
            superseded=group.superseded,
            lease_out=not p.gate.zookeeper_leased(),
            live=group.live,
            newer_gone=self._newer_gone(),
            held=terms.held,
            journal_epoch=journal.epoch,
            journal_end=journal.end,
            kept_end=kept_end,
            has_records=group.state.value.mode is Mode.NEW and bool(journal.state.next_offsets),
            stopping=stopping,
            may_lack=behind,
            tail_lost=journal.doubts.tail_lost,
            unproven=journal.doubts.unproven,
            other_policy=self._other_policy(),
            upstream_connected=upstream.connected,
            upstream_caught_up=upstream.caught_up,
            promised_until_ms=upstream.promised_until_ms,
            checks=checks,
            next_check_ms=next_check_ms,
            frozen=Epoch(0) if frozen is None else frozen.term,
            frozen_offsets=None if frozen is None else frozen.text,
            behind=behind,
            next_move_ms=next_move_ms,
            links=self._links(),
            record=None if received is None else received.record,
            reader_gone_since_ms=self._reader_gone_since_ms(),
            lacking_since_ms=self._lacking_ms(kept_end),
        )

    def _other_policy(self) -> bool:
        """Return whether this broker acknowledged, as a master, under another policy."""
        p = self._parts
        return p.journal.doubts.acked_under not in (0, p.group.config.policy_mark)

    def granted_until(self) -> int:
        """Return until when every possibly in-sync slave is bound by its grant; 0 = not bound.

        Only in the term that this broker holds as master. The gate asks this at every check, also
        before a state just read is decided upon: in another master's term no slave is bound to this
        broker, and an empty in-sync set must not count as this broker's unanimous one.
        """
        state = self._parts.group.state.value
        is_master = state.mode is Mode.MASTER and state.master == self._parts.me
        if not is_master or state.epoch != self._terms.held:
            return 0
        return granted_until(self._parts.group.widest_isr, self._links())

    def granted_now(self) -> bool:
        """Return whether the grants alone let this broker serve as master now."""
        return self.granted_until() > self._clock.monotonic_ms()

    def _links(self) -> dict[BrokerId, Link]:
        return {b: _link(view) for b, view in sorted(self._parts.master.links.items())}

    def _newer_gone(self) -> dict[BrokerId, Epoch]:
        """Return the members that are gone and announced an epoch that the state still lacks."""
        group = self._parts.group
        known = self._newer | {id: member.epoch for id, member in group.live.items()}
        self._newer = {id: e for id, e in known.items() if e > group.state.value.epoch}
        return {id: epoch for id, epoch in self._newer.items() if id not in group.live}

    def _reader_gone_since_ms(self) -> int | None:
        """Return since when the live node of the current reader has been missing."""
        group = self._parts.group
        state = group.state.value
        if not record_term(state) or state.reader in group.live:
            self._reader_gone = None
            return None
        if self._reader_gone is None or self._reader_gone[0] != state.reader:
            self._reader_gone = (state.reader, self._clock.monotonic_ms())
        return self._reader_gone[1]

    def _lacking_ms(self, kept_end: Position) -> int | None:
        """Return since when the broker has waited for a reader that has a longer journal.

        It waits while its journal lacks what readers may have served, and no live reader has it.
        """
        group = self._parts.group
        state, reader = group.state.value, group.live.get(group.state.value.reader)
        there = reader is not None and reader.end >= state.max_delivered_position
        if there or kept_end >= state.max_delivered_position:
            self._lacking_since_ms = None
        elif self._lacking_since_ms is None:
            self._lacking_since_ms = self._clock.monotonic_ms()
        return self._lacking_since_ms


def _link(view: LinkView) -> Link:
    return Link(
        view.connected,
        view.caught_up,
        view.heard,
        view.lease_until_ms,
        view.incarnation,
        view.whole,
        view.kept,
        view.emptied,
    )
