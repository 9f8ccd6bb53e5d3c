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
        ge=WEIGHT.minimum,
        le=WEIGHT.maximum,
        description="The heaviest group that may take the sends is used.",
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
        description="The queues; order is kept in each. This cannot be changed.",
    )
    allow_single: bool = Field(
        default=False, description="For tries: whether a group of one broker may be used."
    )
    lease_ms: int | None = Field(
        default=None,
        ge=1_000,
        le=60_000,
        description="How long a master acknowledges sends without a look at ZooKeeper, in "
        "milliseconds; left out: 4000.",
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
        default=None, description="For an ordered topic, instead of `groups`."
    )
    on_delete: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether the topic stays when this resource is deleted.",
    )


class OrderedSegment(Part):
    """One segment of the chain."""

    number: int = Field(description="The segment's number.")
    group: ShortText = Field(description="The group that holds it.")
    end: SegmentEnd = Field(
        description="Open: it takes the sends. Closing: its end is not given yet. Unknown: sends "
        "go on elsewhere, and consumers stop before it."
    )
    messages: int | None = Field(
        default=None, description="Its messages in all queues, once its end is known."
    )
    opened_at: ShortText = Field(default="", description="When it was opened.")
    ended_at: ShortText = Field(default="", description="When its end was given, or given up.")


class SubscriptionBehind(Part):
    """A subscription that has not reached the last segment."""

    subscription: ShortText = Field(description="The subscription.")
    segment: int = Field(description="The first segment that it still reads.")


class OrderedState(Part):
    """The chain of an ordered topic."""

    phase: ChainPhase = Field(
        description="Open: a segment takes sends. Empty: there is none yet. Closing: the last one "
        "takes no more. Ended: the next one is not open yet."
    )
    since: ShortText = Field(default="", description="Since when.")
    reason: Words = Field(default="", description="What takes the sends, or what they wait for.")
    open_segment: int = Field(default=0, description="The segment that takes sends; 0: none does.")
    sending_group: ShortText = Field(default="", description="Its group.")
    senders: int = Field(default=0, description="Senders in line, the active one included.")
    segment_count: int = Field(default=0, description="Segments that some subscription may read.")
    segment_groups: Annotated[tuple[ShortText, ...], Field(max_length=MAX_GROUPS)] = Field(
        default=(), description="The groups that hold these: none may be deleted yet."
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
    behind_count: int = Field(default=0, description="How many there are of these.")


class TopicStatus(Part):
    """The state, as the operator last observed it. Fields of a newer operator are kept."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )

    observed_generation: int = Field(
        default=0, description="The generation that this status is about."
    )
    id: int = Field(default=0, description="The topic's number; 0: the topic does not exist yet.")
    queues: int = Field(
        default=0, description="Its queues: of an ordinary topic in all groups together."
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
