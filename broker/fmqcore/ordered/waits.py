"""Which party of an ordered topic waits for which, since when: for people and conditions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fmqcore.ids import GroupName
from fmqcore.ordered.context import Case, phase_of, view_of
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, obstacle
from fmqcore.ordered.evidence import Action, Duty, Evidence, GroupView, Params, Phase
from fmqcore.ordered.guards import has_trouble
from fmqcore.ordered.machine import decide
from fmqcore.ordered.table import RULES
from fmqcore.zk.chain import Chain

_LASTING_RULES: Final = replace(
    RULES,
    # Only the sentence is asked for: the next segment's start is known to its coordinator alone.
    rows={key: tuple(replace(row, edit=None) for row in rows) for key, rows in RULES.rows.items()},
    conditions=LASTING_CONDITIONS,
)


class ReadWait(NamedTuple):
    """A subscription that stops before the unknown end of a segment, in these queues."""

    subscription: str
    queues: tuple[int, ...]
    segment: int
    group: GroupName  # whose members can give the end
    since_ms: int  # wall clock; 0 = not known


@dataclass(frozen=True, slots=True)
class SendState:
    """How the sends of a topic stand."""

    phase: Phase
    why: str  # what takes the sends, or what they wait for
    since_ms: int  # wall clock: since when the chain is in this phase; 0 = not known
    obstacles: Mapping[GroupName, str]  # why a group may not take the next segment; "" = it may


def send_state(
    chain: Chain,
    groups: Mapping[GroupName, GroupView],
    line: tuple[str, ...],
    wall_ms: int,
    params: Params,
) -> SendState:
    """Return how sends stand, by the chain and by ZooKeeper's nodes of groups and senders.

    `line`: the senders' nodes, first in line first. The view lacks what only a coordinator knows (a
    sender's report), so a step that is due may be described as awaited.
    """
    since = chain.closing_since_ms
    evidence = Evidence(groups=groups, line=line, closing_since_ms=since or None)
    case = Case(chain, evidence, wall_ms, params, LASTING_CONDITIONS)
    decision = decide(Duty.SEND, chain, evidence, wall_ms, params, _LASTING_RULES)
    why = decision.why if decision.action is Action.WAIT else f"next step: {decision.why}"
    phase = phase_of(Duty.SEND, case)
    if phase is Phase.OPEN and (last := chain.last) is not None:
        since = last.opened_ms
        if not line and not has_trouble(chain, view_of(case, last.group)):
            why = f"no sender is in line; segment {last.number} in {last.group} waits for one"
        # Once it is closed, its end is given at once: not an obstacle to the group.
        case = replace(case, chain=replace(chain, segments=chain.segments[:-1]))
    reasons = {g.group: obstacle(case, g.group) or "" for g in chain.groups}
    return SendState(phase, why, since, reasons)


def read_waits(chain: Chain) -> list[ReadWait]:
    """Return the subscriptions that wait for an end which is not known, by name and segment."""
    waits = []
    for name, numbers in chain.heads:
        for segment in chain.segments:
            queues = tuple(q for q, number in enumerate(numbers) if number == segment.number)
            if segment.end_unknown and queues:
                waits.append(
                    ReadWait(name, queues, segment.number, segment.group, segment.ended_ms)
                )
    return waits
