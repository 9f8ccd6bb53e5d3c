"""Topics as declared and as ZooKeeper has them: plan and status. Pure.

The operator brings the declared groups into ZooKeeper. It never takes away what holds messages: a
group that is no longer declared keeps its queues at weight 0 (no new messages, still read), and
queues are never fewer. A topic that another writer made is taken over as it is; of several
resources that declare one, in whatever namespaces, the oldest counts, and the others report it.

Of an ordered topic (`ordered.py`) the groups may change, all else is as created; an ordinary topic
never becomes one.

Deletion waits for no operator: with `onDelete: Delete` the topic goes if the operator observes the
deletion and no other resource declares the topic; if it was away then, the topic stays, and
`fmq topic delete` removes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from fmqcore.ids import GroupName, TopicId
from fmqcore.names import is_name
from fmqcore.zk.codec import Versioned
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqoperator.api.base import Condition, Json
from fmqoperator.api.parts import Reclaim
from fmqoperator.api.times import as_text
from fmqoperator.api.topic import OrderedTopic, Topic, TopicStatus
from fmqoperator.core.actions import EmitEvent, Requeue
from fmqoperator.core.event_dedup import has_waited
from fmqoperator.core.observation import Failure
from fmqoperator.core.plan_types import Verdict
from fmqoperator.core.status.conditions import UNREADABLE
from fmqoperator.core.topics import ordered
from fmqoperator.core.topics.chain_status import ChainSeen, events, state_of, verdicts

CALM_MS = 60_000
BUSY_MS = 3_000


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """Everything observed of one topic.

    `groups`: those configured in its cluster; None: ZooKeeper could not be asked, `cause` has the
    reason (`bad`: it answers, and what it holds of the topic cannot be read).
    `there`: its node; None = there is none (if `groups` is known).
    `others`: resources that declare the same topic. `chain`: of one that is declared ordered, and
    is; None: not known.
    """

    topic: Topic
    now_ms: int
    groups: frozenset[str] | None = None
    there: Versioned[TopicConfig] | None = None
    cause: str = ""
    bad: bool = False
    others: tuple[Topic, ...] = ()
    failures: tuple[Failure, ...] = ()
    chain: ChainSeen | None = None


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create the node. `config.id`: the number that it had, 0 if none is known.

    The shell gives it back if ZooKeeper lost it, and else takes the next one, which is never given
    twice. A node that exists meanwhile is no error: the next look observes it.
    """

    config: TopicConfig


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Compare-and-set of the node."""

    config: TopicConfig
    version: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete the node, if it is still that very topic; its messages go with retention.

    `ordered`: by a call of a broker, with its chain.
    """

    name: str
    id: TopicId
    ordered: bool = False


_TAKEN: Final = "NameTaken"
_NO_GROUP: Final = "NoSuchGroup"
_REPORTED_AT_ONCE: Final = frozenset(
    {"Invalid", "QueuesKept", "ZooKeeperUnreachable", UNREADABLE, _TAKEN}
    | {"NotOrdered", "IsOrdered", "FixedAtCreation"}
)
"""Reasons reported at once. (A missing group, mostly about to be made, is reported later.)"""

ChangeTopic = CreateTopic | PutTopic | ordered.CreateOrdered | ordered.SetChainGroups
TopicAction = ChangeTopic | EmitEvent | Requeue


def name_of(topic: Topic) -> str:
    """Return the topic's name among topics."""
    return topic.spec.name or topic.metadata.name


def cluster_of(topic: Topic) -> str:
    """Return the FMQ cluster of the topic."""
    return topic.spec.cluster or topic.metadata.namespace


def is_same(one: Topic, other: Topic) -> bool:
    """Whether two resources declare one topic: of one cluster, at one ZooKeeper by its address."""
    if (name_of(one), cluster_of(one)) != (name_of(other), cluster_of(other)):
        return False
    ours, theirs = (_place(topic.spec.zookeeper.connect) for topic in (one, other))
    return ours[1] == theirs[1] and not ours[0].isdisjoint(theirs[0])


def _place(connect: str) -> tuple[frozenset[str], str]:
    hosts, _, root = connect.partition("/")
    return frozenset(hosts.split(",")), root.strip("/")


def _older(seen: TopicSeen) -> Topic | None:
    """Return the resource that counts, if it is another one. (One being deleted does not count.)"""
    stay = [t for t in seen.others if t.metadata.deletion_timestamp is None]
    first = min((seen.topic, *stay), key=_age)
    return None if first is seen.topic else first


def _age(topic: Topic) -> tuple[str, bool, str]:
    """Sort key: the oldest first, within one second the one that made the topic.

    (The API server reports no smaller unit.)
    """
    meta = topic.metadata
    return meta.creation_timestamp, not topic.status.id, meta.uid


def plan_topic(seen: TopicSeen) -> list[TopicAction]:
    """Return what to do now; only `Requeue`: the topic is as declared, or has to wait."""
    if seen.topic.metadata.deletion_timestamp is not None:
        return []
    return [*_events(seen), *_to_do(seen)]


def _events(seen: TopicSeen) -> Iterator[EmitEvent]:
    """Report what a person must look after, if the status does not report it yet."""
    _, reason, message = _ready(replace(seen, failures=()))
    before = next((c for c in seen.topic.status.conditions if c.type == "Ready"), None)
    if reason != _NO_GROUP:
        news = reason in _REPORTED_AT_ONCE and (before is None or message[:2048] != before.message)
    else:
        since = "" if before is None or before.reason != reason else before.last_transition_time
        news = has_waited(since, seen.now_ms)
    if news:
        yield EmitEvent("Warning", reason, message)
    yield from events(seen.topic.status.ordered, seen.chain)


def _to_do(seen: TopicSeen) -> list[TopicAction]:
    if _older(seen) is not None:
        return [Requeue(CALM_MS)]
    if seen.groups is None or _misnamed(seen) or _missing(seen):
        return [Requeue(BUSY_MS)]
    if _wrong_kind(seen)[0]:
        return [Requeue(CALM_MS)]
    if (declared := seen.topic.spec.ordered) is not None:
        return _to_do_ordered(seen, declared)
    name, wanted = name_of(seen.topic), _wanted(seen)
    if seen.there is None:
        queues = sum(g.queues for g in wanted)
        event = EmitEvent(
            "Normal", "TopicCreated", f"{name}: {queues} queues in {len(wanted)} groups"
        )
        return [
            CreateTopic(TopicConfig(name, TopicId(seen.topic.status.id), wanted)),
            event,
            Requeue(BUSY_MS),
        ]
    now = seen.there.value
    if _by_name(now.groups) == _by_name(wanted):
        return [Requeue(CALM_MS)]
    config = replace(now, groups=wanted)
    event = EmitEvent("Normal", "TopicChanged", "; ".join(_differences(now.groups, wanted)))
    return [PutTopic(config, seen.there.version), event, Requeue(BUSY_MS)]


def _to_do_ordered(seen: TopicSeen, declared: OrderedTopic) -> list[TopicAction]:
    name = name_of(seen.topic)
    if seen.there is not None and seen.chain is None:
        return [Requeue(BUSY_MS)]
    chain = None if seen.chain is None else seen.chain.chain
    if chain is None:
        made = ordered.create(name, declared)
        groups = ", ".join(group.group for group in made.groups)
        event = EmitEvent("Normal", "TopicCreated", f"{name}: ordered over {groups}")
        return [made, event, Requeue(BUSY_MS)]
    if not (different := ordered.changes(chain, declared)):
        return [Requeue(CALM_MS)]
    change = ordered.SetChainGroups(name, ordered.chain_groups(declared))
    return [change, EmitEvent("Normal", "TopicChanged", "; ".join(different)), Requeue(BUSY_MS)]


def deletion(
    topic: Topic, there: Versioned[TopicConfig] | None, others: tuple[Topic, ...] = ()
) -> DeleteTopic | None:
    """Return what to do once the topic's resource is gone; None: nothing.

    What `others` declare stays, and so does what was never this resource's to change.
    """
    if there is None or topic.spec.on_delete is not Reclaim.DELETE or others:
        return None
    if any(c.reason == _TAKEN for c in topic.status.conditions):
        return None
    wrong, _ = ordered.wrong_kind(topic, there.value)
    # Another topic of that name, made since, is not this resource's.
    if topic.status.id not in (0, there.value.id) or wrong:
        return None
    return DeleteTopic(there.value.name, there.value.id, there.value.ordered)


def still_used(topic: str, line: tuple[str, ...]) -> str:
    """Return why an ordered topic is not deleted now; "" = no sender has it open."""
    if not line:
        return ""
    return f"sender {line[0]} has ordered topic {topic} open: stop it, or run fmq topic delete"


def topic_status(seen: TopicSeen) -> Json:
    """Return the whole status, as JSON. Equal input, equal output."""
    topic, older = seen.topic, _older(seen)
    now = None if seen.there is None or older is not None else seen.there.value
    generation, (status, reason, message) = topic.metadata.generation, _ready(seen)
    found = [Verdict("Ready", status, reason, message)]
    state = topic.status.ordered  # what was known last
    if topic.spec.ordered is not None:
        found += verdicts(seen.chain, seen.now_ms, message)
        state = state if seen.chain is None else state_of(seen.chain, seen.now_ms)
    return TopicStatus(
        **(topic.status.model_extra or {}),  # of a newer operator
        observed_generation=generation,
        id=now.id if now is not None else topic.status.id,  # if ZooKeeper lost it, it comes back
        queues=0 if now is None else _queue_count(now),
        message=message[:1024],
        ordered=state,
        conditions=tuple(_condition(seen, verdict) for verdict in found),
    ).as_json()


def _condition(seen: TopicSeen, now: Verdict) -> Condition:
    before = next((c for c in seen.topic.status.conditions if c.type == now.type), None)
    kept = before is not None and before.status == now.status
    since = before.last_transition_time if before is not None and kept else ""
    condition = {
        "type": now.type,
        "status": now.status,
        "reason": now.reason,
        "message": now.message[:2048],
        "observedGeneration": seen.topic.metadata.generation,
        "lastTransitionTime": since or as_text(seen.now_ms),
    }
    return Condition.model_validate(condition)


def _ready(seen: TopicSeen) -> tuple[str, str, str]:
    """Return status, reason, message."""
    if seen.failures:
        first = seen.failures[0]
        return "False", first.reason, f"{first.what}: {first.message}"
    if seen.groups is None:
        where = seen.topic.spec.zookeeper.connect
        if seen.bad:
            return (
                "False",
                UNREADABLE,
                f"{where} answers, but {seen.cause}: restore that node from a backup",
            )
        cause = seen.cause or f"{where} does not answer"
        return "Unknown", "ZooKeeperUnreachable", f"{cause}: check spec.zookeeper.connect"
    if cause := _misnamed(seen):
        return "False", "Invalid", cause
    if (older := _older(seen)) is not None:
        of = f"{older.metadata.namespace}/{older.metadata.name}"
        text = f"topic {name_of(seen.topic)} of cluster {cluster_of(seen.topic)} is also declared"
        return "False", _TAKEN, f"{text} by the older Topic {of}: delete one, or rename this one"
    if missing := _missing(seen):
        where = f"cluster {cluster_of(seen.topic)}"
        part = "spec.groups" if seen.topic.spec.ordered is None else "spec.ordered.groups"
        text = f"{where} has no group {', '.join(missing)}: create it, or remove it from {part}"
        return "False", _NO_GROUP, text
    if (wrong := _wrong_kind(seen))[0]:
        return "False", *wrong
    if (declared := seen.topic.spec.ordered) is not None:
        return _ready_ordered(seen, declared)
    if seen.there is None:
        return "False", "Creating", "the topic is being created"
    now = _by_name(seen.there.value.groups)
    if now != _by_name(_wanted(seen)):
        return "False", "Applying", "the topic is being changed"
    kept = [
        f"{g.group} keeps its {_queues_in(now, g.group)} queues instead of {g.queues}"
        for g in seen.topic.spec.groups or ()
        if _queues_in(now, g.group) > g.queues
    ]
    if kept:
        text = f"{'; '.join(kept)}: queues hold messages, declare as many"
        return "False", "QueuesKept", text
    return "True", "AsDeclared", ""


def _ready_ordered(seen: TopicSeen, declared: OrderedTopic) -> tuple[str, str, str]:
    chain = None if seen.chain is None else seen.chain.chain
    if chain is None:
        return "False", "Creating", "the topic and its chain are being created"
    if different := ordered.changes(chain, declared):
        return "False", "Applying", f"the chain's groups are being changed: {'; '.join(different)}"
    if cause := ordered.fixed_differences(chain, declared):
        return "False", "FixedAtCreation", cause
    return "True", "AsDeclared", ""


def _wrong_kind(seen: TopicSeen) -> tuple[str, str]:
    return ordered.wrong_kind(seen.topic, None if seen.there is None else seen.there.value)


def _misnamed(seen: TopicSeen) -> str:
    name = name_of(seen.topic)
    return "" if is_name(name) else f"{name!r} is not a valid topic name: set spec.name"


def _missing(seen: TopicSeen) -> list[str]:
    """Return declared groups that the cluster does not have."""
    there = seen.groups or frozenset()
    return sorted(group for group in ordered.group_names(seen.topic) if group not in there)


def _wanted(seen: TopicSeen) -> tuple[TopicGroup, ...]:
    """Return the groups as declared, but without taking away any that holds messages."""
    now = {} if seen.there is None else _by_name(seen.there.value.groups)
    declared = {GroupName(g.group): g for g in seen.topic.spec.groups or ()}
    out = now | {
        name: replace(
            now.get(name, TopicGroup(name, 0)),
            queues=max(g.queues, _queues_in(now, name)),
            weight=g.weight,
        )
        for name, g in declared.items()
    }
    return tuple(
        g if name in declared else replace(g, weight=0)
        for name, g in sorted(out.items(), key=lambda item: item[0])
    )


def _queue_count(topic: TopicConfig) -> int:
    """Return how many queues there are: those of an ordered topic span its groups."""
    counts = [group.queues for group in topic.groups]
    return max(counts, default=0) if topic.ordered else sum(counts)


def _queues_in(groups: dict[GroupName, TopicGroup], name: str) -> int:
    found = groups.get(GroupName(name))
    return 0 if found is None else found.queues


def _by_name(groups: tuple[TopicGroup, ...]) -> dict[GroupName, TopicGroup]:
    return {g.group: g for g in groups}


def _differences(old: tuple[TopicGroup, ...], new: tuple[TopicGroup, ...]) -> list[str]:
    before = _by_name(old)
    out = []
    for group in new:
        was = before.get(group.group)
        if was is None:
            out.append(f"{group.group}: {group.queues} queues, weight {group.weight}")
        elif was != group:
            out.append(
                f"{group.group}: queues {was.queues} -> {group.queues}, "
                f"weight {was.weight} -> {group.weight}"
            )
    return out
