"""Progress of a consumer group in the queues that it has not started. Pure.

A consumer group that reads a topic elsewhere has all to read in a queue where it has no row: a
member starts there at the oldest message, unless it joins with another `start` where the whole
broker group is new to it. Of an ordered topic the chain knows what comes; its rows are complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fmqclient.admin.infos import GroupInfo, QueueOffsets
from fmqcore.ids import GroupName
from fmqcore.zk.topic import TopicConfig

Place = tuple[str, int]
"""A broker group and a queue."""


def to_read(group: str, rows: Iterable[QueueOffsets]) -> dict[Place, QueueOffsets]:
    """Return the consumer group's row in each queue of one topic that has a row of any group."""
    found: dict[Place, QueueOffsets] = {}
    for row in rows:
        place = (row.broker_group, row.queue)
        if row.group == group:
            found[place] = row
        elif place not in found:
            found[place] = replace(
                row, group=group, committed=row.begin, acked=0, in_flight=0, session="", client=""
            )
    return found


def not_reported(topic: TopicConfig, rows: Iterable[QueueOffsets]) -> dict[GroupName, set[int]]:
    """Return by broker group the queues of an ordinary topic for which these rows lack one."""
    if topic.ordered:
        return {}
    known = {(row.broker_group, row.queue) for row in rows if row.topic == topic.name}
    lacking = {
        g.group: {queue for queue in range(g.queues) if (g.group, queue) not in known}
        for g in topic.groups
    }
    return {group: queues for group, queues in lacking.items() if queues}


def group_infos(rows: Sequence[QueueOffsets], topics: Mapping[str, TopicConfig]) -> list[GroupInfo]:
    """Return all consumer groups by name and topic, by all rows of all topics."""
    places: dict[str, dict[Place, QueueOffsets]] = {}  # by topic, a row of any group
    own: dict[tuple[str, str], list[QueueOffsets]] = {}
    for row in rows:
        places.setdefault(row.topic, {})[row.broker_group, row.queue] = row
        if row.group:
            own.setdefault((row.group, row.topic), []).append(row)
    infos = []
    for (group, name), found in sorted(own.items()):
        info, topic = GroupInfo(group, name), topics.get(name)
        ordinary = topic is not None and not topic.ordered
        others = places[name].values() if ordinary else ()
        for row in to_read(group, (*found, *others)).values():
            info = info.with_queue(row)
        infos.append(info)
    return infos
