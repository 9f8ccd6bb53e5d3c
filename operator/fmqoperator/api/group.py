"""BrokerGroup: one master and its slaves, as declared. Pure.

The group is named as the resource is; its brokers are its pods: `<name>-0`, `<name>-1`, ...
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from fmqcore.policy import Flush, HowMany, SlaveCounts
from fmqoperator.api.base import (
    API_VERSION,
    MAX_BROKERS,
    NO_TWICE,
    BrokerName,
    DnsLabel,
    Metadata,
    ObjectName,
    Part,
    list_map,
    rules,
)
from fmqoperator.api.parts import (
    NetworkPolicy,
    PodTemplate,
    Resources,
    Scheduling,
    Service,
    Storage,
)
from fmqoperator.api.settings import BrokerTuning
from fmqoperator.api.status import BrokerGroupStatus
from fmqoperator.api.times import is_moment

SWITCHOVER: Final = "fmq.io/switchover"
"""Annotation: a broker's name, `any`, or nothing: it becomes master once; then it is removed."""

FENCE: Final = "fmq.io/fence"
"""Annotation: brokers that must serve nothing, separated by commas, or `all`."""

BEGIN_AGAIN: Final = "fmq.io/begin-again"
"""Annotation: the epoch in which a group waits because its journals are lost.

The group begins again with what is left, once; then the annotation is removed.
"""

RESTART: Final = "fmq.io/restart"
"""Annotation: any text; a new one restarts all brokers, one by one."""

NAME_MAX: Final = 40
_SERVICE: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"  # RFC 1035, as Services' names are
_LABEL: Final = r"[A-Za-z0-9-]{1,63}"
_V6: Final = r"\[[0-9A-Fa-f:.]{2,45}\]"  # an IPv6 address
_HOST: Final = rf"({_LABEL}(\.{_LABEL})*\.?|{_V6}):[0-9]{{1,5}}"
_NODE: Final = r"[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*"  # not `.`, not `..`
HOSTS: Final = rf"^{_HOST}(,{_HOST})*(/{_NODE})*/?$"

_PATH: Final = "({}.connect + '/').replace('//', '/').split('/', 2)[1]"
"""In CEL: what follows the hosts; with a slash at its end or not is the same."""


def _without_pattern(schema: dict[str, Any]) -> None:
    """Remove the pattern: a CEL rule has its own message."""
    del schema["pattern"]


class ZooKeeper(Part):
    """Where the cluster's ZooKeeper is."""

    model_config = rules(
        (
            f"self.connect.matches(r'{HOSTS}')",
            "zookeeper.connect: host:port of each server, separated by commas, and a /path after "
            "the last one or none: zk-0.zk:2181,zk-1.zk:2181,zk-2.zk:2181/fmq",
        ),
        (
            f"{_PATH.format('self')} == {_PATH.format('oldSelf')}",
            "zookeeper.connect: the path after the hosts cannot be changed, the group's state is "
            "there; create a new BrokerGroup, or copy the nodes and delete this one with its "
            "volumes kept",
        ),
    )

    connect: str = Field(
        pattern=HOSTS,
        json_schema_extra=_without_pattern,
        max_length=512,
        description="host:port of each server, separated by commas (an IPv6 address in brackets); "
        "a /path after the last one is the root of all of FMQ's nodes.",
    )


class Policy(Part):
    """Where a message must be stored before it is acknowledged."""

    model_config = rules(
        (
            "!self.strict || self.howMany == 'all'",
            "policy.strict asks for every configured slave: set policy.howMany to all, or leave "
            "strict out",
        ),
    )

    flush: Flush = Field(
        default=Flush.FSYNC,
        description="When the master itself counts: once written to the page cache (os-cache), "
        "the same with an fsync every flushIntervalMs (interval), or once on the disk (fsync).",
    )
    flush_interval_ms: int = Field(
        default=1000,
        ge=1,
        le=3_600_000,
        description="Milliseconds between two fsyncs, with flush: interval.",
    )
    slave_counts: SlaveCounts = Field(
        default=SlaveCounts.DURABLE,
        description="When a slave counts: once the message is sent to it (sent), in its memory "
        "(received), or on its disk (durable).",
    )
    how_many: HowMany = Field(
        default=HowMany.ONE,
        description="Slaves that must count: none, one, majority (of all brokers), all (in "
        "sync), or zones (one in the master's zone and one in another; it needs two brokers in "
        "each of two zones, as a master that is alone in its zone takes no messages).",
    )
    strict: bool = Field(
        default=False,
        description="With howMany: all, whether every configured slave must count, in sync or not.",
    )


class BrokerPermission(Part):
    """The most that one broker may serve."""

    broker: BrokerName = Field(description="The broker, e.g. g1-0.")
    permission: Literal["FULL", "WRITE", "READ", "NONE"] = Field(
        description="The most that the broker may serve, as master or as slave."
    )


class Switchover(Part):
    """A planned move of the mastership."""

    to: BrokerName = Field(
        description="The broker that shall be master, e.g. g1-1. The move is made once that broker "
        "is in sync, and again whenever another one has become master."
    )


class PromotionPolicy(Enum):
    """Whether a slave becomes master when the master is lost for good."""

    OFF = "off"
    AFTER = "after"


class Promotion(Part):
    """What is done when the master is lost for good."""

    policy: PromotionPolicy = Field(
        default=PromotionPolicy.OFF,
        description="off: a slave serves the reads, writes wait for the master or a person. after: "
        "after afterSeconds, the slave that serves the reads (the most advanced in-sync slave) "
        "becomes master.",
    )
    after_seconds: int = Field(
        default=300,
        ge=30,
        le=86_400,
        description="With policy: after, seconds for which the master must be gone before a slave "
        "is promoted.",
    )


_ENOUGH: Final = (
    (
        "self.policy.howMany != 'one' || self.replicas >= 2",
        "policy.howMany one needs a slave: set replicas to 2 or more, or policy.howMany to none",
    ),
    (
        "self.policy.howMany != 'zones' || self.replicas >= 3",
        "policy.howMany zones needs two slaves: set replicas to 3 or more, or howMany to one",
    ),
    (
        "self.promotion.policy != 'after' || (self.replicas >= 2 && self.policy.howMany != 'none')",
        "promotion.policy after needs slaves that hold what was acknowledged: set replicas to 2 or "
        "more and policy.howMany to one, majority, all or zones",
    ),
    (
        "self.promotion.policy != 'after' || self.slaveReads",
        "promotion.policy after makes the slave master that serves the reads: set slaveReads to "
        "true, or promotion.policy to off",
    ),
    (
        "has(self.cluster) == has(oldSelf.cluster) && "
        "(!has(self.cluster) || self.cluster == oldSelf.cluster)",
        "cluster cannot be changed, the group's state is there: create a new BrokerGroup",
    ),
    (
        "!has(self.switchover) || !has(self.permissions) || !self.permissions.exists(p, "
        "p.broker == self.switchover.to && p.permission != 'FULL')",
        "switchover.to names a broker that permissions does not let serve FULL: remove it from "
        "permissions, or name another broker",
    ),
)


class BrokerGroupSpec(Part):
    """The declaration."""

    model_config = rules(*_ENOUGH)

    cluster: DnsLabel | None = Field(
        default=None,
        min_length=1,
        description="The FMQ cluster of the group; left out: the namespace's name. "
        "Groups of one cluster share topics.",
    )
    zookeeper: ZooKeeper = Field(description="Where the cluster's ZooKeeper is.")
    replicas: int = Field(
        default=2,
        ge=1,
        le=MAX_BROKERS,
        description="Brokers of the group: a master and its slaves.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="The broker's image; left out: the operator's default.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the image is pulled."
    )
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=8)] = Field(
        default=(),
        description="Names of the Secrets for pulling the image.",
        json_schema_extra=NO_TWICE,
    )
    policy: Policy = Field(default=Policy(), description=Policy.__doc__ or "")
    strict_takeover: bool = Field(
        default=False,
        description="Whether a returning master whose consumers' newest offsets are lost waits for "
        "a person, instead of delivering some messages again.",
    )
    slave_reads: bool = Field(
        default=True, description="Whether a slave serves the reads while the master is gone."
    )
    permissions: Annotated[tuple[BrokerPermission, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(),
        description="Brokers that may serve less than FULL, and how much.",
        json_schema_extra=list_map("broker"),
    )
    switchover: Switchover | None = Field(
        default=None,
        description="The broker that shall be master. For a single move: kubectl annotate bg "
        "NAME fmq.io/switchover=BROKER.",
    )
    promotion: Promotion = Field(default=Promotion(), description=Promotion.__doc__ or "")
    paused: bool = Field(
        default=False,
        description="Whether the operator only reports and changes nothing. The brokers keep "
        "serving and failing over without it.",
    )
    hibernated: bool = Field(
        default=False,
        description="Whether all brokers are stopped, with their volumes and the group's state "
        "kept.",
    )
    storage: Storage = Field(default=Storage(), description=Storage.__doc__ or "")
    settings: BrokerTuning = Field(default=BrokerTuning(), description=BrokerTuning.__doc__ or "")
    resources: Resources = Field(default=Resources(), description=Resources.__doc__ or "")
    scheduling: Scheduling = Field(default=Scheduling(), description=Scheduling.__doc__ or "")
    service: Service = Field(default=Service(), description=Service.__doc__ or "")
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy(), description=NetworkPolicy.__doc__ or ""
    )
    pod: PodTemplate = Field(default=PodTemplate(), description=PodTemplate.__doc__ or "")
    startup_seconds: int = Field(
        default=3600,
        ge=60,
        le=86_400,
        description="Seconds after which a started broker that does not answer is restarted. A "
        "broker that still reads its journal answers, so it is not restarted.",
    )
    termination_grace_seconds: int = Field(
        default=60,
        ge=30,
        le=3600,
        description="Seconds that a broker may take to stop, in which it hands over its role and "
        "flushes its journal.",
    )


_IS_BROKER: Final = (
    "{0}.startsWith(self.metadata.name + '-') && "
    "{0}.substring(size(self.metadata.name) + 1).matches('^[0-9]$') && "
    "int({0}.substring(size(self.metadata.name) + 1)) < self.spec.replicas"
)


_VOLUMES = "self.status.volumeSize"


class BrokerGroup(Part):
    """A replicated group of brokers: one master and its slaves."""

    model_config = rules(
        (
            "quantity(self.spec.storage.size).compareTo(quantity(oldSelf.spec.storage.size)) >= 0 "
            f"|| (has(self.status) && has({_VOLUMES}) && "
            f"quantity(self.spec.storage.size).compareTo(quantity({_VOLUMES})) >= 0)",
            "storage.size cannot shrink, as no volume can: set at least the present size, in "
            "status.volumeSize",
        ),
        (
            f"size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('{_SERVICE}')",
            f"metadata.name is part of host names and Services: at most {NAME_MAX} lower-case "
            "letters, digits and '-', starting with a letter, ending with a letter or digit",
        ),
        (
            f"!has(self.spec.switchover) || ({_IS_BROKER.format('self.spec.switchover.to')})",
            "switchover.to is not a broker of the group: they are named <metadata.name>-0 to "
            "<metadata.name>-<replicas - 1>",
        ),
        (
            "!has(self.spec.permissions) || self.spec.permissions.all(p, "
            f"{_IS_BROKER.format('p.broker')})",
            "permissions names a broker that is not in the group: they are named "
            "<metadata.name>-0 to <metadata.name>-<replicas - 1>",
        ),
    )

    api_version: Literal["fmq.io/v1alpha1"] = API_VERSION
    kind: Literal["BrokerGroup"] = "BrokerGroup"
    metadata: Metadata
    spec: BrokerGroupSpec = Field(description="The declaration.")
    status: BrokerGroupStatus = Field(
        default=BrokerGroupStatus(), description="The state, as the operator last observed it."
    )

    @property
    def name(self) -> str:
        """The group's name, in Kubernetes and in ZooKeeper."""
        return self.metadata.name

    @property
    def cluster(self) -> str:
        """The FMQ cluster that it is of."""
        return self.spec.cluster or self.metadata.namespace

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that are wanted, which are pods."""
        return tuple(f"{self.name}-{at}" for at in range(self.spec.replicas))


def read_group(body: Mapping[str, Any]) -> BrokerGroup:
    """Read a BrokerGroup from the API server. Raises `ValidationError` for an invalid resource.

    An unreadable status (written by a newer operator, or by hand) counts as absent: the operator
    alone writes it, and takes only the start times of conditions and outages from it.
    """
    try:
        group = BrokerGroup.model_validate(body)
    except ValidationError as error:
        if any(found["loc"][:1] != ("status",) for found in error.errors()):
            raise
    else:
        if _has_times(group.status):
            return group
    return BrokerGroup.model_validate({k: v for k, v in body.items() if k != "status"})


def _has_times(status: BrokerGroupStatus) -> bool:
    """Whether the status's times can be parsed: for the schema they are text."""
    last = status.last_transition
    moments = [c.last_transition_time for c in status.conditions if c.last_transition_time]
    return all(map(is_moment, [*moments, *([] if last is None else [last.at])]))
