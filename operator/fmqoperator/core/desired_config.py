"""The configuration that a group should have in ZooKeeper, and whether to write it. Pure.

Members are the wanted brokers, and leaving ones for as long as they hold something: the master
still counts a broker that is in the in-sync set or alive. `master` stays the same; `steps.py`
decides which broker should become master.
"""

from dataclasses import dataclass, replace

from fmqcore.ids import BrokerId, GroupName
from fmqcore.policy import AckPolicy
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqoperator.core import facts
from fmqoperator.core.children import names
from fmqoperator.core.observation import Observation
from fmqoperator.core.plan_types import Move


@dataclass(frozen=True, slots=True)
class Problem:
    """Why nothing may be done: a reason (one word), and a message with the remedy."""

    reason: str
    message: str


def leaving(seen: Observation) -> tuple[str, ...]:
    """Return members that are no longer wanted, the highest number first."""
    config = facts.config_of(seen)
    members = () if config is None else tuple(str(m.id) for m in config.members)
    out = [m for m in members if m not in seen.group.brokers]
    return tuple(sorted(out, key=names.ordinal, reverse=True))


def has_left(seen: Observation, broker: str) -> bool:
    """Whether a broker has left: no pod, no live node, not in sync, not master nor reader."""
    state = facts.state_of(seen)
    return (
        seen.zookeeper is not None
        and seen.pods is not None
        and broker not in seen.pods
        and not facts.is_live(seen, broker)
        and broker not in state.isr
        and broker not in (state.master, state.reader)
    )


def conflict(seen: Observation) -> Problem | None:
    """Return the problem if another group has this group's name: in ZooKeeper, or in its end."""
    if seen.predecessor:
        return Problem(
            "FormerGroupEnds",
            "a deleted BrokerGroup of this name had storage.onDelete: Delete, and this one starts "
            f"once nothing remains of that: {seen.predecessor}",
        )
    config, state, group = facts.config_of(seen), facts.state_of(seen), seen.group
    where = f"group {group.name} of cluster {group.cluster} in {group.spec.zookeeper.connect}"
    if config is not None:
        ours = {m.id: names.address(group, m.id, seen.defaults) for m in config.members}
        others = [m for m in config.members if not _same_place(m.address, ours[m.id])]
        if len(others) == len(config.members):
            return Problem(
                "NameTaken",
                f"{where} belongs to brokers elsewhere ({others[0].id} at {others[0].address}): "
                "give this BrokerGroup another name or another cluster, or delete that group's "
                "nodes if it is gone for good",
            )
    if state.mode is not Mode.NEW and config is None and state.master not in group.brokers:
        return Problem(
            "StateOfAnother",
            f"{where} has a state with master {state.master}, which is not a broker of this group, "
            "and no configuration: delete that state if the group is gone for good",
        )
    return None


def own(seen: Observation) -> Observation:
    """Return the observation without what ZooKeeper holds of another group under this name."""
    if seen.zookeeper is None or conflict(seen) is None:
        return seen
    bare = replace(seen.zookeeper, config=None, state=GroupState(), live={})
    return replace(seen, zookeeper=bare, answers={})


def _same_place(there: str, ours: str) -> bool:
    """Whether both are the same host, with or without the cluster's domain in the name."""
    host, _, _ = there.rpartition(":")
    our_host, _, _ = ours.rpartition(":")
    return host.split(".svc")[0] == our_host.split(".svc")[0]


def config(seen: Observation, move: Move | None = None) -> GroupConfig:
    """Return the configuration to write. `move` names the wanted master, if it changes."""
    group, now, state = seen.group, facts.config_of(seen), facts.state_of(seen)
    wanted = (move and move.to) or (now.master if now is not None else state.master) or _first(seen)
    stay = [b for b in leaving(seen) if not has_left(seen, b) or b == wanted]
    ids = sorted({*group.brokers, *stay}, key=names.ordinal)
    most = facts.permissions(seen, wanted, state.master)
    members = tuple(
        Member(BrokerId(b), names.address(group, b, seen.defaults), _zone(seen, b), most[b])
        for b in ids
    )
    policy = group.spec.policy
    return GroupConfig(
        GroupName(group.name),
        BrokerId(wanted),
        members,
        AckPolicy(
            policy.flush,
            policy.flush_interval_ms,
            policy.slave_counts,
            policy.how_many,
            policy.strict,
        ),
        group.spec.strict_takeover,
        _lost(now, move),
        kept_out=None if now is None else now.kept_out,
    )


def _lost(now: GroupConfig | None, move: Move | None) -> BrokerId:
    """Return the master that is lost for good: from a move, else as a person may have set it."""
    if move is not None:
        return move.lost
    return BrokerId("") if now is None else now.declared_lost


def _first(seen: Observation) -> str:
    """Return the broker that opens a new group; if ZooKeeper lost all, the last known master."""
    asked, known = seen.group.spec.switchover, seen.group.status
    if known.master in seen.group.brokers:
        return known.master
    return asked.to if asked is not None else seen.group.brokers[0]


def _zone(seen: Observation, broker: str) -> str:
    """Return the zone of the broker's node; while that is not known, the configured zone."""
    pod, node = facts.pod_of(seen, broker), facts.node_of(seen, broker)
    found = (node.zone if node is not None else "") or (pod.zone if pod is not None else "")
    now = facts.config_of(seen)
    before = None if now is None else now.member(BrokerId(broker))
    return found or (before.zone if before is not None else "")
