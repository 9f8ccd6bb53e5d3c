"""The chain of an ordered topic: `ordered/<t>`. Types; `chain_json` has the JSON.

`fmqcore.ordered` decides the changes. Values per queue are tuples: item q belongs to queue q, and
all have `Chain.queues` items.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.zk.codec import (
    Extra,
)

DEFAULT_LEASE_MS: Final = 4_000
"""How long a master may acknowledge after its last look at `groups/<g>/chains`."""
NO_TOPIC: Final = TopicId(0)
"""The number of no topic."""

PerQueue = tuple[int, ...]
"""A number per queue: a sequence, an offset, or a segment's number."""
PerSubscription = tuple[tuple[str, PerQueue], ...]
"""Values per queue of each subscription, sorted by subscription."""


class ChainGroup(NamedTuple):
    """A group that the chain may use. Weight: a rank from 1 on, a higher one is preferred."""

    group: GroupName
    weight: int = 1


class Sender(NamedTuple):
    """The active sender: the node's name in the line of senders; epoch 0 = none yet."""

    id: str = ""
    epoch: int = 0


class RecordPlace(NamedTuple):
    """Where a record lies. Of two in a queue the later sender's, then the later one, is greater."""

    sender_epoch: int
    sequence: int
    segment: int
    group: GroupName
    offset: Offset


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of the chain: all that one group took between two switches.

    A segment is *open* while it has no end. The record at `start[q] + i` has the sequence
    `first_sequence[q] + i` (K3), so `last_sequence` follows from `end`; it is stored for people.
    """

    number: int  # K1: follows its predecessor's
    group: GroupName
    sender_epoch: int  # K4: never falls along the chain
    first_sequence: PerQueue  # K5: leaves no gap after the earlier segments of this sender epoch
    start: PerQueue  # offsets; K6: not below the ends of the group's earlier segments
    end: PerQueue | None = None  # offsets after the last record; None = not given
    end_unknown: bool = False  # K2: no end, and sends went on without it
    passed: PerSubscription = ()  # sequences that a subscription had finished before a release
    loss: bool = False  # a person accepted a gap after this segment
    opened_ms: int = 0  # wall clock, for people (`fmqcore.ordered.moments`); 0 = not known
    ended_ms: int = 0  # when its end was given or declared unknown
    extra: Extra = ()

    @property
    def has_ended(self) -> bool:
        """Whether the segment has ended, at a known or an unknown end: it takes no more records."""
        return self.end is not None or self.end_unknown

    @property
    def last_sequence(self) -> PerQueue | None:
        """The last sequence per queue; `first_sequence - 1` where it has no record."""
        if self.end is None:
            return None
        counts = (e - s for e, s in zip(self.end, self.start, strict=True))
        return tuple(f + n - 1 for f, n in zip(self.first_sequence, counts, strict=True))

    def last_record(self, queue: int) -> RecordPlace | None:
        """Return where the queue's last record lies (K3); None without an end, or without one."""
        if self.end is None or self.end[queue] <= self.start[queue]:
            return None
        offset = self.end[queue] - 1
        sequence = self.first_sequence[queue] + offset - self.start[queue]
        return RecordPlace(self.sender_epoch, sequence, self.number, self.group, Offset(offset))


@dataclass(frozen=True, slots=True)
class Floor:
    """What the chain still has to know of dropped segments."""

    number: int = 0  # of the last dropped segment; 0 = none
    sender_epoch: int = 0
    last_sequence: PerQueue = ()  # highest of that sender epoch
    passed: PerSubscription = ()  # as in `Segment`, of the dropped segments of that epoch
    last_records: tuple[RecordPlace | None, ...] = ()  # the greatest: a sender starts after it


class Place(NamedTuple):
    """Where a subscription is, by queue; see the fields of `Chain`."""

    heads: PerQueue
    start_numbers: PerQueue
    start_offsets: PerQueue


def _places_of(chain: "Chain") -> Mapping[str, Place]:
    numbers, offsets = dict(chain.start_numbers), dict(chain.start_offsets)
    zeros = (0,) * chain.queues
    return {
        name: Place(heads, numbers.get(name, zeros), offsets.get(name, zeros))
        for name, heads in chain.heads
    }


class _Repeats(NamedTuple):
    """What senders may have sent again, for `Chain.delivered_before`."""

    before: tuple[PerQueue | None, ...]  # by segment: the sender's highest sequences before it
    passed: tuple[Floor | Segment, ...]  # those with records that a subscription had finished


def _repeats_of(chain: "Chain") -> _Repeats:
    zeros, before = (0,) * chain.queues, list[PerQueue | None]()
    epoch = chain.floor.sender_epoch
    highest: PerQueue | None = chain.floor.last_sequence or zeros
    for segment in chain.segments:  # the segments of one sender lie together (K4)
        if segment.sender_epoch != epoch:
            epoch, highest = segment.sender_epoch, zeros
        before.append(highest)
        last = segment.last_sequence
        if highest is not None:
            highest = None if last is None else tuple(map(max, highest, last))
    parts: tuple[Floor | Segment, ...] = (chain.floor, *chain.segments)
    return _Repeats(tuple(before), tuple(part for part in parts if part.passed))


@dataclass(frozen=True, slots=True)
class Chain:
    """The whole state of one ordered topic: one node, so one compare-and-set changes it."""

    topic: str
    queues: int
    groups: tuple[ChainGroup, ...]  # K10: two or more, each once
    segments: tuple[Segment, ...] = ()
    closing: str | None = None  # why the last segment takes no more; None = it is open, or none
    closing_class: str = ""  # `fmqcore.ordered.evidence.CloseReason`; "" = not closing
    closing_since_ms: int = 0  # wall clock, for people; 0 = not closing, or not known
    sender: Sender = Sender()
    heads: PerSubscription = ()  # K7, K8: the segment that a subscription reads, per queue
    # K18: from which start (an addition, a seek) its progress counts; a name that lacks has 0
    start_numbers: PerSubscription = ()
    # where that start begins in the head's segment; 0, or no name: at its first record
    start_offsets: PerSubscription = ()
    # whose consumer groups were not named: they keep segments, but no later group is in their place
    temporary: frozenset[str] = frozenset()
    last_start: int = 0  # the highest start number that was ever given
    floor: Floor = field(default_factory=Floor)
    lease_ms: int = DEFAULT_LEASE_MS  # the same for all brokers: a coordinator waits it out
    allow_single: bool = False  # a group of one broker may be used: for tries only
    topic_id: TopicId = NO_TOPIC  # a chain of another number is a deleted topic's
    extra: Extra = ()
    _places: Mapping[str, Place] | None = field(default=None, init=False, compare=False, repr=False)
    _repeats: _Repeats | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def last(self) -> Segment | None:
        """The newest segment."""
        return self.segments[-1] if self.segments else None

    @property
    def next_number(self) -> int:
        """The number of the segment that is opened next."""
        return self.segments[-1].number + 1 if self.segments else self.floor.number + 1

    def segment(self, number: int) -> Segment | None:
        """Return the segment of that number, or None if it is dropped or not opened yet."""
        index = number - self.floor.number - 1
        return self.segments[index] if 0 <= index < len(self.segments) else None

    def due_ends(self, group: GroupName) -> Iterator[Segment]:
        """Return the segments of a group whose end is to be given: closing ones, unknown ends."""
        closing = self.last if self.closing is not None else None
        return (
            s
            for s in self.segments
            if s.group == group and s.end is None and (s.end_unknown or s is closing)
        )

    def ended_heads(self, group: GroupName) -> Iterator[Segment]:
        """Return the ended segments, of a group or empty, that a subscription still reads."""
        read = {number for _, numbers in self.heads for number in numbers}
        return (
            s
            for s in self.segments
            if s.number in read and s.end is not None and (s.group == group or s.end == s.start)
        )

    def delivered_before(self, segment: Segment, subscription: str, queue: int) -> int | None:
        """Return the highest sequence of the segment's sender that segments before it deliver.

        None: the end of one of these is not known. All but `passed` is computed once for a chain,
        because each delivery needs it.
        """
        if self._repeats is None:
            object.__setattr__(self, "_repeats", _repeats_of(self))
        assert self._repeats is not None
        before = self._repeats.before[segment.number - self.floor.number - 1]
        if before is None:
            return None
        highest = before[queue]
        for part in self._repeats.passed:
            if part.number < segment.number and part.sender_epoch == segment.sender_epoch:
                passed = dict(part.passed).get(subscription, before)
                highest = max(highest, passed[queue])
        return highest

    @property
    def places(self) -> Mapping[str, Place]:
        """The place of each subscription with heads. Computed once for a chain."""
        if self._places is None:
            object.__setattr__(self, "_places", _places_of(self))
        assert self._places is not None
        return self._places

    def heads_of(self, subscription: str) -> PerQueue | None:
        """Return the subscription's heads; None if it has none yet."""
        place = self.places.get(subscription)
        return None if place is None else place.heads

    @property
    def has_named_readers(self) -> bool:
        """Whether a subscription is there that is not temporary."""
        return any(name not in self.temporary for name, _ in self.heads)

    def start_numbers_of(self, subscription: str) -> PerQueue:
        """Return the subscription's start numbers per queue."""
        place = self.places.get(subscription)
        return (0,) * self.queues if place is None else place.start_numbers

    def start_offsets_of(self, subscription: str) -> PerQueue:
        """Return per queue where the subscription begins in its head's segment; 0 = anywhere."""
        place = self.places.get(subscription)
        return (0,) * self.queues if place is None else place.start_offsets


def sorted_pairs(values: Mapping[str, PerQueue]) -> PerSubscription:
    """Return the mapping in the form that a chain holds."""
    return tuple(sorted(values.items()))
