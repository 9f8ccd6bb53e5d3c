"""The one step, if any, that stops or moves a broker now; what must wait, and why. Pure.

Every step here takes something away for a moment, so there is at most one at a time, the next only
after all is settled again, and none on what is not known for certain. Asked in this order:

| asked for by           | step                         | only if                                 |
|------------------------|------------------------------|-----------------------------------------|
| a master lost for good | move to the reader           | `promotion.after`; all others there     |
| pods that run nothing, | restart it                   | its template is outdated                |
| or do not come up      |                              |                                         |
| a move on its way      | wait; or withdraw it         | the wanted one cannot become master     |
| annotation switchover  | move                         | target in sync, its node stays          |
| a drained node         | move                         | a slave elsewhere in sync               |
| fewer replicas         | stop the highest number;     | the others in sync, the policy holds    |
|                        | move first, if it is master  |                                         |
| an outdated template   | restart slaves; then move,   | all others in sync and ready, or this   |
|                        | and restart the old master   | one is a slave that is not; it is this  |
|                        |                              | group's turn in its cluster             |
| spec.switchover        | move                         | target in sync and up to date           |
| spec.hibernated        | stop slaves, then the master | the group is settled, or serves nothing |

Moves and what prevents them are in `core/switchovers.py`, a lost master in `promotion.py`. The
master of brokers that do not know moves is restarted, or evicted, in good order instead.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fmqcore.ids import BrokerId
from fmqcore.policy import can_meet
from fmqoperator.api.group import RESTART
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts
from fmqoperator.core import restart_turns as turns
from fmqoperator.core import switchovers as moves
from fmqoperator.core.children import names, volumes
from fmqoperator.core.observation import Observation, Pod
from fmqoperator.core.plan_types import Hold, Leave, Move, Outcome, Restart, Run, Step
from fmqoperator.core.promotion import Wait, promotion


def next_step(seen: Observation) -> Outcome:
    """Return at most one step, and all that waits."""
    # Claims, too: the last copy of the data may be on a volume that goes.
    unknown = (seen.zookeeper, seen.pods, seen.children, seen.claims)
    if None in unknown or facts.config_of(seen) is None:
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


# ---- the choices, in order


def _promotion(seen: Observation) -> Step | Hold | None:
    found = promotion(seen)
    if isinstance(found, Wait):
        return Hold(found.reason, found.message)
    return found


def _hibernate(seen: Observation) -> Step | Hold | None:
    """Stop slaves first, so that none takes reads over only to be stopped; then the master."""
    running = facts.running_replicas(seen) or 0
    if running == 0:
        return None
    if _are_stopping(seen, running):
        pods = facts.leaving_pods(seen)
        message = f"brokers are being stopped{f': {pods}' if pods else ''}"
        return Hold("Hibernating", message, True)
    if reason := volumes.last_copy_goes(seen, seen.group.brokers):
        return Hold("HibernateWaits", reason)
    state = facts.state_of(seen)
    first = running > 1 and state.master == f"{seen.group.name}-0" and facts.master_serves(seen)
    return Run(1 if first else 0, "spec.hibernated is set")


def _are_stopping(seen: Observation, running: int) -> bool:
    """Whether brokers beyond those that are to run still exist.

    A broker whose node is down may exist for ever, and one that was never made (a quota) does not
    exist: neither is waited for.
    """
    out = [b for b in seen.pods or {} if names.ordinal(b) >= running]
    nodes = [facts.node_of(seen, broker) for broker in out]
    return any(node is None or node.ready for node in nodes)


def _idle(seen: Observation) -> Step | Hold | None:
    """Restart a pod of an outdated template that runs nothing, or whose broker does not come up."""
    if any(p.deleting for p in (seen.pods or {}).values()):
        return None
    for pod in facts.outdated(seen):
        if facts.runs_nothing(seen, pod) and not facts.is_started_again(pod):
            cause = f"no broker runs in it ({pod.waiting})"
        elif facts.is_stuck(seen, pod, _patience_ms(seen)):
            cause = "its broker does not start"
        else:
            continue
        cause = f"{cause}: {reason_of(seen, pod)}"
        if reason := volumes.last_copy_goes(seen, [pod.name]):
            return Hold("UpdateWaits", f"{pod.name} is to be restarted ({cause}): {reason}")
        return Restart(pod.name, pod.uid, cause)
    return None


def _leave(seen: Observation) -> Step | Hold | None:
    """Stop the broker of the highest number, if it is no longer wanted."""
    out = [b for b in wanted.leaving(seen) if not wanted.has_left(seen, b)]
    if not out:
        return None
    broker, running = out[0], facts.running_replicas(seen)
    if running is not None and running <= names.ordinal(broker):
        return Hold("ScaleDownWaits", f"{broker} is being removed: {_still(seen, broker)}", True)
    state = facts.state_of(seen)
    if broker == state.master:
        able = [b for b in moves.successors(seen) if b in seen.group.brokers]
        cause = f"{broker} is to be removed and is master"
        if not able:
            return Hold(
                "ScaleDownRefused", f"{cause}: {moves.why_no_successor(seen, seen.group.brokers)}"
            )
        found = moves.move(seen, able[0], cause)
        return Hold("ScaleDownRefused", found.message) if isinstance(found, Hold) else found
    if reason := moves.unsettled(seen):
        return Hold("ScaleDownRefused", f"{broker} is to be removed: {reason}")
    if reason := _lost_without(seen, broker):
        return Hold("ScaleDownRefused", f"{broker} is to be removed: {reason}")
    return Leave(BrokerId(broker), f"spec.replicas is {seen.group.spec.replicas}")


def _still(seen: Observation, broker: str) -> str:
    """Return why the broker has not left yet."""
    if facts.pod_of(seen, broker) is not None:
        return f"its pod still exists{facts.down_node_note(seen, broker)}"
    if facts.is_live(seen, broker):
        return "its session with ZooKeeper has not ended yet"
    return "it is still in the in-sync set: only a serving master removes it"


def _lost_without(seen: Observation, broker: str) -> str:
    """Return what the group would lack without the broker; "" = nothing that it has now."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    assert config is not None
    rest = {m.id: m.zone for m in config.members if m.id not in (broker, state.master)}
    stay = {b: z for b, z in rest.items() if b in seen.group.brokers}
    behind = [b for b in sorted(stay) if not facts.is_in_sync(seen, b)]
    if broker not in state.isr:
        # It may be out of sync for a moment only, and have what the others lack.
        held = not stay or len(behind) < len(stay)  # one that is in sync has all that counts
        known = held or any(facts.has_as_much(seen, b, broker) for b in behind)
        return (
            ""
            if known
            else f"{', '.join(behind)} is not in sync either and may hold less than {broker}"
        )
    if behind:
        return f"{', '.join(behind)} is not in sync and may hold less than {broker}"
    master = config.member(state.master)
    zone = "" if master is None else master.zone
    return can_meet(wanted.config(seen).policy, stay, zone, frozenset(stay))


def _roll(seen: Observation) -> Step | Hold | None:
    """Restart outdated pods: slaves first, those not in sync before all, the master last."""
    stale = facts.outdated(seen)
    if not stale:
        return None
    master = facts.state_of(seen).master
    slaves = [p for p in reversed(stale) if p.name != master]
    brought = turns.brought(seen)
    bounded = bool(brought) and seen.defaults.updates_at_once > 0
    loose = [p for p in slaves if _counts_for_nothing(seen, p)]
    loose = [p for p in loose if not bounded or _is_off(seen, p)]
    pod = (loose or slaves or list(stale))[0]
    cause = reason_of(seen, pod)
    spreads = not loose
    if spreads and (reason := turns.waits_for(seen)):
        return Hold("UpdateQueued", f"{pod.name} is to be restarted ({cause}): {reason}")
    if reason := moves.unsettled(seen):
        return Hold("UpdateWaits", f"{pod.name} is to be restarted ({cause}): {reason}")
    assert seen.zookeeper is not None
    config = facts.config_of(seen)
    assert config is not None
    others = [str(m.id) for m in config.members if m.id not in (pod.name, master)]
    # A group that is not whole takes no turn: it might hold it for ever.
    has_turn = bool(seen.group.status.memory.restart_turn)
    begins = spreads and (bounded or not brought) and not has_turn and pod.name != master
    counted = [*others, pod.name] if begins else others
    behind = [b for b in counted if not facts.is_in_sync(seen, b)]
    if behind and not loose:
        return Hold(
            "UpdateWaits",
            f"{pod.name} is to be restarted ({cause}): {', '.join(behind)} is not in sync",
        )
    if pod.name == master and facts.moves(seen) and moves.could_ever(seen):
        able = moves.successors(seen)
        message = f"master {master} is to be restarted ({cause})"
        if not able:
            reasons = moves.why_no_successor(seen)
            return Hold("UpdateWaits", f"{message}, another must be master first: {reasons}")
        found = moves.move(seen, able[0], message)
        return replace(found, spreads=spreads) if isinstance(found, Move) else found
    if reason := volumes.last_copy_goes(seen, [pod.name]):
        return Hold("UpdateWaits", f"{pod.name} is to be restarted ({cause}): {reason}")
    return Restart(pod.name, pod.uid, cause, spreads)


def _declared(seen: Observation) -> Step | Hold | None:
    queued = bool(facts.outdated(seen)) and bool(turns.waits_for(seen))
    return moves.declared(seen, updates_wait=queued)


def _counts_for_nothing(seen: Observation, pod: Pod) -> bool:
    """Whether the pod is a slave that is not in sync, on a healthy node.

    No other broker counts on it, and its old version may be what keeps it so. On an unhealthy node
    its restart would not end, and would block everything else.
    """
    node = facts.node_of(seen, pod.name)
    here = node is not None and node.ready is True
    return here and BrokerId(pod.name) not in facts.state_of(seen).isr


def _is_off(seen: Observation, pod: Pod) -> bool:
    """Whether the slave has not been ready, or in sync, for long.

    A slave whose stream broke a second ago does not get what the operator brings to all groups
    before its group's turn: it would not come back from a version that does not work, and group
    after group would lose a slave. But a slave that never comes in sync as it is would be kept from
    what mends it.
    """
    if pod.ready:
        since_ms = facts.alone_behind_since_ms(seen, pod.name)
        return since_ms is not None and seen.now_ms - since_ms >= facts.BEHIND_MS
    since_ms = pod.unready_since_ms
    return since_ms is not None and seen.now_ms - since_ms >= _patience_ms(seen)


def _patience_ms(seen: Observation) -> int:
    """Return for how long an unwell broker keeps the version that it has.

    A broker that soon returns with the old image would not return with one that does not work, and
    when a node restarts those are brokers of many groups, masters too.
    """
    queues = bool(turns.brought(seen)) and seen.defaults.updates_at_once > 0
    has_turn = bool(seen.group.status.memory.restart_turn)
    return facts.BEHIND_MS if queues and not has_turn else facts.STUCK_MS


def reason_of(seen: Observation, pod: Pod) -> str:
    """Return why a pod is outdated: one of a short list."""
    containers = facts.template(seen).get("spec", {}).get("containers", ())
    image = next((c.get("image") for c in containers), "")
    if image and pod.image != image:
        return f"image {pod.image} -> {image}"
    if facts.template_note(seen, names.SETTINGS_HASH) != pod.settings:
        return "its settings have changed"
    if (asked := facts.template_note(seen, RESTART)) != pod.restart:
        return f"a restart was requested ({asked})"
    return "its pod template has changed"


_CHOICES: Final[tuple[Callable[[Observation], Step | Hold | None], ...]] = (
    _promotion,
    _idle,
    moves.wish,
    moves.asked_for,
    moves.drain,
    _leave,
    _roll,
    _declared,
)
_HIBERNATED: Final = (moves.wish_of_a_serving_master, _hibernate, moves.asked_for_asleep)
