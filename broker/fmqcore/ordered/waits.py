"""Which party of an ordered topic waits for which, since when: for people and conditions. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fmqcore.ids import GroupName
from fmqcore.ordered.context import Case, phase_of, view_of
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, obstacle
from fmqcore.ordered.evidence import (
    Action,
    Duty,
    Evidence,
    GroupView,
    Params,
    Phase,
    SenderReport,
)
from fmqcore.ordered.guards import has_trouble
from fmqcore.ordered.lowering import loses, lower_end, lowered
from fmqcore.ordered.machine import decide
from fmqcore.ordered.table import RULES
from fmqcore.zk.chain import Chain, PerQueue, Segment

_LASTING_RULES: Final = replace(
    RULES,
    # Only the sentence is asked for: the next segment's start is known to its coordinator alone.
    rows={key: tuple(replace(row, edit=None) for row in rows) for key, rows in RULES.rows.items()},
    conditions=LASTING_CONDITIONS,
)


class ReadWait(NamedTuple):
    """A subscription that cannot read a segment to its end, in these queues."""

    subscription: str
    queues: tuple[int, ...]
    segment: int
    group: GroupName  # whose members can help
    since_ms: int  # wall clock; 0 = not known


@dataclass(frozen=True, slots=True)
class SendState:
    """How the sends of a topic stand."""

    phase: Phase
    reason: str  # what takes the sends, or what they wait for
    since_ms: int  # wall clock: since when the chain is in this phase; 0 = not known
    obstacles: Mapping[GroupName, str]  # why a group may not take the next segment; "" = it may


def send_state(
    chain: Chain,
    groups: Mapping[GroupName, GroupView],
    line: tuple[str, ...],
    wall_ms: int,
    params: Params,
    report: SenderReport | None = None,
) -> SendState:
    """Return how sends stand, by the chain and by ZooKeeper's nodes of groups and senders.

    `line`: the senders' nodes, first in line first. `report`: what the active sender has reported;
    its node has that while sends wait all the same.
    """
    since = chain.closing_since_ms
    evidence = Evidence(groups=groups, line=line, report=report, closing_since_ms=since or None)
    case = Case(chain, evidence, wall_ms, params, LASTING_CONDITIONS)
    decision = decide(Duty.SEND, chain, evidence, wall_ms, params, _LASTING_RULES)
    reason = decision.reason if decision.action is Action.WAIT else f"next step: {decision.reason}"
    phase = phase_of(Duty.SEND, case)
    if phase is Phase.OPEN and (last := chain.last) is not None:
        since = last.opened_ms
        if not line and not has_trouble(chain, view_of(case, last.group)):
            reason = f"no sender is in line; segment {last.number} in {last.group} waits for one"
        # Once it is closed, its end is given at once: not an obstacle to the group.
        case = replace(case, chain=replace(chain, segments=chain.segments[:-1]))
    reasons = {g.group: obstacle(case, g.group) or "" for g in chain.groups}
    return SendState(phase, reason, since, reasons)


def stuck_segments(chain: Chain, groups: Mapping[GroupName, GroupView]) -> dict[int, str]:
    """Return, by segment that consumers cannot read to its end, what a person can do.

    Its end is not known; or consumers read it, and no broker of that group serves them,
    or its members have lost what lies below its end (if `groups` has their ends).
    """
    read = {number for _, numbers in chain.heads for number in numbers}
    found: dict[int, str] = {}
    for segment in chain.segments:
        view = groups.get(segment.group)
        if segment.end_unknown:
            found[segment.number] = _remedy(chain.topic, segment, view)
        elif view is None or segment.number not in read:
            continue
        elif _unserved(view):
            found[segment.number] = _remedy(chain.topic, segment, view)
        elif view.ends is not None and segment.end not in (None, lower_end(segment, view.ends)):
            found[segment.number] = _loss_remedy(chain, segment, view.ends)
    return found


def _unserved(view: GroupView) -> bool:
    return bool(view.members) and not view.serves_reads


def _remedy(topic: str, segment: Segment, view: GroupView | None) -> str:
    """Return the remedy; it depends on which of the group's brokers are live."""
    release, group = f"`fmq ordered release {topic} {segment.number}`", segment.group
    if view is None:
        return f"bring back a member of {group}, or run {release}"
    away, waiting = (", ".join(names) for names in (view.away, view.missing))
    if not view.serves_reads and not away:
        return f"no broker serves the reads of {group} yet, though all are there: see `fmq status`"
    if not view.serves_reads and len(view.away) < view.members:
        return f"no broker serves the reads of {group} yet: start {away}, and see `fmq status`"
    if not view.serves_reads:
        return (
            f"no broker serves the reads of {group}: start {away}; if their data is lost for good, "
            f"start them without it, run `fmq cluster begin-again {group}`, and then {release} "
            "with --accept-loss"
        )
    if away:
        return f"{group} may lack what {away} holds: start {away}; if lost for good, run {release}"
    if waiting:
        return f"wait until {waiting} is in sync in {group}, or run {release}"
    return (
        f"all brokers of {group} are there; if they serve (`fmq status`) and do not give it, run "
        f"{release}"
    )


def _loss_remedy(chain: Chain, segment: Segment, ends: PerQueue) -> str:
    group, missing = segment.group, f"the members of {segment.group} end below its end"
    if loses(chain, lowered(chain, segment, ends, {})):
        return (
            f"{missing}, and acknowledged records are lost: accept that by `fmq ordered release "
            f"{chain.topic} {segment.number}` with --accept-loss"
        )
    return f"{missing}: the master of {group} lowers it once the sender has sent the rest again"


def read_waits(chain: Chain, stuck: Collection[int] = ()) -> list[ReadWait]:
    """Return the subscriptions that wait for an end which is not known, by name and segment.

    Also those that read one of the segments `stuck`.
    """
    waits = []
    waiting = [s for s in chain.segments if s.end_unknown or s.number in stuck]
    for name, numbers in chain.heads:
        for segment in waiting:
            queues = tuple(q for q, number in enumerate(numbers) if number == segment.number)
            if queues:
                since_ms = segment.ended_ms if segment.end_unknown else 0
                waits.append(ReadWait(name, queues, segment.number, segment.group, since_ms))
    return waits
