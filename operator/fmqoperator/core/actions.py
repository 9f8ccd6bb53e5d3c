"""Actions that a plan may ask the shell to take: typed, each safe to take twice. Pure.

The shell takes them in the order of the plan and stops at the first that fails; the next round
observes again. Order within a plan: configuration in ZooKeeper before pods (a broker without it
exits at once), children before anything that stops a broker, `EmitEvent` before what it reports.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fmqcore.ids import Epoch
from fmqcore.zk.group_config import GroupConfig
from fmqoperator.api.base import Json


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Server-side apply (force) of this object, which already has owner reference and hash.

    `generation`: only if the existing object still has that one; 0 = whatever it has.
    """

    manifest: Json
    cause: str
    generation: int = 0


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child that is no longer wanted; a child that does not exist is no error."""

    api_version: str
    kind: str
    name: str
    uid: str  # precondition: that very object
    cause: str


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Patch `spec.resources.requests.storage` of a claim, only ever to more."""

    claim: str
    size: str
    cause: str


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Change a claim's owners: add the group (`goes`), remove those in `drops`.

    It goes with the group only if the group, as it is then, is to stay and wants that; owners in
    `drops` are removed without that check.
    """

    claim: str
    uid: str  # precondition: that very claim
    goes: bool
    drops: tuple[str, ...]  # owners' uids
    cause: str


@dataclass(frozen=True, slots=True)
class KeepVolumes:
    """Make this StatefulSet keep the volume of every broker that it stops from now on.

    Nothing else is changed, so it is allowed for a group that must not be changed otherwise.
    """

    name: str
    uid: str  # precondition: that very object
    cause: str


@dataclass(frozen=True, slots=True)
class PutGroupConfig:
    """Compare-and-set the group's `config` node: `version` as read, -1 = create it.

    `config.master` is the *wanted* master: brokers move the mastership by the failover machine;
    only they write the state, apart from `BeginAgain`.
    """

    config: GroupConfig
    version: int
    cause: str


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """Let the group begin again with what its journals hold, if it is still in that epoch.

    A person decides this when journals are lost (ADR 0058). The operator writes nothing else to
    ZooKeeper about a group than this and `PutGroupConfig`.
    """

    epoch: Epoch
    cause: str


@dataclass(frozen=True, slots=True)
class SwitchSends:
    """Ask a broker to close a segment of an ordered topic, so that sends go on elsewhere.

    A segment that is closed already stays so.
    """

    topic: str
    segment: int
    cause: str


@dataclass(frozen=True, slots=True)
class RestartPod:
    """Delete a pod (with its grace period); the StatefulSet recreates it."""

    pod: str
    uid: str  # precondition: that very pod
    cause: str


@dataclass(frozen=True, slots=True)
class RemoveAnnotation:
    """Remove an annotation of the BrokerGroup: its request is done, or cannot be done."""

    cause: ClassVar[str] = "the request is done, or cannot be fulfilled"
    name: str
    value: str  # only if it still has this value


@dataclass(frozen=True, slots=True)
class ChangeAnnotation:
    """Change an annotation of the BrokerGroup, so that a choice outlives this operator."""

    name: str
    value: str  # only if it still has this value
    to: str
    cause: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Emit an Event on the resource. The shell does not send one again that was just sent."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Observe again after this time, if nothing wakes the operator before."""

    after_ms: int


Action = (
    ApplyChild
    | DeleteChild
    | GrowClaim
    | OwnClaim
    | KeepVolumes
    | PutGroupConfig
    | BeginAgain
    | SwitchSends
    | RestartPod
    | RemoveAnnotation
    | ChangeAnnotation
    | EmitEvent
    | Requeue
)
