"""What one decision sees: the case, its guards, and questions that several of them ask. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fmqcore.ids import GroupName
from fmqcore.ordered.evidence import Duty, Evidence, GroupView, Params, Phase, Serving
from fmqcore.ordered.lowering import lowered, short_segment
from fmqcore.zk.chain import Chain, PerQueue, Segment
from fmqcore.zk.chain_json import chain_to_json

MAX_CHAIN_BYTES: Final = 512 * 1024
"""A larger chain gets no further segment. ZooKeeper drops the session of whoever writes a node of
1 MiB (`jute.maxbuffer`), and heads, ends and reasons to close still have to fit.
"""
_ENTRY_BYTES: Final = 64
"""More than a number of a segment or of a head takes in a chain's JSON; eight of them, a name."""


class Condition(NamedTuple):
    """One condition of a group, and the sentence to report while it does not hold."""

    name: str
    holds: Callable[[Chain, GroupName, GroupView], bool]
    unmet: Callable[[Chain, GroupName, GroupView], str]
    brief: bool = False  # unmet for moments only, while records reach all members
    soft: bool = False  # a group that meets all but this is used while no other group can be


@dataclass(frozen=True, slots=True)
class Case:
    """The input of one decision."""

    chain: Chain
    evidence: Evidence
    now_ms: int
    params: Params
    conditions: tuple[Condition, ...]  # of a group that may take the next segment
    lowered: Chain | None = None  # phase SHORT: the chain with the lower end


@dataclass(frozen=True, slots=True)
class Guard:
    """A named question about a case, and the sentence to report while it does not hold."""

    name: str
    holds: Callable[[Case], bool]
    unmet: str | Callable[[Case], str]


def phase_of(duty: Duty, case: Case) -> Phase:
    """Return the phase in which `duty` is."""
    if duty is Duty.END:
        target = target_of(case)
        if target is None:
            return Phase.NONE
        if target.end is not None:
            return Phase.SHORT
        return Phase.UNKNOWN if target.end_unknown else Phase.CLOSING
    last = case.chain.last
    if last is None:
        return Phase.EMPTY
    if case.chain.closing is None:
        return Phase.OPEN
    return Phase.ENDED if last.has_ended else Phase.CLOSING


def target_of(case: Case) -> Segment | None:
    """Return the first segment of this broker's group whose end is due, or else is too high."""
    chain, evidence = case.chain, case.evidence
    target = next(chain.due_ends(evidence.group), None)
    if target is None and evidence.whole_ends is not None:
        return short_segment(chain, evidence.group, evidence.whole_ends)
    return target


def with_lower_end(case: Case) -> Case:
    """Return the case of phase SHORT with the chain in which the segment ends where its group does.

    Computed once: guards judge that chain, and the step writes it.
    """
    target, whole = target_of(case), case.evidence.whole_ends
    assert target is not None
    assert whole is not None
    return replace(case, lowered=lowered(case.chain, target, whole, case.evidence.progress))


def given_end(case: Case) -> PerQueue | None:
    """Return the end that this broker can give: no lower than anything acknowledged or shown.

    A master gives the end in its SEAL: what it knew every configured member to hold when it sealed.
    What lies above was acknowledged to no sender and shown to no consumer (`visible_end`). A
    takeover reader gives its own durable end: an ack needs all members, and its claim has ended
    every later one.
    """
    evidence = case.evidence
    if evidence.serving is Serving.MASTER:
        target = target_of(case)
        return evidence.sealed.get(target.number if target else 0, evidence.held)
    return evidence.durable_ends if evidence.serving is Serving.READER else None


def last_segment(case: Case) -> Segment:
    """Return the chain's last segment, which is there in every phase but EMPTY."""
    last = case.chain.last
    assert last is not None
    return last


def view_of(case: Case, group: GroupName) -> GroupView:
    """Return what is known of a group; a group without evidence is silent."""
    return case.evidence.groups.get(group, GroupView())


def has_room(chain: Chain, limit_bytes: int = MAX_CHAIN_BYTES) -> bool:
    """Return whether the chain is below the size limit in bytes, so it may get another segment."""
    entries = (len(chain.segments) + len(chain.heads)) * (8 + chain.queues)
    if entries * _ENTRY_BYTES < limit_bytes and not any(s.passed for s in chain.segments):
        return True
    return len(chain_to_json(chain)) < limit_bytes


def no_room_text(chain: Chain) -> str:
    """Return why the chain gets no further segment, and what to do."""
    first = chain.segments[0].number
    behind = [name for name, numbers in chain.heads if min(numbers) <= first]
    remedy = "no named consumer group reads it: start one, or set a retention"
    if behind and chain.has_named_readers:
        remedy = (
            f"consumer group {behind[0]} has not read segment {first} yet: let it read on, or "
            f"delete it with `fmq group delete {behind[0]} {chain.topic}`"
        )
    return f"the chain holds {len(chain.segments)} segments, and no more fit: {remedy}"


def deadline_ms(case: Case) -> int | None:
    """Return when the lease of the closing segment is certainly over; None while not closing."""
    since = case.evidence.closing_since_ms
    return None if since is None else since + case.chain.lease_ms + case.params.margin_ms
