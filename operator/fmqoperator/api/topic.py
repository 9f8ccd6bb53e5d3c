"""Topic: which groups hold how many queues of it. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from fmqcore.ids import MAX_QUEUES
from fmqcore.names import NAME_PATTERN
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
    queues: int = Field(ge=1, le=MAX_QUEUES, description="Queues that it holds.")
    weight: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Its share of new messages; 0: none, and it is still read.",
    )


class TopicSpec(Part):
    """What is wanted."""

    model_config = rules(
        (
            "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
            "name cannot be changed, stored messages are of that name: make a new Topic",
        ),
        (
            "has(self.cluster) == has(oldSelf.cluster) && "
            "(!has(self.cluster) || self.cluster == oldSelf.cluster)",
            "cluster cannot be changed: make a new Topic",
        ),
        (
            "self.groups.exists(g, g.weight > 0)",
            "groups: at least one needs a weight over 0, or nobody can send to this topic",
        ),
        (
            "self.groups.all(g, !oldSelf.groups.exists(o, o.group == g.group && "
            "o.queues > g.queues))",
            "groups: queues of a group cannot be taken away, they hold messages: set its weight to "
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
        description="The FMQ cluster that it is of; left out: the namespace's name.",
    )
    zookeeper: ZooKeeper = Field(description="Where the cluster's ZooKeeper is.")
    groups: Annotated[tuple[TopicGroup, ...], Field(min_length=1, max_length=64)] = Field(
        description="The groups that hold queues of it.", json_schema_extra=list_map("group")
    )
    on_delete: Reclaim = Field(
        default=Reclaim.RETAIN,
        description="Whether the topic stays when this resource is deleted.",
    )


class TopicStatus(Part):
    """What is, as the operator saw it last."""

    observed_generation: int = Field(
        default=0, description="The generation that this status is about."
    )
    id: int = Field(default=0, description="The topic's number; 0: it is not there yet.")
    queues: int = Field(default=0, description="Its queues in all groups together.")
    message: Words = Field(default="", description="What is awaited, or wrong.")
    conditions: Conditions = ()


class Topic(Part):
    """A topic: a name, and the groups that hold its queues."""

    api_version: Literal["fmq.io/v1alpha1"] = API_VERSION
    kind: Literal["Topic"] = "Topic"
    metadata: Metadata
    spec: TopicSpec = Field(description="What is wanted.")
    status: TopicStatus = Field(
        default=TopicStatus(), description="What is, as the operator saw it last."
    )
