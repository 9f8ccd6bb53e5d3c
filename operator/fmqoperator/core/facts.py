"""Small questions about an observation. Pure.

Each answers True only if it is known for certain: what is not known counts as the worse.
"""

from collections.abc import Mapping
from typing import Final

from fmqcore.ids import BrokerId, Permission
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode
from fmqoperator.api.base import Json
from fmqoperator.api.group import FENCE
from fmqoperator.api.times import of_text
from fmqoperator.core.children import names
from fmqoperator.core.observation import Answer, Node, Observation, Periods, Pod, PodPhase

CRASHED: Final = "CrashLoopBackOff"
IDLE: Final = frozenset(
    {
        CRASHED,
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Waiting reasons of a container that runs nothing now."""

STUCK_MS: Final = 60_000
"""A broker not heard of for this long may be restarted with a newer template.

One that recovers for longer than that starts again, once for each change.
"""

REPLICATION: Final = "ReplicationHealthy"
"""The condition that all slaves are in sync."""

BEHIND_MS: Final = 600_000
"""A ready slave that has been out of sync for this long is not about to come in sync.

Its disk is full, say, or what it runs is at fault. A broker whose node restarted is back sooner.
"""


def config_of(seen: Observation) -> GroupConfig | None:
    """Return the configuration in ZooKeeper; None: there is none, or it is not known."""
    if seen.zookeeper is None or seen.zookeeper.config is None:
        return None
    return seen.zookeeper.config.value


def state_of(seen: Observation) -> GroupState:
    """Return the state in ZooKeeper; mode NEW if not known: check `seen.zookeeper` first."""
    return GroupState() if seen.zookeeper is None else seen.zookeeper.state


def cause(state: GroupState) -> str:
    """Return the reason of the last change of the serving broker.

    The state's reason may be of a later change of the in-sync set. Then name at least the master.
    """
    of_master = state.reason.removeprefix("master ").startswith(f"{state.master} ")
    if state.mode is not Mode.MASTER or of_master or not state.master:
        return state.reason
    return f"{state.master} is master; {state.reason}"


def is_live(seen: Observation, broker: str) -> bool:
    """Whether the broker's node in ZooKeeper exists."""
    return seen.zookeeper is not None and BrokerId(broker) in seen.zookeeper.live


def unmoving(seen: Observation) -> tuple[str, ...]:
    """Return live brokers that do not report that they act on a wanted master."""
    live = {} if seen.zookeeper is None else seen.zookeeper.live
    return tuple(sorted(b for b, node in live.items() if not node.supports_switchover))


def moves(seen: Observation) -> bool:
    """Whether a master may be wanted: moves are on, and every live broker acts on them.

    A broker that is away takes no part in a move; when it is back it finds the move done, or
    reports what it is.
    """
    some = seen.zookeeper is not None and bool(seen.zookeeper.live)
    return seen.defaults.planned_moves and some and not unmoving(seen)


def pod_of(seen: Observation, broker: str) -> Pod | None:
    """Return the broker's pod; None: there is none, or it is not known."""
    return None if seen.pods is None else seen.pods.get(broker)


def is_ready(seen: Observation, broker: str) -> bool:
    """Whether the broker's pod is ready and is to stay."""
    pod = pod_of(seen, broker)
    return pod is not None and pod.phase is PodPhase.RUNNING and pod.ready and not pod.deleting


def is_at_work(seen: Observation, broker: str) -> bool:
    """Whether its pod is ready and it was heard of: Kubernetes detects lost nodes late."""
    heard = seen.zookeeper is None or is_live(seen, broker) or answer_of(seen, broker) is not None
    return is_ready(seen, broker) and heard


def runs_nothing(seen: Observation, pod: Pod) -> bool:
    """Whether no broker works or starts in the pod: stopping it takes nothing away."""
    return _is_unheard(seen, pod) and (
        pod.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED)
        or (pod.phase is PodPhase.PENDING and bool(pod.waiting))
        or (pod.phase is PodPhase.RUNNING and pod.waiting in IDLE)
    )


def is_started_again(pod: Pod) -> bool:
    """Whether the container ended and kubelet starts it again after a pause.

    It may have served a second ago, and be back as it was in the next.
    """
    return pod.phase is PodPhase.RUNNING and pod.waiting == CRASHED


def node_of(seen: Observation, broker: str) -> Node | None:
    """Return the node of the broker's pod; None: it is on none, or not known."""
    pod = pod_of(seen, broker)
    return None if pod is None or not pod.node else seen.nodes.get(pod.node)


def is_leaving_node(seen: Observation, broker: str) -> bool:
    """Whether the pods of the broker's node have to leave it: it is being drained, or soon."""
    node = node_of(seen, broker)
    return node is not None and bool(node.drain_reason)


def drain_of(seen: Observation, broker: str) -> str:
    """Return the name of the broker's node, and why its pods have to leave: `n1 is cordoned`."""
    node = node_of(seen, broker)
    return "" if node is None or not node.drain_reason else f"{node.name} {node.drain_reason}"


def may_stay(seen: Observation, broker: str) -> bool:
    """Whether the broker may stay on its node, as far as that is known."""
    return not is_leaving_node(seen, broker)


def answer_of(seen: Observation, broker: str) -> Answer | None:
    """Return the broker's report of itself; None: it did not answer."""
    return seen.answers.get(BrokerId(broker))


def opening_wait(seen: Observation) -> str:
    """Return what the master of a group that begins again waits for; "" = it does not wait."""
    state, config = state_of(seen), seen.zookeeper and seen.zookeeper.config
    if state.mode is not Mode.NEW or not state.epoch or not config:
        return ""
    master = config.value.master
    answer = answer_of(seen, master)
    return f"{master}: {answer.cause}" if answer is not None and answer.cause else ""


def periods_of(seen: Observation, broker: str) -> Periods | None:
    """Return when a broker served clients; None: no answer, or an older version."""
    answer = answer_of(seen, broker)
    return None if answer is None else answer.periods


def reaching(seen: Observation) -> list[str]:
    """Return brokers that report a connection to ZooKeeper."""
    return sorted(b for b, answer in seen.answers.items() if answer.zookeeper_connected)


def master_serves(seen: Observation) -> bool:
    """Whether the group is in mode MASTER, and its master reports so in that very epoch."""
    state = state_of(seen)
    if state.mode is not Mode.MASTER or state.required_epoch or not is_live(seen, state.master):
        return False
    answer = answer_of(seen, state.master)
    if answer is None or answer.epoch != state.epoch:
        return False
    config = config_of(seen)
    member = None if config is None else config.member(state.master)
    return member is not None and answer.permission == member.permission


def is_in_sync(seen: Observation, broker: str) -> bool:
    """Whether a broker is a slave in sync: live, ready, and linked as the master reports."""
    state = state_of(seen)
    if BrokerId(broker) not in state.isr or not is_live(seen, broker):
        return False
    master = answer_of(seen, state.master)
    linked = master is not None and any(
        r.broker == broker and r.connected and r.in_sync for r in master.replicas
    )
    return linked and is_ready(seen, broker)


def alone_behind_since_ms(seen: Observation, broker: str) -> int | None:
    """Return since when this slave alone is not in sync, by the status; else None.

    None: it is in sync, or others are not either: there is no record of each one's time.
    """
    config, state = config_of(seen), state_of(seen)
    members = () if config is None else config.members
    behind = [m.id for m in members if m.id != state.master and m.id not in state.isr]
    return behind_since_ms(seen) if behind == [broker] else None


def behind_since_ms(seen: Observation) -> int | None:
    """Return since when some slave has not been in sync, by the status; None: all are."""
    known = (c for c in seen.group.status.conditions if c.type == REPLICATION)
    since = next((c.last_transition_time for c in known if c.status == "False"), "")
    return of_text(since) if since else None


def has_as_much(seen: Observation, broker: str, other: str) -> bool:
    """Whether its journal ends where the other's does, or beyond it, as both report."""
    live = {} if seen.zookeeper is None else seen.zookeeper.live
    one, two = live.get(BrokerId(broker)), live.get(BrokerId(other))
    report, other_report = answer_of(seen, broker), answer_of(seen, other)
    if one is None or two is None or report is None or other_report is None:
        return False
    return (one.epoch, report.end) >= (two.epoch, other_report.end)


def no_pod_is_leaving(seen: Observation) -> bool:
    """Whether no pod is being stopped, and there are as many as the StatefulSet wants."""
    if seen.pods is None or any(p.deleting for p in seen.pods.values()):
        return False
    wanted = running_replicas(seen)
    return wanted is None or len(seen.pods) == wanted


def leaving_pods(seen: Observation) -> str:
    """Return the names of the pods that are being stopped: until they are gone, all else waits."""
    going = sorted(p.name for p in (seen.pods or {}).values() if p.deleting)
    return ", ".join(f"{broker}{down_node_note(seen, broker)}" for broker in going)


def down_node_note(seen: Observation, broker: str) -> str:
    """Return a note if the broker's node is down, so that nothing may ever end its pod; else ""."""
    node = node_of(seen, broker)
    if node is None or node.ready is not False:
        return ""
    remedy = f"if it is lost for good, kubectl delete node {node.name}"
    return f" (on node {node.name}, which is not ready: {remedy})"


def server_of(state: GroupState) -> BrokerId:
    """Return the broker that serves, if any: the master, or the reader without a master."""
    return state.master if state.mode is Mode.MASTER else state.reader


def serve_elsewhere(seen: Observation) -> tuple[str, ...]:
    """Return brokers that serve though this ensemble has no term of a group that had some.

    Another ensemble was named since, or the state was deleted. (A new group's term is on its way.)
    """
    if state_of(seen).mode is not Mode.NEW or not seen.group.status.epoch:
        return ()
    return tuple(sorted(str(b) for b, a in seen.answers.items() if a.permission))


def stateful_set(seen: Observation) -> Json | None:
    """Return the existing StatefulSet; None: there is none, or it is not known."""
    return None if seen.children is None else seen.children.get(("StatefulSet", seen.group.name))


def template(seen: Observation) -> Json:
    """Return the pod template of the existing StatefulSet; {}: there is none, or not known."""
    found: Json = (stateful_set(seen) or {}).get("spec", {}).get("template", {})
    return found


def template_note(seen: Observation, name: str) -> str:
    """Return an annotation of that template; "" = it has none of that name."""
    notes = template(seen).get("metadata", {}).get("annotations") or {}
    return str(notes.get(name, ""))


def running_replicas(seen: Observation) -> int | None:
    """Return how many pods the existing StatefulSet wants."""
    there = stateful_set(seen)
    return None if there is None else int(there.get("spec", {}).get("replicas", 1))


def claim_size(seen: Observation) -> str | None:
    """Return the size of the claims in the existing StatefulSet."""
    claims = (stateful_set(seen) or {}).get("spec", {}).get("volumeClaimTemplates") or [{}]
    size = claims[0].get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    return None if size is None else str(size)


def volumes_go(seen: Observation) -> bool:
    """Whether a broker that the existing StatefulSet stops for good takes its volume along."""
    return _reclaims(seen).get("whenScaled") == "Delete"


def may_still_stop(seen: Observation) -> bool:
    """Whether pods beyond those that are to run still exist, or that is not known."""
    running = running_replicas(seen)
    if running is None or seen.pods is None:
        return True
    return any(names.ordinal(broker) >= running for broker in seen.pods)


def volumes_go_with_set(seen: Observation) -> bool:
    """Whether all volumes go with the existing StatefulSet: an older operator made it."""
    return _reclaims(seen).get("whenDeleted") == "Delete"


def _reclaims(seen: Observation) -> Json:
    spec = (stateful_set(seen) or {}).get("spec", {})
    found: Json = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    return found


def wanted_revision(seen: Observation) -> str | None:
    """Return the revision of pods that the StatefulSet would make now; None: not known yet."""
    there = stateful_set(seen) or {}
    status = there.get("status", {})
    if status.get("observedGeneration", -1) != there.get("metadata", {}).get("generation"):
        return None
    return str(status.get("updateRevision") or "") or None


def outdated(seen: Observation) -> tuple[Pod, ...]:
    """Return pods made from an older template, lowest number first; none if that is not known."""
    revision = wanted_revision(seen)
    if revision is None:
        return ()
    stale = [p for p in (seen.pods or {}).values() if p.revision and p.revision != revision]
    return tuple(sorted(stale, key=lambda p: names.ordinal(p.name)))


def fenced(seen: Observation) -> frozenset[str]:
    """Return the brokers that the annotation asks to serve nothing."""
    asked, there = _to_fence(seen), _brokers_there(seen)
    return there if "all" in asked else asked & there


def closed(seen: Observation) -> frozenset[str]:
    """Return brokers that are not permitted to serve, and do not report otherwise.

    Without ZooKeeper, those that report that they serve nothing.
    """
    config = config_of(seen)
    members = () if config is None else config.members
    shut = {str(m.id) for m in members if not m.permission}
    silent = {str(b) for b, answer in seen.answers.items() if not answer.permission}
    if seen.zookeeper is None:
        return frozenset(silent)
    return frozenset(b for b in shut if b in silent or answer_of(seen, b) is None)


def fenced_in_vain(seen: Observation) -> str:
    """Return a sentence on names in the annotation that are no brokers; "" = there are none."""
    names_none = sorted(_to_fence(seen) - _brokers_there(seen) - {"all"})
    if not names_none:
        return ""
    some, these = ", ".join(names_none), ", ".join(seen.group.brokers)
    return f"annotation {FENCE} names {some}, not a broker of this group: name {these}, or all"


def all_up_to_date(seen: Observation) -> bool:
    """Whether every existing and every wanted pod is made from the newest template."""
    revision, running = wanted_revision(seen), running_replicas(seen)
    if revision is None or seen.pods is None or len(seen.pods) != running:
        return False
    return all(p.revision == revision for p in seen.pods.values())


def is_stuck(seen: Observation, pod: Pod, after_ms: int = STUCK_MS) -> bool:
    """Whether the pod runs, and its broker has not been heard of for `after_ms`.

    In a group that was never open it is stuck at once.
    """
    if pod.phase is not PodPhase.RUNNING or pod.deleting or not _is_unheard(seen, pod):
        return False
    since_ms = pod.unready_since_ms
    long = since_ms is not None and seen.now_ms - since_ms >= after_ms
    return long or state_of(seen).mode is Mode.NEW


def _is_unheard(seen: Observation, pod: Pod) -> bool:
    """Whether no broker of the pod's name is known, and the pod is not ready."""
    known = seen.zookeeper is None or is_live(seen, pod.name)
    return not (known or pod.ready or BrokerId(pod.name) in seen.answers)


def _to_fence(seen: Observation) -> frozenset[str]:
    asked = seen.group.metadata.annotations.get(FENCE, "")
    return frozenset(part.strip() for part in asked.split(",")) - {""}


def _brokers_there(seen: Observation) -> frozenset[str]:
    """Return the declared brokers, and members on their way out."""
    config = config_of(seen)
    there = () if config is None else (str(m.id) for m in config.members)
    return frozenset({*seen.group.brokers, *there})


def permissions(seen: Observation, *serving: str) -> Mapping[str, Permission]:
    """Return the most that each broker may serve; `serving` are masters, acting or wanted."""
    spec, closed = seen.group.spec, fenced(seen)
    given = {p.broker: Permission[p.permission] for p in spec.permissions}
    config = config_of(seen)
    there = () if config is None else tuple(str(m.id) for m in config.members)
    found = {}
    for broker in {*seen.group.brokers, *there}:
        most = given.get(broker, Permission.FULL)
        if not spec.slave_reads and broker not in serving:
            most &= ~Permission.READ
        found[broker] = Permission.NONE if broker in closed else most
    return found
