"""The input and the output of a decision on a chain. Pure values.

Times are milliseconds of the broker's own monotonic clock. `Evidence` holds what one broker knows;
each duty reads its own part and leaves the rest at its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk.chain import Chain, PerQueue


class Duty(Enum):
    """Which part of a chain's life a decision is about."""

    SEND = "send"  # close, go on without an end, open the next: any broker, the coordinator
    END = "end"  # give the end of a segment: the broker that serves the segment's group
    HEADS = "heads"  # let subscriptions go on to the next segment: the same broker
    TIDY = "tidy"  # drop what all have read: any broker


class Phase(Enum):
    """How far the chain is; of duty END: how far the segment is whose end is due."""

    EMPTY = "empty"  # no segment yet
    OPEN = "open"  # the last segment takes records
    CLOSING = "closing"  # the last segment takes no more; its end is not given yet
    ENDED = "ended"  # its end is given, or declared unknown; the next is not open yet
    UNKNOWN = "unknown"  # duty END only: sends went on without the end of this segment
    SHORT = "short"  # duty END only: the whole group does not reach the end of this segment
    NONE = "none"  # duty END only: no segment of this group waits for its end


class Action(Enum):
    """The one step to take next."""

    WAIT = "wait"  # nothing; `Decision.reason` names for what
    CLOSE = "close"  # compare-and-set `closing`, and raise the version of `groups/<g>/chains`
    SEAL = "seal"  # take, ack and show no more, then append SEAL with `end`, durable
    GIVE_END = "give the end"  # compare-and-set end and last sequence
    LOWER_END = "lower the end"  # compare-and-set a lower end: no member holds more
    DECLARE_UNKNOWN = "declare the end unknown"  # compare-and-set end = unknown
    OPEN = "open"  # compare-and-set segment k+1, and take `closing` away
    MOVE_HEADS = "move heads"  # compare-and-set heads
    DROP = "drop"  # compare-and-set the chain without its first segments


class CloseReason(StrEnum):
    """The class of a reason to close a segment, for metrics. The chain holds it with a sentence."""

    SENDER = "sender"  # another sender takes over
    TROUBLE = "trouble"  # the group is silent, takes no writes, or lacks a member
    TAKEOVER = "takeover"  # a takeover reader serves the group
    JOURNAL = "journal"  # records are missing from the group's journal
    UNREACHED = "unreached"  # the group is there, and its sender does not reach it
    REMOVAL = "removal"  # the group was taken out of the topic
    RESTORE = "restore"  # ZooKeeper had an older chain than the journals
    REQUEST = "request"  # planned: by a person, or because the operator keeps the group out


class Serving(Enum):
    """What a broker serves in its group, in a term that it holds itself."""

    NOTHING = "nothing"
    MASTER = "master"
    READER = "takeover reader"  # it refuses the old master's stream since its claim


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of the chain, as the coordinator sees it. The default view is of a silent group."""

    reachable: bool = False  # its master answered lately
    takes_writes: bool = False  # its master holds a term and may write
    read_only: bool = False  # a takeover reader serves it, or a hand-over is under way
    members: int = 0  # configured
    missing: tuple[BrokerId, ...] = ()  # configured and not in sync and linked
    ends: PerQueue | None = None  # of the topic's queues; durable on all members, nothing above.
    # The master reports them after it has read the chain as it is now: a batch of an earlier
    # segment that it took later would lie at the start of the next one.
    full: bool = False  # a disk limit is reached
    serves_reads: bool = False  # the broker that serves its reads is there: for people
    away: tuple[BrokerId, ...] = ()  # configured and not there at all: for people
    avoid: str = ""  # why the operator keeps the group out; "" = it does not. Used as a last resort
    cut: bool = False  # the sender first in line does not reach it. Used as a last resort, too


@dataclass(frozen=True, slots=True)
class SenderReport:
    """What the active sender's client reported after it learned that a segment is closing.

    From its report on, the client ignores acks of that segment and keeps all from `unacked` on.
    """

    sender: str
    segment: int
    unacked: PerQueue  # lowest sequence without an ack


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that `decide` may use besides the chain and time."""

    # duty SEND: the coordinator
    groups: Mapping[GroupName, GroupView] = field(default_factory=dict)
    line: tuple[str, ...] = ()  # the senders' nodes, first in line first
    report: SenderReport | None = None
    accepts_unknown: str = ""  # the sender that goes on although an end before it is unknown
    trouble_since_ms: int | None = None  # the open segment's group is silent or lacks a member
    closing_since_ms: int | None = None  # this broker first saw this closing
    # duties END and HEADS: a broker of the group
    group: GroupName = GroupName("")
    serving: Serving = Serving.NOTHING
    sealed: Mapping[int, PerQueue] = field(default_factory=dict)  # the ends in durable SEALs
    held: PerQueue | None = None  # ends that every configured member is known to hold, durably:
    # None until each member was in sync with this very process
    durable_ends: PerQueue | None = None  # of this broker's own journal
    whole_ends: PerQueue | None = None  # a master's: its queues end there, and every configured
    # member is in sync and holds the same; None = a member that is away may hold more
    progress: Mapping[str, PerQueue] = field(default_factory=dict)  # next offset that is not acked
    # duty TIDY
    expired: frozenset[int] = frozenset()  # segments of which retention left no record


@dataclass(frozen=True, slots=True)
class Params:
    """Numbers from the broker's settings."""

    trouble_ms: int = 400  # a member or a group may be silent for that long
    margin_ms: int = 500  # beyond the lease, for the ways of an answer
    max_moves: int = 256  # subscriptions whose heads one write moves


@dataclass(frozen=True, slots=True)
class Decision:
    """The step to take. A step that changes the chain has `edit`: write it by compare-and-set."""

    action: Action
    reason: str  # a sentence for people: the step, or what is awaited
    edit: Chain | None = None
    raises: GroupName | None = None  # raise `groups/<g>/chains` in the same transaction
    segment: int = 0  # which one is closed, sealed, ended or opened
    end: PerQueue | None = None  # SEAL: the end to write into it
    wake_ms: int | None = None  # decide again then, if nothing happens before
