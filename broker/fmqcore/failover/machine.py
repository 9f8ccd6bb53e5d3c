"""The failover machine: one pure, level-triggered function from evidence to at most one step.

The brokers and the model checker of the tests use it. The table below is the protocol: the rows of
a (mode, part) are tried in order, and the first whose guards all hold is taken. Within a row,
guards on what a person decided (configured permissions) come before guards on the current
situation, so that `reason` names the lasting cause. A row that changes the state needs a fresh look
first: config, then state, then live nodes, in this order, because a live node read before the state
could be older than the state.

| mode             | part   | guards                                                  | step      |
|------------------|--------|---------------------------------------------------------|-----------|
| NEW              | master | session; with records: every slave heard                | OPEN (1)  |
| MASTER(e)        | master | not held (restart, session lost); session; its journal  | OPEN      |
|                  |        | whole; enough in-sync slaves heard after an unclean     |           |
|                  |        | start                                                   |           |
|                  |        | stopping; held; session; a slave in sync, linked and    | YIELD     |
|                  |        | caught up; READ configured for both                     |           |
|                  |        | held; session; another wanted, in sync, caught up, live | MOVE      |
| MASTER(e)        | slave  | master gone; READ configured for both; in isr, with a   | CHECK x K |
|                  |        | journal; stream down; promise over; session; (last      | CLAIM     |
|                  |        | check) best                                             |           |
| SLAVE_CONSUME(e) | master | session; record in (the reader froze but cannot reach   | OPEN      |
|                  |        | ZooKeeper); reader and enough slaves heard              |           |
|                  |        | session; reader gone for the bound; lenient; the        | OPEN      |
|                  |        | journal has the term opened last; the linked slaves     | degraded  |
|                  |        | heard, and enough after an unclean start                |           |
|                  |        | session; the reader gone before it claimed         | OPEN      |
| SLAVE_CONSUME(e) | reader | session; wanted; successor                         | TAKE OVER |
|                  |        | frozen; session; wanted; promotable (declared lost and | TAKE OVER |
|                  |        | gone, in isr, not behind, slaves asked, all others live)|           |
|                  |        | frozen; session; stopping; master gone; record fits     | HAND_OVER |
|                  |        | held; session; stopping; master gone                    | FREEZE    |
|                  |        | frozen; session; master back                            | HAND_OVER |
|                  |        | frozen; cut off; linked                                 | SEND      |
|                  |        | held; session; master back                              | FREEZE    |
|                  |        | held; cut off; linked                                   | FREEZE    |
|                  |        | held; session; wanted; promotable                       | FREEZE    |
|                  |        | not serving (restart, session lost, master gone again); | CLAIM     |
|                  |        | its journal is not one that was emptied since; session  |           |
| SLAVE_CONSUME(e) | slave  | reader gone; READ configured; in isr, with a journal;   | CHECK x K |
|                  |        | session; best                                           | CLAIM     |
| HANDOVER(e)      | master | session; record in; reader and enough slaves heard      | OPEN      |
|                  |        | the same, reader gone but the state holds its record    | OPEN      |
|                  |        | session; reader gone; the state holds its record; what  | OPEN      |
|                  |        | it showed is in a journal that has the term opened      |           |
|                  |        | last; the linked slaves heard, and enough               |           |
|                  |        | session; reader gone for the bound; lenient; the        | OPEN      |
|                  |        | journal has the term opened last; the linked slaves     | degraded  |
|                  |        | heard, and enough after an unclean start                |           |
| HANDOVER(e)      | reader | frozen; linked                                          | SEND      |
|                  |        | not frozen (restart); linked                            | FREEZE    |
|                  |        | master gone; READ configured for both; not emptied;     | CHECK x K |
|                  |        | session                                                 | CLAIM     |
| HANDOVER(e)      | slave  | as the reader, and the reader gone; in isr, with a      | CLAIM     |
|                  |        | journal; best                                           |           |

An older state: while a live member's journal has an epoch that the state lacks (ZooKeeper was
restored from a backup), every step waits except OPEN of a NEW group, and every member reports it
after a fresh look. A broker that holds a term serves on in it, because the term was opened before
that journal was there. It may end the term: by YIELD when it stops, or by giving its record to the
master while ZooKeeper does not answer.

Permission: MASTER(e) gives the master FULL, SLAVE_CONSUME(e) gives the reader READ, each within the
configured permission, and only to the broker that *holds* the term: it opened the term by its own
compare-and-set, in this process, and its live node has stood without a gap since
(`term_rules.py`). A state read through a watch grants nothing. Everything else is NONE. So READ
cannot come back before the offsets: the master sets MASTER(e+1) itself, after they are installed
and durable.

Promises and grants: a slave grants (promises not to claim) only in mode MASTER and never while its
own claim is in progress or unsettled. In SLAVE_CONSUME and HANDOVER a claim does not wait for the
promise: the master of the old term needs the grant of every in-sync slave, the reader was one of
them, and it has granted nothing since its claim.

The master changes as the configuration wants (ADR 0022). The state names the acting master, and
only that broker appends an EPOCH batch, so mastership is claimed (TAKE OVER) before a term is
opened.

Lost journals (`lost_journals.py`): every OPEN except that of a NEW group also requires that the
other members can have what a lost journal of the master held, and that the journal is not empty.

Every step raises the epoch by one, HANDOVER too. (Only a NEW group over a journal that has records
jumps past that journal's epoch.) Changes of `isr` and `offsets` do not raise it and are not made
here: replication and the offset store make them, in a term that they hold.
"""

from collections.abc import Mapping
from typing import Final

from fmqcore.failover import guards as g
from fmqcore.failover import switchover_guards as m
from fmqcore.failover.context import Case, Guard, newer_journals, next_epoch
from fmqcore.failover.evidence import Action, Decision, Evidence, LeaseRule, Params, Part, Remedy
from fmqcore.failover.lost_journals import lost_journals
from fmqcore.failover.table import RULES, Key, Row, Rules
from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode

__all__ = ["RULES", "Row", "Rules", "decide", "part_of"]


# Steps that only continue what this broker alone is bound to: they need no fresh look.
_WITHOUT_LOOK: Final = frozenset({Action.FREEZE, Action.SEND_RECORD})
_IDLE: Final[Mapping[Key, str]] = {
    (Mode.NEW, Part.SLAVE): "master {master} has never opened this group",
}


def decide(
    me: BrokerId,
    config: GroupConfig,
    state: GroupState,
    evidence: Evidence,
    now_ms: int,
    params: Params,
    rules: Rules = RULES,
) -> Decision:
    """Return what `me` may serve now and the one step to take; the same input gives the same step.

    `now_ms` is the broker's own monotonic clock.
    """
    part = part_of(me, config, state)
    case = Case(me, config, state, evidence, now_ms, params)
    permission, lease = _permission(case, part, rules)
    if part is Part.STRANGER or evidence.superseded:
        reason = (
            f"another process announces itself as {me}: stop one of the two"
            if evidence.superseded
            else f"{me} is not a member of group {config.group}: add it to the configuration"
        )
        return Decision(Action.WAIT, part, Permission.NONE, LeaseRule.NONE, reason)
    may_grant = state.mode is Mode.MASTER and part is Part.SLAVE
    rows = rules.rows[state.mode, part]
    row = next((r for r in rows if all(guard.holds(case) for guard in r.guards)), None)
    if row is None:
        older = state.mode is not Mode.NEW and not g.STATE_CURRENT.holds(case)
        if older and not evidence.fresh:  # the cached state may be the old one
            return Decision(Action.LOOK, part, permission, lease, "", may_grant)
        unmet = g.STATE_CURRENT if older else _unmet(case, rows)
        idle = _IDLE.get((case.state.mode, part), "nothing to do")
        reason = _sentence(case, idle if unmet is None else unmet.unmet)
        reason += _narrowed(case, part, permission, rules)
        checking = any(_checks_between(case, r) for r in rows)
        wake = _wake_ms(case, rows)
        return Decision(
            Action.WAIT,
            part,
            permission,
            lease,
            reason,
            may_grant,
            checking=checking,
            wake_ms=wake,
            remedy=Remedy.NONE if unmet is None else unmet.remedy,
        )
    checking = row.action in (Action.CHECK, Action.CLAIM)
    if not evidence.fresh and row.action not in _WITHOUT_LOOK:
        return Decision(Action.LOOK, part, permission, lease, "", may_grant, checking=checking)
    edit = row.edit(case) if row.edit is not None else None
    # F1: a change of who serves raises the epoch, by exactly one (but for a NEW group's jump).
    assert edit is None or edit.epoch == next_epoch(case) > state.epoch
    reason = edit.reason if edit is not None else _sentence(case, _DOING[row.action])
    return Decision(row.action, part, permission, lease, reason, may_grant, edit, checking)


_DOING: Final[Mapping[Action, str]] = {
    Action.CHECK: "{me} checks whether to take over the reads",
    Action.FREEZE: "{me} stops serving reads, and freezes its offsets for master {master}",
    Action.SEND_RECORD: "{me} hands its offsets over to master {master}",
}


def part_of(me: BrokerId, config: GroupConfig, state: GroupState) -> Part:
    """Return the part of `me`: by the state, or by the configuration while the state is NEW."""
    if config.member(me) is None:
        return Part.STRANGER
    if me == (state.master or config.master):
        return Part.MASTER
    taken_over = state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER)
    return Part.READER if taken_over and me == state.reader else Part.SLAVE


def _permission(case: Case, part: Part, rules: Rules) -> tuple[Permission, LeaseRule]:
    """What the state grants this broker: only in a term that it holds (F6), as configured."""
    granted, lease = rules.permissions.get(
        (case.state.mode, part), (Permission.NONE, LeaseRule.NONE)
    )
    member = case.config.member(case.me)
    if member is None or not g.HELD.holds(case):
        return Permission.NONE, LeaseRule.NONE
    return granted & member.permission, lease


def _narrowed(case: Case, part: Part, permission: Permission, rules: Rules) -> str:
    """Report that the configured permission is narrower, now or after a takeover; else ""."""
    full, _ = rules.permissions.get((case.state.mode, part), (Permission.NONE, LeaseRule.NONE))
    member = case.config.member(case.me)
    if member is None:
        return ""
    now = g.HELD.holds(case) and permission != full
    later = part is Part.SLAVE and member.permission is not Permission.FULL
    if not now and not later:
        return ""
    return f" (the administrator configured {member.permission.name} for {case.me})"


def _unmet(case: Case, rows: tuple[Row, ...]) -> Guard | None:
    """Return the first guard that does not hold, in the row that got furthest."""
    if not rows:
        return None
    unmet = [next(i for i, guard in enumerate(r.guards) if not guard.holds(case)) for r in rows]
    furthest = max(range(len(rows)), key=lambda i: (unmet[i], -i))
    return rows[furthest].guards[unmet[furthest]]


def _sentence(case: Case, text: str) -> str:
    return text.format(
        me=case.me,
        group=case.config.group,
        epoch=case.state.epoch,
        master=case.state.master or case.config.master,
        reader=case.state.reader or "(none)",
        wanted=case.evidence.wanted,
        lost=case.state.declared_lost or "(none)",
        newer=", ".join(newer_journals(case)) or "(none)",
        emptied=", ".join(sorted(lost_journals(case))) or "(none)",
        isr=", ".join(sorted(case.state.isr)) or "none",
    )


def _checks_between(case: Case, row: Row) -> bool:
    """All guards but the timer hold, so the count of good checks stays."""
    return row.action is Action.CHECK and all(
        guard.holds(case) for guard in row.guards if guard is not g.CHECK_DUE
    )


def _wake_ms(case: Case, rows: tuple[Row, ...]) -> int | None:
    """The earliest timer that a row in `rows` waits for; None if there is none."""
    used = {guard.name for r in rows for guard in r.guards}
    evidence = case.evidence
    gone, lacking = evidence.reader_gone_since_ms, evidence.lacking_since_ms
    times = [
        evidence.promised_until_ms + 1 if g.PROMISE_OVER.name in used else 0,
        evidence.next_check_ms if g.CHECK_DUE.name in used else 0,
        evidence.next_move_ms if m.MOVE_DUE.name in used else 0,
        gone + g.reader_wait_ms(case)
        if gone is not None and g.READER_GONE_LONG.name in used
        else 0,
        lacking + case.params.served_wait_ms
        if lacking is not None and g.SERVED_IN.name in used
        else 0,
    ]
    return min((t for t in times if t > case.now_ms), default=None)
