"""A history sorted by kind, once for all checks. Pure: it judges nothing."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from e2e.checks.losses import Losses
from e2e.checks.progress import Confirmed, Progress, Read
from e2e.checks.promises import Copy
from e2e.history.client_events import (
    Acked,
    Committed,
    Committing,
    Delivered,
    Failed,
    Joined,
    Left,
    Nacked,
    OrderedDelivered,
    OrderedHandedOn,
    OrderedLowered,
    OrderedOpened,
    OrderedSent,
    OrderedSought,
    OrderedStored,
    OrderedUnsure,
    Place,
    Seeking,
    Sent,
    Skipped,
    Sought,
    Stored,
    Unsure,
)
from e2e.history.cluster_events import (
    Down,
    Ends,
    Fault,
    Floor,
    GroupSetup,
    Look,
    Phase,
    PhaseName,
    Refusal,
    Serves,
    Setup,
    State,
    Up,
)
from e2e.history.events import Event
from e2e.history.journals import Journal
from fmqcore.batch.header import BatchType
from fmqcore.zk.group_state import Mode

Readers = str
LATE_MS: Final = 500.0
"""A client gets a message at most this many milliseconds after a reader showed it."""


OrderedEvent = (
    OrderedOpened
    | OrderedHandedOn
    | OrderedLowered
    | OrderedSent
    | OrderedSought
    | OrderedStored
    | OrderedUnsure
    | OrderedDelivered
)
"""Events of ordered topics."""


class InVain(NamedTuple):
    """A request to store acks, or to seek a consumer group, that failed with this answer."""

    asked_ms: float
    at_ms: float
    who: str
    reason: str


class Truth(NamedTuple):
    """The final content of a place: offset → record, from `begin` on (before: deleted)."""

    records: dict[int, int]
    begin: int
    bases: list[int]  # of the batches, ascending
    positions: list[int]  # one past each of them
    epochs: list[int]  # the epoch of each batch


_NOTHING: Final = Truth({}, 0, [], [], [])


class Facts:
    """The same events by kind, in the order in which they happened."""

    def __init__(self, events: list[Event], journals: Mapping[str, Journal]) -> None:
        self.journals: Final = journals
        self.sent: dict[int, Sent] = {}
        self.outcome: dict[int, Stored | Failed | Unsure] = {}
        self.delivered: list[Delivered] = []
        self.progress: dict[tuple[Readers, Place], list[Progress]] = defaultdict(list)
        self.members: dict[Readers, list[Joined | Left]] = defaultdict(list)
        self.states: dict[str, list[State]] = defaultdict(list)
        self.serves: list[Serves] = []
        self.looks: list[Look] = []
        self.ends: dict[str, list[Ends]] = defaultdict(list)
        self.lives: dict[str, list[Up | Down]] = defaultdict(list)
        self.refusals: list[Refusal] = []
        self.floors: list[Floor] = []
        self.faults: list[Fault] = []
        self.phases: list[Phase] = []
        self.setups: list[Setup] = []
        self.ordered: list[OrderedEvent] = []
        self._groups: dict[str, GroupSetup] = {}
        self.end_ms: float = events[-1].at_ms if events else 0.0
        self._read: dict[tuple[Readers, Place], Read] = {}  # made by `reads`
        self._pending: dict[str, list[Acked]] = defaultdict(list)
        self._asked: dict[str, int] = {}
        self._asked_ms: dict[str, float] = {}
        self.waits: dict[str, list[tuple[float, float]]] = defaultdict(list)  # in a commit
        self.in_vain: list[InVain] = []
        for event in events:
            self._take(event)
        self._ordered_topics = {event.topic for event in self.ordered}
        self.truths: Final = {g: self._truth(g) for g in self.group_names()}
        self.losses: Final = Losses(self.faults, self.lives, self.ends)

    # ---- looking
    def reads(self) -> Iterator[tuple[Readers, Place, Read]]:
        """Yield every consumer group in every queue; computed once, then cached."""
        if not self._read:
            for key, events in self.progress.items():
                self._read[key] = Read(events)
        for (readers, place), read in self._read.items():
            yield readers, place, read

    def group(self, name: str) -> GroupSetup | None:
        """Return the last configuration of a group; None if it is unknown."""
        return self._groups.get(name)

    def group_names(self) -> list[str]:
        """Return the names of all groups that occur in the run."""
        named = {g.name for s in self.setups for g in s.groups}
        return sorted(named | {j.group for j in self.journals.values()} | set(self.states))

    def state_at(self, group: str, at_ms: float) -> State | None:
        """Return the group state that stood at `at_ms`; None if there was none."""
        states = self.states.get(group, [])
        at = bisect_right(states, at_ms, key=lambda state: state.at_ms)
        return states[at - 1] if at else None

    def states_between(self, group: str, from_ms: float, to_ms: float) -> list[State]:
        """Return all group states that stood at some moment between the two times."""
        first = self.state_at(group, from_ms)
        states = [s for s in self.states.get(group, []) if from_ms < s.at_ms <= to_ms]
        return [first, *states] if first is not None else states

    def truth(self, place: Place) -> Truth:
        """Return what is in a place in the end."""
        return self.truths.get(place.group, {}).get(place, _NOTHING)

    def deleted_to(self, place: Place) -> int:
        """Return the first offset that no reader of the group has deleted.

        A reader may have jumped over and reported what is gone from its own journal: replicas
        delete by themselves, and not at once.
        """
        readers = {state.reader for state in self.states.get(place.group, ())}
        journals = (self.journals[reader] for reader in sorted(readers & self.journals.keys()))
        begins = (journal.begins.get(place, 0) for journal in journals)
        return max([self.truth(place).begin, *begins])

    def taken_back(self, group: str, reported_ms: float) -> str:
        """Return why a reader may have shown what its master came back without (ADR 0025)."""
        states = self.states.get(group, [])
        for at, state in enumerate(states):
            if state.mode is not Mode.MASTER or not state.max_delivered_position:
                continue
            masters = (s.at_ms for s in reversed(states[:at]) if s.mode is Mode.MASTER)
            last_ms = next(masters, 0.0)
            taken = next((s.at_ms for s in states[:at] if s.at_ms > last_ms), state.at_ms)
            within = taken <= reported_ms <= state.at_ms + LATE_MS
            by = [s.reader for s in states[:at] if s.at_ms <= reported_ms][
                -1:
            ]  # reader that showed it
            if within and by and self._might_give_up(by[0], taken, state.at_ms):
                return (
                    f"{state.master} came back without what had been shown to "
                    f"{state.max_delivered_position}"
                )
        return ""

    def shown_taken_back(self, event: Delivered) -> str:
        """Return why a delivered record may be taken back; "" if it may not.

        The message may have reached a client that was paused, or waited in a commit, when that
        started.
        """
        machine = event.who.partition(".")[0]  # of incarnations `m00.1`, `m00.2`
        stood = [(f, t) for on, f, t in self.losses.clients if on == machine]
        stood += self.waits.get(event.who, ())
        since = (f for f, t in stood if f <= event.at_ms <= t + LATE_MS)
        shown_ms = min(since, default=event.at_ms)
        reasons = (self.taken_back(event.place.group, ms) for ms in (event.at_ms, shown_ms))
        return next(filter(None, reasons), "")

    def _might_give_up(self, reader: str, taken_ms: float, back_ms: float) -> bool:
        """Whether the reader was away long enough, or lost what it had shown with its disk."""
        hurt = (x for x in self.losses.all if x.broker == reader and x.takes is Copy.DISK)
        if any(taken_ms <= x.from_ms <= back_ms for x in hurt):
            return True
        since_ms = max(taken_ms, back_ms - self.setups[-1].served_wait_ms)
        serves = [s for s in self.serves if s.broker == reader and s.at_ms <= back_ms]
        downs = [e.at_ms for e in self.lives.get(reader, ()) if isinstance(e, Down)]
        for at, event in enumerate(serves):
            ends = [s.at_ms for s in serves[at + 1 : at + 2]]
            ends += [ms for ms in downs if ms >= event.at_ms]
            if event.permission and min(ends, default=back_ms) > since_ms:
                return False
        return True

    def setups_of(self, name: str) -> list[GroupSetup]:
        """Return all configurations of a group, in the order of time."""
        return [group for setup in self.setups for group in setup.groups if group.name == name]

    def setups_between(self, name: str, from_ms: float, to_ms: float) -> list[GroupSetup]:
        """Return a group's configurations between the two times; at least one if it is known."""
        before = [s for s in self.setups if s.at_ms <= from_ms][-1:]
        standing = [*before, *(s for s in self.setups if from_ms < s.at_ms <= to_ms)]
        found = [group for setup in standing for group in setup.groups if group.name == name]
        return list(dict.fromkeys(found)) or self.setups_of(name)[:1]

    def judged(self, group: str) -> bool:
        """Whether a journal of the group was read in the end."""
        return any(j.group == group for j in self.journals.values())

    def spans(self, name: PhaseName) -> Iterator[tuple[float, float]]:
        """Yield the times, start and end, in which the run was in the phase."""
        for at, phase in enumerate(self.phases):
            if phase.name is name:
                later = self.phases[at + 1 : at + 2]
                yield phase.at_ms, later[0].at_ms if later else self.end_ms

    def final_journal(self, group: str) -> Journal | None:
        """Return the journal of the last master; if that is not known, the longest."""
        journals = sorted(
            (j for j in self.journals.values() if j.group == group), key=lambda j: j.broker
        )
        states, setup = self.states.get(group), self.group(group)
        master = states[-1].master if states else (setup.master if setup else "")
        named = [j for j in journals if j.broker == master]
        return named[0] if named else max(journals, key=lambda j: j.end, default=None)

    # ---- inside
    def _take(self, event: Event) -> None:
        match event:
            case Delivered():
                self.delivered.append(event)
                self.progress[event.readers, event.place].append(event)
            case Acked():
                self.progress[event.readers, event.place].append(event)
                self._pending[event.who].append(event)
            case Sent():
                self.sent[event.record] = event
            case Stored() | Failed() | Unsure():
                self.outcome[event.record] = event
            case Nacked() | Seeking() | Sought() | Skipped():
                self.progress[event.readers, event.place].append(event)
                self._in_vain(event)
            case Committing():
                self._asked[event.who] = len(self._pending[event.who])
                self._asked_ms[event.who] = event.at_ms
            case Committed():
                self._committed(event)
            case _:
                self._take_of_cluster(event)

    def _take_of_cluster(self, event: Event) -> None:
        match event:
            case _ if isinstance(event, OrderedEvent):
                self.ordered.append(event)
            case Joined() | Left():
                self.members[event.readers].append(event)
            case State():
                self.states[event.group].append(event)
            case Serves():
                self.serves.append(event)
            case Look():
                self.looks.append(event)
            case Ends():
                self.ends[event.broker].append(event)
            case Up() | Down():
                self.lives[event.broker].append(event)
            case Refusal():
                self.refusals.append(event)
            case Floor():
                self.floors.append(event)
            case Fault():
                self.faults.append(event)
            case Phase():
                self.phases.append(event)
            case Setup():
                self.setups.append(event)
                self._groups |= {group.name: group for group in event.groups}
            case _:
                raise AssertionError(f"{event} was taken before")

    def _in_vain(self, event: Progress) -> None:
        if isinstance(event, Seeking):
            self._asked_ms[event.who] = event.at_ms
        elif isinstance(event, Sought) and event.reason:
            since_ms = self._asked_ms.get(event.who, event.at_ms)
            self.in_vain.append(InVain(since_ms, event.at_ms, event.who, event.reason))

    def _committed(self, event: Committed) -> None:
        since_ms = self._asked_ms.pop(event.who, event.at_ms)
        self.waits[event.who].append((since_ms, event.at_ms))
        if event.reason and not event.stale:
            self.in_vain.append(InVain(since_ms, event.at_ms, event.who, event.reason))
            return  # it may still be stored later: the client asks again
        count = self._asked.pop(event.who, 0)
        pending = self._pending[event.who]
        acks, self._pending[event.who] = pending[:count], pending[count:]
        if event.stale:
            return
        for ack in acks:
            confirmed = Confirmed(event.at_ms, event.who, ack.offset, ack.at_ms)
            self.progress[ack.readers, ack.place].append(confirmed)

    def _truth(self, group: str) -> dict[Place, Truth]:
        journal = self.final_journal(group)
        if journal is None:
            return {}
        found = {place: Truth({}, begin, [], [], []) for place, begin in journal.begins.items()}
        for batch in journal.batches:
            header = batch.header
            if header.type == BatchType.DATA:
                place = journal.place(header)
                if place.topic in self._ordered_topics:
                    continue  # a record may lie in two segments: check I13
                truth = found.setdefault(place, Truth({}, 0, [], [], []))
                truth.bases.append(header.base_offset)
                truth.positions.append(header.end)
                truth.epochs.append(header.epoch)
                for offset, record in enumerate(batch.records, header.base_offset):
                    truth.records[offset] = record
        return found
