"""Which group may take the next segment: a table of conditions, and the order of preference. Pure.

    condition                                         why
    ------------------------------------------------  --------------------------------------------
    the operator does not keep it out (soft)          it would be switched off again at once
    the sender reaches it (soft)                      the same
    its master answers, and takes writes              it can append
    two members or more, all in sync and linked       an ack needs all of them
    no disk limit                                     it can append
    none of the group's segments lacks its end         the new start must not lie below that end
    its ends are on all members, nothing above        a lost tail would move them below the start
    its ends are not below its earlier segments' ends its journal was lost

Of the eligible groups the chain takes one that is not the closing segment's first, unless another
sender is the reason to close: then a drained one, then the heaviest, then the first named.
A group that is kept out, or that the sender did not reach lately, is still used if no other can be.
"""

from typing import Final

from fmqcore.ids import GroupName
from fmqcore.ordered.context import Case, Condition, view_of
from fmqcore.ordered.evidence import GroupView
from fmqcore.ordered.sending import least_members
from fmqcore.zk.chain import Chain, ChainGroup, Segment


def eligible(case: Case) -> list[GroupName]:
    """Return the groups that may take the next segment, the preferred one first."""
    able = [g for g in case.chain.groups if _unmet(case, g.group, soft=False) is None]
    free = [g for g in able if _unmet(case, g.group, soft=True) is None]
    left = _group_to_leave(case)
    preferred = sorted(free or able, key=lambda g: (g.group == left, *_preference(case.chain, g)))
    return [g.group for g in preferred]


def obstacle(case: Case, group: GroupName) -> str | None:
    """Return why the group may not take the next segment; None if it may."""
    conditions = (_unmet(case, group, soft=soft) for soft in (False, True))
    unmet = next((condition for condition in conditions if condition is not None), None)
    return None if unmet is None else unmet.unmet(case.chain, group, view_of(case, group))


def _unmet(case: Case, group: GroupName, *, soft: bool) -> Condition | None:
    """Return the first condition of that kind that does not hold."""
    view = view_of(case, group)
    return next(
        (
            condition
            for condition in case.conditions
            if condition.soft is soft and not condition.holds(case.chain, group, view)
        ),
        None,
    )


def obstacles(case: Case) -> str:
    """Return a sentence about each group that may not take the next segment."""
    reasons = ((g.group, obstacle(case, g.group)) for g in case.chain.groups)
    return "; ".join(f"{group}: {reason}" for group, reason in reasons if reason is not None)


def _group_to_leave(case: Case) -> GroupName | None:
    """Return the closing segment's group; None if another sender is the reason to close it."""
    chain, line = case.chain, case.evidence.line
    if chain.last is None or chain.closing is None or line[:1] != (chain.sender.id,):
        return None
    return chain.last.group


def _preference(chain: Chain, group: ChainGroup) -> tuple[bool, int]:
    drained = all(s.group != group.group for s in chain.segments)
    return (not drained, -group.weight)


def _unended(chain: Chain, group: GroupName) -> Segment | None:
    return next((s for s in chain.segments if s.group == group and s.end is None), None)


def _below(chain: Chain, group: GroupName, view: GroupView) -> Segment | None:
    """The earlier segment of the group whose end its journal does not reach."""
    ends = view.ends or ()
    return next(
        (
            s
            for s in chain.segments
            if s.group == group and s.end and any(e < v for e, v in zip(ends, s.end, strict=False))
        ),
        None,
    )


def _number(segment: Segment | None) -> int:
    return segment.number if segment is not None else 0


CONDITIONS: Final[tuple[Condition, ...]] = (
    Condition(
        "not kept out",
        lambda _chain, _group, view: not view.avoid,
        lambda _chain, _group, view: view.avoid,
        soft=True,
    ),
    Condition(
        "its sender reaches it",
        lambda _chain, _group, view: not view.cut,
        lambda _chain, _group, _view: "the sender does not reach it",
        soft=True,
    ),
    Condition(
        "its master answers",
        lambda _chain, _group, view: view.reachable,
        lambda _chain, _group, _view: "its master does not answer",
    ),
    Condition(
        "its master takes writes",
        lambda _chain, _group, view: view.takes_writes,
        lambda _chain, _group, _view: "it has no master that takes writes",
    ),
    Condition(
        "enough members",
        lambda chain, _group, view: view.members >= least_members(chain),
        lambda chain, _group, view: (
            f"it has {view.members} of {least_members(chain)} members: add a slave"
        ),
    ),
    Condition(
        "all members in sync",
        lambda _chain, _group, view: not view.missing,
        lambda _chain, _group, view: f"{', '.join(view.missing)} not in sync",
    ),
    Condition(
        "no disk limit",
        lambda _chain, _group, view: not view.full,
        lambda _chain, _group, _view: "its disk limit is reached",
    ),
    Condition(
        "no segment without an end",
        lambda chain, group, _view: _unended(chain, group) is None,
        lambda chain, group, _view: (
            f"it has not given the end of segment {_number(_unended(chain, group))} yet"
        ),
    ),
    Condition(
        "ends on all members",
        lambda _chain, _group, view: view.ends is not None,
        lambda _chain, _group, _view: "its members do not all hold its last records yet",
        brief=True,
    ),
    Condition(
        "journal reaches its earlier ends",
        lambda chain, group, view: _below(chain, group, view) is None,
        lambda chain, group, view: (
            f"its journal ends below segment {_number(_below(chain, group, view))}: records were "
            "lost; run `fmq ordered release` for that segment"
        ),
    ),
)
LASTING_CONDITIONS: Final = tuple(c for c in CONDITIONS if not c.brief)
"""The conditions that a request of a person checks; the machine waits out the others."""
