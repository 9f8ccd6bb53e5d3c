"""The input and the output of a failover decision. Pure values.

Times are milliseconds of the broker's own monotonic clock and are never compared with another
broker's. Ephemerals (`live`) are evidence only; the truth is the state, changed by compare-and-set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.zk.group_state import GroupState
from fmqcore.zk.live_broker import LiveBroker


class Part(Enum):
    """The part of a broker in the current group state."""

    MASTER = "master"
    READER = "reader"  # the slave that the state names as reader (slave-consume, hand-over)
    SLAVE = "slave"  # any other configured member
    STRANGER = "stranger"  # not a member of the group


class Action(Enum):
    """The one step to take next."""

    WAIT = "wait"  # nothing; `Decision.reason` names for what
    LOOK = "look"  # read config, state and then live nodes afresh, and decide again
    CHECK = "check"  # one more good claim check: count it, come back after `claim_interval_ms`
    CLAIM = "claim"  # compare-and-set SLAVE_CONSUME(e+1, me), then serve reads
    FREEZE = "freeze"  # stop serving for good in this term, then freeze the offsets
    HAND_OVER = "hand over"  # compare-and-set HANDOVER(e+1)
    SEND_RECORD = "send the record"  # give the frozen offsets to the master
    YIELD = (
        "yield"  # an orderly stop: serve no more, then compare-and-set SLAVE_CONSUME(e+1, a slave)
    )
    MOVE = "move"  # serve no more, wait until the successor has all, then SLAVE_CONSUME(e+1, it)
    TAKE_OVER = "take over"  # journal durable, then compare-and-set MASTER(e+1, me); no term yet
    OPEN = "open"  # EPOCH batch, offsets installed, all durable, then compare-and-set MASTER(e+1)


class LeaseRule(Enum):
    """What bounds the permission."""

    NONE = "none"
    ZOOKEEPER = "zookeeper"  # its own timed read of the group's state
    ZOOKEEPER_OR_GRANTS = "zookeeper or grants"  # or an unexpired grant of every isr member


class Link(NamedTuple):
    """The master's view of one slave."""

    connected: bool = False
    caught_up: bool = False
    heard: bool = False  # sent a Hello since the start, and its suffix is not missing here
    lease_until_ms: int = 0
    incarnation: str = ""  # of the process whose stream it is
    whole: bool = False  # when it was heard, it lacked nothing of what it ever acknowledged to hold
    kept: bool = True  # then it had all that it ever fsynced
    emptied: bool = False  # its disk was lost before it was first heard: it gave nothing back


class Record(NamedTuple):
    """A takeover record that the master received: its reader and its slave-consume term."""

    reader: BrokerId
    term: Epoch


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that `decide` may use besides configuration, state and time."""

    # ZooKeeper
    session_live: bool = False  # connected, and the live node stands in this very session
    fresh: bool = False  # config, state and then `live` were read, synced, just now
    wanted: BrokerId = BrokerId("")  # whom the configuration wants as master
    incarnation: str = ""  # of this process
    superseded: bool = False  # another process announces itself under this name
    lease_out: bool = False  # the ZooKeeper lease has run out
    live: Mapping[BrokerId, LiveBroker] = field(default_factory=dict)
    # members that are gone, and announced an epoch that the state lacks when they were live
    newer_gone: Mapping[BrokerId, Epoch] = field(default_factory=dict)
    # this broker's terms and journal
    held: Epoch = Epoch(0)  # the term that this broker opened and still holds; 0 = none
    journal_epoch: Epoch = Epoch(0)
    journal_end: Position = Position(0)
    # the same without the batches of a term that never stood
    kept_end: Position = Position(0)
    has_records: bool = False
    stopping: bool = False  # an orderly stop was asked for
    may_lack: bool = False  # an unclean stop, and no term opened, nor level with a master since
    tail_lost: bool = False  # a start since then cut away what it could not read
    unproven: bool = False  # the journal was pulled since its disk was lost, or is its first
    other_policy: bool = False  # it acknowledged under another policy than the one now
    # as slave
    upstream_connected: bool = False
    upstream_caught_up: bool = False
    promised_until_ms: int = 0
    checks: int = 0  # good claim checks so far, without a bad one between
    next_check_ms: int = 0
    frozen: Epoch = Epoch(0)  # the slave-consume term whose record it froze; 0 = none
    frozen_offsets: str | None = None  # that record, base64; None = too large for ZooKeeper
    behind: bool = False  # the same, as a slave
    # as master
    links: Mapping[BrokerId, Link] = field(default_factory=dict)
    record: Record | None = None
    next_move_ms: int = 0  # a try to move was in vain: not again before
    reader_gone_since_ms: int | None = None  # no look has shown the reader's live node since
    lacking_since_ms: int | None = None  # of what readers may have shown, while who has it is away


@dataclass(frozen=True, slots=True)
class Params:
    """Numbers from the broker's settings."""

    claim_checks: int = 2
    claim_interval_ms: int = 250
    takeover_wait_ms: int = 10_000

    @property
    def served_wait_ms(self) -> int:
        """How long a master waits for a reader that served what the master lacks (ADR 0025)."""
        return 3 * self.takeover_wait_ms

    @property
    def patience_checks(self) -> int:
        """After this many good checks a less advanced slave claims too: the best one has not."""
        return 4 * self.claim_checks


class Remedy(Enum):
    """What a person has to do if what is awaited does not come; numbered as on the wire."""

    NONE = 0
    BEGIN_AGAIN = 1  # `fmq cluster begin-again`


@dataclass(frozen=True, slots=True)
class Decision:
    """The step to take. A step that changes the state has `edit`; the shell sets `write_token`."""

    action: Action
    part: Part
    permission: Permission  # what the state grants this broker; bounded by the lease
    lease: LeaseRule
    reason: str  # a sentence for people: why it is as it is, or what is awaited; LOOK has none
    may_grant: bool = False  # its acks to the master may carry grants
    edit: GroupState | None = None
    checking: bool = False  # claim checks are under way: keep the count
    wake_ms: int | None = None  # decide again then, if nothing happens before
    remedy: Remedy = Remedy.NONE  # of the wait that `reason` describes
