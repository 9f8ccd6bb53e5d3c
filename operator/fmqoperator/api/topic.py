"""Topic: which groups hold how many of the topic's queues. Pure."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from fmqcore.names import NAME_PATTERN
from fmqcore.properties import QUEUES, WEIGHT
from fmqoperator.api.base import (
    API_VERSION,
    Conditions,
    DnsLabel,
    Metadata,
    Part,
    Words,
    list_map,
    rules,
)
from fmqoperator.api.group import ZooKeeper
from fmqoperator.api.parts import Reclaim


class TopicGroup(Part):
    """A group that holds queues of the topic."""

    group: DnsLabel = Field(min_length=1, description="The group's name.")
    queues: int = Field(ge=QUEUES.minimum, le=QUEUES.maximum, description=QUEUES.text)
    weight: int = Field(
        default=WEIGHT.default, ge=WEIGHT.minimum, le=WEIGHT.maximum, description=WEIGHT.text
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
            "self.groups.exists(g, g.weight > 0)",
            "groups: at least one needs a weight over 0, or no client can send to this topic",
        ),
        (
            "self.groups.all(g, !oldSelf.groups.exists(o, o.group == g.group && "
            "o.queues > g.queues))",
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
    groups: Annotated[tuple[TopicGroup, ...], Field(min_length=1, max_length=64)] = Field(
        description="The groups that hold the topic's queues.", json_schema_extra=list_map("group")
    )
    on_delete: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether the topic stays when this resource is deleted.",
    )


class TopicStatus(Part):
    """The state, as the operator last observed it. Fields of a newer operator are kept."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )

    observed_generation: int = Field(
        default=0, description="The generation that this status is about."
    )
    id: int = Field(default=0, description="The topic's number; 0: the topic does not exist yet.")
    queues: int = Field(default=0, description="Its queues in all groups together.")
    message: Words = Field(
        default="", description="What the topic waits for, or what is wrong with it."
    )
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
