"""Check I6: messages are delivered and stored in order.

In a queue, first deliveries come in the order of their offsets; records that one producer sent in
order (one key, or one queue that it named) are stored in that order, in each queue by itself.
"""

from collections import defaultdict
from collections.abc import Iterator

from e2e.checks.content import may_be_gone
from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.progress import Arrival
from e2e.checks.takeover import excuse
from e2e.history.client_events import Place, Stored


def order(facts: Facts) -> Iterator[Finding]:
    """I6: messages are delivered and stored in order."""
    yield from _delivered(facts)
    yield from _stored(facts)


def _delivered(facts: Facts) -> Iterator[Finding]:
    """Check that first deliveries rise; a message delivered before may be delivered again.

    A seek may count for nothing, as an ack may (`takeover.excuse`): then delivery goes on where it
    was. And a message that one reader's retention deleted, as its member was informed, may still be
    on the next reader.
    """
    for readers, place, read in facts.reads():
        newest, skipped = -1, _Skipped()
        for arrival in read.arrivals:
            event = arrival.event
            if arrival.first or event.offset > newest:
                skipped.jump(newest, arrival)
                newest = event.offset
            elif event.offset in skipped:
                continue
            elif arrival.before is None and not arrival.early and not _unsought(facts, arrival):
                text = f"delivered to {readers} for the first time after offset {newest}"
                about = (event.who, place.group)
                yield Finding(Check.I6, event.at_ms, text, about, place, event.offset, event.record)


class _Skipped:
    """Offsets that a member jumped over after being informed that as many are deleted."""

    def __init__(self) -> None:
        self._jumped: list[range] = []
        self._counted: dict[str, int] = {}  # client → how many it was informed of

    def jump(self, newest: int, arrival: Arrival) -> None:
        """Record the jump to the arrived message.

        It starts at the newest message, or at the target of a seek (as far as the member was
        informed).
        """
        event = arrival.event
        newly_skipped = arrival.skipped - self._counted.get(event.who, 0)
        begin = event.offset - newly_skipped if arrival.first else newest + 1
        jumped = range(begin, event.offset)
        if 0 < len(jumped) <= newly_skipped:
            self._jumped.append(jumped)
            self._counted[event.who] = arrival.skipped

    def __contains__(self, offset: int) -> bool:
        return any(offset in jumped for jumped in self._jumped)


def _unsought(facts: Facts, arrival: Arrival) -> bool:
    event, sought = arrival.event, arrival.sought
    return sought is not None and bool(excuse(facts, event.place, sought, event.at_ms))


def _stored(facts: Facts) -> Iterator[Finding]:
    """Check that records of one order rise with their offsets in each place.

    A lost record (I2 judges that) has no place in it: its offset, or a later one, is given again.
    """
    where: dict[Place, dict[int, int]] = defaultdict(dict)
    for outcome in facts.outcome.values():
        if isinstance(outcome, Stored) and outcome.offset >= 0 and not _gone(facts, outcome):
            where[outcome.place][outcome.offset] = outcome.record
    for event in facts.delivered:
        known, deleted = where[event.place], event.offset < facts.truth(event.place).begin
        if deleted and event.offset not in known and not may_be_gone(facts, event):
            known[event.offset] = event.record
    for places in facts.truths.values():
        for place, truth in places.items():
            where[place] |= truth.records
    for place, records in sorted(where.items()):
        newest: dict[tuple[str, str], int] = {}
        for offset in sorted(records):
            sent = facts.sent.get(records[offset])
            if sent is None or not sent.order:
                continue
            line = (sent.who, sent.order)
            before = newest.get(line, -1)
            newest[line] = max(before, sent.record)
            if sent.record < before:
                text = (
                    f"stored after record {before} of {sent.who}, which was sent later ({line[1]})"
                )
                about = (sent.who, place.group)
                yield Finding(Check.I6, sent.at_ms, text, about, place, offset, sent.record)


def _gone(facts: Facts, outcome: Stored) -> bool:
    """Whether the record was lost; below the start of retention: whether it may be."""
    if not facts.judged(outcome.place.group):
        return False
    truth = facts.truth(outcome.place)
    if outcome.offset < truth.begin:
        return bool(may_be_gone(facts, outcome))
    return truth.records.get(outcome.offset) != outcome.record
