"""The one step to take now that stops or moves a broker, if any; and what must wait, and why. Pure.

Every step here takes something away for a moment, so there is at most one at a time, the next only
after all is settled again, and none on what is not known for certain. Asked in this order:

| asked for by           | step                         | only if                                 |
|------------------------|------------------------------|-----------------------------------------|
| a wish on its way      | withdraw it                  | who was wanted cannot become master     |
| a master lost for good | move to the most advanced    | `promotion.after`; enough in-sync seen  |
| spec.hibernated        | stop slaves, then the master | the group is settled, or serves nothing |
| pods that run nothing  | restart it                   | its template is outdated                |
| annotation switchover  | move                         | target in sync, its node stays          |
| a drained node         | move (or let it be evicted)  | a slave in sync elsewhere               |
| fewer replicas         | stop the highest number      | the others in sync, the policy holds    |
| an outdated template   | restart: slaves, then master | all others in sync and ready            |
| spec.switchover        | move                         | target in sync and up to date           |

A move is a wish in the group's configuration (`GroupConfig.master`); brokers fulfil it by the
failover machine. Brokers that know no such wish are never given one (`Defaults.planned_moves`).
"""

from collections.abc import Callable
from typing import Final

from fmqcore.cluster import Mode
from fmqcore.policy import can_meet
from fmqcore.words import BrokerId, Permission
from fmqoperator import facts, wanted
from fmqoperator.objects import names
from fmqoperator.promotion import Wait, promotion
from fmqoperator.resources import FENCE, RESTART, SWITCHOVER
from fmqoperator.seen import Observation, Pod
from fmqoperator.words import Hold, Leave, Move, Outcome, Restart, Run, Step

UNABLE: Final = (
    "brokers of this version do not move the mastership: the master stays, and returns by itself "
    "after a restart"
)


def next_step(seen: Observation) -> Outcome:
    """At most one step, and all that waits."""
    if seen.zookeeper is None or seen.pods is None or seen.children is None:
        return Outcome(None, ())
    if seen.zookeeper.config is None:
        return Outcome(None, ())
    holds: list[Hold] = []
    for choose in _HIBERNATED if seen.group.spec.hibernated else _CHOICES:
        found = choose(seen)
        if isinstance(found, Hold):
            holds.append(found)
            if found.blocks:
                break
        elif found is not None:
            return Outcome(found, tuple(holds))
    return Outcome(None, tuple(holds))


# ---- who could be master


def why_not(seen: Observation, broker: str) -> str:
    """ "" if it can become master now, else the reason in a sentence."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None or config.member(BrokerId(broker)) is None:
        return f"{broker} is no broker of this group"
    if facts.permissions(seen, broker)[broker] is not Permission.FULL:
        return f"{broker} may not serve everything (permissions, or {FENCE})"
    if broker not in state.isr:
        return f"{broker} is not in sync"
    if not facts.is_in_sync(seen, broker):
        return f"{broker} is not there, or not linked to its master"
    if not facts.may_stay(seen, broker):
        return f"the node of {broker} is being drained"
    return ""


def successors(seen: Observation) -> tuple[str, ...]:
    """Slaves that could become master now, the best first."""
    master = facts.answer_of(seen, facts.state_of(seen).master)
    lag = {} if master is None else {r.broker: r.lag_bytes for r in master.replicas}
    stale = {p.name for p in facts.outdated(seen)}
    able = [str(b) for b in facts.state_of(seen).isr if not why_not(seen, b)]
    rank = [(b in stale, lag.get(BrokerId(b), 0), names.ordinal(b), b) for b in able]
    return tuple(r[-1] for r in sorted(rank))


def _move(seen: Observation, to: str, why: str) -> Step | Hold:
    """To that one, if it can be done now."""
    if not seen.defaults.planned_moves:
        return Hold("MoveUnsupported", f"{why}: {UNABLE}")
    if reason := _unsettled(seen):
        return Hold("MoveWaits", f"{why}: {reason}")
    if reason := why_not(seen, to):
        return Hold("MoveWaits", f"{why}: {reason}")
    return Move(BrokerId(to), why)


def _unsettled(seen: Observation) -> str:
    """Why nothing that is at work may be stopped now; "" = the master serves, nobody is leaving."""
    if not facts.nobody_is_leaving(seen):
        return "a broker is being stopped or started"
    if not facts.master_serves(seen):
        return "the master does not serve, or does not answer"
    if not facts.is_ready(seen, facts.state_of(seen).master):
        return "the master is not ready"
    return ""


# ---- the choices, in order


def _wish(seen: Observation) -> Step | Hold | None:
    """A move that is on its way."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None or state.mode is Mode.NEW or config.master == state.master:
        return None
    if state.mode is Mode.MASTER and not facts.is_live(seen, config.master):
        return Move(state.master, f"{config.master} is gone: {state.master} stays master")
    return Hold("Switching", f"{config.master} is to be master; now it is {state.master}", True)


def _promotion(seen: Observation) -> Step | Hold | None:
    found = promotion(seen)
    if isinstance(found, Wait):
        return Hold(found.reason, found.message)
    return found


def _hibernate(seen: Observation) -> Step | Hold | None:
    """Slaves first, so that nobody takes reads over only to be stopped; then the master."""
    running = facts.running_replicas(seen) or 0
    if running == 0:
        return None
    if not facts.nobody_is_leaving(seen):
        return Hold("Hibernating", "brokers are being stopped", True)
    state = facts.state_of(seen)
    first = running > 1 and state.master == f"{seen.group.name}-0" and facts.master_serves(seen)
    return Run(1 if first else 0, "spec.hibernated is set")


def _idle(seen: Observation) -> Step | Hold | None:
    """A pod of an outdated template that runs nothing."""
    if any(p.deleting for p in (seen.pods or {}).values()):
        return None
    idle = [p for p in facts.outdated(seen) if facts.runs_nothing(seen, p)]
    if not idle:
        return None
    pod = idle[0]
    return Restart(pod.name, pod.uid, f"it runs nothing ({pod.waiting}): {reason_of(seen, pod)}")


def _asked(seen: Observation) -> Step | Hold | None:
    """The annotation."""
    asked = seen.group.metadata.annotations.get(SWITCHOVER)
    if asked is None or refused_switchover(seen):
        return None
    able = successors(seen)
    to = (able[0] if able else "") if asked in ("", "any") else asked
    if not to:
        return Hold("MoveWaits", "a switchover was asked for: no slave is in sync")
    if to == facts.state_of(seen).master:
        return None
    return _move(seen, to, f"a switchover to {to} was asked for")


def refused_switchover(seen: Observation) -> str:
    """Why the annotation can never be obeyed; "" = it can, or there is none."""
    asked, declared = seen.group.metadata.annotations.get(SWITCHOVER), seen.group.spec.switchover
    if asked is None:
        return ""
    if not seen.defaults.planned_moves:
        return UNABLE
    if declared is not None:
        return f"spec.switchover.to says {declared.to}: change that instead"
    if asked not in ("", "any", *seen.group.brokers):
        return f"{asked!r} is no broker of this group: {', '.join(seen.group.brokers)} are"
    return ""


def _drain(seen: Observation) -> Step | Hold | None:
    """The master's node is being drained."""
    master, config = facts.state_of(seen).master, facts.config_of(seen)
    if not master or not facts.is_leaving_node(seen, master):
        return None
    if config is None or len(config.members) == 1:
        return None  # nobody to move to: it may be evicted as it is
    node = facts.node_of(seen, master)
    why = f"node {node.name if node else ''} is being drained, master {master} is on it"
    able = successors(seen)
    if not able:
        return Hold("DrainWaits", f"{why}: no slave elsewhere is in sync")
    if seen.defaults.planned_moves:
        return _move(seen, able[0], why)
    if may_be_evicted(seen):
        return Hold("DrainOpen", f"{why}: it may be evicted, {able[0]} takes the reads over")
    return Hold("DrainWaits", f"{why}: {_unsettled(seen)}")


def may_be_evicted(seen: Observation) -> bool:
    """A drain may take the master's pod: a slave elsewhere takes the reads over at once."""
    master = facts.state_of(seen).master
    return (
        bool(master)
        and not seen.defaults.planned_moves
        and facts.is_leaving_node(seen, master)
        and not _unsettled(seen)
        and bool(successors(seen))
    )


def _leave(seen: Observation) -> Step | Hold | None:
    """The broker of the highest number, if it is not wanted any more."""
    out = [b for b in wanted.leaving(seen) if not wanted.has_left(seen, b)]
    if not out:
        return None
    broker, running = out[0], facts.running_replicas(seen)
    if running is not None and running <= names.ordinal(broker):
        return Hold("ScaleDownWaits", f"{broker} is on its way out", True)
    state = facts.state_of(seen)
    if broker == state.master:
        able = [b for b in successors(seen) if b in seen.group.brokers]
        why = f"{broker} is to be taken out and is master"
        if not able:
            return Hold("ScaleDownRefused", f"{why}: no slave that stays is in sync")
        found = _move(seen, able[0], why)
        return Hold("ScaleDownRefused", found.message) if isinstance(found, Hold) else found
    if reason := _unsettled(seen):
        return Hold("ScaleDownRefused", f"{broker} is to be taken out: {reason}")
    if reason := _lost_without(seen, broker):
        return Hold("ScaleDownRefused", f"{broker} is to be taken out: {reason}")
    return Leave(BrokerId(broker), f"spec.replicas is {seen.group.spec.replicas}")


def _lost_without(seen: Observation, broker: str) -> str:
    """What the group would lack without it; "" = nothing that it has now."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    assert config is not None
    if broker not in state.isr:
        return ""
    rest = {m.id: m.zone for m in config.members if m.id not in (broker, state.master)}
    stay = {b: z for b, z in rest.items() if b in seen.group.brokers}
    behind = [b for b in sorted(stay) if not facts.is_in_sync(seen, b)]
    if behind:
        return f"{', '.join(behind)} would hold less than it does"
    master = config.member(state.master)
    zone = "" if master is None else master.zone
    return can_meet(wanted.config(seen).policy, stay, zone, frozenset(stay))


def _roll(seen: Observation) -> Step | Hold | None:
    """Outdated pods: slaves first, the master last."""
    stale = facts.outdated(seen)
    if not stale:
        return None
    master = facts.state_of(seen).master
    slaves = [p for p in reversed(stale) if p.name != master]
    pod = slaves[0] if slaves else stale[0]
    why = reason_of(seen, pod)
    if reason := _unsettled(seen):
        return Hold("UpdateWaits", f"{pod.name} is to be restarted ({why}): {reason}")
    assert seen.zookeeper is not None
    config = facts.config_of(seen)
    assert config is not None
    others = [str(m.id) for m in config.members if m.id not in (pod.name, master)]
    behind = [b for b in others if not facts.is_in_sync(seen, b)]
    if behind:
        return Hold(
            "UpdateWaits",
            f"{pod.name} is to be restarted ({why}): {', '.join(behind)} is not in sync",
        )
    if pod.name == master and others and seen.defaults.planned_moves:
        able = successors(seen)
        if not able:
            return Hold(
                "UpdateWaits", f"master {master} is to be restarted ({why}): nobody is able"
            )
        return _move(seen, able[0], f"master {master} is to be restarted ({why})")
    return Restart(pod.name, pod.uid, why)


def reason_of(seen: Observation, pod: Pod) -> str:
    """Why a pod is outdated: one of a short list."""
    template = (facts.stateful_set(seen) or {}).get("spec", {}).get("template", {})
    notes = template.get("metadata", {}).get("annotations") or {}
    image = next((c.get("image") for c in template.get("spec", {}).get("containers", ())), "")
    if image and pod.image != image:
        return f"image {pod.image} -> {image}"
    if notes.get(names.SETTINGS_HASH, "") != pod.settings:
        return "its settings have changed"
    if notes.get(RESTART, "") != pod.restart:
        return f"a restart was asked for ({notes.get(RESTART, '')})"
    return "its pod template has changed"


def _declared(seen: Observation) -> Step | Hold | None:
    """spec.switchover, once nothing else is to be done."""
    asked, state = seen.group.spec.switchover, facts.state_of(seen)
    if asked is None or state.mode is not Mode.MASTER or asked.to == state.master:
        return None
    return _move(seen, asked.to, f"spec.switchover.to is {asked.to}")


_CHOICES: Final[tuple[Callable[[Observation], Step | Hold | None], ...]] = (
    _wish,
    _promotion,
    _idle,
    _asked,
    _drain,
    _leave,
    _roll,
    _declared,
)
_HIBERNATED: Final = (_wish, _hibernate)
