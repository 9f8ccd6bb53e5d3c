"""A topic and the groups that hold its queues: `topics/<t>`.

Keys of the node, and of a group's entry, that this version does not know stay as they are when it
changes the topic (`fmqcore.properties`).
"""

import json
from dataclasses import dataclass
from itertools import takewhile

from fmqcore.ids import GroupName, TopicId
from fmqcore.properties import NONE, ORDERED, TOPIC, TOPIC_GROUP, WEIGHT, Properties
from fmqcore.zk.codec import Decoding, dump_json, read_name

_ORDERED = ((ORDERED.name, "true"),)


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group that holds queues of a topic. Weight 0: no new messages, still read.

    Of an ordered topic weight 0 means that the group left the chain.
    """

    group: GroupName
    queues: int
    weight: int = 1
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic: its number, and how many queues each group holds."""

    name: str
    id: TopicId
    groups: tuple[TopicGroup, ...] = ()
    properties: Properties = NONE
    ordered: bool = False  # its chain (`zk.chain`) has its order and groups

    @property
    def noted_properties(self) -> Properties:
        """The properties that CONFIG batches and SNAPs hold: also the known ones, if set."""
        shared = self.properties.shared()
        return Properties((*shared.texts, *_ORDERED)) if self.ordered else shared

    def queues_in(self, group: GroupName) -> int:
        """Return how many of the topic's queues `group` holds; 0 if none."""
        return next((g.queues for g in self.groups if g.group == group), 0)

    def queues_before(self, group: GroupName) -> int | None:
        """Return the queues in the groups listed before `group`; None if no other has any."""
        if all(g.group == group or not g.queues for g in self.groups):
            return None
        before = takewhile(lambda g: g.group != group, self.groups)
        return sum(g.queues for g in before)


def is_ordered(noted: Properties) -> bool:
    """Return whether properties that a journal holds are an ordered topic's."""
    return bool(noted.get(ORDERED.name, ORDERED.default))


def topic_to_json(topic: TopicConfig) -> bytes:
    """Encode a topic."""
    return dump_json(
        {
            **Properties((*topic.properties.texts, *(_ORDERED if topic.ordered else ()))),
            "name": topic.name,
            "id": topic.id,
            "groups": [
                {**g.properties, "group": g.group, "queues": g.queues, "weight": g.weight}
                for g in topic.groups
            ],
        }
    )


def topic_from_json(raw: bytes) -> TopicConfig:
    """Decode a topic; raise `Malformed` naming the field."""
    with Decoding("topic"):
        data = json.loads(raw)
        return TopicConfig(
            name=read_name(data["name"]),
            id=TopicId(int(data["id"])),
            groups=tuple(
                TopicGroup(
                    GroupName(read_name(g["group"])),
                    int(g["queues"]),
                    int(g.get("weight", WEIGHT.default)),
                    Properties.unknown(g, TOPIC_GROUP, "group"),
                )
                for g in data["groups"]
            ),
            properties=Properties.unknown(data, TOPIC, "name", "id", "groups"),
            ordered=bool(data.get(ORDERED.name, ORDERED.default)),
        )
