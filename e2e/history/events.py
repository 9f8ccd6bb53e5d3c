"""The events of a run as seen from outside: the vocabulary of a history.

Each is a plain tuple: cheap to make, one JSON line each (`history.py`). `at_ms` is one clock for
all of a run (a simulator's world, a harness's own), `who` names a client (a consumer that starts
again has a new name), `readers` a consumer group, `record` the number in a value
(`traffic/values.py`). Records, offsets and positions are as in the broker: an offset counts records
of a queue, a position bytes of a journal.
"""

from enum import Enum
from typing import NamedTuple

from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy
from fmqcore.zk.group_state import Mode


class Place(NamedTuple):
    """A queue of a topic in a broker group."""

    topic: str
    group: str
    queue: int

    def __str__(self) -> str:
        return f"{self.topic} {self.group}/{self.queue}"


# ---- clients: what they did and which answers they got


class Sent(NamedTuple):
    """A record was handed to the producer; written down before.

    `order` names the records whose order is kept.
    """

    at_ms: float
    who: str
    record: int
    topic: str
    level: str  # `acks=` of the producer
    key: str = ""
    order: str = ""  # "" = none is promised; else records of one `who`, `order` and place keep it


class Stored(NamedTuple):
    """The producer reported OK. `offset` -1: a level without an answer."""

    at_ms: float
    who: str
    record: int
    place: Place
    offset: int


class Failed(NamedTuple):
    """The producer reported that the record was certainly not stored."""

    at_ms: float
    who: str
    record: int
    reason: str


class Unsure(NamedTuple):
    """The producer reported an unknown outcome (`DeliveryUnknown`), or was cut off."""

    at_ms: float
    who: str
    record: int
    reason: str


class Joined(NamedTuple):
    """A member of a consumer group has joined. `start` as in `consumer(start=)`."""

    at_ms: float
    who: str
    readers: str
    topic: str
    start: str = "earliest"


class Left(NamedTuple):
    """A member has left, in good order or not."""

    at_ms: float
    who: str
    readers: str
    orderly: bool


class Delivered(NamedTuple):
    """The program got a message; `record` -1: a value that no producer sent. `attempt` from 1.

    `epoch`: the term in which a broker delivered it to the client; 0: not known.
    """

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int
    record: int
    attempt: int = 1
    key: str = ""
    epoch: int = 0


class Acked(NamedTuple):
    """The program reported that it is done with a message."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int


class Nacked(NamedTuple):
    """The program gave a message back."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int
    delay_ms: int = 0


class Skipped(NamedTuple):
    """The member learned that `messages` more were deleted before its readers acked them."""

    at_ms: float
    who: str
    readers: str
    place: Place
    messages: int


class Committing(NamedTuple):
    """The member asks that all its acks so far be stored."""

    at_ms: float
    who: str
    readers: str


class Committed(NamedTuple):
    """The answer to its newest `Committing`. `reason` "" = stored; `stale`: some never will be."""

    at_ms: float
    who: str
    readers: str
    reason: str = ""
    stale: bool = False


class Seeking(NamedTuple):
    """A client moves a whole consumer group in one queue; until `Sought` it may have moved."""

    at_ms: float
    who: str
    readers: str
    place: Place
    offset: int


class Sought(NamedTuple):
    """The answer to a `Seeking`."""

    at_ms: float
    who: str
    readers: str
    place: Place
    reason: str = ""  # "" = done
    offset: int = -1  # the sought offset; or the reader's first or last one


# ---- ordered topics: other places than those of events above, since a record may be stored twice


class OrderedOpened(NamedTuple):
    """A sender became the active one. `last`: by queue the last record before its first.

    -1: there is none; -2: it is there, and cannot be read. `accepts`: it need not know the ends of
    all segments before its own.
    """

    at_ms: float
    who: str
    topic: str
    last: tuple[int, ...]
    accepts: bool = False


class OrderedHandedOn(NamedTuple):
    """The chain got a segment for another sender, while the ends of these were not known."""

    at_ms: float
    topic: str
    segment: int
    unended: tuple[int, ...]


class OrderedLowered(NamedTuple):
    """The known end of a segment was lowered to `end`: no member of the group held more.

    `accepted`: a person accepted that records are lost by it.
    """

    at_ms: float
    topic: str
    segment: int
    end: tuple[int, ...]
    accepted: bool = False


class OrderedSent(NamedTuple):
    """A record was handed to the ordered producer; written down before. One key, one queue."""

    at_ms: float
    who: str
    topic: str
    record: int
    key: str


class OrderedStored(NamedTuple):
    """The ordered producer reported OK."""

    at_ms: float
    who: str
    topic: str
    record: int
    queue: int
    segment: int
    sequence: int
    group: str
    offset: int


class OrderedSought(NamedTuple):
    """A consumer group was moved to a time: what it gets from then on is written down.

    `to_ms`: milliseconds since 1970.
    """

    asked_ms: float
    at_ms: float
    readers: str
    topic: str
    to_ms: int


class OrderedUnsure(NamedTuple):
    """The ordered producer reported an error, was fenced, or died: stored or not."""

    at_ms: float
    who: str
    topic: str
    record: int
    reason: str


class OrderedDelivered(NamedTuple):
    """The program got a message of an ordered topic; `record` -1: no producer sent that value."""

    at_ms: float
    who: str
    readers: str
    topic: str
    queue: int
    segment: int
    group: str
    offset: int
    record: int


# ---- the cluster


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
    """A broker has opened its journal and goes on from there."""

    at_ms: float
    broker: str
    group: str
    journal_start: int
    end: int
    durable_end: int
    clean: bool = True


class Down(NamedTuple):
    """A broker's process has ended. `durable_end` -1: not known."""

    at_ms: float
    broker: str
    group: str
    how: "Ending"
    reason: str = ""
    durable_end: int = -1


class Refusal(NamedTuple):
    """A broker refused to start, or to follow its master: it waits for a person."""

    at_ms: float
    broker: str
    reason: str


# ---- what we did to it


class Ending(Enum):
    """How a process ended."""

    STOPPED = "stopped"  # in order
    KILLED = "killed"  # the machine goes on: what was written stays
    POWER = "power"  # what was not fsynced is gone
    FATAL = "fatal"  # it ended itself


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


Event = (
    Sent
    | Stored
    | Failed
    | Unsure
    | Joined
    | Left
    | Delivered
    | Acked
    | Nacked
    | Skipped
    | Committing
    | Committed
    | Seeking
    | Sought
    | OrderedOpened
    | OrderedHandedOn
    | OrderedLowered
    | OrderedSent
    | OrderedSought
    | OrderedStored
    | OrderedUnsure
    | OrderedDelivered
    | Setup
    | Serves
    | Look
    | Ends
    | State
    | Floor
    | Up
    | Down
    | Refusal
    | Fault
    | Phase
)
