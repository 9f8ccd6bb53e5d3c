"""What follows from one observation: what should exist, and the step to take. Pure.

`plan` turns it into actions, `status` into words; both use the same outlook.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fmqcore.ids import BrokerId
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import Mode
from fmqoperator.api.base import Json
from fmqoperator.api.group import RESTART, BrokerGroup
from fmqoperator.api.parts import Reclaim
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts, ordered_sends, steps
from fmqoperator.core import switchovers as moves
from fmqoperator.core.children import names, ownership
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.children.group import children
from fmqoperator.core.desired_config import Problem
from fmqoperator.core.observation import Observation
from fmqoperator.core.ordered_sends import Sends
from fmqoperator.core.plan_types import Hold, Leave, Move, Outcome, Run, Step

NOTHING = Outcome(None, ())


@dataclass(frozen=True, slots=True)
class Outlook:
    """What follows from one observation."""

    problem: Problem | None  # nothing may be written to ZooKeeper, nothing be started
    config: GroupConfig | None  # as it should be in ZooKeeper; None: it is not known
    config_differs: bool
    children: tuple[tuple[Json, str], ...]  # those to apply, and why
    step: Step | None
    holds: tuple[Hold, ...]
    owners: tuple[ownership.Change, ...] = ()  # of claims
    due: Step | None = None  # `step`, or the step that waits for ordered topics
    sends: Sends = Sends(None)


def outlook(seen: Observation) -> Outlook:
    """Return what follows for a group that is neither paused nor being deleted."""
    problem, seen = wanted.conflict(seen), wanted.own(seen)
    if seen.predecessor:  # what is there goes, and nothing may be taken over
        return Outlook(problem, None, False, (), None, ())
    outcome = NOTHING if problem is not None else steps.next_step(seen)
    due, sends = outcome.step, ordered_sends.before(seen, outcome.step)
    if sends.hold is not None:
        outcome = Outcome(None, (sends.hold, *outcome.holds))
    config, differs = _config(seen, problem, outcome.step, sends)
    return Outlook(
        problem,
        config,
        differs,
        _children(seen, problem, outcome.step),
        outcome.step,
        outcome.holds,
        _owners(seen, problem, outcome.step),
        due,
        sends,
    )


def _owners(
    seen: Observation, problem: Problem | None, step: Step | None
) -> tuple[ownership.Change, ...]:
    leaving = {str(step.broker)} if isinstance(step, Leave) else set()
    if facts.volumes_go(seen):  # a stopped broker may still be stopping
        running = facts.running_replicas(seen) or 0
        leaving |= {b for b in wanted.leaving(seen) if names.ordinal(b) >= running}
    if seen.group.spec.storage.on_scale_down is not Reclaim.DELETE:
        leaving = set()
    ours = problem is None and seen.zookeeper is not None
    return ownership.changes(seen, leaving, ours=ours and facts.stateful_set(seen) is not None)


def _config(
    seen: Observation, problem: Problem | None, step: Step | None, sends: Sends
) -> tuple[GroupConfig | None, bool]:
    if seen.zookeeper is None or problem is not None:
        return None, False
    config = wanted.config(seen, step if isinstance(step, Move) else None)
    if facts.config_of(seen) is not None:
        config = replace(config, kept_out=sends.kept_out)
    return config, config != facts.config_of(seen)


def _children(
    seen: Observation, problem: Problem | None, step: Step | None
) -> tuple[tuple[Json, str], ...]:
    if seen.children is None:
        return ()
    master, reader = serving(seen)
    running = facts.running_replicas(seen)
    found = children(
        _restarted(seen),
        seen.defaults,
        master=BrokerId(master),
        reader=BrokerId(reader),
        replicas=replicas(seen, step),
        claim_size=facts.claim_size(seen),
        evictable=moves.may_be_evicted(seen),
        held=ordered_sends.holds_evictions(seen),
        leaves=_leaves(seen, step),
    )
    out = []
    for child in found:
        kind, name = child["kind"], child["metadata"]["name"]
        # A broker that finds no configuration exits at once: the configuration comes first.
        unknown = problem is not None or seen.zookeeper is None
        if kind == "StatefulSet" and running is None and unknown:
            continue
        if cause := drifted(child, seen.children.get((kind, name))):
            out.append((child, cause))
    return tuple(out)


def _leaves(seen: Observation, step: Step | None) -> bool:
    """Whether a broker is being removed: this step removes it, or its pod is still stopping."""
    if isinstance(step, Leave) or not facts.volumes_go(seen):
        return isinstance(step, Leave)
    if seen.zookeeper is None or seen.pods is None:
        return facts.may_still_stop(seen)
    running = facts.running_replicas(seen) or 0
    return any(names.ordinal(b) >= running and b in seen.pods for b in wanted.leaving(seen))


def _restarted(seen: Observation) -> BrokerGroup:
    """Return the group as restarted last: removing the annotation asks for no other restart."""
    group, done = seen.group, facts.template_note(seen, RESTART)
    if RESTART in group.metadata.annotations or not done:
        return group
    notes = {**group.metadata.annotations, RESTART: done}
    metadata = group.metadata.model_copy(update={"annotations": notes})
    return group.model_copy(update={"metadata": metadata})


def serving(seen: Observation) -> tuple[str, str]:
    """Return the brokers that -rw and -ro select: by the state; if not known, as before.

    ZooKeeper may have forgotten a group, or be another ensemble than its brokers still use: the
    broker that served last then serves on, or is the first to do so again.
    """
    last = seen.group.status.memory.last_served.partition(" ")[0]
    if seen.zookeeper is None:
        return seen.group.status.master, seen.group.status.reader or last
    state = facts.state_of(seen)
    return (last, last) if state.mode is Mode.NEW else (state.master, state.reader)


def replicas(seen: Observation, step: Step | None) -> int:
    """Return how many pods to run.

    Fewer than now only by a step, or if the StatefulSet was scaled by hand and some pods are no
    brokers of this group.
    """
    running, asked = facts.running_replicas(seen), seen.group.spec.replicas
    match step:
        case Leave(broker=broker):
            return names.ordinal(broker)
        case Run(replicas=count):
            return count
        case _:
            pass
    if seen.group.spec.hibernated:
        return running or 0
    if seen.zookeeper is None:
        return asked if running is None else running
    if facts.config_of(seen) is None:
        return max(running or 0, asked)
    stay = [b for b in wanted.leaving(seen) if not wanted.has_left(seen, b)]
    most = max([asked, *(names.ordinal(b) + 1 for b in stay)])
    if not running:  # those on their way out must be there to leave in order
        return most
    needed = [names.ordinal(b) + 1 for b in stay if _must_return(seen, b)]
    return most if running > most else max([running, asked, *needed])


def _must_return(seen: Observation, broker: str) -> bool:
    """Whether a broker that was stopped on its way out must return, as it cannot leave so.

    It is still master, as only a person stops a master; or no serving broker can count it out, and
    the broker that opens the next term must hear it, as it may hold what the others lack.
    """
    state, running = facts.state_of(seen), facts.running_replicas(seen) or 0
    if seen.pods is None or broker in seen.pods or running > names.ordinal(broker):
        return False
    if broker == state.master:
        return True
    unheard = facts.is_live(seen, state.master) and facts.answer_of(seen, state.master) is None
    return broker in state.isr and not unheard and not facts.master_serves(seen)


def child_of(seen: Observation, kind: str, name: str) -> Json | None:
    """Return an existing child; None: there is none, or that is not known."""
    there: Mapping[tuple[str, str], Json] = seen.children or {}
    return there.get((kind, name))
