"""Changes a topic in ZooKeeper, as `fmqcore.zk.topic_changes` allows it. Any broker can.

A person asks for a change, or a journal holds queues that ZooKeeper does not know.

Compare-and-set on the topic's node: after a concurrent change it is read and edited again. Leaves
in ZooKeeper: `topics/<t>`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from fmqbroker.cluster.view import ClusterView
from fmqcore.errors import Unavailable, UnknownTopic
from fmqcore.ids import GroupName
from fmqcore.names import is_name
from fmqcore.zk import layout
from fmqcore.zk.topic import TopicConfig, topic_from_json, topic_to_json
from fmqcore.zk.topic_changes import GroupChange, altered, restored, with_chain_groups
from fmqport.coordination import BadVersion, Coordination, NoNode

_log = structlog.get_logger()
_TRIES: Final = 10


async def alter_topic(
    coordination: Coordination,
    cluster: str,
    view: ClusterView,
    name: str,
    queues: int,
    changes: Sequence[GroupChange],
) -> TopicConfig:
    """Change the topic and return it. Raises `UnknownTopic`, `InvalidArgument`, `Unavailable`."""

    def edit(topic: TopicConfig) -> TopicConfig:
        after = altered(topic, queues, changes, view.configs.keys())
        weights = {g.group: g.weight for g in topic.groups}
        for group in after.groups:
            if group.weight > weights.get(group.group, -1):
                view.require_lasting(group.group)
        return after

    return await _alter(coordination, cluster, view, name, edit)


async def set_chain_groups(
    coordination: Coordination,
    cluster: str,
    view: ClusterView,
    name: str,
    weights: Mapping[GroupName, int],
) -> TopicConfig:
    """Give an ordered topic its chain's groups, and return it.

    Raises `UnknownTopic`, `Unavailable`.
    """
    return await _alter(
        coordination, cluster, view, name, lambda topic: with_chain_groups(topic, weights)
    )


async def restore_queues(
    coordination: Coordination,
    cluster: str,
    view: ClusterView,
    topic: TopicConfig,
    group: GroupName,
    queues: int,
) -> None:
    """Give a topic back the queues that a journal of this group holds, if its id is the same.

    Raises `UnknownTopic`, `Unavailable`.
    """

    def edit(found: TopicConfig) -> TopicConfig:
        return restored(found, group, queues) if found.id == topic.id else found

    after = await _alter(coordination, cluster, view, topic.name, edit)
    if after.id == topic.id:
        _log.error(
            "zookeeper_lost_queues",
            topic=topic.name,
            group=group,
            queues=queues,
            known=topic.queues_in(group),
            remedy="they are given back; compare the topic's groups and weights: fmq topic list",
        )


async def _alter(
    coordination: Coordination,
    cluster: str,
    view: ClusterView,
    name: str,
    edit: Callable[[TopicConfig], TopicConfig],
) -> TopicConfig:
    node = layout.topic_node(cluster, name)
    for _ in range(_TRIES):
        stored = await coordination.get(node) if is_name(name) else None
        if stored is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        before = topic_from_json(stored.data)
        after = edit(before)
        if after != before:
            try:
                await coordination.set(node, topic_to_json(after), stored.version)
            except (BadVersion, NoNode):
                continue
            _log.info("topic_altered", topic=name, id=after.id, groups=_text(after))
        await view.reread_topic(name)
        return after
    raise Unavailable(f"topic {name!r} is being changed all the time: try again")


def _text(topic: TopicConfig) -> str:
    return ", ".join(f"{g.group}: {g.queues} queues, weight {g.weight}" for g in topic.groups)
