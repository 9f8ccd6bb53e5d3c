"""Where the copies of ordered records are: the part of check I13 that looks at disks. Pure.

An OK of an ordered topic promises that the record lies on the disk of every configured member of
the segment's group, whatever the group's policy is. So:

- when the OK came, every member's durable end was past the record;
- in the end the record is in the group's journal, unless retention deleted it;
- all copies are gone only if all of these disks were damaged or emptied, and not filled again, at
  one moment. No other fault, and no number of lost disks below that, excuses anything.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.premature_visibility import seen_ends
from e2e.checks.promises import Copy, Promise, may_lose
from e2e.history.client_events import OrderedDelivered, OrderedSent, OrderedStored, Place
from e2e.history.cluster_events import GroupSetup
from fmqcore.batch.header import BatchType

_SETTLED_MS = 2000.0
"""Milliseconds within which all brokers know a changed configuration of their group."""


@dataclass(slots=True)
class _Queue:
    """The records of one place in a group's final journal."""

    begin: int
    records: dict[int, int] = field(default_factory=dict)  # by offset
    bases: list[int] = field(default_factory=list)  # of the batches, ascending
    positions: list[int] = field(default_factory=list)  # one past each of them


class Copies:
    """The copies of the acknowledged records of one run."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._ends = seen_ends(facts)
        self._queues: dict[str, dict[Place, _Queue]] = {}
        hurt = {loss.broker for loss in facts.losses.all if loss.takes is Copy.DISK}
        self._in_danger = [
            name
            for name in facts.group_names()
            if any(hurt.issuperset(setup.members) for setup in facts.setups_of(name))
        ]

    def gone(self, stored: OrderedStored | None, sent: OrderedSent) -> str:
        """Return why every copy of a record may be gone; "" if one must be there.

        `stored`: its OK; of a record without one nothing is promised where it lies.
        """
        groups = self._in_danger
        if stored is not None:
            groups = [name for name in groups if name == stored.group]
        reported_ms = self._facts.end_ms if stored is None else stored.at_ms
        for name in groups:
            for setup in self._setups(name, sent.at_ms, reported_ms):
                promise = _promise(setup, sent.at_ms, reported_ms)
                if reason := may_lose(promise, self._facts.losses.all):
                    return reason
        return ""

    def lost_since(self, delivered: OrderedDelivered, until_ms: float) -> bool:
        """Whether a disk of the group was lost since a delivery, and with it that record."""
        place = Place(delivered.topic, delivered.group, delivered.queue)
        queue = self._queue_at(delivered.group, place)
        if (
            queue.records.get(delivered.offset) == delivered.record
            or delivered.offset < queue.begin
        ):
            return False
        setups = self._facts.setups_between(delivered.group, delivered.at_ms, until_ms)
        members = {member for setup in setups for member in setup.members}
        return any(
            loss.takes is Copy.DISK
            and loss.broker in members
            and delivered.at_ms <= loss.from_ms <= until_ms
            for loss in self._facts.losses.all
        )

    def findings(
        self, stored: Iterable[OrderedStored], sent: Mapping[int, OrderedSent]
    ) -> Iterator[Finding]:
        """Check that acknowledged records lay on all disks, and are there in the end."""
        for event in stored:
            if not self._facts.judged(event.group):
                continue
            queue = self._queue(event)
            if event.offset < queue.begin:
                continue  # deleted by retention
            kept = queue.records.get(event.offset, -1)
            if kept == event.record:
                yield from self._early(event, sent[event.record], queue)
            elif not self.gone(event, sent[event.record]):
                there = "no record" if kept < 0 else f"record {kept}"
                yield _found(event, f"acknowledged, and {there} is there in the end")

    # ---- inside
    def _setups(self, group: str, since_ms: float, at_ms: float) -> list[GroupSetup]:
        """Return the configurations by which a master may have acknowledged in between."""
        return self._facts.setups_between(group, since_ms - _SETTLED_MS, at_ms + _SETTLED_MS)

    def _early(self, event: OrderedStored, sent: OrderedSent, queue: _Queue) -> Iterator[Finding]:
        setups = self._setups(event.group, sent.at_ms, event.at_ms)
        if len(setups) != 1:
            return
        position = queue.positions[bisect_right(queue.bases, event.offset) - 1]
        for broker in setups[0].members:
            ends = self._ends.get(broker)
            seen = ends.most(sent.at_ms, event.at_ms) if ends is not None else None
            if seen is not None and seen.durable_end < position:
                text = (
                    f"{event.who} got OK before it was safe: on {broker} only {seen.durable_end} "
                    f"is durable, it ends at {position}"
                )
                yield _found(event, text)

    def _queue(self, event: OrderedStored) -> _Queue:
        return self._queue_at(event.group, Place(event.topic, event.group, event.queue))

    def _queue_at(self, group: str, place: Place) -> _Queue:
        of_group = self._queues.get(group)
        if of_group is None:
            of_group = self._queues[group] = self._read(group)
        return of_group.get(place, _Queue(0))

    def _read(self, group: str) -> dict[Place, _Queue]:
        journal = self._facts.final_journal(group)
        if journal is None:
            return {}
        found = {place: _Queue(begin) for place, begin in journal.begins.items()}
        for batch in journal.batches:
            if batch.header.type == BatchType.DATA:
                queue = found.setdefault(journal.place(batch.header), _Queue(0))
                queue.bases.append(batch.header.base_offset)
                queue.positions.append(batch.header.end)
                queue.records |= dict(enumerate(batch.records, batch.header.base_offset))
        return found


def _promise(setup: GroupSetup, since_ms: float, reported_ms: float) -> Promise:
    slaves = frozenset(setup.members) - {setup.master}
    return Promise(since_ms, reported_ms, setup.master, Copy.DISK, Copy.DISK, (slaves,), None)


def _found(event: OrderedStored, text: str) -> Finding:
    place = Place(event.topic, event.group, event.queue)
    about = (event.who, event.group)
    return Finding(Check.I13, event.at_ms, text, about, place, event.offset, event.record)
