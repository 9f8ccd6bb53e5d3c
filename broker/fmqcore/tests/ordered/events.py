"""The events of the small world (`world.py`): what may happen next."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fmqcore.ids import Offset
from fmqcore.ordered.evidence import Action, Decision, Duty, Evidence, Serving
from fmqcore.ordered.lowering import short_segment
from fmqcore.ordered.machine import decide
from fmqcore.ordered.sending import AckEvidence, OrderedBatch, Verdict
from fmqcore.ordered.subscriptions import add_subscription, remove_subscription
from fmqcore.tests.ordered.losses import with_cut_progress
from fmqcore.tests.ordered.world import (
    BOTH,
    CHAINS,
    CONSUMER,
    GROUPS,
    NEVER,
    NOW,
    PARAMS,
    SENDERS,
    Client,
    Group,
    Protocol,
    Size,
    World,
    ends_of,
    master_view,
    number_of,
    reads_old,
    record_at,
    sender_evidence,
    view_of,
)
from fmqcore.zk.chain import Chain, PerQueue

Event = tuple[str, World]


def successors(w: World, p: Protocol, size: Size) -> Iterator[Event]:
    """Return every event that may happen next, with the world after it."""
    yield from _coordinator(w, p, size)
    for i in (0, 1):
        yield from _brokers(w, i, p, size)
        yield from _faults(w, i)
        yield from _acks(w, i, p, size)
        yield from _ends(w, i, p, size)
        yield from _reads(w, i, p, size)
    for i in range(size.senders):
        yield from _client(w, i, p, size)
    if w.faults.expiries and len(w.line) > 1:
        left = w.faults._replace(expiries=w.faults.expiries - 1)
        yield "the first sender's node goes", w._replace(line=w.line[1:], faults=left)
    if w.flying is not None and w.flying[0] == w.chain:
        yield "write lands", w._replace(chain=w.flying[1], flying=None)


# ---- the coordinator


def _coordinator(w: World, p: Protocol, size: Size) -> Iterator[Event]:
    key, evidence = sender_evidence(w, p, size.queues)
    chain = CHAINS[w.chain]
    made = _decide(Duty.SEND, chain, evidence, ("send", key), p)
    if made.action is Action.CLOSE and made.edit is not None:
        yield "close", w._replace(chain=number_of(made.edit), flying=None)
    elif made.edit is not None and chain.next_number <= size.segments:
        yield from _fly(w, made)
    if w.faults.switches and chain.last is not None and chain.closing is None:
        left = w.faults._replace(switches=w.faults.switches - 1)
        closed = replace(chain, closing="planned")
        yield "close as planned", w._replace(chain=number_of(closed), faults=left, flying=None)
    made = _decide(Duty.TIDY, chain, Evidence(), ("tidy", w.chain), p)
    if made.edit is not None:
        yield "drop", w._replace(chain=number_of(made.edit), flying=None)
    if w.faults.starts:
        yield "the consumer group is made again", _start_again(w, chain)


def _start_again(w: World, chain: Chain) -> World:
    """It is deleted where no broker group hears of that, and added again under its name."""
    left, floor = w.faults._replace(starts=w.faults.starts - 1), chain.floor
    again = add_subscription(remove_subscription(chain, CONSUMER), CONSUMER, latest=False)
    dropped = floor.last_sequence or (0,) * chain.queues
    consumed = tuple((floor.sender_epoch, sequence) for sequence in dropped)
    return w._replace(chain=number_of(again), faults=left, consumed=consumed, flying=None)


def _decide(duty: Duty, chain: Chain, evidence: Evidence, key: object, p: Protocol) -> Decision:
    """Return the decision; cached, for most worlds differ elsewhere."""
    made = p.memo.get(key)
    if made is None:
        made = p.memo[key] = decide(duty, chain, evidence, NOW, PARAMS, p.rules)
    return made


def _fly(w: World, made: Decision) -> Iterator[Event]:
    """The write lands at once; or later, if the chain is still as it was read; or never."""
    assert made.edit is not None
    after = number_of(made.edit)
    yield f"{made.action.value} {made.segment}", w._replace(chain=after, flying=None)
    if w.faults.delays and w.flying is None:
        left = w.faults._replace(delays=w.faults.delays - 1)
        label = f"{made.action.value} {made.segment} is decided"
        yield label, w._replace(flying=(w.chain, after), faults=left)


# ---- brokers


def _with(w: World, i: int, g: Group) -> World:
    return w._replace(groups=(g, w.groups[1]) if i == 0 else (w.groups[0], g))


def _brokers(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    g, name = w.groups[i], GROUPS[i]
    if g.linked and len(g.slave) < len(g.master):
        longer = g.master[: len(g.slave) + 1]
        yield f"{name} replicates", _with(w, i, g._replace(slave=longer))
    if g.linked:
        yield from _in_sync(w, i)
    if g.lease:
        yield f"{name}'s lease ends", _with(w, i, g._replace(lease=False))
    if g.master_up and not g.taken_over and _reads_chain(g, i, CHAINS[w.chain], p):
        yield f"{name} reads the chain", _with(w, i, _read_chain(g, w))
    yield from _returns(w, i, p, size)


def _reads_chain(g: Group, i: int, chain: Chain, p: Protocol) -> bool:
    """A master renews its lease on an open segment; asked for its ends, it reads the chain."""
    if chain.last is None or chain.closing is not None:
        return chain.last is not None and reads_old(g, chain) and not p.view_outlives_term
    return not g.lease and chain.last.group == GROUPS[i]


def _read_chain(g: Group, w: World) -> Group:
    """The lease is on an open segment: a master that sees it closing renews nothing."""
    chain = CHAINS[w.chain]
    opened = chain.last is not None and chain.closing is None
    return g._replace(view=master_view(chain), lease=opened)


def _in_sync(w: World, i: int) -> Iterator[Event]:
    g, name = w.groups[i], GROUPS[i]
    length = len(g.slave)
    if not g.in_sync or g.held is None:
        if g.slave == g.master:
            joined = g._replace(in_sync=True, held=length, durable=length, wiped=False)
            yield f"{name}'s slave is in sync", _with(w, i, joined)
    elif g.held < length:
        acked = g._replace(held=length, durable=max(g.durable, length))
        yield f"{name}'s slave acks", _with(w, i, acked)


def _returns(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    """Restarts, links, failover."""
    g, name = w.groups[i], GROUPS[i]
    view = g.view if p.view_outlives_term else None
    term = g._replace(master_up=True, view=view, lease=False, held=None)
    if not g.slave_up:
        yield f"{name}'s slave starts", _with(w, i, g._replace(slave_up=True))
    if g.taken_over and w.faults.wipes:
        left = w._replace(faults=w.faults._replace(wipes=w.faults.wipes - 1))
        alone = term._replace(taken_over=False, linked=False, slave=(), in_sync=False)
        alone = alone._replace(wiped=True, lost=True)
        cut = with_cut_progress(_with(left, i, alone), i, p, size)
        yield f"{name}'s slave is lost, its master goes on", cut
    if g.taken_over and g.slave_up:
        whole = g.slave if len(g.slave) > len(g.master) else g.master
        back = term._replace(taken_over=False, linked=True, master=whole, durable=len(whole))
        yield f"{name}'s master takes the reads back", _with(w, i, back)
    elif not g.master_up and not g.in_sync:
        yield f"{name}'s master starts alone", _with(w, i, term)
    elif not g.master_up and g.slave_up:
        whole = g.slave if len(g.slave) > len(g.master) else g.master
        back = term._replace(linked=True, master=whole, durable=len(whole))
        yield f"{name}'s master starts", _with(w, i, back)
    if g.taken_over or g.linked:
        return
    if g.master_up and g.slave_up:
        yield f"{name} links", _with(w, i, g._replace(linked=True, slave=_common(g)))
    if g.slave_up and g.in_sync:
        yield f"{name}'s slave claims", _with(w, i, g._replace(taken_over=True))
    if g.master_up and g.in_sync:
        yield f"{name} goes on alone", _with(w, i, g._replace(in_sync=False))


def _common(g: Group) -> tuple[Any, ...]:
    """A slave keeps what it has in common with its master."""
    n = next(
        (n for n, (a, b) in enumerate(zip(g.master, g.slave, strict=False)) if a != b),
        min(len(g.master), len(g.slave)),
    )
    return g.slave[:n]


def _faults(w: World, i: int) -> Iterator[Event]:
    g, name = w.groups[i], GROUPS[i]
    if w.faults.deaths:
        left = w._replace(faults=w.faults._replace(deaths=w.faults.deaths - 1))
        if g.master_up:
            dead = g._replace(master_up=False, linked=False, lease=False, held=None)
            kept = dead._replace(durable=len(g.master))
            yield f"{name}'s master dies", _with(left, i, kept)
            if g.durable < len(g.master):
                lost = dead._replace(master=g.master[: g.durable])
                yield f"{name}'s master dies, its tail is lost", _with(left, i, lost)
        if g.slave_up:
            dead = g._replace(slave_up=False, linked=False)
            yield f"{name}'s slave dies", _with(left, i, dead)
    if w.faults.cuts and g.linked:
        left = w._replace(faults=w.faults._replace(cuts=w.faults.cuts - 1))
        yield f"{name}'s stream breaks", _with(left, i, g._replace(linked=False))


# ---- sends


def _client(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    c, name, chain = w.clients[i], SENDERS[i], CHAINS[w.chain]
    last = chain.last
    if last is None or c.fenced:
        return
    own = chain.sender.id == name
    if own and chain.closing is not None and last.number == c.segment:
        report = (c.segment, c.unacked)
        if c.report is None or (c.report[0] != c.segment and not p.report_stays):
            yield f"{name} reports {c.unacked}", _with_client(w, i, c._replace(report=report))
    if own and chain.closing is None and last.number > c.segment:
        yield f"{name} follows to {last.number}", _follow(w, i, p)
        return
    for queue in range(size.queues if c.segment else 0):
        if c.next[queue] <= size.messages:
            yield from _send(w, i, queue, p, size)


def _with_client(w: World, i: int, c: Client) -> World:
    return w._replace(clients=(c, w.clients[1]) if i == 0 else (w.clients[0], c))


def _follow(w: World, i: int, p: Protocol) -> World:
    c, segment = w.clients[i], CHAINS[w.chain].last
    assert segment is not None
    first = segment.first_sequence
    fault = ""
    if c.segment and any(f != u for f, u in zip(first, c.unacked, strict=True)):
        fault = f"the segment starts with {first}, the sender has all from {c.unacked} on"
    number, group = segment.number, GROUPS.index(segment.group)
    report = c.report if p.report_stays else None
    follows = Client(number, group, segment.sender_epoch, first, first, report)
    return _with_client(w, i, follows)._replace(fault=fault)


def _send(w: World, i: int, queue: int, p: Protocol, size: Size) -> Iterator[Event]:
    c, name = w.clients[i], SENDERS[i]
    g = w.groups[c.group]
    if not g.master_up:
        return
    batch = OrderedBatch(name, c.segment, c.epoch, queue, c.next[queue], 1)
    made, g = _judge(w, c.group, g, batch, p, size)
    if made is None:
        return
    w = _with(w, c.group, g)
    following = tuple(n + (q == queue) for q, n in enumerate(c.next))
    label = f"{name} sends {c.next[queue]}" + (f" of queue {queue}" if size.queues > 1 else "")
    label += f" to {GROUPS[c.group]}: {made.value}"
    if made is Verdict.APPEND:
        g = g._replace(master=(*g.master, (queue, c.epoch, c.next[queue])))
        yield label, _with_client(_with(w, c.group, g), i, c._replace(next=following))
    elif made is Verdict.DUPLICATE:
        yield label, _with_client(w, i, c._replace(next=following))
    elif made is Verdict.GAP and c.next != c.unacked:
        yield label, _with_client(w, i, c._replace(next=c.unacked))
    elif made is Verdict.FENCED:
        yield label, _with_client(w, i, c._replace(fenced=True))


def _judge(
    w: World, i: int, g: Group, batch: OrderedBatch, p: Protocol, size: Size
) -> tuple[Verdict | None, Group]:
    """The master's verdict; it reads the chain first if the batch names what it has not read."""
    end = Offset(ends_of(g.master, size.queues)[batch.queue])
    if g.view is not None:
        made = p.judge(CHAINS[g.view], GROUPS[i], dict(g.sealed), end, batch).verdict
        if made is not Verdict.STALE_CHAIN:
            return made, g
    if g.taken_over:
        return None, g
    g = _read_chain(g, w)
    return p.judge(CHAINS[w.chain], GROUPS[i], dict(g.sealed), end, batch).verdict, g


def _acks(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    """The master acknowledges all that it may; an ack of a segment that was reported is ignored."""
    g = w.groups[i]
    if not g.master_up or g.view is None or (not g.held and not p.acks_by_in_sync_set):
        return
    view, held = CHAINS[g.view], g.held or 0
    last = view.last
    if last is None or last.group != GROUPS[i]:
        return
    if p.acks_by_in_sync_set and not g.in_sync:
        held = len(g.master)  # as if its own disk were all that an ack needs
    evidence = AckEvidence(BOTH, BOTH, 1, 1, NEVER if g.lease else 0, 0, 0)
    if p.may_ack(view, dict(g.sealed), last.number, evidence, NOW) is not None:
        return
    ends = ends_of(g.master[:held], size.queues)
    acked = tuple(
        f + max(0, e - s) for f, e, s in zip(last.first_sequence, ends, last.start, strict=True)
    )
    sender = next((n for n, c in enumerate(w.clients) if c.epoch == last.sender_epoch), None)
    if sender is None:
        return
    c = w.clients[sender]
    reported = c.report is not None and c.report[0] == last.number and not p.acks_after_report
    if c.segment != last.number or reported:
        return
    top = tuple(min(max(a, u), n) for a, u, n in zip(acked, c.unacked, c.next, strict=True))
    if top != c.unacked:
        fault = _late_ack(w, last.number, ends)
        label = f"{GROUPS[i]} acks {SENDERS[sender]} below {top}"
        yield label, _with_client(w, sender, c._replace(unacked=top))._replace(fault=fault)


def _late_ack(w: World, number: int, ends: PerQueue) -> str:
    """An ack after the segment's end, or after sends went on without its end."""
    segment = CHAINS[w.chain].segment(number)
    if segment is None:
        return ""
    if segment.end_unknown:
        return "an ack after the end was declared unknown"
    if segment.end is not None and any(e > b for e, b in zip(ends, segment.end, strict=True)):
        return "an ack above the segment's end"
    return ""


# ---- ends


def _ends(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    g, chain = w.groups[i], CHAINS[w.chain]
    due = chain.closing is not None or any(s.end_unknown for s in chain.segments)
    yield from _lower(w, i, p, size)
    if g.master_up and due:
        held = len(g.master) if p.seals_at_own_end else g.held
        ends = None if held is None else ends_of(g.master[:held], size.queues)
        evidence = Evidence(
            group=GROUPS[i], serving=Serving.MASTER, sealed=dict(g.sealed), held=ends
        )
        yield from _end(w, i, evidence, p)
    if due and g.slave_up and (g.taken_over or p.reader_before_claim):
        ends = ends_of(g.slave, size.queues)
        evidence = Evidence(group=GROUPS[i], serving=Serving.READER, durable_ends=ends)
        yield from _end(w, i, evidence, p)


def _lower(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    """The master of a whole group that does not reach an end lowers it."""
    g, chain = w.groups[i], CHAINS[w.chain]
    ends = view_of(g, size.queues, chain, p).ends
    if ends is None or short_segment(chain, GROUPS[i], ends) is None:
        return
    evidence = Evidence(
        group=GROUPS[i],
        serving=Serving.MASTER,
        whole_ends=ends,
        progress={CONSUMER: w.progress[i]},
    )
    made = _decide(Duty.END, chain, evidence, ("lower", w.chain, i, ends, w.progress[i]), p)
    if made.action is Action.LOWER_END:
        yield from _fly(w, made)


def _end(w: World, i: int, evidence: Evidence, p: Protocol) -> Iterator[Event]:
    key = ("end", w.chain, i, evidence.serving, w.groups[i].sealed, evidence.held)
    made = _decide(Duty.END, CHAINS[w.chain], evidence, (*key, evidence.durable_ends), p)
    if made.action is Action.SEAL:
        g = w.groups[i]
        sealed = g._replace(sealed=(*g.sealed, (made.segment, made.end or ())))
        yield f"{GROUPS[i]} seals {made.segment}", _with(w, i, sealed)
    elif made.edit is not None:
        yield from _fly(w, made)


# ---- consumers


def _reads(w: World, i: int, p: Protocol, size: Size) -> Iterator[Event]:
    g, chain = w.groups[i], CHAINS[w.chain]
    if all(s.group != GROUPS[i] for s in chain.segments):
        return
    up = g.slave_up if g.taken_over else g.master_up
    if not up:
        return
    journal = g.slave if g.taken_over else g.master
    held = len(journal) if p.shows_unheld else g.held
    ends = None if held is None else ends_of(journal[:held], size.queues)
    serving = Serving.READER if g.taken_over else Serving.MASTER
    w = _follow_start(w, i, chain, p)
    for queue in range(size.queues):
        segment = chain.segment((chain.heads_of(CONSUMER) or ())[queue])
        if segment is None:
            continue
        read = replace(chain, closing=None) if _seems_open(g, segment.number, p) else chain
        at = None if ends is None else ends[queue]
        stored = ends_of(journal, size.queues)[queue]
        visible = p.shown_end(read, segment, queue, serving, at, stored)
        shown = p.window(chain, CONSUMER, queue, GROUPS[i], w.progress[i][queue], visible)
        if shown.first > w.progress[i][queue]:
            yield "the consumer skips", _with_progress(w, i, queue, shown.first)
        if shown.first >= shown.end:
            continue
        record = record_at(journal, queue, shown.first, size.queues)
        if record is not None:
            yield _deliver(w, i, record, shown.first, p)
    evidence = Evidence(group=GROUPS[i], progress={CONSUMER: w.progress[i]})
    made = _decide(Duty.HEADS, chain, evidence, ("heads", w.chain, i, w.progress[i]), p)
    if made.edit is not None and made.edit != chain:
        yield "heads move", w._replace(chain=number_of(made.edit), flying=None)


def _follow_start(w: World, i: int, chain: Chain, p: Protocol) -> World:
    """The broker's progress is void if it counts from another start than the chain's (K18)."""
    number = chain.start_numbers_of(CONSUMER)[0]
    if p.keeps_progress or w.counts[i] == number:
        return w
    zeros = (0,) * chain.queues
    if i == 0:
        return w._replace(progress=(zeros, w.progress[1]), counts=(number, w.counts[1]))
    return w._replace(progress=(w.progress[0], zeros), counts=(w.counts[0], number))


def _seems_open(g: Group, number: int, p: Protocol) -> bool:
    """Whether the master has not read yet that the segment closes, so it shows more."""
    if p.shows_closing:
        return True
    view = None if g.view is None else CHAINS[g.view]
    return (
        view is not None
        and view.last is not None
        and view.last.number == number
        and view.closing is None
        and number not in dict(g.sealed)
    )


def _deliver(w: World, i: int, record: tuple[int, int, int], offset: int, p: Protocol) -> Event:
    queue, epoch, sequence = record
    before_epoch, before = w.consumed[queue]
    expected = before + 1
    fault = ""
    if (
        epoch < before_epoch
        or (sequence != expected and epoch == before_epoch)
        or (epoch > before_epoch and sequence != expected and not p.accepts_unknown)
    ):
        fault = f"the consumer got {(epoch, sequence)} after {(before_epoch, before)}"
    consumed = (*w.consumed[:queue], (epoch, sequence), *w.consumed[queue + 1 :])
    after = _with_progress(w, i, queue, offset + 1)._replace(consumed=consumed, fault=fault)
    return f"{GROUPS[i]} delivers {sequence} of sender epoch {epoch}", after


def _with_progress(w: World, i: int, queue: int, floor: int) -> World:
    """What is below the first offset of a window counts as done, whether or not more is shown."""
    own = tuple(floor if q == queue else n for q, n in enumerate(w.progress[i]))
    return w._replace(progress=(own, w.progress[1]) if i == 0 else (w.progress[0], own))
