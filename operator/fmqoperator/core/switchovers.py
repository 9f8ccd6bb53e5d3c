"""Candidates for master, and every reason to move the mastership to another broker. Pure.

A move is a wanted master in the group's configuration (`GroupConfig.master`), fulfilled by brokers
through the failover machine (ADR 0022). Nothing else is remembered of a move: an operator that
starts again goes on from the wanted and the acting master. Brokers that do not know moves are never
asked for one (`facts.moves`); their master is restarted in good order instead.
"""

from collections.abc import Iterable
from typing import Final

from fmqcore.ids import BrokerId, Permission
from fmqcore.policy import can_meet
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import FENCE, SWITCHOVER
from fmqoperator.core import facts
from fmqoperator.core.children import names
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Hold, Move

OFF: Final = (
    "planned moves are disabled (FMQ_PLANNED_MOVES=false at the operator): the master stays, and "
    "serves again after a restart"
)
ANY_BROKER: Final = ("", "any")
"""Values of the annotation that leave the choice to the operator."""


# ---- candidates for master


def unfit_reason(seen: Observation, broker: str) -> str:
    """Return why a broker cannot become master now, in a sentence; "" = it can."""
    if reason := barred(seen, broker):
        return reason
    if broker not in facts.state_of(seen).isr:
        return f"{broker} is not in sync"
    if not facts.is_in_sync(seen, broker):
        return f"{broker} is not live, not ready, or not linked to its master"
    if not facts.may_stay(seen, broker):
        return f"{broker} is in sync, but its node {facts.drain_of(seen, broker)}, too"
    return ""


def why_no_successor(seen: Observation, among: Iterable[str] | None = None) -> str:
    """Return why no slave can become master now: the reason of each of them."""
    config, master = facts.config_of(seen), facts.state_of(seen).master
    slaves = [str(m.id) for m in ([] if config is None else config.members) if m.id != master]
    able = [b for b in slaves if among is None or b in among]
    reasons = (unfit_reason(seen, broker) for broker in able)
    return "; ".join(reason for reason in reasons if reason) or "the group has no slave"


def barred(seen: Observation, broker: str) -> str:
    """Return why a broker may not become master, whatever its journal has; "" = it may."""
    config = facts.config_of(seen)
    if config is None or config.member(BrokerId(broker)) is None:
        return f"{broker} is not a broker of this group"
    if facts.permissions(seen, broker)[broker] is not Permission.FULL:
        return f"{broker} may not serve FULL (spec.permissions, or {FENCE})"
    return ""


def could_ever(seen: Observation) -> bool:
    """Whether people permit some slave to be master, whether or not it can be now."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    members = () if config is None else config.members
    return any(m.id != state.master and not barred(seen, m.id) for m in members)


def successors(seen: Observation) -> tuple[str, ...]:
    """Return slaves that could become master now, the best first."""
    master = facts.answer_of(seen, facts.state_of(seen).master)
    lag = {} if master is None else {r.broker: r.lag_bytes for r in master.replicas}
    unheard = {b for b, behind in lag.items() if behind is None}
    stale = {p.name for p in facts.outdated(seen)}
    able = [str(b) for b in facts.state_of(seen).isr if not unfit_reason(seen, b)]
    stay = seen.group.brokers
    bad = {b for b in able if (a := facts.answer_of(seen, b)) is not None and a.refuses}
    rank = [
        (
            *(b in bad, bool(_would_lack(seen, b)), b not in stay, b in stale),
            *(b in unheard, lag.get(BrokerId(b)) or 0, names.ordinal(b), b),
        )
        for b in able
    ]
    return tuple(str(r[-1]) for r in sorted(rank))


def _would_lack(seen: Observation, broker: str) -> str:
    """Return what the policy would lack with that master; "" = nothing.

    (A master alone in its zone has no slave there to hold what it takes.)
    """
    config, state = facts.config_of(seen), facts.state_of(seen)
    member = None if config is None else config.member(BrokerId(broker))
    if config is None or member is None:
        return ""
    zones = {m.id: m.zone for m in config.members if m.id != member.id}
    return can_meet(config.policy, zones, member.zone, state.isr | {state.master})


def unable(seen: Observation) -> str:
    """Return why no other master may be wanted; "" = one may, or that is not known."""
    if not seen.defaults.planned_moves:
        return OFF
    if old := facts.unmoving(seen):
        return f"{', '.join(old)} runs a version without planned moves: update it first"
    return ""


def unsettled(seen: Observation) -> str:
    """Return why no working broker may be stopped now; "" = the master serves, none is leaving."""
    if not facts.no_pod_is_leaving(seen):
        pods = facts.leaving_pods(seen)
        return "a broker is being stopped or started" + (f": {pods}" if pods else "")
    if not facts.master_serves(seen):
        return "the master does not serve, or does not answer"
    if not facts.is_ready(seen, facts.state_of(seen).master):
        return "the master is not ready"
    return ""


def move(seen: Observation, to: str, cause: str) -> Move | Hold:
    """Move to that broker, if it can be done now; otherwise hold with the reason."""
    if reason := unable(seen):
        return Hold("MoveUnsupported", f"{cause}: {reason}")
    if reason := unsettled(seen):
        return Hold("MoveWaits", f"{cause}: {reason}")
    if reason := unfit_reason(seen, to):
        return Hold("MoveWaits", f"{cause}: {reason}")
    return Move(BrokerId(to), cause)


# ---- reasons


def wish(seen: Observation) -> Move | Hold | None:
    """Wait for a move in progress, whatever requested it; withdraw one that cannot end.

    It is withdrawn only while the master serves: in mode MASTER the acting master stays the same,
    and a configuration that wants that broker changes nothing. A slave that is merely out of sync
    may come in again; it is waited for, but does not block a wish for another.
    """
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None or state.mode is Mode.NEW:
        return None
    if config.master == state.master:
        opening = state.mode is Mode.MASTER and state.required_epoch
        there = facts.is_live(seen, state.master)
        then = "is about to" if there else "is gone: it must return to"
        message = f"{state.master} has become master and {then} open its term"
        return Hold("Switching", message, blocks=True) if opening else None
    wanted = f"{config.master} is to be master instead of {state.master}{_when_it_gives_way(seen)}"
    if state.mode is not Mode.MASTER or state.required_epoch or not seen.defaults.planned_moves:
        return Hold("Switching", wanted, blocks=True)
    reason = unable(seen) or barred(seen, config.master)
    if not reason and not facts.is_live(seen, config.master):
        reason = f"{config.master} is gone"
    if reason:
        return Move(state.master, f"{reason}: {state.master} stays master")
    if config.master not in state.isr:
        return Hold("MoveWaits", f"{wanted}: {config.master} is not in sync")
    if back := _taken_back(seen):
        return back
    return Hold("Switching", f"{wanted}{_as_it_says(seen, state.master)}", blocks=True)


def goes_on(seen: Observation) -> bool:
    """Whether the move needs no broker that is away: the next look may find it done."""
    state = facts.state_of(seen)
    return bool(state.successor_incarnation) or facts.is_live(seen, state.master)


def _when_it_gives_way(seen: Observation) -> str:
    """Return what a wanted move waits for while the master is gone."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None or goes_on(seen):
        return ""
    if config.declared_lost != state.master:
        return ", which is gone: it hands over once it returns"
    return f", which is declared lost{_as_it_says(seen, config.master)}"


def _as_it_says(seen: Observation, broker: str) -> str:
    """Return the broker's reason, to follow a sentence; "" if it gives none."""
    answer = facts.answer_of(seen, broker)
    return f": {answer.cause}" if answer is not None and answer.cause else ""


def wish_of_a_serving_master(seen: Observation) -> Move | Hold | None:
    """As `wish`; a group without a serving master does not wait for the move."""
    return wish(seen) if facts.state_of(seen).mode is Mode.MASTER else None


def refused(seen: Observation) -> str:
    """Return why the annotation can never be obeyed; "" = it can, or there is none."""
    asked, declared = seen.group.metadata.annotations.get(SWITCHOVER), seen.group.spec.switchover
    if asked is None:
        return ""
    if not seen.defaults.planned_moves:
        return OFF
    if declared is not None:
        return f"spec.switchover.to names {declared.to}: change that instead"
    if asked not in (*ANY_BROKER, *seen.group.brokers):
        return (
            f"{asked!r} is not a broker of this group: name one of {', '.join(seen.group.brokers)}"
        )
    if asked in ANY_BROKER and len(seen.group.brokers) == 1:
        return f"{seen.group.brokers[0]} is the only broker of this group (spec.replicas)"
    return ""


def chosen(seen: Observation) -> str:
    """Return the best successor if the annotation leaves the choice to the operator, else "".

    It is written into the annotation before anything is done, or an operator that is killed after
    the move would make another one.
    """
    asked = seen.group.metadata.annotations.get(SWITCHOVER)
    if asked not in ANY_BROKER or refused(seen) or unable(seen) or unsettled(seen):
        return ""
    return next(iter(successors(seen)), "")


def _taken_back(seen: Observation) -> Move | None:
    """Withdraw a wanted master that waits if the annotation now asks for the acting master.

    The latest request counts, also against a move that comes to no end.
    """
    asked, state = seen.group.metadata.annotations.get(SWITCHOVER), facts.state_of(seen)
    config = facts.config_of(seen)
    if asked != state.master or refused(seen) or config is None:
        return None
    waits = config.master != asked and state.mode is Mode.MASTER
    return Move(state.master, f"{asked} was requested, and is master") if waits else None


def asked_for(seen: Observation) -> Move | Hold | None:
    """Do what the annotation asks for."""
    asked, state = seen.group.metadata.annotations.get(SWITCHOVER), facts.state_of(seen)
    if asked is None or refused(seen):
        return None
    if asked == state.master:
        return _taken_back(seen)
    if to := chosen(seen):
        return Hold("Switching", f"a switchover was requested: {to} is to be master", blocks=True)
    if asked in ANY_BROKER:
        if reason := unable(seen):
            return Hold("MoveUnsupported", f"a switchover was requested: {reason}")
        reason = unsettled(seen) or why_no_successor(seen)
        return Hold("MoveWaits", f"a switchover was requested: {reason}")
    return move(seen, asked, f"a switchover to {asked} was requested")


def asked_for_asleep(seen: Observation) -> Hold | None:
    """Hold the annotation's switchover in a group of which no broker runs."""
    asked = seen.group.metadata.annotations.get(SWITCHOVER)
    if asked is None or refused(seen) or asked == facts.state_of(seen).master:
        return None
    message = f"a switchover to {asked or 'any'} was requested: spec.hibernated is set"
    return Hold("MoveWaits", message)


def drain(seen: Observation) -> Move | Hold | None:
    """Move off a node that is being drained. (A master being stopped gives way itself.)"""
    state, config = facts.state_of(seen), facts.config_of(seen)
    master, pod = state.master, facts.pod_of(seen, state.master)
    if state.mode is not Mode.MASTER or not facts.is_leaving_node(seen, master):
        return None
    if config is None or len(config.members) == 1:
        return None  # no broker to move to: the pod may be evicted as it is
    if pod is None or pod.deleting:
        return None
    cause = f"node {facts.drain_of(seen, master)}, and master {master} runs on it"
    able = successors(seen)
    if not able:
        return Hold("DrainWaits", f"{cause}: {why_no_successor(seen)}")
    if facts.moves(seen):
        return move(seen, able[0], cause)
    if may_be_evicted(seen):
        return Hold("DrainOpen", f"{cause}: its pod may be evicted, {able[0]} takes over the reads")
    return Hold("DrainWaits", f"{cause}: {unsettled(seen)}")


def may_be_evicted(seen: Observation) -> bool:
    """Whether a drain may take the master's pod: a slave takes the reads at once."""
    master = facts.state_of(seen).master
    return (
        bool(master)
        and not facts.moves(seen)
        and facts.is_leaving_node(seen, master)
        and not unsettled(seen)
        and bool(successors(seen))
    )


def declared(seen: Observation, *, updates_wait: bool = False) -> Move | Hold | None:
    """Move as spec.switchover asks, once nothing else is to be done, or if that may take long."""
    asked, state = seen.group.spec.switchover, facts.state_of(seen)
    if asked is None or state.mode is not Mode.MASTER or asked.to == state.master:
        return None
    stale = {p.name for p in facts.outdated(seen)}
    soon = not updates_wait and asked.to in stale and state.master not in stale
    if soon:  # the update would take it back at once
        return Hold("MoveWaits", f"spec.switchover.to is {asked.to}: it is restarted first")
    return move(seen, asked.to, f"spec.switchover.to is {asked.to}")
