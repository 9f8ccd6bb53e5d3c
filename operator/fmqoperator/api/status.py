"""The status of a BrokerGroup. Pure. The operator alone writes it; it is no store of metrics."""

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from fmqoperator.api.base import (
    MAX_BROKERS,
    BrokerName,
    Conditions,
    Part,
    ShortText,
    Words,
    list_map,
)


class Access(Enum):
    """What the group serves."""

    FULL = "FULL"  # the master, everything
    WRITE = "WRITE"
    READ = "READ"  # a slave, while the master is gone; or a master that can acknowledge no send
    NONE = "NONE"
    UNKNOWN = "UNKNOWN"  # nothing was ever known, or the serving broker does not answer


class Phase(Enum):
    """The state of a group, in one word."""

    PENDING = "Pending"  # nothing exists yet, or the operator cannot start
    CREATING = "Creating"  # brokers start: the group was never opened, or sleeps no more
    RUNNING = "Running"  # as declared
    DEGRADED = "Degraded"  # it serves, and something is missing
    READ_ONLY = "ReadOnly"  # the master is gone, a slave serves the reads
    DOWN = "Down"  # no broker serves
    SWITCHING = "Switching"  # a planned move of the mastership
    PROMOTING = "Promoting"  # a slave becomes master, the old one is lost
    UPDATING = "Updating"  # brokers are restarted one by one
    SCALING = "Scaling"  # brokers are added or removed
    HIBERNATING = "Hibernating"  # brokers are being stopped
    HIBERNATED = "Hibernated"  # no broker runs, as declared
    PAUSED = "Paused"  # the operator changes nothing, as declared
    DELETING = "Deleting"
    UNKNOWN = "Unknown"  # ZooKeeper cannot be read, and no broker reports that it serves


class BrokerStatus(Part):
    """One broker, as last observed."""

    broker: BrokerName = Field(description="The broker's name, which is its pod's.")
    role: Literal["master", "slave"] = Field(description="The broker's role in the group.")
    permission: Literal["FULL", "WRITE", "READ", "NONE", "UNKNOWN"] = Field(
        description="What the broker serves, by its own report; UNKNOWN: it did not answer."
    )
    in_sync: bool = Field(default=False, description="Whether the broker is in the in-sync set.")
    live: bool = Field(default=False, description="Whether the broker's node in ZooKeeper exists.")
    ready: bool = Field(default=False, description="Whether the broker's pod is ready.")
    epoch: int | None = Field(default=None, description="The newest epoch in the broker's journal.")
    journal_end: int | None = Field(
        default=None, description="The end of the broker's journal, a position in bytes."
    )
    lag_bytes: int | None = Field(
        default=None,
        description="Bytes by which the broker is behind the master, as the master reports.",
    )
    pod: ShortText = Field(default="", description="Name of the broker's pod.")
    node: ShortText = Field(default="", description="Name of the node that the pod runs on.")
    zone: ShortText = Field(default="", description="Zone of the node that the pod runs on.")
    message: Words = Field(
        default="", description="What the broker waits for, or what is wrong with it."
    )


class LastTransition(Part):
    """The last change of the serving broker."""

    from_: ShortText = Field(
        alias="from",
        description="The broker that served before the change, and its permission, e.g. g1-0 "
        "FULL; or none.",
    )
    to: ShortText = Field(
        description="The broker that serves since the change, and its permission, e.g. g1-1 READ."
    )
    cause: Words = Field(description="The reason of the change.")
    at: Annotated[str, Field(max_length=32)] = Field(
        description="When the operator observed the change."
    )
    epoch: int = Field(description="The epoch that the change opened.")
    read_outage_ms: int | None = Field(
        default=None,
        description="Milliseconds for which no broker served reads, as a client sees it: from the "
        "end of the container, or the last answer, of the broker that served. Left out: the outage "
        "lasts (noReadsSince), or the operator did not see its start or end.",
    )
    write_outage_ms: int | None = Field(
        default=None,
        description="Milliseconds for which no message could be acknowledged, as a client sees it: "
        "until the policy can be met again, not only until there is a master. Left out: the outage "
        "lasts (noWritesSince), or the operator did not see its start or end.",
    )


class Memory(Part):
    """What the operator must remember across its own restart."""

    master_gone_since_ms: int | None = Field(
        default=None, description="When the master's node in ZooKeeper disappeared (Unix ms)."
    )
    no_reads_since_ms: int | None = Field(
        default=None,
        description="When brokers stopped serving reads (Unix ms); 0: not observed.",
    )
    no_writes_since_ms: int | None = Field(
        default=None,
        description="When brokers stopped taking writes (Unix ms); 0: not observed.",
    )
    unanswered_since_ms: int | None = Field(
        default=None,
        description="When a live broker that should serve stopped answering (Unix ms).",
    )
    last_served: ShortText = Field(
        default="", description="The broker that served at the last observation."
    )
    switchover_reason: Words = Field(default="", description="The reason of the move in progress.")
    restart_turn: Words = Field(
        default="",
        description="What the group restarts its brokers for, while it is its turn: the operator's "
        "new image or template, or `own`, a change of this resource.",
    )
    joining: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="Brokers that were added and have never been in sync."
    )
    returning: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(),
        description="Brokers that were restarted, or started after hibernation, and are not in "
        "sync again.",
    )
    template: ShortText = Field(default="", description="A digest of the pods' template.")
    template_from_operator: bool = Field(
        default=False,
        description="Whether the operator, not this resource, changed the pods' template, or all "
        "pods have the template already.",
    )


class BrokerGroupStatus(Part):
    """The state, as the operator last observed it."""

    observed_generation: int = Field(
        default=0, description="The generation of the resource that the status describes."
    )
    observed_at: Annotated[str, Field(max_length=32)] = Field(
        default="",
        description="When the operator last observed the group. Written with every other change, "
        "and at least every two minutes while an operator works.",
    )
    no_reads_since: Annotated[str, Field(max_length=32)] | None = Field(
        default=None,
        description="When brokers stopped serving reads; left out: a broker serves them, or the "
        "operator did not see the start.",
    )
    no_writes_since: Annotated[str, Field(max_length=32)] | None = Field(
        default=None,
        description="When messages could no longer be acknowledged; left out: they can be, or the "
        "operator did not see the start.",
    )
    phase: Phase = Field(default=Phase.PENDING, description="The state of the group, in one word.")
    message: Words = Field(default="", description="The phase, in one sentence.")
    master: Annotated[str, Field(max_length=63)] = Field(
        default="", description="The group's master."
    )
    reader: Annotated[str, Field(max_length=63)] = Field(
        default="", description="The broker that serves the reads."
    )
    access: Access = Field(
        default=Access.UNKNOWN, description="What the group serves: reads, writes, both or none."
    )
    mode: Literal["NEW", "MASTER", "SLAVE_CONSUME", "HANDOVER", "UNKNOWN"] = Field(
        default="UNKNOWN", description="The mode of the group's state in ZooKeeper."
    )
    epoch: int = Field(
        default=0, description="The group's epoch; it rises at every change of the serving broker."
    )
    replicas: int = Field(default=0, description="Number of brokers that exist.")
    ready_replicas: int = Field(default=0, description="Brokers whose pod is ready.")
    ready: ShortText = Field(default="", description="Ready and declared brokers, e.g. 2/2.")
    lag: ShortText = Field(default="", description="How far the last slave is behind the master.")
    selector: ShortText = Field(default="", description="Labels of the group's pods, for scale.")
    in_sync: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="Slaves in the in-sync set."
    )
    volume_size: Annotated[str, Field(max_length=32)] = Field(
        default="",
        description="The largest request of a broker's claim: storage.size cannot go below it.",
    )
    brokers: Annotated[tuple[BrokerStatus, ...], Field(max_length=2 * MAX_BROKERS)] = Field(
        default=(),
        description="Every broker, declared or still present.",
        json_schema_extra=list_map("broker"),
    )
    last_transition: LastTransition | None = Field(
        default=None, description=LastTransition.__doc__ or ""
    )
    memory: Memory = Field(default=Memory(), description=Memory.__doc__ or "")
    conditions: Conditions = ()
