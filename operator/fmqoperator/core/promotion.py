"""Whether a slave is to become master because the master is lost for good. Pure.

Lost: its node in ZooKeeper is gone for `afterSeconds`, it answers no request, and its pod does not
exist, or runs nothing, or is on a node that is down or silent. A pod that runs on a healthy node
may be reading its journal: the operator waits for it. The broker that serves reads already holds a
later epoch, so the old master, wherever it may be, serves nothing.

Only the reader can be promoted (ADR 0022). It claimed as the most advanced slave in sync, and it
opens no term before it has heard every other member and has what they have more: so all of them
must be there, and all that was acknowledged is among them. No broker is named before that can be.
Where the policy asks no slave to have anything (none, or sent) only a person can give the master
up.
"""

from dataclasses import dataclass
from typing import Final

from fmqcore.ids import BrokerId
from fmqcore.policy import HowMany, SlaveCounts
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import PromotionPolicy
from fmqoperator.core import facts
from fmqoperator.core import switchovers as moves
from fmqoperator.core.observation import Observation, PodPhase
from fmqoperator.core.plan_types import Move

AWAY: Final = "MasterAway"
"""The master may be restarting, or deleted in good order: it may still come back."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now, and why; `at_ms`: when to look again (unix time), if that is known."""

    reason: str
    message: str
    at_ms: int | None = None


def is_lost(seen: Observation) -> bool:
    """Whether nothing of the master is left that could come back by itself soon."""
    master = facts.state_of(seen).master
    if seen.zookeeper is None or seen.pods is None or not master:
        return False
    if facts.is_live(seen, master) or BrokerId(master) in seen.answers:
        return False
    pod, node = facts.pod_of(seen, master), facts.node_of(seen, master)
    if pod is None or facts.runs_nothing(seen, pod):
        return True
    down = node is not None and node.ready is False
    given_up = node is not None and node.ready is not True and pod.deleting
    return down or given_up or (pod.phase is PodPhase.PENDING and not pod.node)


def gone_since_ms(seen: Observation) -> int | None:
    """Return since when the acting master is gone.

    The record of another master does not count, nor that of a time before a term that was opened
    since, while no operator looked. A time to come, by another clock, counts as now.
    """
    status, state = seen.group.status, facts.state_of(seen)
    still = status.master == state.master and state.last_opened_epoch <= status.epoch
    since_ms = status.memory.master_gone_since_ms if still else None
    return None if since_ms is None else min(since_ms, seen.now_ms)


def promotion(seen: Observation) -> Move | Wait | None:
    """Return the promotion, what it waits for, or None: nothing to do."""
    state, policy = facts.state_of(seen), seen.group.spec.promotion
    if policy.policy is not PromotionPolicy.AFTER or state.mode is Mode.NEW:
        return None
    if not is_lost(seen):
        return None
    since, after_s = gone_since_ms(seen), policy.after_seconds
    due_ms = None if since is None else since + after_s * 1000
    if due_ms is None or seen.now_ms < due_ms:
        then = f"a slave becomes master {after_s} s after it was last seen, unless it returns"
        return Wait(AWAY, f"master {state.master} is away: {then}", due_ms)
    cause = f"master {state.master} is lost"
    if reason := moves.unable(seen):
        return Wait("MoveUnsupported", f"{cause}: {reason}")
    return _reader(seen, cause)


def _reader(seen: Observation, cause: str) -> Move | Wait:
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is not None and (config.master, config.declared_lost) == (state.reader, state.master):
        answer = facts.answer_of(seen, state.reader)
        detail = f": {answer.cause}" if answer is not None and answer.cause else ""
        return Wait("Promoting", f"{cause}: {state.reader} is to be master{detail}")
    if reason := _why_not(seen):
        return Wait("PromotionWaits", f"{cause}: {reason}")
    message = f"{cause}: {state.reader} serves the reads and becomes master"
    return Move(state.reader, message, lost=state.master)


def _why_not(seen: Observation) -> str:
    """Return what keeps the reader from becoming master; "" = nothing that is known here."""
    assert seen.zookeeper is not None
    config, state, live = facts.config_of(seen), facts.state_of(seen), seen.zookeeper.live
    if config is None:
        return "ZooKeeper has no configuration of the group"
    reader = state.reader
    if state.mode is not Mode.SLAVE_CONSUME:
        return "no slave serves the reads, and only a takeover reader can become master"
    if reader not in live:
        return f"takeover reader {reader} is not live"
    if reader not in state.isr:
        return f"takeover reader {reader} was not in sync"
    if reason := moves.barred(seen, reader):
        return reason
    policy, wanted = config.policy, seen.group.spec.policy
    if HowMany.NONE in (policy.how_many, wanted.how_many):
        return "the policy needs no slave, so what the master alone acknowledged would be lost"
    if SlaveCounts.SENT in (policy.counts, wanted.slave_counts):
        return "the policy counts what is only sent, so what no slave received would be lost"
    if state.required_epoch > live[reader].epoch:
        return "it had not heard every slave before it went: it must return"
    missing = sorted(m.id for m in config.members if m.id not in live and m.id != state.master)
    if missing:
        return (
            f"every other broker must be live, as one may hold what {reader} lacks; missing: "
            + (", ".join(missing))
        )
    return ""
