"""A small world around `decide`: ZooKeeper with expiry, streams, crashes, lost answers.

One master (broker 0, until a switchover) and one or two slaves. Time is not counted; only its
promises are kept: a session ends on the server no earlier than the lease that rests on it, a
promise no earlier than its grant. Everything else may happen in any order. A broker reads the
state, then the live nodes, decides, and its compare-and-set lands later, or never, or without an
answer.

The events are in `failover/events.py`. `broken` names a violation in a world; `planted` makes a
protocol with a mistake.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fmqcore.failover.evidence import Decision, Evidence, LeaseRule, Link, Params, Record
from fmqcore.failover.machine import RULES, Rules, decide
from fmqcore.failover.term_rules import FOREVER, granted_until
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission, Position
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker

NAMES = tuple(BrokerId(f"g-{i}") for i in range(3))
EMPTY: frozenset[int] = frozenset()
MAX_EPOCH = 40
MAX_REC = 2


class Zk(NamedTuple):
    """The group state, and the version of the record it holds."""

    mode: Mode
    epoch: int
    reader: int
    isr: frozenset[int]
    rec: int = 0
    sealed: bool = False
    degraded: bool = False
    master: int = 0
    successor: bool = False  # the process that `Broker.same` marks
    base: int = 0
    lost: int | None = None
    claimed: bool = False  # since the master opened its term


class Broker(NamedTuple):
    """One broker's knowledge, beliefs and holdings."""

    up: bool = True
    conn: bool = True  # to ZooKeeper
    stands: bool = True  # believes that its live node stands
    tenure: int = 0
    stood: bool = True  # ... and stood without a gap since the last step was decided
    lease: bool = False
    view: Zk = Zk(Mode.NEW, 0, 0, EMPTY)
    current: bool = False  # no write since `view` was read
    live: frozenset[int] = EMPTY
    looking: bool = False  # between the two reads of a look
    flying: Zk | None = None  # a compare-and-set in flight
    maybe: frozenset[int] = EMPTY  # an in-sync set that may stand
    unsettled: bool = False
    promise: bool = False  # of a slave
    frozen: int = 0
    rec: int = 0  # its newest record; on disk
    heard: frozenset[int] = EMPTY  # by the master
    grants: frozenset[int] = EMPTY
    got: tuple[int, int, int] | None = None  # reader, term, record
    installed: int = 0
    has: tuple[int, ...] = ()  # its journal: the epoch in which each record was written; durable
    same: bool = False  # the process that a master chose as its successor


class World(NamedTuple):
    """The whole state of the model."""

    zk: Zk
    nodes: frozenset[int]  # live nodes that stand
    links: frozenset[int]  # streams that are up: `stream_of(master, slave)`
    brokers: tuple[Broker, ...]
    acked: int = 0  # the newest record confirmed to a consumer
    cuts: int = 2
    crashes: int = 1
    stops: int = 0
    moves: int = 0  # how often a broker may believe that another is wanted
    writes: int = 0
    committed: tuple[int, ...] = ()  # confirmed to a producer: on the master and an in-sync slave
    started: frozenset[int] = EMPTY  # who ever started which term, while switchovers are checked
    fault: str = ""  # an invariant broken in the event itself


Grants = Callable[[frozenset[BrokerId], dict[BrokerId, Link]], int]


@dataclass(frozen=True)
class Protocol:
    """The protocol under test; tests plant mistakes here."""

    rules: Rules = RULES
    granted_until: Grants = granted_until
    state_first: bool = True  # a look reads the state before the live nodes
    count_unsettled: bool = True  # an in-sync set that may stand counts for the lease
    new_term_after_gap: bool = True  # a tenure does not survive a gap of the live node
    grants_while_claiming: bool = False
    waits_for_successor: bool = True
    carries_record: bool = True  # a new master has the record it made as a reader
    records_fit: bool = True  # into the group's state, at a hand-over
    master_reads: bool = True  # broker 0 may serve reads
    memo: dict[object, Decision] = field(default_factory=dict)


LIVE = {i: LiveBroker(n, "same", "", Epoch(1), Position(0)) for i, n in enumerate(NAMES)}


def config_of(brokers: int) -> GroupConfig:
    """Return a group of that many brokers."""
    return GroupConfig(
        GroupName("g"), NAMES[0], tuple(Member(n, f"{n}:1") for n in NAMES[:brokers])
    )


CONFIGS = {n: config_of(n) for n in (2, 3)}
PARAMS = Params(claim_checks=1, claim_interval_ms=0, takeover_wait_ms=10)
NOW = 1_000


def stream_of(master: int, slave: int) -> int:
    """Return the number of that stream; to broker 0, the slave's own."""
    return 3 * master + slave


def slaves_of(w: World, i: int) -> frozenset[int]:
    """Return the slaves whose streams to broker i are up."""
    return frozenset(s for s in range(len(w.brokers)) if stream_of(i, s) in w.links)


def to_state(zk: Zk) -> GroupState:
    """Return the state as `decide` reads it."""
    return GroupState(
        mode=zk.mode,
        epoch=Epoch(zk.epoch),
        master=NAMES[zk.master],
        successor_incarnation="same" if zk.successor else "",
        required_epoch=Epoch(zk.base),
        declared_lost=NAMES[zk.lost] if zk.lost is not None else BrokerId(""),
        reader=NAMES[zk.reader],
        isr=frozenset(NAMES[i] for i in zk.isr),
        offsets=str(zk.rec),
        offsets_final=zk.sealed,
        degraded=zk.degraded,
        max_delivered_position=Position(int(zk.claimed)),
    )


def from_state(state: GroupState, rec: int) -> Zk:
    """Return the fields that the model keeps."""
    return Zk(
        state.mode,
        state.epoch,
        NAMES.index(state.reader),
        frozenset(NAMES.index(b) for b in state.isr),
        rec,
        state.offsets_final,
        state.degraded,
        NAMES.index(state.master),
        bool(state.successor_incarnation),
        state.required_epoch,
        NAMES.index(state.declared_lost) if state.declared_lost else None,
        state.max_delivered_position > 0,
    )


def decision_of(
    w: World,
    i: int,
    p: Protocol,
    *,
    fresh: bool,
    gone_long: bool,
    stopping: bool = False,
    wanted: int | None = None,
) -> Decision:
    """Return broker i's decision; cached, for most worlds differ in other brokers."""
    b = w.brokers[i]
    master = b.view.master
    linked = stream_of(master, i) in w.links
    stopping = stopping and i in (master, b.view.reader)
    links = slaves_of(w, i) if i == master else EMPTY
    held = b.tenure
    wanted = master if wanted is None else wanted
    key = (
        *(len(w.brokers), i, b.view, b.conn and b.stands, fresh, b.lease, b.live, held, linked),
        *(b.promise, b.frozen, links, b.heard, b.got, gone_long, stopping),
        *(wanted, b.same),
    )
    known = p.memo.get(key)
    if known is not None:
        return known
    evidence = Evidence(
        wanted=NAMES[wanted],
        incarnation="same" if b.same else "another",
        session_live=b.conn and b.stands,
        fresh=fresh,
        lease_out=not b.lease,
        live={NAMES[j]: LIVE[j] for j in b.live},
        held=Epoch(held),
        stopping=stopping,
        journal_end=Position(1),
        kept_end=Position(1),
        journal_epoch=Epoch(b.view.epoch if i == master and not b.view.base else 1),
        upstream_connected=linked,
        upstream_caught_up=linked,
        promised_until_ms=NOW if b.promise else 0,
        checks=PARAMS.patience_checks if gone_long else 0,
        frozen=Epoch(b.frozen),
        frozen_offsets="x" if b.frozen and p.records_fit else None,
        links={
            NAMES[j]: Link(j in links, j in links, j in b.heard, incarnation="same", whole=True)
            for j in links | b.heard
        },
        record=None if b.got is None else Record(NAMES[b.got[0]], Epoch(b.got[1])),
        reader_gone_since_ms=0 if gone_long else NOW,
    )
    config = replace(CONFIGS[len(w.brokers)], master=NAMES[master], declared_lost=NAMES[master])
    if not p.master_reads:
        first = replace(config.members[0], permission=Permission.WRITE)
        config = replace(config, members=(first, *config.members[1:]))
    made = decide(NAMES[i], config, to_state(b.view), evidence, NOW, PARAMS, p.rules)
    p.memo[key] = made
    return made


def serves(w: World, i: int, p: Protocol) -> Permission:
    """Return what broker i serves at this moment: granted and leased."""
    b = w.brokers[i]
    if not b.up:
        return Permission.NONE
    d = decision_of(w, i, p, fresh=False, gone_long=False)
    by_grants = d.lease is LeaseRule.ZOOKEEPER_OR_GRANTS and granted(w, i, p)
    return d.permission if b.lease or by_grants else Permission.NONE


def granted(w: World, i: int, p: Protocol) -> bool:
    """Return whether master i is granted a lease now."""
    m = w.brokers[i]
    isr = m.view.isr | (m.maybe if p.count_unsettled else EMPTY)
    links = {NAMES[j]: Link(lease_until_ms=FOREVER) for j in m.grants}
    return p.granted_until(frozenset(NAMES[j] for j in isr), links) > NOW


def broken(w: World, p: Protocol) -> str:
    """Return the violation of F11 in this world, if any."""
    if w.fault:
        return w.fault
    serving = [serves(w, i, p) for i in range(len(w.brokers))]
    if sum(1 for s in serving if s & Permission.READ) > 1:
        return "two readers serve"
    writers = [i for i, s in enumerate(serving) if s & Permission.WRITE]
    if writers and any(s for i, s in enumerate(serving) if i != writers[0]):
        return "a writer serves beside a reader"
    return ""


# ---- starting points


def whole(slaves: int, *, cuts: int, crashes: int) -> World:
    """A running group: MASTER(1), all in sync, linked, bound by grants."""
    everyone = frozenset(range(slaves + 1))
    isr = everyone - {0}
    zk = Zk(Mode.MASTER, 1, 0, isr)
    known = Broker(view=zk, current=True, live=everyone)
    master = known._replace(tenure=1, lease=True, heard=isr, grants=isr)
    slave = known._replace(promise=True)
    return World(zk, everyone, isr, (master, *[slave] * slaves), cuts=cuts, crashes=crashes)


def taken_over(slaves: int, *, cuts: int, crashes: int) -> World:
    """The master is dead, slave 1 serves the reads."""
    w = whole(slaves, cuts=cuts, crashes=crashes)
    zk = w.zk._replace(mode=Mode.SLAVE_CONSUME, epoch=2, reader=1, claimed=True)
    live = w.nodes - {0}
    known = Broker(view=zk, current=True, live=live)
    master = Broker(up=False, stands=False)
    reader = known._replace(tenure=2, lease=True)
    rest = [known] * (slaves - 1)
    return w._replace(zk=zk, nodes=live, links=EMPTY, brokers=(master, reader, *rest))


def handing_over(slaves: int, *, cuts: int, crashes: int) -> World:
    """The master is back and linked; slave 1 has frozen its acknowledged progress: HANDOVER."""
    w = taken_over(slaves, cuts=cuts, crashes=crashes)
    zk = w.zk._replace(mode=Mode.HANDOVER, epoch=3)
    everyone = frozenset(range(slaves + 1))
    known = Broker(view=zk, current=True, live=everyone)
    isr = everyone - {0}
    brokers = (known._replace(heard=isr), known._replace(frozen=2, rec=1), *[known] * (slaves - 1))
    return w._replace(zk=zk, nodes=everyone, links=isr, brokers=brokers, acked=1)


def learner(slaves: int, *, cuts: int, crashes: int) -> World:
    """A running group whose last slave is linked and not in sync yet."""
    w = whole(slaves, cuts=cuts, crashes=crashes)
    isr = w.zk.isr - {slaves}
    zk = w.zk._replace(isr=isr)
    brokers = [b._replace(view=zk, grants=b.grants & isr) for b in w.brokers]
    brokers[slaves] = brokers[slaves]._replace(promise=False)
    return w._replace(zk=zk, brokers=tuple(brokers))


def new(slaves: int, *, cuts: int, crashes: int) -> World:
    """A group that was never opened."""
    everyone = frozenset(range(slaves + 1))
    zk = Zk(Mode.NEW, 0, 0, EMPTY)
    master = Broker(view=zk, stands=False)
    slave = Broker(view=zk, stands=False, promise=True)
    return World(
        zk, EMPTY, EMPTY, (master, *[slave] * (len(everyone) - 1)), cuts=cuts, crashes=crashes
    )


def moving(w: World, *, moves: int, writes: int) -> World:
    """The same, with other masters wanted and producers writing."""
    return w._replace(moves=moves, writes=writes, started=frozenset({stream_of(1, 0)}))


def planted(p: Protocol, guard: str, mode: Mode | None = None) -> Protocol:
    """Return the protocol without one named guard (in one mode, or in all)."""
    rows = {
        key: tuple(
            replace(row, guards=tuple(g for g in row.guards if g.name != guard))
            if mode in (None, key[0])
            else row
            for row in rows
        )
        for key, rows in p.rules.rows.items()
    }
    return replace(p, rules=replace(p.rules, rows=rows), memo={})
