"""Brokers that the operator itself started or restarted, until they come in sync. Pure.

A copy that is missing for that time is part of what was asked for: PHASE reports it, not
`Degraded`, as long as nothing is wrong with them. They are in the group's status (`memory.joining`,
`memory.returning`): nothing else distinguishes a broker that starts from one that fell behind.
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
    """Whether the group is new, or no longer asleep, and was not whole since."""
    status = seen.group.status
    return not status.epoch or status.phase in (*_ASLEEP, Phase.CREATING)


def joining(seen: Observation) -> tuple[str, ...]:
    """Return brokers that were never in sync: all of a group not open yet, else those added."""
    status = seen.group.status
    if seen.zookeeper is None:
        return status.memory.joining
    known = {b.broker for b in status.brokers} if status.epoch else frozenset()
    new = [b for b in seen.group.brokers if b not in known or b in status.memory.joining]
    return tuple(b for b in new if not _is_back(seen, b))


def returning(seen: Observation, step: Step | None) -> tuple[str, ...]:
    """Return brokers that were restarted, or woken, and were in sync before."""
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
    """Return what the status remembers of these brokers."""
    return {"joining": joining(seen), "returning": returning(seen, step)}


def goes_well(seen: Observation, broker: str) -> bool:
    """Whether nothing is wrong with the broker yet: neither trouble nor a long wait."""
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
    """Return the brokers that do not count or are not ready, if all are awaited and go well.

    () = another is missing, too, or none is. One that was in sync has a limited time to return.
    """
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
    """Whether a slave has been out of sync for longer than a mere start takes."""
    since_ms = facts.behind_since_ms(seen)
    return since_ms is not None and seen.now_ms - since_ms >= facts.BEHIND_MS
