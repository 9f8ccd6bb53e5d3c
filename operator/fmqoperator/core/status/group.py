"""The content of a BrokerGroup's status, from an observation. Pure.

The shell writes `patch(old, new)` as a merge patch of the status subresource when `worth_writing`.
"""

from collections.abc import Mapping
from typing import Any, Final

from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_state import Mode
from fmqoperator.api.base import MAX_BROKERS, Condition, Json
from fmqoperator.api.status import (
    Access,
    BrokerGroupStatus,
    BrokerStatus,
    LastTransition,
    Memory,
    Phase,
)
from fmqoperator.api.times import as_text, is_moment, of_text
from fmqoperator.core import broker_trouble as trouble
from fmqoperator.core import desired_config as wanted
from fmqoperator.core import facts
from fmqoperator.core import pending_brokers as awaited
from fmqoperator.core import restart_turns as turns
from fmqoperator.core.children import names, volumes
from fmqoperator.core.children.quantities import bytes_of
from fmqoperator.core.observation import Observation, Replica
from fmqoperator.core.outlook import Outlook, outlook
from fmqoperator.core.plan_types import Move, Verdict
from fmqoperator.core.promotion import gone_since_ms
from fmqoperator.core.status import conditions as judge
from fmqoperator.core.status import outages, phases

COALESCE_MS: Final = 10_000
"""Least time between writes of what changes with the traffic."""

SEEN_MS: Final = 60_000
"""Least time between writes of `observedAt` if nothing else changes.

200 groups at rest cost the API server 3 writes per second.
"""

_NO_BROKER: Final = "none"
_NO_OUTLOOK: Final = Outlook(None, None, False, (), None, ())


def status(seen: Observation) -> Json:
    """Return the whole `status`, as JSON, without what is not known or not so.

    Equal input, equal output.
    """
    group = seen.group
    idle = group.spec.paused or group.metadata.deletion_timestamp is not None
    what, seen = _NO_OUTLOOK if idle else outlook(seen), wanted.own(seen)
    state = facts.state_of(seen)
    found = judge.verdicts(seen, what)
    phase, message = phases.phase(seen, what, found)
    pods = seen.pods or {}
    ready = sum(facts.is_at_work(seen, b) for b in pods)
    brokers = _brokers(seen)
    lags = [b.lag_bytes for b in brokers if b.lag_bytes is not None]
    known, elsewhere = seen.zookeeper is not None, facts.serve_elsewhere(seen)
    served = judge.served(seen, next(v for v in found if v.type == "WriteAvailable"))
    memory = _memory(seen, what, served)
    made = BrokerGroupStatus(
        observed_generation=group.metadata.generation,
        phase=phase,
        message=message[:1024],
        master=_master(seen),
        reader=judge.reader(seen),
        access=served,
        observed_at=as_text(seen.now_ms),
        no_reads_since=_since_text(memory.no_reads_since_ms),
        no_writes_since=_since_text(memory.no_writes_since_ms),
        mode=state.mode.value if known else "UNKNOWN",
        epoch=state.epoch if known and not elsewhere else group.status.epoch,
        replicas=len(pods),
        ready_replicas=ready,
        ready=f"{ready}/{0 if group.spec.hibernated else group.spec.replicas}",
        lag=bytes_of(max(lags)) if lags else "",
        selector=",".join(f"{k}={v}" for k, v in names.selector(group.name).items()),
        in_sync=_in_sync(seen),
        volume_size=volumes.largest(seen),
        brokers=brokers,
        last_transition=_transition(seen, served),
        memory=memory,
        conditions=_conditions(seen, what, found, phase, message),
    )
    return made.as_json()


def patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Return a merge patch that turns `old` into `new`; {} = they are equal."""
    out: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, Mapping):
            if inner := patch(before, value):
                out[key] = inner
        elif value != before:
            out[key] = value
    return out


def worth_writing(
    old: Mapping[str, Any], new: Mapping[str, Any], last_write_ms: int, now_ms: int
) -> bool:
    """Whether something differs; if only traffic or time, not too soon after the last write.

    `last_write_ms`: by this operator, 0 if there was none: then `old` has another one's time,
    so that a restart does not write all groups at once.
    """
    if not patch(old, new):
        return False
    if patch(_steady(old), _steady(new)):
        return True
    observed = str(old.get("observedAt", ""))
    if not last_write_ms and is_moment(observed):
        last_write_ms = of_text(observed)
    traffic = patch(undated(old), undated(new))
    age_ms = now_ms - last_write_ms  # negative: that clock was ahead
    return age_ms < 0 or age_ms >= (COALESCE_MS if traffic else SEEN_MS)


def undated(value: Mapping[str, Any]) -> Json:
    """Return the status without the time of the look, which differs each time."""
    return {k: v for k, v in value.items() if k != "observedAt"}


def _steady(value: Mapping[str, Any]) -> Json:
    """Return the status without what changes with the traffic, or with time alone."""
    out = {k: v for k, v in undated(value).items() if k != "lag"}
    out["brokers"] = [
        {k: v for k, v in b.items() if k not in ("journalEnd", "lagBytes")}
        for b in value.get("brokers", ())
    ]
    return out


# ---- parts


def _master(seen: Observation) -> str:
    config, state = facts.config_of(seen), facts.state_of(seen)
    if config is None and state.mode is Mode.NEW:  # not known; or lost: the last master opens again
        return seen.group.status.master
    return state.master or ("" if config is None else config.master)


def _in_sync(seen: Observation) -> tuple[str, ...]:
    if facts.config_of(seen) is None:
        return seen.group.status.in_sync
    return tuple(sorted(facts.state_of(seen).isr))


def _brokers(seen: Observation) -> tuple[BrokerStatus, ...]:
    """Return all brokers; of a StatefulSet scaled far beyond them, as many as the schema takes."""
    config, master, in_sync = facts.config_of(seen), _master(seen), frozenset(_in_sync(seen))
    members = () if config is None else tuple(str(m.id) for m in config.members)
    ours = {*seen.group.brokers, *members}
    more = sorted({*(seen.pods or {})} - ours, key=names.ordinal)
    ids = sorted([*ours, *more][: 2 * MAX_BROKERS], key=names.ordinal)
    answer = facts.answer_of(seen, master)
    links = {} if answer is None else {r.broker: r for r in answer.replicas}
    return tuple(_broker(seen, b, master, links.get(BrokerId(b)), in_sync) for b in ids)


def _broker(
    seen: Observation, broker: str, master: str, link: Replica | None, isr: frozenset[str]
) -> BrokerStatus:
    pod, node, answer = (
        facts.pod_of(seen, broker),
        facts.node_of(seen, broker),
        facts.answer_of(seen, broker),
    )
    live = None if seen.zookeeper is None else seen.zookeeper.live.get(BrokerId(broker))
    end = answer.end if answer is not None else (live.end if live is not None else None)
    cause = (
        answer.cause if answer is not None else ("" if pod is None else trouble.of_pod(pod, node))
    )
    return BrokerStatus.model_validate(
        {
            "broker": broker,
            "role": "master" if broker == master else "slave",
            "permission": judge.broker_permission(seen, broker),
            "inSync": broker in isr,
            "live": live is not None if seen.zookeeper is not None else _was_live(seen, broker),
            "ready": facts.is_at_work(seen, broker),
            "epoch": answer.epoch if answer is not None else (live.epoch if live else None),
            "journalEnd": end,
            "lagBytes": None if link is None else link.lag_bytes,
            "pod": "" if pod is None else pod.name,
            "node": "" if pod is None else pod.node,
            "zone": (node.zone if node is not None else "") or ("" if pod is None else pod.zone),
            "message": cause[:1024],
        }
    )


def _was_live(seen: Observation, broker: str) -> bool:
    return any(b.live for b in seen.group.status.brokers if b.broker == broker)


def _serving(seen: Observation) -> str:
    """Return the serving broker and its access, e.g. `g1-0 FULL`; "" = none, or not known."""
    if seen.zookeeper is None or facts.serve_elsewhere(seen):
        return ""
    state, now = facts.state_of(seen), judge.access(seen)
    if now in (Access.NONE, Access.UNKNOWN):
        return ""
    answer = facts.answer_of(seen, facts.server_of(state))
    if answer is not None and answer.epoch > state.epoch:
        return ""  # it was asked after ZooKeeper, and is further: the next look knows why
    return f"{facts.server_of(state)} {now.value}"


def _since_text(since_ms: int | None) -> str | None:
    """Return the time for people; None: no outage, or the operator did not see it start."""
    return as_text(since_ms) if since_ms else None


def _memory(seen: Observation, what: Outlook, served: Access) -> Memory:
    """Return what the next round, and the next operator, must know of this one.

    `served`: what clients get. A master that can acknowledge nothing takes no writes.
    """
    old, state, now = seen.group.status.memory, facts.state_of(seen), judge.access(seen)
    made = turns.noted(seen, what.children, known=what.config is not None)
    made |= awaited.noted(seen, what.step)
    if seen.zookeeper is None:
        return old.model_copy(update=made)
    opened, since_ms = state.mode is not Mode.NEW, gone_since_ms(seen)
    # A master stopped as asked is not gone: it has time to come back when the group is woken.
    gone = opened and not facts.is_live(seen, state.master) and not seen.group.spec.hibernated
    unheard = now is Access.UNKNOWN

    def since(before: int | None, bit: Permission) -> int | None:
        if unheard:
            return before
        if not opened or Permission[served.value] & bit:
            return None
        return outages.since(seen, before, bit)

    return Memory(
        master_gone_since_ms=(since_ms or seen.now_ms) if gone else None,
        no_reads_since_ms=since(old.no_reads_since_ms, Permission.READ),
        no_writes_since_ms=since(old.no_writes_since_ms, Permission.WRITE),
        unanswered_since_ms=(old.unanswered_since_ms or seen.now_ms) if unheard else None,
        last_served=_serving(seen) or old.last_served,
        switchover_reason=_move(seen, what),
        restart_turn=turns.updating(seen, what.due),
        **made,
    )


def _move(seen: Observation, what: Outlook) -> str:
    """Return the reason of the move in progress, to report it when it is done."""
    config, state = facts.config_of(seen), facts.state_of(seen)
    if isinstance(what.step, Move):
        return what.step.cause[:1024] if what.step.to != state.master else ""
    done = state.mode is Mode.MASTER and not state.required_epoch and config is not None
    if done and config is not None and config.master == state.master:
        return ""
    return seen.group.status.memory.switchover_reason


def _transition(seen: Observation, served: Access) -> LastTransition | None:
    """Return the last transition, or a new one: another serves, or the same in another epoch."""
    old, memory = seen.group.status.last_transition, seen.group.status.memory
    serving, state = _serving(seen), facts.state_of(seen)
    if not serving:
        return old
    if old is not None and (old.to, old.epoch) == (serving, state.epoch):
        return _completed(seen, old, served)
    bits = Permission[served.value]
    return LastTransition.model_validate(
        {
            "from": memory.last_served or _NO_BROKER,
            "to": serving,
            "cause": _cause(seen)[:1024],
            "at": as_text(seen.now_ms),
            "epoch": state.epoch,
            "readOutageMs": (
                outages.length_ms(seen, memory.no_reads_since_ms, Permission.READ)
                if bits & Permission.READ
                else None
            ),
            "writeOutageMs": (
                outages.length_ms(seen, memory.no_writes_since_ms, Permission.WRITE)
                if bits & Permission.WRITE
                else None
            ),
        }
    )


def _completed(seen: Observation, old: LastTransition, served: Access) -> LastTransition:
    """Return the transition with the length of a write outage that outlasted it and is over now.

    A promoted master acknowledges nothing before as many slaves are in sync as the policy asks for.
    """
    memory, ends_ms = seen.group.status.memory, of_text(old.at) + 999  # `at` is cut to the second
    since_ms, bits = memory.no_writes_since_ms, Permission[served.value]
    if old.write_outage_ms is not None or not since_ms or not bits & Permission.WRITE:
        return old
    if since_ms > ends_ms:  # another one, which started later
        return old
    length_ms = outages.length_ms(seen, since_ms, Permission.WRITE)
    return old.model_copy(update={"write_outage_ms": length_ms})


def _cause(seen: Observation) -> str:
    """Return the cause; of a move, also the former master and the reason."""
    config, state, memory = facts.config_of(seen), facts.state_of(seen), seen.group.status.memory
    if state.mode is not Mode.MASTER or config is None or config.master != state.master:
        return facts.cause(state)
    before, _, served = memory.last_served.partition(" ")
    gave_way = served in ("FULL", "WRITE") and before != state.master
    if not gave_way and not memory.switchover_reason:
        return facts.cause(state)
    place = f" in place of {before}" if gave_way else ""
    cause = f": {memory.switchover_reason}" if memory.switchover_reason else ""
    return f"{state.master} is master{place}{cause}"


def _conditions(
    seen: Observation, what: Outlook, found: list[Verdict], phase: Phase, message: str
) -> tuple[Condition, ...]:
    by_type = {v.type: v for v in found}
    applied = by_type["ConfigApplied"]
    queued = any(h.reason == "UpdateQueued" for h in what.holds)
    queued = queued and bool(turns.brought(seen)) and turns.is_brought(seen)
    # A group that waits in the queue is as its own spec says, unless that has changed since.
    as_asked = applied.status == "True" or (queued and applied.reason == "RestartsDue")
    match phase:
        case Phase.RUNNING if as_asked:
            ready = Verdict("Ready", "True", "Serving", message)
        case Phase.UNKNOWN:
            ready = Verdict("Ready", "Unknown", "NotKnown", message)
        case Phase.RUNNING:
            ready = Verdict("Ready", "False", applied.reason, applied.message)
        case _:
            ready = Verdict("Ready", "False", phase.value, message)
    missing = judge.missing_parts(seen, found) if phase is not Phase.HIBERNATED else []
    down = phase is Phase.DOWN
    degraded = Verdict(
        "Degraded",
        "True" if missing or down else "False",
        "Down" if down else "Missing" if missing else "Whole",
        "; ".join(([message] if down and message not in missing else []) + missing),
    )
    old, generation = seen.group.status.as_json(), seen.group.metadata.generation
    return tuple(
        timed(verdict, old, generation, seen.now_ms) for verdict in (ready, *found, degraded)
    )


def timed(verdict: Verdict, old: Mapping[str, Any], generation: int, now_ms: int) -> Condition:
    """Return the verdict with the time since when its status is what it is.

    A time to come, of an operator with another clock, counts as now: steps wait by these times.
    """
    before = next((c for c in old.get("conditions", ()) if c["type"] == verdict.type), None)
    same = before is not None and before.get("status") == verdict.status
    since = before.get("lastTransitionTime", "") if before is not None and same else ""
    is_past = is_moment(since) and of_text(since) <= now_ms
    return Condition.model_validate(
        {
            "type": verdict.type,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": verdict.message[:2048],
            "observedGeneration": generation,
            "lastTransitionTime": since if is_past else as_text(now_ms),
        }
    )
