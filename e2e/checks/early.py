"""I2 and I4 before anything is lost: an OK was told while its policy did not hold, a message was
delivered that was not committed. Pure.

A journal's ends only rise while a broker lives, so what a broker had at some moment is no more than
what is seen a moment later (`_LATER_MS`: longer than the pause between two looks). Nothing is said
where there was no such look: a broker that just ended, or does not answer.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.promise import Copy, Promise, promise_of
from e2e.events import Down, Ends, Place, Stored, Up

_LATER_MS: Final = 250.0
_SHOULD_MS: Final = 2000.0
"""So soon a broker that answers has been looked at again."""
_ANY: Final = 1 << 62
_PROMISING: Final = ("replicated", "all", "persisted")


class _Ends:
    """How far one broker's journal went, at any moment."""

    def __init__(
        self, ends: Sequence[Ends], lives: Sequence[Up | Down], frozen: Sequence[float]
    ) -> None:
        self._exact = all(e.asked_ms == e.at_ms for e in ends)
        downs = [e for e in lives if isinstance(e, Down)]
        last = [_at_its_end(e) for e in downs if e.durable_end >= 0]
        self._ends = sorted([*ends, *last], key=lambda e: e.asked_ms)
        self._asked = [e.asked_ms for e in self._ends]
        self._downs = [e.at_ms for e in downs]
        self._blind = sorted([*(e.at_ms for e in downs if e.durable_end < 0), *frozen])

    def later(self, at_ms: float) -> Ends | None:
        """No less than what it had then; None: nobody looked."""
        until_ms = at_ms + (_LATER_MS if self._exact else _SHOULD_MS)
        over = self._downs[bisect_left(self._downs, at_ms) :][:1]
        until_ms = min([until_ms, *over])
        if any(at_ms <= blind <= until_ms for blind in self._blind):
            return None
        at = bisect_right(self._asked, min(until_ms, at_ms + _LATER_MS)) - 1
        if at >= 0 and (self._exact or self._asked[at] >= at_ms):
            return self._ends[at]
        following = self._ends[at + 1 : at + 2]
        return following[0] if following and following[0].asked_ms <= until_ms else None


def _at_its_end(down: Down) -> Ends:
    """Of the rest of its journal nothing is known."""
    at_ms = down.at_ms
    return Ends(at_ms, at_ms, down.broker, down.group, 0, _ANY, down.durable_end, _ANY)


def told_early(facts: Facts) -> Iterator[Finding]:
    """I2: an OK before its policy held."""
    ends = _all_ends(facts)
    seen: set[tuple[Place, int | None, float]] = set()
    for outcome in facts.outcome.values():
        if not isinstance(outcome, Stored) or outcome.offset < 0:
            continue
        position = facts.position_after(outcome.place, outcome.offset)
        batch = (outcome.place, position, outcome.at_ms)
        if position is None or batch in seen:
            continue  # one answer for all of its records
        seen.add(batch)
        promise = _promise(facts, outcome)
        if promise is None:
            continue
        if why := _not_held(promise, position, ends, outcome.at_ms):
            sent = facts.sent[outcome.record]
            yield Finding(
                Check.I2,
                outcome.at_ms,
                f"{outcome.who} was told OK (acks={sent.level}) before it was safe: {why}",
                (outcome.who, outcome.place.group),
                outcome.place,
                outcome.offset,
                outcome.record,
            )


def _promise(facts: Facts, outcome: Stored) -> Promise | None:
    sent, setup = facts.sent.get(outcome.record), facts.group(outcome.place.group)
    if sent is None or setup is None or sent.level not in _PROMISING:
        return None
    slack_ms = _SHOULD_MS if facts.looks else _LATER_MS  # a change is seen later, sampled or not
    until_ms = outcome.at_ms + slack_ms
    states = facts.states_between(setup.name, sent.at_ms - slack_ms, until_ms)
    masters = {state.master for state in states if state.master}
    if len(masters) > 1 or len({s.policy for s in facts.setups_of(setup.name)}) > 1:
        return None
    isrs = [frozenset(state.isr) for state in states]
    master = next(iter(masters), setup.master)
    return promise_of(sent.level, setup, isrs, sent.at_ms, outcome.at_ms, master)


def _not_held(promise: Promise, position: int, ends: dict[str, _Ends], at_ms: float) -> str:
    """What shows that no set of brokers held it; "" if one may have."""
    short = _short(ends, promise.master, promise.master_copy, position, at_ms)
    if short:
        return short
    if promise.slave_copy is Copy.NONE:
        return ""
    told = []
    for way in promise.ways:
        shorts = [_short(ends, who, promise.slave_copy, position, at_ms) for who in sorted(way)]
        if not any(shorts):
            return ""
        told.append(next(filter(None, shorts)))
    return "; ".join(told) or "no slave was in sync"


def _short(ends: dict[str, _Ends], broker: str, copy: Copy, position: int, at_ms: float) -> str:
    seen = ends[broker].later(at_ms) if broker in ends else None
    if seen is None:
        return ""
    end = seen.durable_end if copy is Copy.DISK else seen.end
    if end >= position:
        return ""
    what = "durable" if copy is Copy.DISK else "there"
    return f"on {broker} only {end} is {what} at {seen.at_ms:.0f} ms, it ends at {position}"


def read_early(facts: Facts) -> Iterator[Finding]:
    """I4: delivered although nobody had committed it."""
    ends = _all_ends(facts)
    checked: dict[tuple[Place, int | None], float] = {}  # batch → its first delivery
    for event in facts.delivered:
        position = facts.position_after(event.place, event.offset)
        batch = (event.place, position)
        if position is None or checked.get(batch, event.at_ms + 1) <= event.at_ms:
            continue  # it was committed before
        setup = facts.group(event.place.group)
        if setup is None:
            continue
        if facts.truth(event.place).records.get(event.offset) != event.record:
            continue
        checked[batch] = event.at_ms
        seen = [ends[name].later(event.at_ms) if name in ends else None for name in setup.members]
        if all(each is not None and each.commit_end < position for each in seen):
            committed = max(each.commit_end for each in seen if each is not None)
            text = f"delivered to {event.who}: it ends at {position}, {committed} is committed"
            yield Finding(
                Check.I4,
                event.at_ms,
                text,
                (event.who, event.place.group),
                event.place,
                event.offset,
                event.record,
            )


def _all_ends(facts: Facts) -> dict[str, _Ends]:
    frozen: dict[str, list[float]] = {}
    for broker, from_ms, to_ms in facts.losses.frozen:
        frozen.setdefault(broker, []).extend((from_ms, to_ms))
    return {
        broker: _Ends(ends, facts.lives.get(broker, ()), frozen.get(broker, ()))
        for broker, ends in facts.ends.items()
    }
