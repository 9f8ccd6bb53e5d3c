"""What a BrokerGroup's status says. Pure. Written by the operator alone; no store of metrics."""

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
    UNKNOWN = "UNKNOWN"  # nothing was ever known, or who serves does not answer


class Phase(Enum):
    """One word for what goes on."""

    PENDING = "Pending"  # nothing is there yet, or something keeps the operator from beginning
    CREATING = "Creating"  # brokers start: the group was never opened, or sleeps no more
    RUNNING = "Running"  # as declared
    DEGRADED = "Degraded"  # it serves, and something is missing
    READ_ONLY = "ReadOnly"  # the master is gone, a slave serves the reads
    DOWN = "Down"  # nobody serves
    SWITCHING = "Switching"  # a planned move of the mastership
    PROMOTING = "Promoting"  # a slave becomes master, the old one is lost
    UPDATING = "Updating"  # brokers are restarted one by one
    SCALING = "Scaling"  # brokers are added or taken out
    HIBERNATING = "Hibernating"  # brokers are being stopped
    HIBERNATED = "Hibernated"  # no broker runs, as asked for
    PAUSED = "Paused"  # the operator changes nothing, as asked for
    DELETING = "Deleting"
    UNKNOWN = "Unknown"  # ZooKeeper cannot be asked, and no broker says that it serves


class BrokerStatus(Part):
    """One broker, as it was seen last."""

    broker: BrokerName = Field(description="Its name, which is its pod's.")
    role: Literal["master", "slave"] = Field(description="What it is in its group.")
    permission: Literal["FULL", "WRITE", "READ", "NONE", "UNKNOWN"] = Field(
        description="What it serves now, as it says itself; UNKNOWN: it did not answer."
    )
    in_sync: bool = Field(default=False, description="Whether it is in the in-sync set.")
    live: bool = Field(default=False, description="Whether its node in ZooKeeper stands.")
    ready: bool = Field(default=False, description="Whether its pod is ready.")
    epoch: int | None = Field(default=None, description="The newest epoch in its journal.")
    journal_end: int | None = Field(default=None, description="Its journal's end, a position.")
    lag_bytes: int | None = Field(
        default=None, description="How far it is behind the master, as the master says."
    )
    pod: ShortText = Field(default="", description="Its pod.")
    node: ShortText = Field(default="", description="The node that it runs on.")
    zone: ShortText = Field(default="", description="That node's zone.")
    why: Words = Field(default="", description="What it waits for, or what is wrong with it.")


class LastTransition(Part):
    """The last change of who serves."""

    from_: ShortText = Field(alias="from", description="Who served before, e.g. g1-0 FULL.")
    to: ShortText = Field(description="Who serves since, e.g. g1-1 READ.")
    cause: Words = Field(description="Why, in the words of who made it.")
    at: Annotated[str, Field(max_length=32)] = Field(description="When it was seen.")
    epoch: int = Field(description="The epoch that it opened.")
    read_outage_ms: int | None = Field(
        default=None,
        description="How long no broker served reads, measured as a client would: from the end of "
        "the container or the last answer of the broker that served. Left out: it lasts "
        "(noReadsSince), or the operator did not see it begin or end.",
    )
    write_outage_ms: int | None = Field(
        default=None,
        description="How long no message could be acknowledged, measured as a client would: until "
        "the policy can be met again, not only until there is a master. Left out: it lasts "
        "(noWritesSince), or the operator did not see it begin or end.",
    )


class Memory(Part):
    """What the operator must remember over its own restart."""

    master_gone_since_ms: int | None = Field(
        default=None, description="Since when the master's node in ZooKeeper is gone (unix ms)."
    )
    no_reads_since_ms: int | None = Field(
        default=None,
        description="Since when nobody serves reads (unix ms); 0: nobody saw it begin.",
    )
    no_writes_since_ms: int | None = Field(
        default=None,
        description="Since when nobody takes writes (unix ms); 0: nobody saw it begin.",
    )
    unheard_since_ms: int | None = Field(
        default=None,
        description="Since when who should serve lives and does not answer (unix ms).",
    )
    served: ShortText = Field(default="", description="Who served at the last look.")
    move: Words = Field(default="", description="Why the move on its way was asked for.")
    updating: Words = Field(
        default="",
        description="Its turn to be restarted, while it has it: what the operator itself brings "
        "(its new image, or template), or own: what this resource asks for.",
    )
    joining: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="Brokers that were added and have never been in sync."
    )
    returning: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="Brokers that were restarted, or woken, and are not back in sync."
    )
    template: ShortText = Field(default="", description="A digest of the pods' template.")
    brought: bool = Field(
        default=False,
        description="Whether the operator brought that, not this resource; or all pods have it.",
    )


class BrokerGroupStatus(Part):
    """What is, as the operator saw it last."""

    observed_generation: int = Field(
        default=0, description="The generation that this status is about."
    )
    seen_at: Annotated[str, Field(max_length=32)] = Field(
        default="",
        description="When the operator looked last: what stands here is as old as that. Written "
        "with every other change, and at least every two minutes while an operator works.",
    )
    no_reads_since: Annotated[str, Field(max_length=32)] | None = Field(
        default=None,
        description="Since when no broker serves reads; left out: one does, or the operator did "
        "not see it begin.",
    )
    no_writes_since: Annotated[str, Field(max_length=32)] | None = Field(
        default=None,
        description="Since when no message can be acknowledged; left out: it can be, or the "
        "operator did not see it begin.",
    )
    phase: Phase = Field(default=Phase.PENDING, description="One word for what goes on.")
    message: Words = Field(default="", description="The same in a sentence.")
    master: Annotated[str, Field(max_length=63)] = Field(
        default="", description="The group's master."
    )
    reader: Annotated[str, Field(max_length=63)] = Field(
        default="", description="Who serves the reads."
    )
    access: Access = Field(default=Access.UNKNOWN, description="What the group serves now.")
    mode: Literal["NEW", "MASTER", "SLAVE_CONSUME", "HANDOVER", "UNKNOWN"] = Field(
        default="UNKNOWN", description="The mode of the group's state in ZooKeeper."
    )
    epoch: int = Field(default=0, description="The group's epoch.")
    replicas: int = Field(default=0, description="Brokers that there are.")
    ready_replicas: int = Field(default=0, description="Brokers whose pod is ready.")
    ready: ShortText = Field(default="", description="Ready and wanted, e.g. 2/2.")
    lag: ShortText = Field(
        default="", description="How far the slave that is furthest behind is behind."
    )
    selector: ShortText = Field(default="", description="Labels of the group's pods, for scale.")
    in_sync: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="The slaves in sync."
    )
    volume_size: Annotated[str, Field(max_length=32)] = Field(
        default="",
        description="The most that a broker's claim of storage asks for: storage.size cannot go "
        "below that.",
    )
    brokers: Annotated[tuple[BrokerStatus, ...], Field(max_length=2 * MAX_BROKERS)] = Field(
        default=(),
        description="Every broker, wanted or still there.",
        json_schema_extra=list_map("broker"),
    )
    last_transition: LastTransition | None = Field(
        default=None, description=LastTransition.__doc__ or ""
    )
    memory: Memory = Field(default=Memory(), description=Memory.__doc__ or "")
    conditions: Conditions = ()
