"""Which acks of consumers may count for nothing, although they were stored. Pure.

With a master, an ack is stored as the group's policy says: the slaves that made it so have it. A
takeover reader that is not one of them reads from what it has itself, and its record of a
consumer's progress wins from then on. With a slave as the reader, an ack is in that slave's fsynced
side journal, and in ZooKeeper a moment later (`checkpoint_ms`): if the slave does not live to hand
its offsets over, messages whose acks it confirmed since may be delivered again (ADR 0007).
"""

from math import inf
from typing import Final

from e2e.checks.facts import Facts
from e2e.checks.progress import Confirmed
from e2e.checks.promises import Promise, may_lose, promise_of
from e2e.history.client_events import Place
from e2e.history.cluster_events import Down, Fault, FaultKind, GroupSetup, State, Step
from fmqcore.zk.group_state import Mode

LEASE_MS: Final = 2000.0
"""Milliseconds of a lease, if the run does not record it.

A reader that lost ZooKeeper may confirm without a checkpoint for as long as its lease holds.
"""
_WRITES_MS: Final = 1000.0
"""Milliseconds that a checkpoint may take, or that the answer about it may be late."""
_BEFORE_MS: Final = 3000.0
"""A fault done to a broker this many milliseconds ago may still keep it from claiming."""


def excuse(facts: Facts, place: Place, confirmed: Confirmed, now_ms: float) -> str:
    """Return why an ack may have been lost by now; "" if it must count."""
    setup = facts.group(place.group)
    if setup is None:
        return ""
    if reason := facts.taken_back(place.group, confirmed.acked_ms):
        return reason
    for state in facts.states_between(place.group, confirmed.acked_ms, confirmed.at_ms):
        if state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER):
            reason = _taker_lost(facts, state, confirmed, now_ms)
            reason = reason or _handed_over(facts, setup, state, confirmed, now_ms)
        else:
            reason = _not_with_the_taker(facts, setup, state, confirmed, now_ms)
        if reason:
            return reason
    return ""


def _handed_over(
    facts: Facts, setup: GroupSetup, state: State, confirmed: Confirmed, now_ms: float
) -> str:
    """Return why the ack may be lost after the hand-over; "" if it may not.

    After a hand-over the ack is as safe as the group's policy makes it, and no safer.
    """
    later = (s for s in facts.states[state.group] if s.at_ms > confirmed.at_ms)
    master = next((s for s in later if s.mode is Mode.MASTER), None)
    if master is None or master.at_ms > now_ms:
        return ""
    stored = confirmed._replace(at_ms=master.at_ms, acked_ms=master.at_ms)
    return _not_with_the_taker(facts, setup, master, stored, now_ms)


def _not_with_the_taker(
    facts: Facts, setup: GroupSetup, state: State, confirmed: Confirmed, now_ms: float
) -> str:
    """Return why the broker that reads later may lack the ack, although the policy held."""
    times = confirmed.acked_ms, confirmed.at_ms
    isrs = [frozenset(state.isr)]
    below = facts.losses.furthest(setup.name, *times)
    promise = promise_of("replicated", setup, isrs, *times, state.master or setup.master, below)
    if promise is None:
        return ""
    if reason := may_lose(promise, [x for x in facts.losses.all if x.from_ms <= now_ms]):
        return reason
    for taken in facts.states_between(setup.name, confirmed.acked_ms, now_ms):
        if taken.mode is not Mode.SLAVE_CONSUME or taken.at_ms <= state.at_ms:
            continue
        if facts.losses.end_at(taken.reader, taken.at_ms) >= promise.below:
            continue  # it had everything at the time of the confirmation
        for way in promise.ways:
            if all(_kept_away(facts, promise, who, taken) for who in sorted(way)):
                return (
                    f"{taken.reader} took over, and {', '.join(sorted(way)) or 'no broker'} had it"
                )
    return ""


def _kept_away(facts: Facts, promise: Promise, who: str, taken: State) -> bool:
    """Whether a holder may have lost the ack, or may have been unable to take over with it."""
    since_ms = promise.since_ms - _BEFORE_MS
    lost = any(
        loss.broker == who
        and loss.takes >= promise.slave_copy
        and since_ms <= loss.from_ms <= taken.at_ms < loss.until_ms
        for loss in facts.losses.all
    )
    if lost or who == taken.reader:
        return lost
    disturbed = any(
        fault.step is Step.FIRED
        and fault.at_ms <= taken.at_ms
        and _healed_ms(facts, fault.number) >= since_ms
        for fault in facts.faults
    )
    ended = any(since_ms <= e.at_ms <= taken.at_ms for e in facts.lives.get(who, ()))
    return disturbed or ended


def _healed_ms(facts: Facts, number: int) -> float:
    healed = (f.at_ms for f in facts.faults if f.number == number and f.step is Step.HEALED)
    return next(healed, inf)


def _taker_lost(facts: Facts, state: State, confirmed: Confirmed, now_ms: float) -> str:
    """Return why a lost reader neither handed over nor checkpointed the ack; "" if it did."""
    later = [s for s in facts.states[state.group] if s.at_ms > state.at_ms and s.at_ms <= now_ms]
    end = next((s for s in later if (s.mode, s.reader) != (state.mode, state.reader)), None)
    since_ms = max(state.at_ms, confirmed.acked_ms)
    lost_ms = _emptied_ms(facts, state.reader, since_ms, now_ms if end is None else end.at_ms)
    if state.mode is Mode.HANDOVER and (end is None or not end.degraded):
        return ""
    if confirmed.reported and lost_ms < confirmed.at_ms:  # stored later, on the present disk
        lost_ms = inf
    if lost_ms == inf:
        if end is None:
            return ""
        if end.mode is Mode.HANDOVER and end.reader == state.reader:
            return ""  # another reader's: a claim in between was not seen (states are polled)
        lost_ms = end.at_ms
    over_ms = _served_until_ms(facts, state.reader, since_ms, lost_ms)
    setup = facts.setups[-1]
    lease_ms = setup.lease_ms if setup.lease_ms >= 0 else LEASE_MS
    window_ms = setup.checkpoint_ms + lease_ms + _WRITES_MS
    stored_ms = confirmed.at_ms if confirmed.reported else confirmed.acked_ms
    if _served_ms(facts, state.reader, stored_ms, over_ms) > window_ms:
        return ""
    return f"{state.reader} was lost at {over_ms:.0f} ms before it handed its offsets over"


def _emptied_ms(facts: Facts, reader: str, since_ms: float, until_ms: float) -> float:
    """Return when the reader lost its disk.

    It may have claimed again, and handed over what was in the state.
    """
    hurt = (f for f in facts.faults if f.on == reader and f.step is Step.FIRED and _takes_side(f))
    return min((f.at_ms for f in hurt if since_ms <= f.at_ms <= until_ms), default=inf)


def _takes_side(fault: Fault) -> bool:
    """Whether the fault destroys the reader's side journal."""
    damaged = fault.kind is FaultKind.DISK_DAMAGE and "takeover" in fault.detail
    return damaged or fault.kind is FaultKind.DISK_EMPTY


def _served_ms(facts: Facts, reader: str, from_ms: float, to_ms: float) -> float:
    """Return for how many milliseconds between the two times the reader served.

    While it may not serve, it has no ZooKeeper to write its checkpoint to, and when it serves again
    it needs a moment for that.
    """
    marks = [(s.at_ms, bool(s.permission)) for s in facts.serves if s.broker == reader]
    marks += [(e.at_ms, False) for e in facts.lives.get(reader, ()) if isinstance(e, Down)]
    served_ms, since_ms, serving = 0.0, from_ms, True
    for at_ms, serves in sorted([*marks, (to_ms, False)]):
        at_ms = min(max(at_ms, from_ms), to_ms)
        served_ms += (at_ms - since_ms) * serving
        since_ms, serving = at_ms, serves
    return served_ms


def _served_until_ms(facts: Facts, reader: str, since_ms: float, lost_ms: float) -> float:
    """Return when the reader last stopped serving before it was lost."""
    own = [s for s in facts.serves if s.broker == reader and s.at_ms <= lost_ms]
    serving_since_ms = max((s.at_ms for s in own if s.permission), default=since_ms)
    ends = [e.at_ms for e in facts.lives.get(reader, ()) if isinstance(e, Down)]
    ends += [s.at_ms for s in own if not s.permission]
    return min(
        (at for at in ends if max(since_ms, serving_since_ms) <= at <= lost_ms), default=lost_ms
    )
