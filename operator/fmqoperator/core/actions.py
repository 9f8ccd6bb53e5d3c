"""What a plan may ask the shell to do: typed, and each safe to do twice. Pure.

The shell does them in the order of the plan and stops at the first that fails; the next round
observes anew. Order within a plan: configuration in ZooKeeper before pods (a broker without it ends
at once), children before anything that stops a broker, `Tell` before what it tells of.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fmqcore.zk.group_config import GroupConfig
from fmqoperator.api.base import Json


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Server-side apply (force) of this object; it has owner reference and hash already."""

    manifest: Json
    why: str


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child that is not wanted any more; one that is not there is no error."""

    api_version: str
    kind: str
    name: str
    uid: str  # precondition: that very object
    why: str


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Patch `spec.resources.requests.storage` of a claim; only ever to more."""

    claim: str
    size: str
    why: str


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Change with whom a claim goes: with the group (`goes`), no more with those in `drops`.

    Only if the group, as it is then, is to stay and wants that; a claim that is kept may be so now.
    """

    claim: str
    uid: str  # precondition: that very claim
    goes: bool
    drops: tuple[str, ...]  # owners' uids
    why: str


@dataclass(frozen=True, slots=True)
class KeepVolumes:
    """From now on nobody whom this StatefulSet stops takes its volume along: that alone is changed,
    also of a group of which nothing else may be."""

    name: str
    uid: str  # precondition: that very object
    why: str


@dataclass(frozen=True, slots=True)
class PutGroupConfig:
    """Compare-and-set the group's `config` node: `version` as read, -1 = create it.

    The one thing that the operator writes to ZooKeeper about a group. `config.master` is the
    *wanted* master: brokers move the mastership by the failover machine; the state is theirs.
    """

    config: GroupConfig
    version: int
    why: str


@dataclass(frozen=True, slots=True)
class RestartPod:
    """Delete a pod (with its grace period); the StatefulSet makes it anew."""

    pod: str
    uid: str  # precondition: that very pod
    why: str


@dataclass(frozen=True, slots=True)
class RemoveAnnotation:
    """Take an annotation of the BrokerGroup away: what it asked for was done, or cannot be."""

    why: ClassVar[str] = "what it asked for is done, or cannot be"
    name: str
    value: str  # only if it still has this value


@dataclass(frozen=True, slots=True)
class ChangeAnnotation:
    """Give an annotation of the BrokerGroup another value: what was chosen outlives us."""

    name: str
    value: str  # only if it still has this value
    to: str
    why: str


@dataclass(frozen=True, slots=True)
class Tell:
    """An Event on the BrokerGroup. The shell sends one that was just sent no second time."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Observe again after so long, if nothing wakes the operator before."""

    after_ms: int


Action = (
    ApplyChild
    | DeleteChild
    | GrowClaim
    | OwnClaim
    | KeepVolumes
    | PutGroupConfig
    | RestartPod
    | RemoveAnnotation
    | ChangeAnnotation
    | Tell
    | Requeue
)
