"""A BrokerGroup's phase: the group's state in one word, and in one sentence. Pure.

The sentence names root causes first (`root_causes.py`), then what follows from them. A rollout that
waits for a broker that cannot come up does not go on by itself: its phase is not `Updating`.
"""

from typing import Final

from fmqcore.zk.group_state import Mode
from fmqoperator.api.status import Access, Phase
from fmqoperator.core import broker_trouble as trouble
from fmqoperator.core import facts
from fmqoperator.core import pending_brokers as awaited
from fmqoperator.core import switchovers as moves
from fmqoperator.core.observation import Observation
from fmqoperator.core.outlook import Outlook
from fmqoperator.core.plan_types import Hold, Leave, Move, Restart, Run, Verdict
from fmqoperator.core.promotion import AWAY
from fmqoperator.core.status import conditions as judge
from fmqoperator.core.status import root_causes

_AS_ASKED: Final = (Phase.DELETING, Phase.HIBERNATED)
"""Phases of groups of which no broker is to run: no trouble keeps one from its work."""


def phase(seen: Observation, what: Outlook, found: list[Verdict]) -> tuple[Phase, str]:
    """Return the phase and its sentence: root causes first, then the phase's own words.

    Of a group that is paused, or whose ZooKeeper cannot be asked, that comes first.
    """
    causes = root_causes.root_causes(seen, found)
    word, sentences = _phase(seen, what, found, causes)
    if word in _AS_ASKED or what.problem is not None:
        return word, "; ".join(sentences)
    if word is Phase.PAUSED or (seen.zookeeper is None and not seen.group.spec.hibernated):
        return word, "; ".join(root_causes.first(sentences, causes))
    return word, "; ".join(root_causes.first(causes, sentences))


def _phase(
    seen: Observation, what: Outlook, found: list[Verdict], causes: list[str]
) -> tuple[Phase, list[str]]:
    """Return the first phase that applies; the group is served or not, whatever goes on."""
    if (early := _before_it_serves(seen, what, found)) is not None:
        return early
    doing, now = _doing(what), judge.access(seen)
    hangs = bool(causes) and what.step is None and doing is not None and doing[0] in _ROLLS
    if doing and not hangs and not _is_hidden_by(seen, what, doing[0]):
        return doing[0], [doing[1]]
    waits = [doing[1]] if doing and hangs else []
    waits += [hold.message for hold in what.holds if hold.reason == AWAY]
    by_type, state = {v.type: v for v in found}, facts.state_of(seen)
    match now:
        case Access.UNKNOWN:
            return Phase.UNKNOWN, [by_type["ReadAvailable"].message, *waits]
        case Access.NONE if about := _about_to_serve(seen, what):
            return about[0], [about[1]]
        case Access.NONE:
            return Phase.DOWN, [by_type["ReadAvailable"].message, *waits]
        case Access.READ if state.mode is Mode.SLAVE_CONSUME:
            return Phase.READ_ONLY, [state.reason, *waits]
        case _:
            pass
    missing = judge.missing_parts(seen, found)
    writes = by_type["WriteAvailable"]
    if writes.status == "False" and now is Access.FULL and writes.message not in missing:
        missing.insert(0, writes.message)
    wrong = [m for m in missing if m not in judge.of_starting_brokers(seen, found)]
    if not wrong and missing and (about := _on_the_way(seen, what)):
        return about[0], [about[1]]
    if missing or waits:
        return Phase.DEGRADED, [*missing, *waits]
    waiting = [h.message for h in what.holds]
    return Phase.RUNNING, waiting or [by_type["WriteAvailable"].message]


_ROLLS: Final = (Phase.UPDATING, Phase.SCALING)
"""Phases of progress, which stops while it waits for a broker in trouble."""


def _before_it_serves(
    seen: Observation, what: Outlook, found: list[Verdict]
) -> tuple[Phase, list[str]] | None:
    """Return the phase of a group that is not to serve, or not known to; None: it may serve."""
    group, state = seen.group, facts.state_of(seen)
    by_type = {v.type: v for v in found}
    if group.metadata.deletion_timestamp is not None:
        return Phase.DELETING, [f"being deleted; volumes: {group.spec.storage.on_delete.value}"]
    if group.spec.paused:
        return Phase.PAUSED, [by_type["Paused"].message]
    if what.problem is not None:
        return Phase.PENDING, [what.problem.message]
    if group.spec.hibernated:
        asleep = seen.pods is not None and not seen.pods
        waits = "" if asleep else "; ".join(h.message for h in what.holds)
        if seen.zookeeper is None and not asleep:
            waits = f"spec.hibernated is set, but no broker is stopped: {seen.zookeeper_why}"
        text = waits or "spec.hibernated is set"
        return (Phase.HIBERNATED if asleep else Phase.HIBERNATING), [text]
    if seen.zookeeper is None:
        by_themselves = judge.served_without_zookeeper(seen)
        text = by_type["ZooKeeperConnected"].message
        if by_themselves is not None and by_themselves[0] is Access.UNKNOWN:
            text = f"{by_type['ReadAvailable'].message}: {text}"
        no_service = (Access.NONE, Access.UNKNOWN)
        serves = by_themselves is not None and by_themselves[0] not in no_service
        unknown = Phase.UNKNOWN if group.status.epoch else Phase.PENDING
        return (Phase.DEGRADED if serves else unknown), [text]
    if facts.serve_elsewhere(seen):
        return Phase.DEGRADED, [by_type["ZooKeeperConnected"].message]
    if state.mode is Mode.NEW:
        started = bool(seen.pods)
        waits = facts.opening_wait(seen) or "the master is about to open the group"
        pods = trouble.of_pods(seen) or [waits]
        return (Phase.CREATING if started else Phase.PENDING), pods
    return None


def _about_to_serve(seen: Observation, what: Outlook) -> tuple[Phase, str] | None:
    """Return the phase if no broker serves for a moment that is part of something in good order.

    Nothing is wrong yet with the one that is to serve: a long wait, or trouble, is `Down`.
    """
    state = facts.state_of(seen)
    server = facts.server_of(state)
    if state.mode is Mode.HANDOVER and facts.is_live(seen, state.master):
        return Phase.SWITCHING, state.reason
    if facts.is_ready(seen, server) or not awaited.goes_well(seen, server):
        return None
    if awaited.begins(seen):
        return Phase.CREATING, f"{server} is starting, to serve again"
    if server in awaited.returning(seen, what.step):
        return Phase.UPDATING, f"{server} is restarting, and no other broker may serve"
    return None


def _on_the_way(seen: Observation, what: Outlook) -> tuple[Phase, str] | None:
    """Return the phase if all that is missing was just started, as it was asked for."""
    missing = awaited.all_missing(seen, what.step)
    if not missing:
        return None
    text = f"coming in sync: {', '.join(missing)}"
    if awaited.begins(seen):
        return Phase.CREATING, text
    new = set(missing) & set(awaited.joining(seen))
    return (Phase.SCALING if new else Phase.UPDATING), text


def _is_hidden_by(seen: Observation, what: Outlook, phase: Phase) -> bool:
    """Whether the phase gives way to the fact that no broker serves, or a slave alone.

    A hold is not the reason for that, and must not hide it. (A move that goes on takes a moment in
    which no broker serves. A promotion is what mends it.)
    """
    if what.step is not None or phase is Phase.PROMOTING or moves.goes_on(seen):
        return False
    now, state = judge.access(seen), facts.state_of(seen)
    return now is Access.NONE or (now is Access.READ and state.mode is Mode.SLAVE_CONSUME)


def _doing(what: Outlook) -> tuple[Phase, str] | None:
    """Return what the operator is doing; None: nothing."""
    waits = what.sends.hold
    match what.due:
        case Move(cause=cause):
            return Phase.SWITCHING, cause if waits is None else waits.message
        case Leave(cause=cause):
            return Phase.SCALING, cause if waits is None else waits.message
        case Run(cause=cause):
            return Phase.HIBERNATING, cause if waits is None else waits.message
        case Restart(pod=pod, cause=cause):
            return Phase.UPDATING, f"{pod}: {cause}" if waits is None else waits.message
        case None:
            pass
    phases = {
        "Switching": Phase.SWITCHING,
        "ScaleDownWaits": Phase.SCALING,
        "UpdateWaits": Phase.UPDATING,
        "PromotionWaits": Phase.PROMOTING,
        "Promoting": Phase.PROMOTING,
    }
    found = next((h for h in what.holds if h.reason in phases), None)
    return None if found is None else (phases[found.reason], _all(what.holds, found))


def _all(holds: tuple[Hold, ...], first: Hold) -> str:
    return "; ".join([first.message, *(h.message for h in holds if h is not first)])
