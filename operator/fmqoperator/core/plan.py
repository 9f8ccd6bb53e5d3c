"""Observe → plan: what to do now for one group, level-triggered. Pure.

A plan brings everything nearer to the declaration that can be brought at once; it has at most one
step that stops or moves a broker (`steps.py`). Done twice, it does no harm; done by half, the next
observation shows what is left.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fmqcore.zk.group_state import Mode
from fmqoperator.api.base import Json
from fmqoperator.api.group import SWITCHOVER
from fmqoperator.api.times import of_text
from fmqoperator.core import broker_trouble as trouble
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts, lost_journals, ordered_sends
from fmqoperator.core import switchovers as moves
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    ChangeAnnotation,
    DeleteChild,
    EmitEvent,
    GrowClaim,
    KeepVolumes,
    OwnClaim,
    PutGroupConfig,
    RemoveAnnotation,
    Requeue,
    RestartPod,
)
from fmqoperator.core.children import names, volumes
from fmqoperator.core.children.pod import config_map
from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.observation import Observation
from fmqoperator.core.outlook import Outlook, child_of, outlook
from fmqoperator.core.plan_types import Leave, Move, Restart, Run
from fmqoperator.core.promotion import Wait, promotion
from fmqoperator.core.status import conditions as judge

CALM_MS: Final = 30_000
BUSY_MS: Final = 2_000
_AT_FIRST_MS: Final = 30_000
"""A group and its ZooKeeper may be made together: its absence is not reported before this."""


def plan(seen: Observation) -> list[Action]:
    """Return all that can be done at once, in order; only `Requeue`: all is as declared.

    Equal input, equal plan. What is not known leads to no destructive action.
    """
    if seen.group.metadata.deletion_timestamp is not None:
        return []  # what it owns goes by itself; its volumes as it was declared
    failed = list(lasting(seen.failures))
    what, seen = None if seen.group.spec.paused else outlook(seen), wanted.own(seen)
    if what is None:
        return [*failed, *_happened(seen), *_kept(seen), Requeue(CALM_MS)]
    if seen.predecessor:
        return [*failed, Requeue(BUSY_MS)]
    actions = [
        *failed,  # Events come first: an action that fails ends the round
        *_report(seen, what),
        *_annotation(seen),
        *_ordered_topics(seen, what),
        *_config(seen, what),
        *what.sends.switches,
        *_children(seen, what),
        *_unwanted(seen, what),
        *_step(what),
        *_owners(what, of_leaving=False),
        *_claims(seen),  # the API server may refuse these, for good: nothing waits for them
    ]
    return [*actions, Requeue(_when(seen, what, actions))]


def _annotation(seen: Observation) -> Iterator[Action]:
    """Act on the annotations: a fence, and a one-time switchover that ended or needs a choice."""
    yield from _fence(seen)
    yield from lost_journals.asked_for(seen)
    asked = seen.group.metadata.annotations.get(SWITCHOVER)
    if asked is None:
        return
    if cause := moves.refused(seen):
        message = f"switchover to {asked or 'any'} refused: {cause}"
        yield EmitEvent("Warning", "SwitchoverRefused", message)
        yield RemoveAnnotation(SWITCHOVER, asked)
        return
    if to := moves.chosen(seen):
        cause = f"switchover to {asked or 'any'}: {to} is the best successor"
        yield ChangeAnnotation(SWITCHOVER, asked, to, cause)
        return
    state, config = facts.state_of(seen), facts.config_of(seen)
    opened = state.mode is Mode.MASTER and not state.required_epoch
    if opened and config is not None and config.master == state.master == asked:
        yield EmitEvent("Normal", "SwitchoverDone", f"{asked} is master in epoch {state.epoch}")
        yield RemoveAnnotation(SWITCHOVER, asked)


def _fence(seen: Observation) -> Iterator[Action]:
    known = [c.message for c in seen.group.status.conditions]
    if (vain := facts.fenced_in_vain(seen)) and not any(vain in message for message in known):
        yield EmitEvent("Warning", "FenceRefused", vain)
    now = judge.fenced(seen)
    if now.reason == judge.FENCE_WAITS:
        return
    if now.status == "True" and now.message not in known:
        yield EmitEvent("Normal", "Fenced", now.message)
    elif now.status == "False" and _condition(seen, "Fenced") == "True":
        yield EmitEvent("Normal", "FenceLifted", "no broker is fenced any more")


def _config(seen: Observation, what: Outlook) -> Iterator[Action]:
    if what.config is None or not what.config_differs or seen.zookeeper is None:
        return
    now = seen.zookeeper.config
    version = -1 if now is None else now.version
    if isinstance(what.step, Move):
        yield _move_event(seen, what.step)
        yield PutGroupConfig(what.config, version, what.step.cause)
        return
    members = ", ".join(m.id for m in what.config.members)
    if now is not None and what.config == replace(now.value, kept_out=what.config.kept_out):
        kept = what.config.kept_out
        yield PutGroupConfig(
            what.config, version, "all is in sync" if kept is None else kept.reason
        )
        return
    if now is None:
        served = seen.group.status.epoch and facts.state_of(seen).mode is not Mode.NEW
        message = f"brokers {members} written to ZooKeeper"
        if served:
            yield EmitEvent(
                "Warning", "GroupConfigured", f"{message} again: the configuration was missing"
            )
        else:
            yield EmitEvent("Normal", "GroupConfigured", message)
    yield PutGroupConfig(what.config, version, "the configuration differs from the declaration")


def _ordered_topics(seen: Observation, what: Outlook) -> Iterator[Action]:
    """Report that ordered topics send elsewhere, may come back, or stay during a step."""
    now, kept = facts.config_of(seen), what.sends.kept_out
    if now is None or what.config is None:
        return
    if kept is not None and now.kept_out is None:
        message = f"ordered topics prefer other groups for their sends: {kept.reason}"
        yield EmitEvent("Normal", "OrderedTopicsLeave", message)
    if kept is None and now.kept_out is not None:
        message = "ordered topics may send here again: all brokers are in sync"
        yield EmitEvent("Normal", "OrderedTopicsReturn", message)
    if what.step is not None and (message := ordered_sends.remaining(what.sends)):
        yield EmitEvent("Warning", "OrderedTopicsStay", message)


def _move_event(seen: Observation, step: Move) -> EmitEvent:
    message = f"{step.to} is to be master: {step.cause}"
    if step.lost:
        return EmitEvent("Warning", "Promotion", message)
    if step.to == facts.state_of(seen).master:
        return EmitEvent("Warning", "SwitchoverWithdrawn", step.cause)
    return EmitEvent("Normal", "Switchover", message)


def _children(seen: Observation, what: Outlook) -> Iterator[Action]:
    running = facts.running_replicas(seen)
    for child, cause in what.children:
        if child["kind"] == "StatefulSet":
            count = child["spec"]["replicas"]
            if running is not None and count > running:
                yield EmitEvent("Normal", "Starting", f"from {running} to {count} brokers")
            match what.step:
                case Leave(broker=broker, cause=reason):
                    yield EmitEvent("Normal", "ScaleDown", f"{broker} is being removed: {reason}")
                    yield from _owners(what, of_leaving=True)  # or its volume would be kept
                case Run(replicas=fewer, cause=reason):
                    yield EmitEvent(
                        "Normal", "Hibernating", f"scaling down to {fewer} brokers: {reason}"
                    )
                case _ if running is not None and count < running:
                    message = (
                        f"from {running} to {count} pods: the others are not members of the group"
                    )
                    yield EmitEvent("Normal", "ScaledBack", message)
                case _:
                    pass
        yield ApplyChild(child, cause, _generation(seen) if child["kind"] == "StatefulSet" else 0)


def _generation(seen: Observation) -> int:
    """Return the generation of the StatefulSet that was looked at: it decides how many run."""
    there = facts.stateful_set(seen) or {}
    return int(there.get("metadata", {}).get("generation") or 0)


def _unwanted(seen: Observation, what: Outlook) -> Iterator[Action]:
    """Delete what a group may do without: settings that no pod has, and a policy."""
    yield from _old_settings(seen, what)
    if seen.group.spec.network_policy.enabled:
        return
    there = child_of(seen, "NetworkPolicy", seen.group.name)
    if there is not None and _is_owned(seen, there):
        yield DeleteChild(
            there.get("apiVersion", "networking.k8s.io/v1"),
            "NetworkPolicy",
            seen.group.name,
            there["metadata"].get("uid", ""),
            "networkPolicy.enabled is false",
        )


def _old_settings(seen: Observation, what: Outlook) -> Iterator[Action]:
    """Delete old ConfigMaps, once every pod is made from the existing template."""
    made = (child["kind"] for child, _ in what.children)
    if "StatefulSet" in made or not facts.all_up_to_date(seen):
        return
    wanted_name = config_map(seen.group)
    for (kind, name), there in sorted((seen.children or {}).items()):
        if kind == "ConfigMap" and name != wanted_name and _is_owned(seen, there):
            uid = there["metadata"].get("uid", "")
            yield DeleteChild("v1", kind, name, uid, "no pod uses these settings")


def _is_owned(seen: Observation, there: Json) -> bool:
    """Whether the group owns the object. One with only the label has another owner."""
    owners = there["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == seen.group.metadata.uid for owner in owners)


def _owners(what: Outlook, *, of_leaving: bool) -> Iterator[Action]:
    """Change the owners of volumes: that of the broker stopped for good now, or all others."""
    leaves = names.claim(what.step.broker) if isinstance(what.step, Leave) else ""
    for change in what.owners:
        claim = change.claim
        if (claim.name == leaves) is of_leaving:
            yield OwnClaim(claim.name, claim.uid, change.goes, change.drops, change.cause)


def _kept(seen: Observation) -> Iterator[Action]:
    """Keep the volumes of a paused group once the broker that was being removed is gone.

    If a person then stops a broker, its volume stays. A paused group gets no other change.
    """
    there = facts.stateful_set(seen)
    if there is not None and facts.volumes_go(seen) and not facts.may_still_stop(seen):
        cause = "the removed broker is gone, and spec.paused is set"
        yield KeepVolumes(seen.group.name, there["metadata"].get("uid", ""), cause)


def _claims(seen: Observation) -> Iterator[Action]:
    """Grow volumes."""
    size = seen.group.spec.storage.size
    for broker, claim in volumes.to_grow(seen):
        cause = f"volume of {broker}: {claim.requested} -> {size}"
        yield EmitEvent("Normal", "VolumeGrows", cause)
        yield GrowClaim(claim.name, size, cause)


def _step(what: Outlook) -> Iterator[Action]:
    """Restart the pod. (A move is in the configuration, a stop in the StatefulSet.)"""
    if isinstance(what.step, Restart):
        yield EmitEvent("Normal", "Restarting", f"{what.step.pod}: {what.step.cause}")
        yield RestartPod(what.step.pod, what.step.uid, what.step.cause)


def _report(seen: Observation, what: Outlook) -> Iterator[Action]:
    """Report what waits or is impossible, unless the status already reports it."""
    known = {c.message for c in seen.group.status.conditions}
    if what.problem is not None and what.problem.message not in known:
        yield EmitEvent("Warning", what.problem.reason, what.problem.message)
    for hold in what.holds:
        if hold.reason in _REPORTED_HOLDS and not any(hold.message in message for message in known):
            yield EmitEvent("Warning", hold.reason, hold.message)
    yield from _happened(seen)


def _happened(seen: Observation) -> Iterator[Action]:
    """Report events that happen without an action of the operator."""
    yield from trouble.events(seen)
    yield from _zookeeper(seen)
    yield from _storage(seen)
    yield from _transition(seen)


_REPORTED_HOLDS: Final = frozenset(
    {"ScaleDownRefused", "MoveUnsupported", "DrainWaits", "DrainOpen"}
)

_PATIENT: Final = frozenset({"DrainWaits", "MoveUnsupported", "ScaleDownRefused", "UpdateQueued"})
"""Holds that wait for a person, or for something that a watch reports."""


def _absence_was_reported(seen: Observation) -> bool:
    """Whether the absence was reported: for a new group only after a while, if still so."""
    at_first = not seen.group.status.epoch
    return not at_first or _has_been_ms(seen, "ZooKeeperConnected") >= _AT_FIRST_MS


_MISLEADING: Final = {judge.UNREADABLE: "ZooKeeperUnreadable", judge.OTHER: "OtherEnsemble"}
"""The Event for an ensemble that answers, and is not to be believed."""


def _condition(seen: Observation, kind: str) -> str:
    """Return the condition's status: True, False, Unknown; "" = not yet."""
    return next((c.status for c in seen.group.status.conditions if c.type == kind), "")


def _has_been_ms(seen: Observation, kind: str) -> int:
    """Return for how long a condition has had its status."""
    known = (c for c in seen.group.status.conditions if c.type == kind)
    since = next((c.last_transition_time for c in known), "")
    return seen.now_ms - of_text(since) if since else 0


def _zookeeper(seen: Observation) -> Iterator[Action]:
    """Report that ZooKeeper went away, or is back, since the status was written."""
    before, now = _condition(seen, "ZooKeeperConnected"), judge.zookeeper(seen)
    if now.reason in _MISLEADING:
        if now.message not in {c.message for c in seen.group.status.conditions}:
            yield EmitEvent("Warning", _MISLEADING[now.reason], now.message)
        return
    if now.status == "False" and not seen.group.status.epoch:
        if before == "False" and _has_been_ms(seen, "ZooKeeperConnected") >= _AT_FIRST_MS:
            yield EmitEvent("Warning", "ZooKeeperUnreachable", now.message)
    elif now.status == "False" != before:
        yield EmitEvent("Warning", "ZooKeeperAway", f"{now.message}{_absence_effect(seen)}")
    elif now.status == "True" and before == "False" and _absence_was_reported(seen):
        yield EmitEvent("Normal", "ZooKeeperBack", f"{now.message} answers again")


def _absence_effect(seen: Observation) -> str:
    """Return what ZooKeeper's absence means for the group, as far as brokers report."""
    if facts.reaching(seen):
        return ""  # the message names them
    if not seen.answers:
        return "; no broker answers the operator, which cannot know whether they reach ZooKeeper"
    return "; masters serve on while their slaves are linked to them, and no group fails over"


def _storage(seen: Observation) -> Iterator[Action]:
    """Report a volume in trouble, or one that a broker lost without a change of the declaration.

    (A volume that grows is reported when its growth is requested.)
    """
    now, known = volumes.verdict(seen), {c.message for c in seen.group.status.conditions}
    if now.status != "False" or now.reason == "Growing" or now.message in known:
        return
    had = _condition(seen, "StorageReady") == "True"
    as_it_was = seen.group.status.observed_generation == seen.group.metadata.generation
    if now.reason in volumes.REPORTED or (had and as_it_was):
        yield EmitEvent("Warning", now.reason, now.message)


def _transition(seen: Observation) -> Iterator[Action]:
    """Report, with the reason, that another broker serves than the status has."""
    if seen.zookeeper is None:
        return
    before, state = seen.group.status, facts.state_of(seen)
    # With a status that is new, or was unreadable, an old change is no news.
    if state.epoch > before.epoch and (before.epoch or before.mode != "UNKNOWN"):
        handed = state.mode is Mode.HANDOVER and facts.is_live(seen, state.master)
        moved = handed or bool(state.successor_incarnation)
        asked = moved or seen.group.spec.hibernated
        calm = (state.mode is Mode.MASTER or asked) and not state.degraded
        message = f"epoch {state.epoch}: {facts.cause(state)}"
        yield EmitEvent("Normal" if calm else "Warning", "EpochOpened", message)


def _when(seen: Observation, what: Outlook, actions: list[Action]) -> int:
    """Return when to plan again if nothing wakes the operator."""
    waits = any(hold.reason not in _PATIENT for hold in what.holds)
    busy = what.step is not None or waits or bool(actions)
    due_ms = BUSY_MS if busy else CALM_MS
    waiting = promotion(seen)
    if isinstance(waiting, Wait) and waiting.at_ms is not None:
        due_ms = min(due_ms, max(1, waiting.at_ms - seen.now_ms))
    return due_ms
