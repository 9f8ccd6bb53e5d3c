"""An ordered topic as declared and as it is: what to ask of a broker, what is refused. Pure.

Brokers create it, change its chain's groups and delete it, by the calls that the command line
uses: they alone write chains.
"""

from dataclasses import dataclass

from fmqcore.ids import GroupName
from fmqcore.zk.chain import DEFAULT_LEASE_MS, Chain, ChainGroup
from fmqcore.zk.topic import TopicConfig
from fmqoperator.api.topic import OrderedTopic, Topic


@dataclass(frozen=True, slots=True)
class CreateOrdered:
    """Create the topic with its chain, or complete an interrupted creation. It may exist."""

    name: str
    queues: int
    groups: tuple[ChainGroup, ...]
    allow_single: bool
    lease_ms: int


@dataclass(frozen=True, slots=True)
class SetChainGroups:
    """Let the chain use these groups from now on, and no others."""

    name: str
    groups: tuple[ChainGroup, ...]


def group_names(topic: Topic) -> tuple[str, ...]:
    """Return the groups that the resource names."""
    ordered = topic.spec.ordered
    found = topic.spec.groups or () if ordered is None else ordered.groups
    return tuple(group.group for group in found)


def create(name: str, ordered: OrderedTopic) -> CreateOrdered:
    """Return the creation of a declared topic."""
    return CreateOrdered(
        name, ordered.queues, chain_groups(ordered), ordered.allow_single, _lease_ms(ordered)
    )


def chain_groups(ordered: OrderedTopic) -> tuple[ChainGroup, ...]:
    """Return the declared groups as a chain has them."""
    return tuple(ChainGroup(GroupName(g.group), g.weight) for g in ordered.groups)


def changes(chain: Chain, ordered: OrderedTopic) -> list[str]:
    """Return in words what the chain's groups lack of the declaration."""
    now, wanted = dict(chain.groups), dict(chain_groups(ordered))
    out = [f"{group} leaves" for group in sorted(now.keys() - wanted.keys())]
    for group, weight in sorted(wanted.items()):
        if group not in now:
            out.append(f"{group} joins with weight {weight}")
        elif now[group] != weight:
            out.append(f"{group}: weight {now[group]} -> {weight}")
    return out


def wrong_kind(topic: Topic, there: TopicConfig | None) -> tuple[str, str]:
    """Return reason and sentence if the topic is ordered and not declared so, or the reverse."""
    ordered = topic.spec.ordered is not None
    if there is None or there.ordered == ordered:
        return "", ""
    if ordered:
        return "NotOrdered", (
            f"topic {there.name} exists and is not ordered, and its messages have no common order: "
            "declare the ordered topic under another name (spec.name), let producers send to it, "
            "and delete this one once it is read to its end"
        )
    return "IsOrdered", (
        f"topic {there.name} exists and is ordered: declare it by spec.ordered in place of "
        "spec.groups, in a new Topic, or choose another name"
    )


def fixed_differences(chain: Chain, ordered: OrderedTopic) -> str:
    """Return what differs and cannot be changed, in a sentence; "" = nothing."""
    pairs = (
        ("queues", chain.queues, ordered.queues),
        ("allowSingle", chain.allow_single, ordered.allow_single),
        ("leaseMs", chain.lease_ms, _lease_ms(ordered)),
    )
    found = [f"{name} is {now}, not {wanted}" for name, now, wanted in pairs if now != wanted]
    if not found:
        return ""
    return f"spec.ordered: {'; '.join(found)}, since the topic was created: declare it as it is"


def _lease_ms(ordered: OrderedTopic) -> int:
    return ordered.lease_ms or DEFAULT_LEASE_MS
