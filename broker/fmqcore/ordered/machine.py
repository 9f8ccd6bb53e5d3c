"""The chain machine: one pure, level-triggered function from evidence to at most one step.

The brokers and the exploration of the tests use it. The table below is the protocol: the rows of a
(duty, phase) are tried in order, and the first whose guards all hold is taken. Every step is one
compare-and-set of the chain's node and may be made twice: a coordinator that stops between two
steps leaves nothing behind that another one would need.

| duty  | phase            | guards                                            | step        |
|-------|------------------|---------------------------------------------------|-------------|
| SEND  | EMPTY            | a sender in line; a group eligible                | OPEN 1      |
|       | OPEN             | another sender first in line                      | CLOSE       |
|       |                  | the group's queues end below the segment's start  | CLOSE       |
|       |                  | group taken out; another eligible                 | CLOSE       |
|       |                  | group kept out; another that is not, eligible     | CLOSE       |
|       |                  | a takeover reader serves the group                | CLOSE       |
|       |                  | group silent, full, or lacks a member; another    | CLOSE       |
|       |                  | eligible; it lasts                                |             |
|       | CLOSING          | another eligible; the lease is certainly over     | DECLARE     |
|       |                  |                                                   | UNKNOWN     |
|       | ENDED            | same sender; its report of this segment; all that | OPEN k+1    |
|       |                  | it knows as acknowledged is held; eligible        |             |
|       |                  | another sender; last record known; eligible       | OPEN k+1    |
|       |                  | another sender; accepts an unknown end; eligible  | OPEN k+1    |
| END   | CLOSING, UNKNOWN | master; not sealed; knows what all members hold   | SEAL        |
|       |                  | master; sealed; reaches the start; leaves no gap  | GIVE END    |
|       |                  | takeover reader; reaches the start; leaves no gap | GIVE END    |
|       | SHORT            | master; nothing stored is lost; what was finished | LOWER END   |
|       |                  | was sent again                                    |             |
| HEADS | any              | a subscription has finished a segment             | MOVE HEADS  |
| TIDY  | any              | all subscriptions have left the first segment     | DROP        |

Writes of a switch: CLOSE two (the chain, and `groups/<g>/chains` in the same transaction), GIVE END
one, OPEN one, MOVE HEADS one for all subscriptions of a group. With an end that is declared unknown
and given later there is one more: six.

Why it is safe, in one chain of reasons. An ack needs all members, the unsealed segment, the
unchanged term and a ZooKeeper lease (`sending.may_acknowledge`). CLOSE ends the lease's renewal, so
an end is given by a broker that has ended the acks itself (SEAL; a claim), or declared unknown when
no lease can stand. Each end is no lower than anything acknowledged (`context.given_end`); the next
segment starts with the lowest unacknowledged record; so there is no gap (K5). What is stored twice
is delivered in the earlier segment (`delivery.first_offset`). A head passes known ends only (K8).
A takeover reader ends a segment with records that it alone holds. If it never comes back with them,
the whole group ends the segment earlier, unless a record that counts as stored is gone (`loses`).
"""

from collections.abc import Mapping
from typing import Final

from fmqcore.ids import GroupName
from fmqcore.ordered.context import (
    Case,
    Guard,
    deadline_ms,
    given_end,
    phase_of,
    target_of,
    view_of,
    with_lower_end,
)
from fmqcore.ordered.eligibility import eligible
from fmqcore.ordered.evidence import Action, Decision, Duty, Evidence, Params, Phase
from fmqcore.ordered.invariants import broken_step, require_sound
from fmqcore.ordered.table import RULES, Row, Rules
from fmqcore.ordered.transitions import close
from fmqcore.zk.chain import Chain

__all__ = ["RULES", "Row", "Rules", "decide"]

_IDLE: Final[Mapping[tuple[Duty, Phase], str]] = {
    (Duty.END, Phase.NONE): "no segment of {own_group} waits for its end",
}


def decide(
    duty: Duty,
    chain: Chain,
    evidence: Evidence,
    now_ms: int,
    params: Params,
    rules: Rules = RULES,
) -> Decision:
    """Return the one step to take for `duty`; the same input gives the same step.

    `now_ms` is the broker's own monotonic clock. A WAIT has a sentence on what is awaited.
    """
    case = Case(chain, evidence, now_ms, params, rules.conditions)
    phase = phase_of(duty, case)
    if phase is Phase.SHORT:
        case = with_lower_end(case)
    rows = rules.rows[duty, phase]
    row = next((r for r in rows if all(guard.holds(case) for guard in r.guards)), None)
    if row is None:
        reason = _waiting_for(case, duty, rows)
        return Decision(Action.WAIT, reason, wake_ms=_wake_ms(case, duty))
    reason = _say(case, duty, row.sentence)
    edit = row.edit and row.edit(case)
    if row.action is Action.CLOSE:
        edit = close(chain, reason, row.reason)
    if edit is not None and rules is RULES:
        require_sound(edit)
        assert not broken_step(chain, edit, lowers=row.action is Action.LOWER_END)
    end = given_end(case) if row.action is Action.SEAL else None
    raised = _raised(case, row.action)
    return Decision(row.action, reason, edit, raised, _number(case, duty, row), end)


def _raised(case: Case, action: Action) -> GroupName | None:
    """The group whose master's lease must see that a segment takes no more."""
    last = case.chain.last
    return last.group if action is Action.CLOSE and last is not None else None


def _number(case: Case, duty: Duty, row: Row) -> int:
    if row.action is Action.OPEN:
        return case.chain.next_number
    segment = target_of(case) if duty is Duty.END else case.chain.last
    return segment.number if segment is not None else 0


def _waiting_for(case: Case, duty: Duty, rows: tuple[Row, ...]) -> str:
    """Describe the first guard that does not hold, in the row that got furthest."""
    if not rows:
        return _say(case, duty, _IDLE.get((duty, phase_of(duty, case)), "nothing to do"))
    unmet = [next(i for i, guard in enumerate(r.guards) if not guard.holds(case)) for r in rows]
    furthest = max(range(len(rows)), key=lambda i: (unmet[i], -i))
    return _explain(case, duty, rows[furthest].guards[unmet[furthest]])


def _explain(case: Case, duty: Duty, guard: Guard) -> str:
    if callable(guard.unmet):
        return guard.unmet(case)
    return _say(case, duty, guard.unmet)


def _say(case: Case, duty: Duty, text: str) -> str:
    """Fill in the names that a sentence uses."""
    chain, evidence = case.chain, case.evidence
    segment = (target_of(case) if duty is Duty.END else None) or chain.last
    group = segment.group if segment is not None else GroupName("")
    unended = next((s for s in chain.segments if s.end is None), None)
    return text.format(
        topic=chain.topic,
        segment=segment.number if segment is not None else 0,
        group=group,
        own_group=evidence.group,
        sender=chain.sender.id or "(none)",
        next_sender=next(iter(evidence.line), "(none)"),
        next=chain.next_number,
        next_group=next(iter(eligible(case)), "(none)"),
        unended=unended.number if unended is not None else 0,
        unended_group=unended.group if unended is not None else "(none)",
        avoid=view_of(case, group).avoid,
        trouble=_trouble(case, group),
    )


def _trouble(case: Case, group: GroupName) -> str:
    view = view_of(case, group)
    if not view.reachable:
        return f"{group} does not answer"
    if not view.takes_writes:
        return f"{group} has no master that takes writes"
    if view.full:
        return f"{group} has reached its disk limit"
    return f"{group} lacks {', '.join(view.missing)}"


def _wake_ms(case: Case, duty: Duty) -> int | None:
    """The earliest timer that duty SEND waits for; None if there is none."""
    if duty is not Duty.SEND:
        return None
    trouble = case.evidence.trouble_since_ms
    phase = phase_of(duty, case)
    times = [
        deadline_ms(case) if phase is Phase.CLOSING else None,
        trouble + case.params.trouble_ms if trouble is not None and phase is Phase.OPEN else None,
    ]
    return min((t for t in times if t is not None and t > case.now_ms), default=None)
