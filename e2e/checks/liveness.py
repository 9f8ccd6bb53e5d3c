"""Check I11: after the last fault the cluster recovers within a bound.

The groups are whole, every send has an outcome, and every consumer group has got all messages and
is done with them.
"""

from collections.abc import Iterator

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.progress import Read
from e2e.history.client_events import Joined, Sent, Stored
from e2e.history.cluster_events import Phase, PhaseName


def not_healed(facts: Facts, whole_ms: float) -> Iterator[Finding]:
    """I11: after the last fault the cluster recovers within `whole_ms`."""
    yield from _whole(facts, whole_ms)
    yield from _answered(facts)
    if any(phase.name is PhaseName.DRAINED for phase in facts.phases):
        yield from _delivered(facts)
        yield from _done(facts)


def _whole(facts: Facts, whole_ms: float) -> Iterator[Finding]:
    waiting: Phase | None = None
    for phase in facts.phases:
        if phase.name is PhaseName.HEALED:
            waiting = phase
        elif waiting is not None and phase.name is PhaseName.WHOLE:
            if phase.at_ms - waiting.at_ms > whole_ms:
                took_s = (phase.at_ms - waiting.at_ms) / 1000
                text = f"whole {took_s:.1f} s after the last fault was over; {_last(facts)}"
                yield Finding(Check.I11, phase.at_ms, text)
            waiting = None
    if waiting is not None and facts.end_ms - waiting.at_ms > whole_ms:
        waited_s = (facts.end_ms - waiting.at_ms) / 1000
        text = f"not whole {waited_s:.1f} s after the last fault was over; {_last(facts)}"
        yield Finding(Check.I11, facts.end_ms, text, tuple(facts.group_names()))


def _last(facts: Facts) -> str:
    """Describe the last state that was seen of each group."""
    descriptions = []
    for group in facts.group_names():
        states = facts.states.get(group)
        if states:
            s = states[-1]
            isr = ", ".join(s.isr) or "none"
            descriptions.append(
                f"{group}: {s.mode.value}({s.epoch}), reader {s.reader}, in sync {isr}: {s.reason}"
            )
    return "; ".join(descriptions) or "no state was seen"


def _answered(facts: Facts) -> Iterator[Finding]:
    open_ = [sent for sent in facts.sent.values() if sent.record not in facts.outcome]
    if open_:
        first: Sent = open_[0]
        text = f"{len(open_)} records never got an outcome, the first of {first.who}"
        yield Finding(Check.I11, facts.end_ms, text, (first.who,), record=first.record)


def _delivered(facts: Facts) -> Iterator[Finding]:
    """Check that consumer groups that start at the earliest offset got all remaining messages."""
    reads = {(readers, place): read for readers, place, read in facts.reads()}
    for readers, members in sorted(facts.members.items()):
        topics = {m.topic for m in members if isinstance(m, Joined)}
        late = {m.topic for m in members if isinstance(m, Joined) and m.start != "earliest"}
        places = {place for group in facts.truths.values() for place in group}
        for place in sorted(p for p in places if p.topic in topics - late):
            read = reads.get((readers, place)) or Read(())
            records = facts.truth(place).records
            low = max(read.skipped_to, facts.deleted_to(place))
            missed = [o for o in records if o >= low and (o, records[o]) not in read.got]
            if missed:
                offset = min(missed)
                text = f"{len(missed)} messages never came to {readers}, the first is this"
                record = records[offset]
                about = (readers, place.group)
                yield Finding(
                    Check.I11, _stored_ms(facts, record), text, about, place, offset, record
                )


def _done(facts: Facts) -> Iterator[Finding]:
    """Check that no message waits for a lost member: all progress is at its queue's end.

    Only if nothing was lost since then: I7 judges what a fault may take from progress.
    """
    drained_ms = min(p.at_ms for p in facts.phases if p.name is PhaseName.DRAINED)
    if any(loss.from_ms >= drained_ms for loss in facts.losses.all):
        return
    for readers, place, _ in facts.reads():
        journal, records = facts.final_journal(place.group), facts.truth(place).records
        stored = journal.floors.get((readers, place), 0) if journal is not None else 0
        if records and stored <= max(records):
            text = f"{readers} is stored at {stored} in the end, the queue ends at {max(records)}"
            yield Finding(Check.I11, facts.end_ms, text, (readers, place.group), place, stored)


def _stored_ms(facts: Facts, record: int) -> float:
    outcome = facts.outcome.get(record)
    return outcome.at_ms if isinstance(outcome, Stored) else facts.end_ms
