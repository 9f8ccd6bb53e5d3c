"""Which confirmed acks of consumers may be lost. Pure.

With a master an ack is stored as the group's policy says. With a slave that reads in its place it
is in that slave's fsynced side journal, and in ZooKeeper a moment later (`checkpoint_ms`): if the
slave does not live to hand its offsets over, what it confirmed since may come again (ADR 0007).
"""

from typing import Final

from e2e.checks.facts import Confirmed, Facts
from e2e.checks.promise import may_lose, promise_of
from e2e.events import Down, Place, State
from fmqcore.cluster import Mode

LEASE_MS: Final = 3000.0
"""A reader that lost ZooKeeper may confirm without a checkpoint for as long as its lease holds."""


def excuse(facts: Facts, place: Place, confirmed: Confirmed, now_ms: float) -> str:
    """Why that ack may count for nothing now; "" if it must count."""
    setup = facts.group(place.group)
    if setup is None:
        return ""
    for state in facts.states_between(place.group, confirmed.acked_ms, confirmed.at_ms):
        if state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER):
            why = _taker_lost(facts, state, confirmed.at_ms, now_ms)
        else:
            isr = frozenset(state.isr)
            master = state.master or setup.master
            promise = promise_of(
                "replicated", setup, [isr], confirmed.acked_ms, confirmed.at_ms, master
            )
            why = may_lose(promise, facts.losses.all) if facts.losses.all else ""
        if why:
            return why
    return ""


def _taker_lost(facts: Facts, state: State, confirmed_ms: float, now_ms: float) -> str:
    """A reader that did not hand over, and could not checkpoint what it had confirmed last."""
    later = [s for s in facts.states[state.group] if s.at_ms > state.at_ms and s.at_ms <= now_ms]
    end = next((s for s in later if (s.mode, s.reader) != (state.mode, state.reader)), None)
    if end is None or end.mode is Mode.HANDOVER:
        return ""
    if state.mode is Mode.HANDOVER and not end.degraded:
        return ""
    down = [
        e.at_ms
        for e in facts.lives.get(state.reader, ())
        if isinstance(e, Down) and state.at_ms <= e.at_ms <= end.at_ms
    ]
    over_ms = min([*down, end.at_ms])
    window_ms = facts.setups[-1].checkpoint_ms + LEASE_MS
    if confirmed_ms < over_ms - window_ms:
        return ""
    return f"{state.reader} was lost at {over_ms:.0f} ms before it handed its offsets over"
