"""Check I9: the journals of a group are equal batch by batch, and whole.

Each header holds the checksums of the payload and of the previous batch. The journals are equal up
to the commit end at least. In the master's journal, nothing is deleted before its time (I2).
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from e2e.checks.content import excused
from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.history.cluster_events import Down, Ending, Ends, FaultKind, PhaseName
from e2e.history.journals import Journal

UNDER_WAY_MS: Final = 1000.0
"""Milliseconds before a slave's stop in which a committed batch may not have reached it.

No policy promises that (other slaves had it, or the slave had just left the set), and TCP sends
again what a network lost after 200 ms at the earliest.
"""


def divergent(facts: Facts) -> Iterator[Finding]:
    """I9: the journals of a group are equal batch by batch, and whole."""
    for group in facts.group_names():
        truth = facts.final_journal(group)
        if truth is None:
            continue
        for broker, journal in sorted(facts.journals.items()):
            if journal.group != group:
                continue
            yield from _unreadable(facts, journal)
            if broker != truth.broker:
                yield from _different(facts, truth, journal)
            until_ms = inf if broker == truth.broker else _due_ms(facts, broker)
            committed = _committed(facts, truth, until_ms)
            if _complete(facts, broker) and journal.end < committed:
                text = f"{broker} ends at {journal.end}; {committed} was committed"
                pair = broker, truth.broker
                if not facts.losses.damaged(pair, for_good=True) or broker == truth.broker:
                    yield Finding(Check.I9, facts.end_ms, text, (group, broker))


def _due_ms(facts: Facts, broker: str) -> float:
    """Return the time up to which committed batches must have reached the broker.

    This holds for a broker that runs, or was stopped in order.
    """
    lives = facts.lives.get(broker)
    if not lives or not isinstance(lives[-1], Down):
        return inf
    over = [phase.at_ms for phase in facts.phases if phase.name is PhaseName.OVER]
    return min([lives[-1].at_ms, *over]) - UNDER_WAY_MS


def _committed(facts: Facts, truth: Journal, until_ms: float) -> int:
    """Return the commit end that was reported until then and must still be there."""
    reports = [e for of in facts.ends.values() for e in of if e.group == truth.group]
    ends = [e for e in reports if e.at_ms <= until_ms]
    for seen in sorted(ends, key=lambda e: (-e.commit_end, -e.at_ms)):
        end, times = seen.commit_end, (_not_yet_ms(facts, seen), seen.at_ms)
        if end <= truth.end:
            return end
        gone = excused(facts, truth.group, "replicated", *times, end)
        if not (gone or facts.taken_back(truth.group, seen.at_ms)):
            return end
    return 0


def _not_yet_ms(facts: Facts, seen: Ends) -> float:
    """Return when the master last reported a commit end below the position.

    A slave learns the commit end later, and may report it when its master has lost it.
    """
    state = facts.state_at(seen.group, seen.at_ms)
    own = facts.ends.get(state.master, ()) if state is not None else ()
    before = (e.at_ms for e in own if e.at_ms <= seen.at_ms and e.commit_end < seen.commit_end)
    return max(before, default=seen.at_ms)


def deleted(facts: Facts) -> Iterator[Finding]:
    """I2: retention keeps in the master's journal what it is configured to keep."""
    bytes_ = {setup.retention_bytes for setup in facts.setups}
    if len(bytes_) != 1 or -1 in bytes_ or any(f.kind is FaultKind.CLOCK for f in facts.faults):
        return  # a clock that jumps makes everything old
    (kept,) = bytes_
    for group in facts.group_names():
        journal = facts.final_journal(group)
        if journal is None or not journal.journal_start or not journal.batches:
            continue
        held, segment = journal.end - journal.journal_start, journal.batches[0].header.base_offset
        if facts.losses.damaged((journal.broker,)) or (kept and held + segment > kept):
            continue
        text = (
            f"{journal.broker} has deleted all below {journal.journal_start} and keeps {held} "
            "bytes; "
            f"retention is {kept or 'off'}"
        )
        yield Finding(Check.I2, facts.end_ms, text, (group, journal.broker))


def _unreadable(facts: Facts, journal: Journal) -> Iterator[Finding]:
    if journal.trouble and not facts.losses.hurt(journal.broker, facts.end_ms):
        text = f"the journal of {journal.broker}: {journal.trouble[0]}"
        yield Finding(Check.I9, facts.end_ms, text, (journal.group, journal.broker))


def _different(facts: Facts, truth: Journal, other: Journal) -> Iterator[Finding]:
    """Check that both journals have the same batches at positions that both cover."""
    begin = max(truth.journal_start, other.journal_start)
    end = min(truth.end, other.end)
    ours = {b.header.position: b.header for b in truth.batches}
    theirs = {b.header.position: b.header for b in other.batches}
    for position in sorted(ours.keys() | theirs.keys()):
        if not begin <= position < end:
            continue
        one, two = ours.get(position), theirs.get(position)
        if one != two:
            text = (
                f"{truth.broker} and {other.broker} differ at position {position}: "
                f"{_brief(truth, position)}; {_brief(other, position)}"
            )
            about = (truth.group, truth.broker, other.broker)
            yield Finding(Check.I9, facts.end_ms, text, about)
            return


def _brief(journal: Journal, position: int) -> str:
    for batch in journal.batches:
        if batch.header.position == position:
            header = batch.header
            return (
                f"type {header.type}, epoch {header.epoch}, queue {header.topic_id}/"
                f"{header.queue_id}, offset {header.base_offset}, records {batch.records[:5]}"
            )
    return "no batch begins there"


def _complete(facts: Facts, broker: str) -> bool:
    """Whether the broker ran at the end or was stopped in order: it has all that was committed."""
    if any(r.broker == broker for r in facts.refusals):
        return False
    lives = facts.lives.get(broker)
    if not lives:
        return True
    last = lives[-1]
    return not isinstance(last, Down) or last.how is Ending.STOPPED
