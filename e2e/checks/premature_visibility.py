"""Checks I2 and I4 before any loss: an OK before its policy held, a delivery before commit.

Pure. In a simulation, journals are observed whenever a client gets an answer: what was not there
then, and not at any moment since the record was sent, was not there. In a real run there are
samples: a journal's ends only rise while a broker lives, so what a broker had at some moment is no
more than what is seen a moment later (`_LATER_MS`: longer than the pause between two looks).
Nothing is reported where there was no such look: a broker that just ended, or does not answer, or
ended since the record was sent. Its next incarnation knows a lower commit end until its term opens.

A position is about a record only if the batch there in the end is the reported one: the same
record, appended in a term that had started by then.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.promises import Copy, Promise, promise_of
from e2e.history.client_events import Delivered, Place, Stored
from e2e.history.cluster_events import Down, Ends, Up

_LATER_MS: Final = 250.0
_SHOULD_MS: Final = 2000.0
"""Milliseconds within which a broker that answers has been looked at again."""
_ANY: Final = 1 << 62
_PROMISING: Final = ("replicated", "all", "persisted")


class SeenEnds:
    """How far one broker's journal went, at any moment."""

    def __init__(
        self, ends: Sequence[Ends], lives: Sequence[Up | Down], frozen: Sequence[float]
    ) -> None:
        self._exact = all(e.asked_ms == e.at_ms for e in ends)
        downs = [e for e in lives if isinstance(e, Down)]
        last = [_at_its_end(e) for e in downs if e.durable_end >= 0 and not self._exact]
        self._ends = sorted([*ends, *last], key=lambda e: e.asked_ms)
        self._asked = [e.asked_ms for e in self._ends]
        self._downs = [e.at_ms for e in downs]
        self._blind = sorted([*(e.at_ms for e in downs if e.durable_end < 0), *frozen])

    def most(self, since_ms: float, at_ms: float) -> Ends | None:
        """Return no less than what the broker had between the two times; None: no look."""
        if self._exact:
            return self._exactly(since_ms, at_ms)
        over = self._downs[bisect_left(self._downs, since_ms) :][:1]
        if over and over[0] < at_ms:
            return None  # a message can wait at its reader for longer than its broker lives
        return self._later(at_ms)

    def _exactly(self, since_ms: float, at_ms: float) -> Ends | None:
        begin, end = bisect_right(self._asked, since_ms), bisect_right(self._asked, at_ms)
        seen = self._ends[max(0, begin - 1) : end]
        if not seen:
            return None
        return Ends(
            at_ms, at_ms, seen[-1].broker, seen[-1].group, 0,
            max(e.end for e in seen),
            max(e.durable_end for e in seen),
            max(e.commit_end for e in seen),
        )  # fmt: skip

    def _later(self, at_ms: float) -> Ends | None:
        until_ms = at_ms + _SHOULD_MS
        over = self._downs[bisect_left(self._downs, at_ms) :][:1]
        until_ms = min([until_ms, *over])
        if any(at_ms <= blind <= until_ms for blind in self._blind):
            return None
        at = bisect_right(self._asked, min(until_ms, at_ms + _LATER_MS)) - 1
        if at >= 0 and self._asked[at] >= at_ms:
            return self._ends[at]
        following = self._ends[at + 1 : at + 2]
        return following[0] if following and following[0].asked_ms <= until_ms else None


def _at_its_end(down: Down) -> Ends:
    """Return the durable end of a broker that ended; its other ends are not known."""
    at_ms = down.at_ms
    return Ends(at_ms, at_ms, down.broker, down.group, 0, _ANY, down.durable_end, _ANY)


def acked_early(facts: Facts) -> Iterator[Finding]:
    """I2: an OK was reported before its policy held."""
    ends = seen_ends(facts)
    seen: set[tuple[Place, int | None, float]] = set()
    for outcome in facts.outcome.values():
        if not isinstance(outcome, Stored) or outcome.offset < 0:
            continue
        position = _position(facts, outcome)
        batch = (outcome.place, position, outcome.at_ms)
        if position is None or batch in seen:
            continue  # one ack for all its records
        seen.add(batch)
        promise = _promise(facts, outcome)
        if promise is None:
            continue
        if reason := _not_held(promise, position, ends):
            sent = facts.sent[outcome.record]
            yield Finding(
                Check.I2,
                outcome.at_ms,
                f"{outcome.who} got OK (acks={sent.level}) before it was safe: {reason}",
                (outcome.who, outcome.place.group),
                outcome.place,
                outcome.offset,
                outcome.record,
            )


def _position(facts: Facts, report: Stored | Delivered) -> int | None:
    """Return the end of the reported batch; None: it may not be there any more."""
    truth = facts.truth(report.place)
    if truth.records.get(report.offset) != report.record:
        return None
    at = bisect_right(truth.bases, report.offset) - 1
    state = facts.state_at(report.place.group, report.at_ms)
    if state is None or truth.epochs[at] > state.epoch:
        return None  # stored again, after the acked copy was lost
    return truth.positions[at]


def _promise(facts: Facts, outcome: Stored) -> Promise | None:
    sent, name = facts.sent.get(outcome.record), outcome.place.group
    if sent is None or sent.level not in _PROMISING:
        return None
    slack_ms = _SHOULD_MS if facts.looks else _LATER_MS  # a change is seen later, sampled or not
    until_ms = outcome.at_ms + slack_ms
    states = facts.states_between(name, sent.at_ms - slack_ms, until_ms)
    masters = {state.master for state in states if state.master}
    setups = facts.setups_between(name, sent.at_ms - _SHOULD_MS, until_ms)
    if len(masters) > 1 or len(setups) != 1:
        return None
    (setup,) = setups
    isrs = [frozenset(state.isr) for state in states]
    master = next(iter(masters), setup.master)
    return promise_of(sent.level, setup, isrs, sent.at_ms, outcome.at_ms, master)


def _not_held(promise: Promise, position: int, ends: dict[str, SeenEnds]) -> str:
    """Return what shows that no set of brokers held the batch; "" if one may have."""
    short = _short(ends, promise, promise.master, promise.master_copy, position)
    if short:
        return short
    if promise.slave_copy is Copy.NONE:
        return ""
    report = []
    for way in promise.ways:
        shorts = [_short(ends, promise, w, promise.slave_copy, position) for w in sorted(way)]
        if not any(shorts):
            return ""
        report.append(next(filter(None, shorts)))
    return "; ".join(report) or "no slave was in sync"


def _short(
    ends: dict[str, SeenEnds], promise: Promise, broker: str, copy: Copy, position: int
) -> str:
    times = promise.since_ms, promise.reported_ms
    seen = ends[broker].most(*times) if broker in ends else None
    if seen is None:
        return ""
    end = seen.durable_end if copy is Copy.DISK else seen.end
    if end >= position:
        return ""
    what = "durable" if copy is Copy.DISK else "there"
    return f"on {broker} only {end} is {what} at {seen.at_ms:.0f} ms, it ends at {position}"


def read_early(facts: Facts) -> Iterator[Finding]:
    """I4: a message was delivered although no broker had committed it."""
    ends = seen_ends(facts)
    checked: dict[tuple[Place, int | None], float] = {}  # batch → its first delivery
    for event in facts.delivered:
        position = _position(facts, event)
        batch = (event.place, position)
        if position is None or checked.get(batch, event.at_ms + 1) <= event.at_ms:
            continue  # it was committed before
        setup, sent = facts.group(event.place.group), facts.sent.get(event.record)
        if setup is None or sent is None:
            continue
        checked[batch] = event.at_ms
        times = sent.at_ms, event.at_ms
        seen = [ends[name].most(*times) if name in ends else None for name in setup.members]
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


def seen_ends(facts: Facts) -> dict[str, SeenEnds]:
    """Return how far the journal of each broker went, as it was observed."""
    frozen: dict[str, list[float]] = {}
    for broker, from_ms, to_ms in facts.losses.frozen:
        frozen.setdefault(broker, []).extend((from_ms, to_ms))
    return {
        broker: SeenEnds(ends, facts.lives.get(broker, ()), frozen.get(broker, ()))
        for broker, ends in facts.ends.items()
    }
