"""Topic: which groups hold how many of the topic's queues, or which its chain uses. Pure."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from fmqcore.names import NAME_PATTERN
from fmqcore.properties import QUEUES, WEIGHT
from fmqoperator.api.base import (
    API_VERSION,
    Conditions,
    DnsLabel,
    Metadata,
    Part,
    ShortText,
    Words,
    list_map,
    rules,
)
from fmqoperator.api.group import ZooKeeper
from fmqoperator.api.parts import Reclaim

MAX_SHOWN: Final = 10
"""The most segments, and subscriptions, that a status lists."""
MAX_GROUPS: Final = 64
"""The most groups with segments that a status lists: those of the oldest segments."""

SegmentEnd = Literal["Open", "Closing", "Known", "Unknown"]
ChainPhase = Literal["Empty", "Open", "Closing", "Ended"]


class TopicGroup(Part):
    """A group that holds queues of the topic."""

    group: DnsLabel = Field(min_length=1, description="The group's name.")
    queues: int = Field(ge=QUEUES.minimum, le=QUEUES.maximum, description=QUEUES.text)
    weight: int = Field(
        default=WEIGHT.default, ge=WEIGHT.minimum, le=WEIGHT.maximum, description=WEIGHT.text
    )


class OrderedGroup(Part):
    """A group that the chain of an ordered topic may use."""

    group: DnsLabel = Field(min_length=1, description="The group's name.")
    weight: int = Field(
        default=WEIGHT.default,
        ge=1,  # 0 would read as "no sends"; a group that is left out gets none
        le=WEIGHT.maximum,
        description="The group's rank: sends go to the group of the highest weight that may take "
        "them.",
    )


class OrderedTopic(Part):
    """One strict order over several groups, of which one at a time takes the sends."""

    model_config = rules(
        (
            "self.queues == oldSelf.queues",
            "ordered.queues cannot be changed, a key would lose its order: create a new Topic",
        ),
        (
            "self.allowSingle == oldSelf.allowSingle && has(self.leaseMs) == has(oldSelf.leaseMs) "
            "&& (!has(self.leaseMs) || self.leaseMs == oldSelf.leaseMs)",
            "ordered.allowSingle and ordered.leaseMs cannot be changed: create a new Topic",
        ),
    )

    groups: Annotated[tuple[OrderedGroup, ...], Field(min_length=2, max_length=16)] = Field(
        description="The groups that the topic's chain may use: two or more.",
        json_schema_extra=list_map("group"),
    )
    queues: int = Field(
        default=1,
        ge=QUEUES.minimum,
        le=QUEUES.maximum,
        description="Number of queues; order is kept within each. It cannot be changed.",
    )
    allow_single: bool = Field(
        default=False,
        description="Whether a group of one broker may be used, which keeps one copy: for tests.",
    )
    lease_ms: int | None = Field(
        default=None,
        ge=1_000,
        le=60_000,
        description="Milliseconds for which a master acknowledges sends after it last read the "
        "chain from ZooKeeper; left out: 4000.",
    )


class TopicSpec(Part):
    """The declaration."""

    model_config = rules(
        (
            "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
            "name cannot be changed, stored messages carry it: create a new Topic",
        ),
        (
            "has(self.cluster) == has(oldSelf.cluster) && "
            "(!has(self.cluster) || self.cluster == oldSelf.cluster)",
            "cluster cannot be changed: create a new Topic",
        ),
        (
            "has(self.groups) != has(self.ordered)",
            "name the groups either in groups (an ordinary topic) or in ordered.groups (one strict "
            "order over several groups)",
        ),
        (
            "has(self.ordered) == has(oldSelf.ordered)",
            "an ordinary topic cannot become an ordered one, nor the reverse: create a new Topic, "
            "let producers send to it, and delete this one once it is read to its end",
        ),
        (
            "!has(self.groups) || self.groups.exists(g, g.weight > 0)",
            "groups: at least one needs a weight over 0, or no client can send to this topic",
        ),
        (
            "!has(self.groups) || !has(oldSelf.groups) || self.groups.all(g, "
            "!oldSelf.groups.exists(o, o.group == g.group && o.queues > g.queues))",
            "groups: queues of a group cannot be removed, they hold messages: set its weight to "
            "0 instead",
        ),
    )

    name: str | None = Field(
        default=None,
        pattern=f"^{NAME_PATTERN}$",
        max_length=128,
        description="The topic's name; left out: the resource's.",
    )
    cluster: DnsLabel | None = Field(
        default=None,
        min_length=1,
        description="The FMQ cluster of the topic; left out: the namespace's name.",
    )
    zookeeper: ZooKeeper = Field(description="Where the cluster's ZooKeeper is.")
    groups: Annotated[tuple[TopicGroup, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="The groups that hold the queues of an ordinary topic.",
        json_schema_extra=list_map("group"),
    )
    ordered: OrderedTopic | None = Field(
        default=None,
        description="Groups and queues of an ordered topic; set this or `groups`, not both.",
    )
    on_delete: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether the topic stays when this resource is deleted.",
    )


class OrderedSegment(Part):
    """One segment of the chain."""

    number: int = Field(description="The segment's number.")
    group: ShortText = Field(description="The group that holds the segment.")
    end: SegmentEnd = Field(
        description="Open: the segment takes the sends. Closing: its end is not known yet. "
        "Unknown: its end is lost; sends go to a later segment, and consumers stop before this one."
    )
    messages: int | None = Field(
        default=None,
        description="Messages of the segment in all queues; left out until its end is known.",
    )
    opened_at: ShortText = Field(default="", description="When the segment was opened.")
    ended_at: ShortText = Field(
        default="", description="When the segment's end was recorded, or declared unknown."
    )


class SubscriptionBehind(Part):
    """A subscription that has not reached the last segment."""

    subscription: ShortText = Field(description="Name of the subscription.")
    segment: int = Field(description="The first segment that the subscription still reads.")


class OrderedState(Part):
    """The chain of an ordered topic."""

    phase: ChainPhase = Field(
        description="Open: a segment takes sends. Empty: there is no segment yet. Closing: the "
        "last segment takes no more sends. Ended: the next segment is not open yet."
    )
    since: ShortText = Field(default="", description="When the chain came into this state.")
    reason: Words = Field(
        default="", description="The segment that takes the sends, or what sends wait for."
    )
    open_segment: int = Field(default=0, description="The segment that takes sends; 0: none does.")
    sending_group: ShortText = Field(
        default="", description="The group of the segment that takes sends."
    )
    senders: int = Field(
        default=0, description="Number of senders in line, the active one included."
    )
    segment_count: int = Field(
        default=0, description="Number of segments that some subscription may still read."
    )
    segment_groups: Annotated[tuple[ShortText, ...], Field(max_length=MAX_GROUPS)] = Field(
        default=(),
        description="Groups that hold segments of the chain: none of them may be deleted yet.",
    )
    segments: Annotated[tuple[OrderedSegment, ...], Field(max_length=MAX_SHOWN)] = Field(
        default=(), description=f"The last {MAX_SHOWN} segments."
    )
    unknown_ends: Annotated[tuple[int, ...], Field(max_length=MAX_SHOWN)] = Field(
        default=(), description="Segments whose end is not known."
    )
    subscriptions_behind: Annotated[tuple[SubscriptionBehind, ...], Field(max_length=MAX_SHOWN)] = (
        Field(default=(), description="Subscriptions that read an earlier segment than the last.")
    )
    behind_count: int = Field(
        default=0,
        description="Number of subscriptions that read an earlier segment than the last.",
    )


class TopicStatus(Part):
    """The state, as the operator last observed it. Fields of a newer operator are kept."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )

    observed_generation: int = Field(
        default=0, description="The generation of the resource that the status describes."
    )
    id: int = Field(default=0, description="The topic's number; 0: the topic does not exist yet.")
    queues: int = Field(
        default=0, description="Number of queues; of an ordinary topic, in all groups together."
    )
    message: Words = Field(
        default="", description="What the topic waits for, or what is wrong with it."
    )
    ordered: OrderedState | None = Field(default=None, description="The chain of an ordered topic.")
    conditions: Conditions = ()


class Topic(Part):
    """A topic: a name, and the groups that hold its queues."""

    api_version: Literal["fmq.io/v1alpha1"] = API_VERSION
    kind: Literal["Topic"] = "Topic"
    metadata: Metadata
    spec: TopicSpec = Field(description="The declaration.")
    status: TopicStatus = Field(
        default=TopicStatus(), description="The state, as the operator last observed it."
    )
