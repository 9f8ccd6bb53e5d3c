"""A small world around the chain machine: two groups of two, pipelined sends, two senders.

A group has a master (journal, durable length) and a slave. A master's crash loses what it has not
fsynced. Time is not counted; only its promises are kept: an end is declared unknown no earlier than
the master's lease is over. Everything else may happen in any order: a master that was taken over
lives on (a zombie), so does a sender that another one replaced; a coordinator decides on what it
has read, and its write lands later or never.

`Protocol` holds the functions under test; tests plant mistakes there. `ways.explore` searches.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fmqcore.ids import BrokerId, GroupName, Offset
from fmqcore.ordered import delivery, sending
from fmqcore.ordered.evidence import Decision, Evidence, GroupView, Params, SenderReport, Serving
from fmqcore.ordered.machine import RULES, Rules
from fmqcore.zk.chain import Chain, ChainGroup, Floor, PerQueue, Segment, sorted_pairs

GROUPS = (GroupName("g1"), GroupName("g2"))
MASTER, SLAVE = BrokerId("m"), BrokerId("s")
BOTH = frozenset((MASTER, SLAVE))
SENDERS = ("A", "B")
CONSUMER = "app"
PARAMS = Params(trouble_ms=0)
NOW = 10_000
NEVER = 10**6

Record = tuple[int, int, int]
"""Queue, sender epoch, sequence."""
Journal = tuple[Record, ...]


class Group(NamedTuple):
    """A group's two brokers. `view`: the chain as the master read it in its present term."""

    master: Journal = ()
    durable: int = 0  # of the master's journal; above it a crash may lose all or nothing
    slave: Journal = ()  # a slave appends and fsyncs in one event
    master_up: bool = True
    slave_up: bool = True
    taken_over: bool = False  # the slave serves reads; a master that is up does not know
    linked: bool = True
    in_sync: bool = True
    held: int | None = 0  # length that all members hold, as this master process knows
    view: int | None = None  # number of a chain in `CHAINS`
    lease: bool = False
    sealed: tuple[tuple[int, PerQueue], ...] = ()
    wiped: bool = False  # the slave's disk was lost, and it is not in sync since
    lost: bool = False  # a disk was lost: an end may be too high until the group lowers it


class Client(NamedTuple):
    """A sender's program: pipelined, it sends `next` and keeps all from `unacked` on."""

    segment: int = 0
    group: int = 0
    epoch: int = 0
    unacked: PerQueue = ()
    next: PerQueue = ()
    report: tuple[int, PerQueue] | None = None  # segment, unacked
    fenced: bool = False


class Faults(NamedTuple):
    """What may still go wrong."""

    deaths: int = 0
    cuts: int = 0
    expiries: int = 0  # of the first sender's node
    switches: int = 0  # planned
    delays: int = 0  # writes that land later than they were decided, or never
    starts: int = 0  # of the consumer group, again at the first record
    wipes: int = 0  # a takeover reader's disk is lost: its master goes on with what it has


class World(NamedTuple):
    """The whole state of the model."""

    chain: int  # number of a chain in `CHAINS`
    groups: tuple[Group, Group]
    clients: tuple[Client, Client]
    line: tuple[str, ...]
    progress: tuple[PerQueue, PerQueue]  # next offset per group and queue
    # per queue the last record's sender epoch and sequence; a lost disk takes it back (`losses.py`)
    consumed: tuple[tuple[int, int], ...]
    faults: Faults
    counts: tuple[int, int] = (0, 0)  # per group: the start since which its progress counts
    flying: tuple[int, int] | None = None  # a compare-and-set: chain read, chain to write
    fault: str = ""  # a property broken in the event itself


@dataclass(frozen=True)
class Size:
    """The bounds of a world."""

    queues: int = 1
    messages: int = 2  # highest sequence of a queue
    segments: int = 3
    senders: int = 2


Judge = Callable[
    [Chain, GroupName, Collection[int], Offset, sending.OrderedBatch], sending.Judgement
]
MayAck = Callable[[Chain, Collection[int], int, sending.AckEvidence, int], str | None]
Show = Callable[[Chain, str, int, GroupName, int, int], delivery.Window]
ShownEnd = Callable[[Chain, Segment, int, Serving, int | None, int], int]


@dataclass(frozen=True)
class Protocol:
    """The protocol under test; tests plant mistakes here."""

    rules: Rules = RULES
    judge: Judge = sending.judge_batch
    may_ack: MayAck = sending.may_acknowledge
    window: Show = delivery.window
    shown_end: ShownEnd = delivery.shown_end
    seals_at_own_end: bool = False
    acks_by_in_sync_set: bool = False
    reader_before_claim: bool = False
    acks_after_report: bool = False  # the client takes acks of a segment that it reported
    report_stays: bool = False  # the coordinator keeps a report over a switch
    view_outlives_term: bool = False
    shows_unheld: bool = False
    shows_closing: bool = False
    keeps_progress: bool = False  # of a removed consumer group for the next one of that name
    keeps_lost_progress: bool = False  # of records that a takeover reader alone had, and lost
    accepts_unknown: bool = False  # not a mistake: the second sender goes on without an end
    memo: dict[object, Decision] = field(default_factory=dict)


CHAINS: list[Chain] = []
_NUMBERS: dict[Chain, int] = {}


def number_of(chain: Chain) -> int:
    """Return the chain's number; the sentences in it do not make another world."""
    if chain.closing is not None:
        chain = replace(chain, closing="closing")
    number = _NUMBERS.get(chain)
    if number is None:
        number = _NUMBERS[chain] = len(CHAINS)
        CHAINS.append(chain)
    return number


def master_view(chain: Chain) -> int:
    """Return the number of what a master needs of the chain: the last segment and the sender."""
    last = chain.last
    segments, floor = chain.segments, chain.floor
    if last is not None:
        closing = chain.closing or ("closing" if last.has_ended else None)
        bare = replace(last, end=None, end_unknown=False)
        segments, floor = (bare,), Floor(last.number - 1)
        chain = replace(chain, closing=closing)
    return number_of(replace(chain, segments=segments, floor=floor, heads=()))


def start(size: Size, faults: Faults) -> World:
    """A new topic on two whole groups; both senders are in line."""
    zeros = (0,) * size.queues
    chain = Chain(
        "t",
        size.queues,
        tuple(ChainGroup(g) for g in GROUPS),
        heads=sorted_pairs({CONSUMER: (1,) * size.queues}),
    )
    return World(
        number_of(chain),
        (Group(), Group()),
        (Client(), Client()),
        SENDERS[: size.senders],
        (zeros, zeros),
        ((0, 0),) * size.queues,
        faults,
    )


def ends_of(journal: Journal, queues: int) -> PerQueue:
    """Return the next offset of each queue in a journal."""
    if queues == 1:
        return (len(journal),)
    counts = [0] * queues
    for queue, _, _ in journal:
        counts[queue] += 1
    return tuple(counts)


def record_at(journal: Journal, queue: int, offset: int, queues: int) -> Record | None:
    """Return the record at a queue's offset, or None above the journal's end."""
    if queues == 1:
        return journal[offset] if offset < len(journal) else None
    own = [record for record in journal if record[0] == queue]
    return own[offset] if offset < len(own) else None


def reads_old(g: Group, chain: Chain) -> bool:
    """Whether the master may still take batches of a segment before the last."""
    if g.view is None or chain.last is None:
        return False
    last = CHAINS[g.view].last
    return last is None or last.number < chain.last.number


def view_of(g: Group, queues: int, chain: Chain, p: Protocol) -> GroupView:
    """Return the group as the coordinator sees it: it asks the master."""
    serves = g.master_up and not g.taken_over
    whole = serves and g.linked and g.in_sync and g.slave_up
    settled = whole and g.master == g.slave and g.durable == len(g.master)
    settled = settled and (p.view_outlives_term or not reads_old(g, chain))
    return GroupView(
        reachable=g.master_up,
        takes_writes=serves,
        read_only=g.taken_over,
        members=2,
        missing=() if whole else (SLAVE,),
        ends=ends_of(g.master, queues) if settled else None,
    )


def sender_evidence(w: World, p: Protocol, queues: int) -> tuple[object, Evidence]:
    """Return what a coordinator knows, and a key for that."""
    chain = CHAINS[w.chain]
    views: Mapping[GroupName, GroupView] = {
        name: view_of(g, queues, chain, p) for name, g in zip(GROUPS, w.groups, strict=True)
    }
    last = chain.last
    lease = last is not None and w.groups[GROUPS.index(last.group)].lease
    report = None
    if chain.sender.id in SENDERS:
        report = w.clients[SENDERS.index(chain.sender.id)].report
    key = (w.chain, tuple(views.values()), w.line, report, lease)
    return key, Evidence(
        groups=views,
        line=w.line,
        report=None if report is None else _report(chain.sender.id, report),
        accepts_unknown=SENDERS[1] if p.accepts_unknown else "",
        trouble_since_ms=0,
        closing_since_ms=None if lease else 0,
    )


def _report(sender: str, report: tuple[int, PerQueue]) -> SenderReport:
    return SenderReport(sender, *report)
