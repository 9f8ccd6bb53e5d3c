"""Check I8: at any moment at most one broker of a group serves reads, and one writes.

No broker serves an epoch that another has served, or an older one than was served before. A frozen
process serves no client, whatever it would report. Exact knowledge (`Serves`) is a span of time.
Samples (`Look`) are sound in pairs: a broker that holds a permission in two samples of one epoch
held it in between. So two brokers are wrong when their spans overlap, or a sample of one lies
wholly within a span of the other.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.history.cluster_events import Down, FaultKind, Look, Serves, State, Step
from fmqcore.batch.header import BatchType
from fmqcore.ids import Permission
from fmqcore.zk.group_state import REASON_BEGIN_AGAIN, Mode

BITS: Final = (Permission.READ, Permission.WRITE)
_WAKE_MS: Final = 1.0
"""A broker that wakes up looks at its clock before it does anything."""


class Span(NamedTuple):
    """A broker certainly served from one moment to another (the same: at that moment)."""

    from_ms: float
    to_ms: float
    broker: str
    epoch: int


def two_at_once(facts: Facts) -> Iterator[Finding]:
    """I8: at any moment at most one broker of a group serves reads, and one writes."""
    for group in facts.group_names():
        for bit in BITS:
            held = [*_exact(facts, group, bit), *_paired(facts, group, bit)]
            spans = sorted(part for span in held for part in _awake(facts, span))
            samples = _samples(facts, group, bit)
            yield from _overlaps(group, bit, spans)
            yield from _within(group, bit, spans, samples)
            seen = sorted(
                [*spans, *(Span(s.asked_ms, s.at_ms, s.broker, s.epoch) for s in samples)]
            )
            yield from _epochs(group, bit, seen)
        yield from _states(facts, group)
    yield from _opened_twice(facts)


def _exact(facts: Facts, group: str, bit: Permission) -> Iterator[Span]:
    by_broker: dict[str, list[Serves | Down]] = defaultdict(list)
    for serves in facts.serves:
        if serves.group == group:
            by_broker[serves.broker].append(serves)
    for broker, serving in sorted(by_broker.items()):
        downs = [e for e in facts.lives.get(broker, ()) if isinstance(e, Down)]
        line = sorted([*serving, *downs], key=lambda event: event.at_ms)
        ends = [event.at_ms for event in line[1:]] + [facts.end_ms]
        for event, to_ms in zip(line, ends, strict=True):
            if isinstance(event, Serves) and event.permission & bit and to_ms > event.at_ms:
                yield Span(event.at_ms, to_ms, broker, event.epoch)


def _awake(facts: Facts, span: Span) -> Iterator[Span]:
    """Yield the parts of the span in which the broker was not frozen."""
    begin = span.from_ms
    for broker, from_ms, to_ms in sorted(facts.losses.frozen):
        if broker != span.broker or to_ms <= begin or from_ms >= span.to_ms:
            continue
        if from_ms > begin:
            yield span._replace(from_ms=begin, to_ms=from_ms)
        begin = min(to_ms + _WAKE_MS, span.to_ms)
    if begin < span.to_ms or begin == span.from_ms:
        yield span._replace(from_ms=begin)


def _samples(facts: Facts, group: str, bit: Permission) -> list[Look]:
    return [look for look in facts.looks if look.group == group and look.permission & bit]


def _paired(facts: Facts, group: str, bit: Permission) -> Iterator[Span]:
    by_broker: dict[str, list[Look]] = defaultdict(list)
    for look in facts.looks:
        if look.group == group:
            by_broker[look.broker].append(look)
    for broker, looks in sorted(by_broker.items()):
        first: Look | None = None
        for earlier, later in pairwise(looks):
            if not earlier.permission & bit:
                continue
            first = first or earlier
            if later.permission & bit and later.epoch == earlier.epoch:
                continue
            yield Span(first.at_ms, max(first.at_ms, earlier.asked_ms), broker, earlier.epoch)
            first = None
        last = looks[-1]
        if last.permission & bit:
            first = first or last
            yield Span(first.at_ms, max(first.at_ms, last.asked_ms), broker, last.epoch)


def _overlaps(group: str, bit: Permission, spans: list[Span]) -> Iterator[Finding]:
    latest: Span | None = None  # the span that ends last so far
    for span in spans:
        if latest is not None and span.from_ms < latest.to_ms and span.broker != latest.broker:
            yield _two(group, bit, latest, span)
        if latest is None or span.to_ms > latest.to_ms:
            latest = span


def _within(
    group: str, bit: Permission, spans: list[Span], samples: list[Look]
) -> Iterator[Finding]:
    samples = sorted(samples, key=lambda look: look.asked_ms)
    for span in spans:
        if span.to_ms == span.from_ms:
            continue
        for look in samples:
            if look.asked_ms >= span.to_ms:
                break
            inside = look.asked_ms >= span.from_ms and look.at_ms <= span.to_ms
            if inside and look.broker != span.broker:
                seen = Span(look.asked_ms, look.at_ms, look.broker, look.epoch)
                yield _two(group, bit, span, seen)
                break


def _two(group: str, bit: Permission, one: Span, other: Span) -> Finding:
    text = (
        f"{one.broker} served {bit.name} in epoch {one.epoch} from {one.from_ms:.0f} to "
        f"{one.to_ms:.0f} ms, and so did {other.broker} in epoch {other.epoch} from "
        f"{other.from_ms:.0f} to {other.to_ms:.0f} ms"
    )
    return Finding(Check.I8, other.from_ms, text, (group, one.broker, other.broker))


def _epochs(group: str, bit: Permission, spans: list[Span]) -> Iterator[Finding]:
    """Check that one broker serves an epoch, and never an older epoch afterwards."""
    holder: dict[int, str] = {}
    for span in spans:
        other = holder.setdefault(span.epoch, span.broker)
        if other != span.broker:
            text = f"{span.broker} served {bit.name} in epoch {span.epoch}, which is {other}'s"
            yield Finding(Check.I8, span.from_ms, text, (group, span.broker, other))
    newest: Span | None = None  # the newest epoch that had surely started
    by_end = sorted(spans, key=lambda span: span.to_ms)
    at = 0
    for span in spans:
        while at < len(by_end) and by_end[at].to_ms < span.from_ms:
            if newest is None or by_end[at].epoch > newest.epoch:
                newest = by_end[at]
            at += 1
        if newest is not None and span.epoch < newest.epoch:
            text = (
                f"{span.broker} served {bit.name} in epoch {span.epoch} at {span.from_ms:.0f} ms, "
                f"after {newest.broker} had in epoch {newest.epoch}"
            )
            yield Finding(Check.I8, span.from_ms, text, (group, span.broker, newest.broker))


def _states(facts: Facts, group: str) -> Iterator[Finding]:
    """Check that in ZooKeeper the serving brokers change only with the epoch, which only rises.

    Where the run itself replaced ZooKeeper's data, the state may go back. What brokers serve may
    not: `_epochs` knows no such exception.
    """
    replaced_ms = [
        fault.at_ms
        for fault in facts.faults
        if fault.kind is FaultKind.ZOOKEEPER_DATA and fault.step is Step.FIRED
    ]
    for one, two in pairwise(facts.states.get(group, ())):
        if any(one.at_ms <= at_ms <= two.at_ms for at_ms in replaced_ms):
            continue
        changed = (one.mode, one.master, one.reader) != (two.mode, two.master, two.reader)
        changed = changed and not _is_new_start(one, two)
        if two.epoch < one.epoch or (changed and two.epoch == one.epoch):
            text = f"the state went from {_brief(one)} to {_brief(two)}"
            yield Finding(Check.I8, two.at_ms, text, (group,))


def _brief(state: State) -> str:
    return f"{state.mode.value}({state.epoch}, master {state.master}, reader {state.reader})"


def _opened_twice(facts: Facts) -> Iterator[Finding]:
    """Check that each epoch in a group's journals was opened by one broker."""
    opened: dict[tuple[str, int], tuple[str, str]] = {}
    for broker, journal in sorted(facts.journals.items()):
        for batch in journal.batches:
            if batch.header.type != BatchType.EPOCH:
                continue
            key = (journal.group, int(batch.header.epoch))
            by, where = opened.setdefault(key, (batch.opened_by, broker))
            if by != batch.opened_by:
                text = (
                    f"epoch {key[1]} was opened by {by} in the journal of {where}, by "
                    f"{batch.opened_by} in that of {broker}"
                )
                yield Finding(Check.I8, facts.end_ms, text, (journal.group, by, batch.opened_by))


def _is_new_start(one: State, two: State) -> bool:
    """Whether a person let the group begin again: no broker serves by that state (ADR 0058)."""
    again = (Mode.NEW, one.master, "", REASON_BEGIN_AGAIN)
    return (two.mode, two.master, two.reader, two.reason) == again
