"""Brokers that the operator itself started or restarted, until they come in sync. Pure.

That a copy is missing for so long is part of what was asked for: PHASE says what goes on, not
`Degraded`, as long as nothing is wrong with them. They are in the group's status
(`memory.joining`, `memory.returning`): nothing else tells a broker that begins from one that fell
behind.
"""

from typing import Final

from fmqoperator.api.base import Json
from fmqoperator.api.status import Phase
from fmqoperator.core import facts
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Restart, Step

_ASLEEP: Final = (Phase.HIBERNATING, Phase.HIBERNATED)
_STARTING: Final = ("", "ContainerCreating", "PodInitializing")
"""Waiting reasons of a pod with which nothing is wrong."""


def begins(seen: Observation) -> bool:
    """The group is new, or sleeps no more, and was not whole since."""
    status = seen.group.status
    return not status.epoch or status.phase in (*_ASLEEP, Phase.CREATING)


def joining(seen: Observation) -> tuple[str, ...]:
    """Those that were never in sync: of a group that was not open yet all, later those added."""
    status = seen.group.status
    if seen.zookeeper is None:
        return status.memory.joining
    known = {b.broker for b in status.brokers} if status.epoch else frozenset()
    new = [b for b in seen.group.brokers if b not in known or b in status.memory.joining]
    return tuple(b for b in new if not _is_back(seen, b))


def returning(seen: Observation, step: Step | None) -> tuple[str, ...]:
    """Those that were restarted, or woken, and were in sync before."""
    status = seen.group.status
    if seen.zookeeper is None or seen.group.spec.hibernated:
        return status.memory.returning
    stopped = {step.pod} if isinstance(step, Restart) else set()
    woken = seen.group.brokers if status.phase in _ASLEEP else ()
    new = {*status.memory.returning, *woken} - set(joining(seen))
    back = {b for b in new if _is_back(seen, b)}
    ours = {*seen.group.brokers}
    return tuple(sorted((new - back | stopped) & ours))


def noted(seen: Observation, step: Step | None) -> Json:
    """What the status remembers of it."""
    return {"joining": joining(seen), "returning": returning(seen, step)}


def goes_well(seen: Observation, broker: str) -> bool:
    """Nothing is wrong with it yet: what lasts, or is in trouble, is."""
    pod, node = facts.pod_of(seen, broker), facts.node_of(seen, broker)
    if node is not None and node.ready is False:
        return False
    if pod is None:
        return seen.pods is not None and not seen.not_made.get(broker)
    if pod.deleting or pod.ready:
        return True
    if pod.exit_code or pod.waiting not in _STARTING:
        return False
    since_ms = pod.unready_since_ms
    return since_ms is None or seen.now_ms - since_ms < facts.STUCK_MS


def all_missing(seen: Observation, step: Step | None) -> tuple[str, ...]:
    """All that count not, or whose pods are not ready, if they are awaited and it goes well with
    each; () = somebody else is missing, too, or nobody. Who was in sync has its time for it."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if seen.zookeeper is None or config is None or seen.pods is None:
        return ()
    new, known = joining(seen), returning(seen, step)
    missing = tuple(b for b in seen.group.brokers if not _is_back(seen, b))
    if not all(b in (*new, *known) and goes_well(seen, b) for b in missing):
        return ()
    others = {str(m.id) for m in config.members} - {*seen.group.brokers, state.master}
    if others - state.isr or (set(missing) - set(new) and _lasts(seen)):
        return ()
    return missing


def _counts(seen: Observation, broker: str) -> bool:
    state = facts.state_of(seen)
    return broker == state.master or broker in state.isr


def _is_back(seen: Observation, broker: str) -> bool:
    ready = facts.is_ready(seen, broker) and facts.is_live(seen, broker)
    return _counts(seen, broker) and ready


def _lasts(seen: Observation) -> bool:
    """Somebody has not been in sync for longer than a broker takes that merely starts."""
    since_ms = facts.behind_since_ms(seen)
    return since_ms is not None and seen.now_ms - since_ms >= facts.BEHIND_MS
