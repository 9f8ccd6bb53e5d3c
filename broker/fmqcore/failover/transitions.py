"""The new group state of each step. Pure; the code that writes it sets `write_token`."""

from dataclasses import replace

from fmqcore.failover.context import Case, next_epoch
from fmqcore.failover.guards import lacks_served, successor
from fmqcore.ids import BrokerId, Position
from fmqcore.zk.group_state import GroupState, Mode


def claim(case: Case) -> GroupState:
    """Return SLAVE_CONSUME(e+1) with this broker as reader; it starts from the stored record."""
    state = case.state
    served_from = (
        state.max_delivered_position
        if state.mode is not Mode.MASTER or state.required_epoch
        else Position(0)
    )
    gone = state.master if state.mode is Mode.MASTER or state.reader == case.me else state.reader
    return replace(
        state,
        mode=Mode.SLAVE_CONSUME,
        epoch=next_epoch(case),
        reader=case.me,
        max_delivered_position=max(served_from, case.evidence.journal_end),
        offsets_final=False,
        successor_incarnation="",
        reason=f"{case.me} serves reads: {gone} is gone",
    )


def give_reads(case: Case) -> GroupState:
    """SLAVE_CONSUME(e+1, a slave): the master stops in an orderly way; the slave claims at once."""
    reader = successor(case)
    assert reader is not None
    return replace(
        case.state,
        mode=Mode.SLAVE_CONSUME,
        epoch=next_epoch(case),
        reader=reader,
        max_delivered_position=Position(0),
        reason=f"master {case.me} is being stopped: {reader} takes over the reads",
    )


def move(case: Case) -> GroupState:
    """SLAVE_CONSUME(e+1, wanted): the wanted broker has all records and takes over at once."""
    wanted = case.evidence.wanted
    return replace(
        case.state,
        mode=Mode.SLAVE_CONSUME,
        epoch=next_epoch(case),
        reader=wanted,
        max_delivered_position=Position(0),
        successor_incarnation=case.evidence.links[wanted].incarnation,
        reason=f"master {case.me} gives way to {wanted}, as the configuration wants",
    )


def take_over(case: Case) -> GroupState:
    """MASTER(e+1, me), without a term yet: from here on no other broker may start one.

    After a switchover this broker has all that the old master had, so that one stays in sync. A
    promoted broker may lack records and must hear every other member first; until then the epoch
    that it needs (`base`) is in no journal.
    """
    state, evidence = case.state, case.evidence
    inherits, record = state.successor_incarnation != "", evidence.frozen_offsets
    isr = state.isr - {case.me} | ({state.master} if inherits else set())
    how = "gave way to it" if inherits else "is gone for good, as the configuration says"
    return replace(
        state,
        mode=Mode.MASTER,
        epoch=next_epoch(case),
        master=case.me,
        reader=case.me,
        isr=isr,
        offsets=state.offsets if inherits or record is None else record,
        offsets_final=False,
        successor_incarnation="",
        required_epoch=evidence.journal_epoch if inherits else next_epoch(case),
        declared_lost=BrokerId("") if inherits else state.master,
        reason=f"{case.me} becomes master: {state.master} {how}",
    )


def hand_over(case: Case) -> GroupState:
    """HANDOVER(e+1): the reader stopped; its whole record is included if it is small enough."""
    state, record = case.state, case.evidence.frozen_offsets
    return replace(
        state,
        mode=Mode.HANDOVER,
        epoch=next_epoch(case),
        offsets=state.offsets if record is None else record,
        offsets_final=record is not None,
        reason=f"{case.me} hands over to master {state.master}",
    )


def leave_record(case: Case) -> GroupState:
    """HANDOVER(e+1): the reader is being stopped while the master is gone; its record is whole."""
    reason = f"{case.me} is being stopped, and leaves its offsets to master {case.state.master}"
    return replace(hand_over(case), reason=reason)


def open_first(case: Case) -> GroupState:
    """MASTER(1); over a journal that has records, MASTER of the epoch after its last."""
    again = ", over a journal from before" if case.evidence.has_records else ""
    return _open(case, f"{case.me} opened the group{again}", degraded=False)


def open_again(case: Case) -> GroupState:
    """MASTER(e+1) of a master that was never replaced, or that took over from another."""
    if case.state.mode is Mode.MASTER and case.state.required_epoch:
        return _with_reason(case, _open(case, f"{case.me} is master now", degraded=False))
    return _open(case, f"master {case.me} is back, no broker had taken over", degraded=False)


def open_handed_over(case: Case) -> GroupState:
    """MASTER(e+1) with the reader's offsets installed."""
    reader = case.state.reader
    reason = f"master {case.me} is back with the offsets of {reader}"
    return _with_reason(case, _open(case, reason, degraded=False))


def open_degraded(case: Case) -> GroupState:
    """MASTER(e+1) without the newest offsets of a reader that is gone."""
    reader = case.state.reader
    reason = (
        f"master {case.me} is back without the newest offsets of {reader}, which is gone: "
        "some messages will be delivered again"
    )
    return _with_reason(case, _open(case, reason, degraded=True))


def _with_reason(case: Case, state: GroupState) -> GroupState:
    """Report in `reason` records that readers may have served and the master lacks (ADR 0025)."""
    if not lacks_served(case):
        return state
    max_delivered_position = case.state.max_delivered_position
    reason = (
        f"{state.reason}; what may have been shown from {case.evidence.kept_end} to "
        f"{max_delivered_position} "
        "is in no journal that is there: it was not acknowledged, and it is taken back"
    )
    # Installed offsets were limited to this broker's journal; the record itself was not.
    return replace(
        state,
        offsets="",
        degraded=True,
        max_delivered_position=max_delivered_position,
        reason=reason,
    )


def _open(case: Case, reason: str, *, degraded: bool) -> GroupState:
    """Return MASTER(e+1); the takeover record stays until the slaves have its offsets, too."""
    return GroupState(
        mode=Mode.MASTER,
        epoch=next_epoch(case),
        master=case.me,
        reader=case.me,
        isr=_still_in_sync(case),
        offsets=case.state.offsets,
        degraded=degraded,
        reason=reason,
        last_opened_epoch=next_epoch(case),
    )


def _still_in_sync(case: Case) -> frozenset[BrokerId]:
    """In-sync slaves that are linked and caught up now; the others must catch up first."""
    links = case.evidence.links
    return frozenset(
        b for b in case.state.isr if b in links and links[b].connected and links[b].caught_up
    )
