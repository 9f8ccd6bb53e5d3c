"""Events of the cluster, and what was done to it: faults and phases. See `events.py`."""

from enum import Enum
from typing import NamedTuple

from e2e.history.client_events import Place
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy
from fmqcore.zk.group_state import Mode


class GroupSetup(NamedTuple):
    """A broker group as configured."""

    name: str
    master: str
    members: tuple[str, ...]
    policy: AckPolicy
    zones: tuple[str, ...] = ()  # of the members, in their order
    strict_takeover: bool = False


class Setup(NamedTuple):
    """The cluster as configured from now on."""

    at_ms: float
    groups: tuple[GroupSetup, ...]
    checkpoint_ms: int = 1000  # `takeover_checkpoint_ms` of the brokers
    retention_bytes: int = -1  # 0 = nothing may be deleted; -1 = not known
    served_wait_ms: int = -1  # how long a master waits for what a reader showed; -1 = not known
    lease_ms: int = -1  # how long a reader without ZooKeeper may serve; -1 = not known


class Serves(NamedTuple):
    """Exact: from now until the broker's next `Serves` or `Down`, it serves this permission."""

    at_ms: float
    broker: str
    group: str
    permission: Permission
    epoch: int


class Look(NamedTuple):
    """A sample: the permission at some moment between the two times (no answer: not written)."""

    asked_ms: float
    at_ms: float
    broker: str
    group: str
    permission: Permission
    epoch: int


class Ends(NamedTuple):
    """How far a broker's journal goes, at some moment between the two times.

    Both times are equal in a simulation. There it is also written whenever a client gets an answer
    about a record in its group, or that its acks are stored, and when the broker's process ends.
    """

    asked_ms: float
    at_ms: float
    broker: str
    group: str
    journal_start: int
    end: int
    durable_end: int
    commit_end: int


class State(NamedTuple):
    """A group's state in ZooKeeper from now on (sampled: since the last one)."""

    at_ms: float
    group: str
    mode: Mode
    epoch: int
    master: str
    reader: str
    isr: tuple[str, ...]
    degraded: bool = False
    reason: str = ""
    # of a master that is back: readers may have shown records that it lacks
    max_delivered_position: int = 0


class Floor(NamedTuple):
    """A broker that serves reads reported the committed offset of a consumer group."""

    asked_ms: float
    at_ms: float
    broker: str
    readers: str
    place: Place
    committed: int


class Up(NamedTuple):
    """A broker has opened its journal, with these ends."""

    at_ms: float
    broker: str
    group: str
    journal_start: int
    end: int
    durable_end: int
    clean: bool = True


class Ending(Enum):
    """How a process ended."""

    STOPPED = "stopped"  # in order
    KILLED = "killed"  # the machine goes on: what was written stays
    POWER = "power"  # what was not fsynced is gone
    FATAL = "fatal"  # it ended itself


class Down(NamedTuple):
    """A broker's process has ended. `durable_end` -1: not known."""

    at_ms: float
    broker: str
    group: str
    how: Ending
    reason: str = ""
    durable_end: int = -1


class Refusal(NamedTuple):
    """A broker refused to start, or to follow its master: it waits for a person."""

    at_ms: float
    broker: str
    reason: str


# ---- what was done to it


class FaultKind(Enum):
    """The kinds of faults. What each can take away is in `checks/promises.py`."""

    STOP = "stop"
    KILL = "kill"
    POWER = "power"
    PAUSE = "pause"
    WEDGE = "wedge"
    CUT = "cut"
    RESET = "reset"
    DELAY = "delay"
    LOSS = "loss"
    STALL = "stall"
    ZOOKEEPER = "zookeeper"
    ZOOKEEPER_DATA = "zookeeper-data"  # it comes back empty, or as it was before
    EXPIRE = "expire"
    DISK_ERROR = "disk-error"
    DISK_FULL = "disk-full"
    DISK_SLOW = "disk-slow"
    DISK_DAMAGE = "disk-damage"
    DISK_EMPTY = "disk-empty"
    DESCRIPTORS = "descriptors"
    CLOCK = "clock"
    OPERATOR = "operator"
    CLIENT = "client"


class Step(Enum):
    """A step in a fault's life."""

    SCHEDULED = "scheduled"
    FIRED = "fired"
    HEALED = "healed"


class Fault(NamedTuple):
    """One step of one fault; `number` identifies the fault, `on` names its target."""

    at_ms: float
    number: int
    kind: FaultKind
    on: str
    step: Step
    detail: str = ""


class PhaseName(Enum):
    """The phases of a run. Each lasts until the next one."""

    CALM = "calm"  # no fault, and all was whole at its start
    TROUBLE = "trouble"
    HEALED = "healed"  # every fault is over
    WHOLE = "whole"  # every group is as configured, all in sync
    ANSWERED = "answered"  # every send has an outcome
    DRAINED = "drained"  # consumers have had the time to take everything
    OVER = "over"


class Phase(NamedTuple):
    """A phase of the run starts."""

    at_ms: float
    name: PhaseName
