"""Whether a slave is to become master because the master is lost for good. Pure.

Lost: its node in ZooKeeper is gone for `afterSeconds`, it answers nobody, and its pod is not there,
or runs nothing, or is on a node that is known to be down. A pod that runs, ready or not, may be
reading its journal: it is waited for. Who serves reads already holds a later epoch, so the old
master, wherever it may be, serves nothing.

Enough in-sync slaves must be seen that every acknowledgement is met among them, as if the master
had fsynced nothing; the most advanced of them then has all that was acknowledged.
"""

from dataclasses import dataclass, replace

from fmqcore.cluster import Mode
from fmqcore.policy import Flush, slaves_to_hear
from fmqcore.words import BrokerId, Permission
from fmqoperator import facts
from fmqoperator.resources.group import PromotionPolicy
from fmqoperator.seen import Observation, PodPhase
from fmqoperator.words import Move


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, and why; `at_ms`: when to look again (unix time), if that is known."""

    reason: str
    message: str
    at_ms: int | None = None


def is_lost(seen: Observation) -> bool:
    """Nothing of the master is left that could come back by itself soon."""
    master = facts.state_of(seen).master
    if seen.zookeeper is None or seen.pods is None or not master:
        return False
    if facts.is_live(seen, master) or BrokerId(master) in seen.answers:
        return False
    pod, node = facts.pod_of(seen, master), facts.node_of(seen, master)
    if pod is None or facts.runs_nothing(seen, pod):
        return True
    down = node is not None and node.ready is False
    return down or (pod.phase is PodPhase.PENDING and not pod.node)


def promotion(seen: Observation) -> Move | Wait | None:
    """Who becomes master, what that waits for, or nothing to do."""
    state, policy = facts.state_of(seen), seen.group.spec.promotion
    if policy.policy is not PromotionPolicy.AFTER or state.mode is not Mode.SLAVE_CONSUME:
        return None
    if not is_lost(seen):
        return None
    why = f"master {state.master} is lost"
    if not seen.defaults.planned_moves:
        return Wait("MoveUnsupported", f"{why}: brokers of this version cannot promote a slave")
    since = seen.group.status.memory.master_gone_since_ms
    if since is None:
        return Wait("PromotionWaits", f"{why}: since just now")
    due_ms = since + policy.after_seconds * 1000
    if seen.now_ms < due_ms:
        after = f"{policy.after_seconds} s after it was seen last"
        return Wait("PromotionWaits", f"{why}: a slave becomes master {after}", due_ms)
    return _most_advanced(seen, why)


def _most_advanced(seen: Observation, why: str) -> Move | Wait:
    assert seen.zookeeper is not None
    config, state, live = facts.config_of(seen), facts.state_of(seen), seen.zookeeper.live
    assert config is not None
    there = sorted(b for b in state.isr if b in live)
    lossy = replace(config.policy, flush=Flush.OS_CACHE)
    need = max(1, slaves_to_hear(lossy, len(state.isr), len(config.slaves)))
    if len(there) < need:
        gone = ", ".join(sorted(state.isr - live.keys())) or "none is in sync"
        return Wait(
            "PromotionWaits",
            f"{why}: {need} in-sync slaves must be there to know all that was acknowledged; "
            f"missing: {gone}",
        )
    best = min(there, key=lambda b: (-live[b].epoch, -live[b].end, b))
    if facts.permissions(seen, best)[best] is not Permission.FULL:
        return Wait(
            "PromotionWaits", f"{why}: {best} is most advanced and may not serve everything"
        )
    return Move(best, f"{why}: {best} is the most advanced slave in sync")
