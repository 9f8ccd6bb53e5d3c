"""Check I12: in a calm phase, which starts with a whole cluster, nothing happens.

No broker takes over, no process ends, no send fails or is left unknown, acks are stored and
consumer groups are moved on request, and no message is delivered twice.
"""

from collections.abc import Iterator

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.history.client_events import Stored
from e2e.history.cluster_events import Down, Look, PhaseName, Serves
from fmqcore.ids import Permission


def not_calm(facts: Facts) -> Iterator[Finding]:
    """I12: nothing happens in a calm phase."""
    for from_ms, to_ms in facts.spans(PhaseName.CALM):
        yield from _changes(facts, from_ms, to_ms)
        yield from _permissions(facts, from_ms, to_ms)
        yield from _outcomes(facts, from_ms, to_ms)
        yield from _again(facts, from_ms, to_ms)


def _changes(facts: Facts, from_ms: float, to_ms: float) -> Iterator[Finding]:
    for group, states in sorted(facts.states.items()):
        for state in states:
            if from_ms < state.at_ms <= to_ms:
                text = (
                    f"{group} became {state.mode.value}({state.epoch}), reader {state.reader}, "
                    f"in sync {', '.join(state.isr) or 'none'}: {state.reason}"
                )
                yield Finding(Check.I12, state.at_ms, text, (group,))
    for broker, life in sorted(facts.lives.items()):
        for event in life:
            if from_ms < event.at_ms <= to_ms:
                text = f"{broker} {'ended' if isinstance(event, Down) else 'started'}"
                yield Finding(Check.I12, event.at_ms, text, (broker, event.group))


def _permissions(facts: Facts, from_ms: float, to_ms: float) -> Iterator[Finding]:
    looks: list[tuple[float, Serves | Look]] = [(s.at_ms, s) for s in facts.serves]
    looks += [(s.asked_ms, s) for s in facts.looks]
    for asked_ms, look in looks:
        state = facts.state_at(look.group, look.at_ms)
        if not (from_ms < asked_ms and look.at_ms <= to_ms) or state is None:
            continue
        due = Permission.FULL if look.broker == state.master else Permission.NONE
        if look.permission != due:
            text = f"{look.broker} serves {look.permission.name}, not {due.name}"
            yield Finding(Check.I12, look.at_ms, text, (look.group, look.broker))


def _outcomes(facts: Facts, from_ms: float, to_ms: float) -> Iterator[Finding]:
    """Check the sends that were made and answered in the calm phase."""
    for outcome in facts.outcome.values():
        if isinstance(outcome, Stored) or not from_ms < outcome.at_ms <= to_ms:
            continue
        sent = facts.sent.get(outcome.record)
        if sent is not None and sent.at_ms > from_ms:
            text = f"{type(outcome).__name__.lower()} for {outcome.who}: {outcome.reason}"
            yield Finding(Check.I12, outcome.at_ms, text, (outcome.who,), record=outcome.record)
    for asked in () if facts.looks else facts.in_vain:  # a real machine may be too slow for it
        if from_ms < asked.asked_ms and asked.at_ms <= to_ms:
            yield Finding(
                Check.I12, asked.at_ms, f"{asked.who} got an error: {asked.reason}", (asked.who,)
            )


def _again(facts: Facts, from_ms: float, to_ms: float) -> Iterator[Finding]:
    for readers, place, read in facts.reads():
        moves = [m.at_ms for m in facts.members.get(readers, ()) if m.at_ms <= to_ms]
        for arrival in read.arrivals:
            event, before = arrival.event, arrival.before
            if before is None or arrival.nacked:
                continue
            if not from_ms < before.at_ms <= event.at_ms <= to_ms:
                continue
            if any(before.at_ms - _DRAIN_MS <= moved <= event.at_ms for moved in moves):
                continue  # members joined or left
            text = f"delivered to {readers} twice: {before.at_ms:.0f} and {event.at_ms:.0f} ms"
            about = (before.who, event.who, place.group)
            yield Finding(Check.I12, event.at_ms, text, about, place, event.offset, event.record)


_DRAIN_MS = 5000.0
"""Milliseconds in which queues may move after a member has come or gone."""
