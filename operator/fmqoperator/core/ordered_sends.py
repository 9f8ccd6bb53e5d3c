"""Ordered topics send elsewhere before a broker of the group is stopped or moved. Pure.

An ordered message is on all members of a group, so each step takes the sends away. One place in
the flow: `steps.py` finds the step, and here it waits (`before`). In order:

| the group's configuration | chains                                   | then                      |
|---------------------------|------------------------------------------|---------------------------|
| not kept out              | one may send to the group, or not known  | `kept_out` is written     |
| kept out                  | the last segment is here, not ended, and | OrderedSwitch; wait       |
|                           | another group may take the sends         |                           |
|                           | ended, a sender waits for the next one   | wait                      |
|                           | none of these, or 30 s are over          | the step is taken         |
| kept out, no step is due  |                                          | removed once all is whole |
| a node of the group is    | as for a step                            | then its brokers may be   |
| cordoned                  |                                          | evicted                   |

`GroupConfig.kept_out` is the only memory: brokers prefer other groups while it is set, also while
no operator runs, and the next operator goes on from it. It is a preference: a group that is kept
out still takes the sends if no other can, and it is never switched off into nothing.

A drain cordons a node, then evicts. The budgets of a group with chains refuse an eviction without
a cordon (`holds_evictions`), so that the sends leave first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fmqcore.ids import GroupName
from fmqcore.ordered.context import Case, view_of
from fmqcore.ordered.eligibility import LASTING_CONDITIONS, eligible
from fmqcore.ordered.evidence import Evidence, Params
from fmqcore.zk.group_config import KeptOut
from fmqoperator.core import facts, steps
from fmqoperator.core import switchovers as moves
from fmqoperator.core.actions import SwitchSends
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Hold, Leave, Move, Restart, Run, Step
from fmqoperator.core.topics.chain_status import ChainSeen

WAIT_MS: Final = 30_000
"""Longest time for which a step waits for ordered topics."""
HOLD: Final = "OrderedTopicsLeave"
_NAMED: Final = 3
_PARAMS: Final = Params()


@dataclass(frozen=True, slots=True)
class Sends:
    """What ordered topics ask for before the step that is due.

    `stays`: topics whose sends stay here although the step is taken.
    """

    kept_out: KeptOut | None
    hold: Hold | None = None  # the step waits
    switches: tuple[SwitchSends, ...] = ()
    stays: tuple[str, ...] = ()


def asks(seen: Observation) -> bool:
    """Whether the chains have to be read: a step is due, or brokers are about to be evicted."""
    config, step = facts.config_of(seen), steps.next_step(seen).step
    if config is None or not _cause(seen, step):
        return False
    return step is not None or not _over(seen, config.kept_out)


def before(seen: Observation, step: Step | None) -> Sends:
    """Return what has to be done before the step, and whether the group is kept out."""
    config = facts.config_of(seen)
    now, cause = None if config is None else config.kept_out, _cause(seen, step)
    if not cause:
        return Sends(None if now is None or _is_whole(seen) else now)
    chains = [] if seen.chains is None else seen.chains
    if now is None and seen.chains is not None and not chains:
        return Sends(None)
    # A time to come is that of an operator with another clock: it would hold the step until then.
    kept = now if now is not None and now.since_ms <= seen.now_ms else KeptOut(cause, seen.now_ms)
    here = [chain for chain in chains if _waits_for(chain, seen.group.name)]
    names = tuple(chain.chain.topic for chain in here if chain.chain is not None)
    known = seen.chains is not None
    if (known and not here) or _over(seen, kept):
        return Sends(kept, stays=names)
    what = f"topics still send here: {_some(names)}" if known else "their chains are not readable"
    switches = tuple(_switches(seen, here, cause))
    return Sends(kept, Hold(HOLD, f"{cause}: ordered {what}", True), switches)


def holds_evictions(seen: Observation) -> bool:
    """Whether no broker may be evicted yet: an ordered message needs all members of the group."""
    config = facts.config_of(seen)
    if seen.zookeeper is None or not seen.zookeeper.has_chains or config is None:
        return False
    if not _leaving(seen):
        return True  # no node is cordoned: nothing was switched
    if seen.chains == () or _over(seen, config.kept_out):
        return False
    here = seen.chains is None or any(_waits_for(c, seen.group.name) for c in seen.chains)
    return here or config.kept_out is None


def _leaving(seen: Observation) -> list[str]:
    return [b for b in seen.pods or {} if facts.is_leaving_node(seen, b)]


def _over(seen: Observation, kept: KeptOut | None) -> bool:
    """Whether the sends had their time to leave."""
    return kept is not None and seen.now_ms - kept.since_ms >= WAIT_MS


def _cause(seen: Observation, step: Step | None) -> str:
    """Return why ordered topics should not send here; "" = they may."""
    match step:
        case Move(lost="", to=to, cause=cause) if to != facts.state_of(seen).master:
            return f"{to} becomes master: {cause}"
        case Restart(pod=pod, cause=cause):
            return f"{pod} is restarted: {cause}"
        case Leave(broker=broker, cause=cause):
            return f"{broker} is stopped for good: {cause}"
        case Run(cause=cause):
            return f"brokers are stopped: {cause}"
        case _:
            pass
    leaving = _leaving(seen)
    return (
        f"{leaving[0]} has to leave its node: {facts.drain_of(seen, leaving[0])}" if leaving else ""
    )


def _is_whole(seen: Observation) -> bool:
    """Whether all members are in sync, the wanted master serves, and nothing goes on."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None or seen.group.spec.hibernated or config.master != state.master:
        return False
    slaves = [m.id for m in config.members if m.id != state.master]
    return not moves.unsettled(seen) and all(facts.is_in_sync(seen, slave) for slave in slaves)


def _waits_for(seen: ChainSeen, group: str) -> bool:
    """Whether the topic's sends are here, or are on their way to another group."""
    chain = seen.chain
    last = None if chain is None else chain.last
    if chain is None or last is None or last.group != group:
        return False
    ended = chain.closing is not None and last.has_ended
    return not ended or bool(seen.line)  # without a sender nothing follows


def _switches(seen: Observation, here: Iterable[ChainSeen], cause: str) -> Iterable[SwitchSends]:
    """The open segments that another group, which is not kept out itself, may follow."""
    for each in here:
        chain = each.chain
        last = None if chain is None else chain.last
        if chain is None or last is None or chain.closing is not None:
            continue
        case = Case(chain, Evidence(groups=each.views), 0, _PARAMS, LASTING_CONDITIONS)
        own = GroupName(seen.group.name)
        if any(group != own and not view_of(case, group).avoid for group in eligible(case)):
            yield SwitchSends(chain.topic, last.number, cause)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def remaining(sends: Sends) -> str:
    """Return in a sentence which topics the step takes the sends from; "" = none."""
    if not sends.stays:
        return ""
    return (
        f"ordered topics {_some(sends.stays)} still send here after {WAIT_MS // 1000} s: no other "
        "group takes them over, and their sends wait until the group is whole again"
    )
