"""What the operator observes of one group before it plans: plain values. Pure.

`None` always means *not known* (not asked, no answer, not readable), never "not there": what does
not exist is an empty mapping or an absent key. Plans and judgements must treat the two apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from fmqcore.failover.evidence import Remedy
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState
from fmqcore.zk.live_broker import LiveBroker
from fmqoperator.api.base import Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.job import Verdict
from fmqoperator.core.topics.chain_status import ChainSeen

HASH = "fmq.io/spec-hash"
"""Annotation of every child: a hash of what it was made from. If it differs, apply again."""


class PodPhase(Enum):
    """A pod's `status.phase`; any other value is UNKNOWN."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Pod:
    """A broker's pod, which has the broker's name."""

    name: str
    uid: str
    phase: PodPhase = PodPhase.UNKNOWN
    ready: bool = False
    deleting: bool = False  # has a deletion timestamp
    revision: str = ""  # label `controller-revision-hash`
    restart: str = ""  # annotation `fmq.io/restart` of the pod's template
    node: str = ""
    zone: str = ""  # the node's zone label; "" = it has none
    waiting: str = ""  # a container's waiting reason, or why it cannot be scheduled
    message: str = ""  # and the cluster's words for it
    image: str = ""
    settings: str = ""  # annotation `fmq.io/settings-hash`
    exit_code: int | None = None  # from its container's last end, if not ready since
    end_reason: str = ""  # of that end, as Kubernetes names it: OOMKilled, Error, ...
    unready_since_ms: int | None = None  # None = it is ready, or that is not known
    ended_ms: int | None = None  # its container's last end, cut to the second; None = it never did


@dataclass(frozen=True, slots=True)
class Node:
    """A node that a broker's pod is on."""

    name: str
    drain_reason: str = ""  # why its pods have to leave, a predicate: "is cordoned"; "" = they stay
    ready: bool | None = True  # False: it is down, or silent for long; None: that is not known
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A broker's PersistentVolumeClaim; its name is `data-<broker>`."""

    name: str
    requested: str = ""
    capacity: str = ""
    deleting: bool = False
    lost: bool = False  # phase Lost: its volume is gone
    resize: str = ""  # what keeps a resize from being done
    waits: str = ""  # what a resize on its way waits for
    expandable: bool | None = None  # its StorageClass's allowVolumeExpansion
    uid: str = ""
    owners: frozenset[tuple[str, str]] = frozenset()  # (kind, uid) of each owner


@dataclass(frozen=True, slots=True)
class InZooKeeper:
    """The group in ZooKeeper, from one look: configuration, then state, then live nodes.

    `config` None: there is none (the look itself succeeded). `state` of an absent node is
    `GroupState()` (mode NEW).
    """

    config: Versioned[GroupConfig] | None = None
    state: GroupState = GroupState()
    live: Mapping[BrokerId, LiveBroker] = field(default_factory=dict)
    has_chains: bool = False  # ordered topics may send to the group


@dataclass(frozen=True, slots=True)
class Replica:
    """What a master reports of one slave."""

    broker: BrokerId
    connected: bool = False
    in_sync: bool = False
    lag_bytes: int | None = 0  # None: no report yet in this term of the master


@dataclass(frozen=True, slots=True)
class Periods:
    """When a broker served clients, by its own report. Unix time by the operator's clock."""

    reads_since_ms: int | None = None  # reads are served since then; None: they are not
    writes_since_ms: int | None = None  # a send is acknowledged since then; None: none is
    reads_until_ms: int | None = None  # the last moment, if they are not served now
    writes_until_ms: int | None = None
    heard_master: str = ""  # which master it has followed last
    heard_at_ms: int = 0  # and when the last message of that one came
    unanswered: str = ""  # why this master acknowledges no send


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's answer to `Admin.Status`. A broker that did not answer is absent."""

    broker: BrokerId
    permission: Permission = Permission.NONE
    epoch: Epoch = Epoch(0)  # of the state as it knows it
    end: Position = Position(0)
    durable_end: Position = Position(0)
    commit_end: Position = Position(0)
    cause: str = ""
    zookeeper_connected: bool = True
    replicas: tuple[Replica, ...] = ()
    version: str = ""
    refuses: str = ""  # why it takes no messages: its disk has no room
    damage: str = ""  # to the broker's journal
    periods: Periods | None = None  # None: an older broker
    remedy: Remedy = Remedy.NONE  # what a person has to do if it does not serve


@dataclass(frozen=True, slots=True)
class Check:
    """What the last ended BrokerJob of type check found in the group's data."""

    job: str
    level: str
    verdict: Verdict
    finished_at: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that the operator tried for this group and that did not succeed."""

    what: str  # e.g. "StatefulSet g1", "ZooKeeper"
    reason: str  # one word: Forbidden, Invalid, Unreachable, ...
    message: str
    rounds: int = 1  # consecutive rounds with this failure


@dataclass(frozen=True, slots=True)
class Defaults:
    """The options that the operator was started with."""

    broker_image: str
    operator_namespace: str = "fmq-system"
    cluster_domain: str = ""  # e.g. cluster.local; "" = leave names short (`.svc`)
    spark_image: str = ""  # for SparkApplications; "" = none, BrokerJobs are plain Jobs
    spark_account: str = "fmq-spark"  # the ServiceAccount of their drivers
    planned_moves: bool = True
    """The operator may want another master (`GroupConfig.master` other than the acting one).

    It does so only while every live broker reports that it acts on that
    (`LiveBroker.supports_switchover`).
    """
    updates_at_once: int = 1
    """Groups that get a new `broker_image` at a time (`core/restart_turns.py`); 0 = all."""


@dataclass(frozen=True, slots=True)
class Observation:
    """All input of `plan` and `status`.

    `children`: by (kind, name), as the API server has them; None = could not be listed.
    `pods`, `claims`: of this group, by name; None = could not be listed. `nodes`: those of the
    pods, by name; a node that could not be read is absent.
    `zookeeper` None: it could not be asked, or read; `zookeeper_why` holds the reason.
    `now_ms`: unix time.
    """

    group: BrokerGroup
    now_ms: int
    defaults: Defaults
    children: Mapping[tuple[str, str], Json] | None = None
    pods: Mapping[str, Pod] | None = None
    claims: Mapping[str, Claim] | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    zookeeper: InZooKeeper | None = None
    zookeeper_why: str = ""
    zookeeper_bad: bool = False  # it answers: what it holds of the group cannot be read
    answers: Mapping[BrokerId, Answer] = field(default_factory=dict)
    not_made: Mapping[str, str] = field(default_factory=dict)  # by broker: why it gets no pod
    check: Check | None = None  # None: there is none, or it is not known
    failures: tuple[Failure, ...] = ()  # of the round before
    updating: tuple[str, ...] = ()  # other groups that are being given the operator's new image
    rolling: tuple[str, ...] = ()  # other groups of the cluster whose turn it is to be restarted
    chains: tuple[ChainSeen, ...] | None = ()  # ordered topics that may send to this group: read
    # if a step is due (`core/ordered_sends.py`); None = could not be read
    predecessor: str = ""  # what is there still of a deleted group of that name; "" = nothing goes
    watched: bool = True  # this operator saw it at its look before, and was woken since by changes
