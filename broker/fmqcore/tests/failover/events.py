"""Every event of the small world (`failover/world.py`)."""

from collections.abc import Iterator

from fmqcore.failover.evidence import Action, Decision
from fmqcore.failover.term_rules import Tenure, after_announce, record_term
from fmqcore.ids import Epoch, Permission
from fmqcore.tests.failover.world import (
    EMPTY,
    MAX_EPOCH,
    MAX_REC,
    Broker,
    Protocol,
    World,
    Zk,
    decision_of,
    from_state,
    granted,
    serves,
    slaves_of,
    stream_of,
    to_state,
)
from fmqcore.zk.group_state import Mode


def _with(w: World, i: int, b: Broker, **other: object) -> World:
    brokers = (*w.brokers[:i], b, *w.brokers[i + 1 :])
    return w._replace(brokers=brokers, **other)  # type: ignore[arg-type]


def successors(w: World, p: Protocol) -> Iterator[tuple[str, World]]:
    """Yield every event that can happen now; a stream to a former master ends with it."""
    for label, after in _events(w, p):
        yield label, _tidy(after) if w.started else after


def _tidy(w: World) -> World:
    masters = [b.view.master for b in w.brokers]
    pairs = [(m, s) for m in range(len(masters)) for s in range(len(masters)) if m != s]
    sound = {stream_of(m, s) for m, s in pairs if masters[m] == m == masters[s]}
    return w if w.links <= sound else w._replace(links=w.links & sound)


def _events(w: World, p: Protocol) -> Iterator[tuple[str, World]]:
    for i, b in enumerate(w.brokers):
        yield from _faults(w, i, b)
        if b.up:
            yield from _zookeeper(w, i, b, p)
            yield from _flying(w, i, b, p)
            yield from _own_steps(w, i, b, p)
    yield from _streams(w, p)
    if w.started:
        yield from _data(w, p)


def _faults(w: World, i: int, b: Broker) -> Iterator[tuple[str, World]]:
    if i in w.nodes and not b.lease and not (b.up and b.conn and b.stands):
        yield f"expire {i}", w._replace(nodes=w.nodes - {i})
    if not b.up:
        again = Broker(
            stands=False, view=w.zk, rec=b.rec, installed=b.installed,
            promise=i != w.zk.master, live=b.live, has=b.has,
        )  # fmt: skip
        yield f"restart {i}", _with(w, i, again)
        return
    if b.conn and w.cuts:
        yield f"cut {i}", _with(w, i, b._replace(conn=False), cuts=w.cuts - 1)
    if not b.conn:
        stands = b.stands and i in w.nodes
        mended = b._replace(conn=True, stands=stands, stood=b.stood and stands)
        yield f"mend {i}", _with(w, i, mended)
        if b.lease:
            yield f"lapse {i}", _with(w, i, b._replace(lease=False))
    if w.crashes:
        dead = Broker(up=False, stands=False, rec=b.rec, installed=b.installed, has=b.has)
        others = range(len(w.brokers))
        links = w.links - {n for o in others for n in (stream_of(o, i), stream_of(i, o))}
        after = w._replace(links=links, crashes=w.crashes - 1)
        yield f"crash {i}", _with(after, i, dead)
        if b.flying is not None and b.current and i in w.nodes:
            yield f"crash {i}, landed", _with(_written(after, b.flying, b.rec, i), i, dead)


def _zookeeper(w: World, i: int, b: Broker, p: Protocol) -> Iterator[tuple[str, World]]:
    if not b.conn:
        return
    if not b.stands and i in w.nodes:
        yield f"remove old node {i}", w._replace(nodes=w.nodes - {i})
    elif not b.stands:
        stands = _inherit(w, i, b._replace(stands=True), p)
        yield f"announce {i}", _with(w, i, stands, nodes=w.nodes | {i})
    elif b.flying is None:
        if not b.looking and _may_look(w, i, b, p):
            seen = _read_state(w, b) if p.state_first else b._replace(live=w.nodes)
            yield f"look {i}", _with(w, i, seen._replace(looking=True))
        if b.looking:
            seen = b._replace(live=w.nodes) if p.state_first else _read_state(w, b)
            looked = _with(w, i, seen._replace(looking=False))
            for gone_long in (False, True):
                for wanted in _wishes(w, i, seen):
                    d = decision_of(looked, i, p, fresh=True, gone_long=gone_long, wanted=wanted)
                    yield f"decide {i} {d.action.value}", _take(looked, i, d, p)
        yield from _renewal(w, i, b)
        if w.stops and i == w.zk.master:
            yield from _stop(w, _read_state(w, b)._replace(live=w.nodes), p)
        if w.stops and i == w.zk.reader != w.zk.master:
            yield from _stop_reader(w, i, _read_state(w, b)._replace(live=w.nodes), p)


def _wishes(w: World, i: int, b: Broker) -> Iterator[int]:
    """The brokers it may believe to be wanted: configurations change, and are seen late."""
    yield b.view.master
    if w.moves:
        yield from (j for j in range(len(w.brokers)) if j != b.view.master)
    elif b.view.successor and b.view.reader == i:
        yield i


def _stop(w: World, seen: Broker, p: Protocol) -> Iterator[tuple[str, World]]:
    """An orderly stop: the gate closes, the live node goes, then the reads are given away."""
    i = w.zk.master
    looked = _with(w, i, seen._replace(looking=False), stops=w.stops - 1)
    d = decision_of(looked, i, p, fresh=True, gone_long=False, stopping=True)
    if d.action is Action.YIELD and d.edit is not None:
        leaving = seen._replace(
            looking=False, tenure=0, lease=False, stands=False, stood=False,
            flying=from_state(d.edit, seen.view.rec),
        )  # fmt: skip
        yield f"stop {i}", _with(looked, i, leaving, nodes=w.nodes - {i})


def _stop_reader(w: World, i: int, seen: Broker, p: Protocol) -> Iterator[tuple[str, World]]:
    """An orderly stop while the master is gone: the record is frozen, and goes into the state.

    Its live node may go first, as its session may end at any moment.
    """
    looked = _with(w, i, seen._replace(looking=False), stops=w.stops - 1)
    d = decision_of(looked, i, p, fresh=True, gone_long=False, stopping=True)
    if d.action is Action.FREEZE:
        looked = _take(looked, i, d, p)
        d = decision_of(looked, i, p, fresh=True, gone_long=False, stopping=True)
    if d.action is Action.HAND_OVER:
        looked = _take(looked, i, d, p)
        leaving = looked.brokers[i]._replace(stands=False, stood=False)
        yield f"stop {i}", _with(looked, i, leaving, nodes=w.nodes - {i})


def _may_look(w: World, i: int, b: Broker, p: Protocol) -> bool:
    if not b.current or b.live != w.nodes or b.unsettled:
        return True
    seen = (
        decision_of(w, i, p, fresh=False, gone_long=long, wanted=wanted)
        for long in (False, True)
        for wanted in _wishes(w, i, b)
    )
    return any(d.action is Action.LOOK for d in seen)


def _inherit(w: World, i: int, b: Broker, p: Protocol) -> Broker:
    """The broker's live node is recreated: does it keep its tenure?"""
    tenure = Tenure(Epoch(b.tenure), 1)
    kept = after_announce(tenure, 2, granted_now=i == b.view.master and granted(w, i, p))
    if kept is None and p.new_term_after_gap:
        return b._replace(tenure=0)
    return b._replace(stood=True)


def _read_state(w: World, b: Broker) -> Broker:
    tenure = b.tenure if b.tenure == w.zk.epoch else 0
    if w.zk.master != b.view.master:  # bytes settled under another master are forgotten
        b = b._replace(heard=EMPTY, grants=EMPTY, got=None)
    return b._replace(
        view=w.zk,
        current=True,
        unsettled=False,
        maybe=EMPTY,
        tenure=tenure,
        lease=b.lease and bool(tenure),
    )


def _renewal(w: World, i: int, b: Broker) -> Iterator[tuple[str, World]]:
    if b.tenure and b.stood and not b.lease and i in w.nodes:
        seen = _read_state(w, b)
        yield f"renew {i}", _with(w, i, seen._replace(lease=bool(seen.tenure)))


def _take(w: World, i: int, d: Decision, p: Protocol) -> World:
    """The decided step, until its compare-and-set is in flight."""
    b = w.brokers[i]
    match d.action:
        case Action.CLAIM | Action.HAND_OVER | Action.OPEN | Action.TAKE_OVER:
            assert d.edit is not None
            if d.edit.epoch > MAX_EPOCH:
                return w
            if d.action is Action.OPEN:
                term = record_term(to_state(b.view))
                handed = b.got is not None and b.got[:2] == (b.view.reader, term)
                rec = b.got[2] if b.got is not None and handed else b.view.rec
                if b.view.base and p.carries_record:
                    rec = max(rec, b.rec)
                b = b._replace(installed=max(b.installed, rec))
                w = _begin(w, i, int(d.edit.epoch))
            served = d.action is Action.TAKE_OVER and b.frozen and p.carries_record
            rec = b.rec if d.edit.offsets_final or (served and p.records_fit) else b.view.rec
            flying = from_state(d.edit, 0 if d.action is Action.OPEN else rec)
            if d.action is Action.TAKE_OVER and not b.view.successor:
                w = w._replace(moves=max(0, w.moves - 1))
            return _with(w, i, b._replace(flying=flying, tenure=0, lease=False, stood=True))
        case Action.FREEZE:
            term = record_term(to_state(b.view))
            return _with(w, i, b._replace(frozen=term, tenure=0, lease=False))
        case Action.SEND_RECORD:
            to = b.view.master
            return _with(w, to, w.brokers[to]._replace(got=(i, b.frozen, b.rec)))
        case Action.MOVE:
            assert d.edit is not None
            flying = from_state(d.edit, b.view.rec)
            gone = b._replace(flying=flying, tenure=0, lease=False, stood=True)
            successor = w.brokers[flying.reader]._replace(same=True)
            after = _with(w, i, gone, moves=max(0, w.moves - 1))
            return _with(after, flying.reader, successor)
        case _:
            return w


def _begin(w: World, i: int, epoch: int) -> World:
    """The EPOCH batch is written before the compare-and-set."""
    if not w.started:
        return w
    others = {3 * epoch + j for j in range(3)} - {3 * epoch + i}
    fault = "two histories in one epoch" if others & w.started else w.fault
    return w._replace(started=w.started | {3 * epoch + i}, fault=fault)


def _flying(w: World, i: int, b: Broker, p: Protocol) -> Iterator[tuple[str, World]]:
    if b.flying is None:
        return
    if b.flying.successor and p.waits_for_successor and w.brokers[b.flying.reader].has != b.has:
        yield f"in vain {i}", _with(w, i, b._replace(flying=None))
        return
    lost = b._replace(flying=None, unsettled=True, current=False)
    if not b.current:
        yield f"refused {i}", _with(w, i, b._replace(flying=None, maybe=EMPTY))
    elif b.conn:
        yield f"land {i}", _land(w, i, b, b.flying, p)
    elif i in w.nodes:
        yield f"land unseen {i}", _with(_written(w, b.flying, b.rec, i), i, lost)
    if not b.conn:
        yield f"drop {i}", _with(w, i, lost)


def _written(w: World, new: Zk, rec: int, i: int) -> World:
    """The state is `new` from now on: all other views are stale."""
    fault = ""
    acked = w.acked
    if new.epoch not in (w.zk.epoch, w.zk.epoch + 1):
        fault = f"the epoch went from {w.zk.epoch} to {new.epoch}"
    if new.mode is Mode.SLAVE_CONSUME and new.epoch != w.zk.epoch:
        lost_reader = w.zk.mode is Mode.MASTER or w.zk.reader != new.reader
        acked = max(rec, w.zk.rec) if lost_reader else acked
    if new.mode is Mode.MASTER and new.epoch != w.zk.epoch and not new.base:
        installed = w.brokers[new.master].installed
        if w.brokers[new.master].has[: len(w.committed)] != w.committed:
            fault = "a term is opened without what was acknowledged"
        if not new.degraded and installed < acked:
            fault = "READ is given back before the offsets"
        acked = min(acked, installed) if new.degraded else acked
    brokers = tuple(o._replace(current=False) for o in w.brokers)
    return w._replace(zk=new, brokers=brokers, acked=acked, fault=fault)


def _land(w: World, i: int, b: Broker, new: Zk, p: Protocol) -> World:
    """Written and answered; the broker's own term starts."""
    after = _written(w, new, b.rec, i)
    own = b._replace(flying=None, view=new, current=True, maybe=EMPTY)
    now_ours = new.epoch != w.zk.epoch and (new.mode is Mode.MASTER or new.reader == i)
    now_ours = now_ours and not new.base
    if new.master != w.zk.master:
        own = own._replace(heard=EMPTY, grants=EMPTY)
    if now_ours and new.mode is not Mode.HANDOVER:
        own = own._replace(tenure=new.epoch, lease=b.stood and i in w.nodes)
        own = _inherit(after, i, own, p) if own.stands and not own.stood else own
    if new.mode is Mode.SLAVE_CONSUME and now_ours:
        own = own._replace(frozen=0, rec=max(b.rec, w.zk.rec))
    if new.mode is Mode.MASTER:
        own = own._replace(got=None)
    return _with(after, i, own)


def _own_steps(w: World, i: int, b: Broker, p: Protocol) -> Iterator[tuple[str, World]]:
    slave = i != b.view.master
    if b.flying is None and not b.looking and slave:
        d = decision_of(w, i, p, fresh=False, gone_long=False)
        if d.action in (Action.FREEZE, Action.SEND_RECORD):
            yield f"{d.action.value} {i}", _take(w, i, d, p)
    if slave and b.view.mode is Mode.SLAVE_CONSUME and serves(w, i, p):
        if b.rec < MAX_REC:
            yield f"ack {i}", _with(w, i, b._replace(rec=b.rec + 1), acked=b.rec + 1)
        if b.conn and w.zk.epoch == b.tenure and w.zk.rec < b.rec:
            saved = w.zk._replace(rec=b.rec)
            brokers = tuple(o._replace(current=False) for o in w.brokers)
            yield f"checkpoint {i}", w._replace(zk=saved, brokers=brokers)
    if not slave and b.conn and b.flying is None and b.tenure == w.zk.epoch and not b.looking:
        links = slaves_of(w, i)
        for s in sorted(set(range(len(w.brokers))) - {i}):
            joins = s in links and w.brokers[s].has == b.has
            due = joins if s not in w.zk.isr else s not in links
            if w.zk.mode is Mode.MASTER and due:
                new = w.zk._replace(isr=w.zk.isr ^ {s})
                changing = _read_state(w, b)._replace(flying=new, maybe=new.isr)
                yield f"isr {s}", _with(w, i, changing)


def _streams(w: World, p: Protocol) -> Iterator[tuple[str, World]]:
    for s, b in enumerate(w.brokers):
        i = b.view.master if b.up else w.zk.master
        if i == s:
            continue
        m, stream = w.brokers[i], stream_of(i, s)
        if stream in w.links:
            if w.cuts:
                yield f"unlink {s}", w._replace(links=w.links - {stream}, cuts=w.cuts - 1)
            may = decision_of(w, s, p, fresh=False, gone_long=False).may_grant
            busy = (b.flying is not None or b.unsettled) and not p.grants_while_claiming
            if may and not busy and s not in m.grants:
                granted = _with(w, s, b._replace(promise=True))
                yield f"grant {s}", _with(granted, i, m._replace(grants=m.grants | {s}))
        else:
            if m.up and b.up and m.view.master == i:
                yield f"link {s}", _linked(w, i, s)
            bound = [j for j, o in enumerate(w.brokers) if s in o.grants]
            for j in bound:
                o = w.brokers[j]
                yield f"grant over {s}", _with(w, j, o._replace(grants=o.grants - {s}))
            if not bound and b.promise:
                yield f"promise over {s}", _with(w, s, b._replace(promise=False))


def _linked(w: World, i: int, s: int) -> World:
    """Both agree on their journals: a master that opens a term pulls the slave's suffix."""
    m, b = w.brokers[i], w.brokers[s]
    common = 0
    while common < min(len(m.has), len(b.has)) and m.has[common] == b.has[common]:
        common += 1
    if common == len(m.has) and not m.tenure:
        m = m._replace(has=b.has)
    elif common < len(b.has):
        b = b._replace(has=b.has[:common])
    after = _with(w, s, b)
    heard = m._replace(heard=m.heard | {s})
    return _with(after, i, heard, links=w.links | {stream_of(i, s)})


def _data(w: World, p: Protocol) -> Iterator[tuple[str, World]]:
    """Producers write, slaves follow, the policy (one slave, durable) holds."""
    for i, b in enumerate(w.brokers):
        if not b.up or i != b.view.master:
            continue
        links = slaves_of(w, i)
        for s in sorted(links):
            if w.brokers[s].has != b.has:
                yield f"ship {s}", _with(w, s, w.brokers[s]._replace(has=b.has))
        if serves(w, i, p) & Permission.WRITE:
            if w.writes:
                longer = b._replace(has=(*b.has, b.tenure))
                yield f"write {i}", _with(w, i, longer, writes=w.writes - 1)
            held = [s for s in links & b.view.isr if w.brokers[s].has == b.has]
            if held and w.committed != b.has:
                yield f"commit {i}", w._replace(committed=b.has)
