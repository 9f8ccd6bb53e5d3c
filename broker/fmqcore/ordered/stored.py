"""What the members of a chain's groups store, as a check reads it. Pure.

A row per batch and no object: a member may store many millions of them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fmqcore.ids import GroupName


class StoredBatch(NamedTuple):
    """One DATA batch of an ordered queue; the header fields that a check compares."""

    offset: int
    records: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    payload_crc: int

    @property
    def end(self) -> int:
        """The offset one past the last record."""
        return self.offset + self.records


class StoredQueue:
    """The batches of one queue on one member, ascending by offset. 32 bytes each."""

    def __init__(self) -> None:
        self._columns = (*(array(code) for code in "QIQHII"),)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[StoredBatch]:
        return map(StoredBatch._make, zip(*self._columns, strict=True))

    def add(self, batch: StoredBatch) -> None:
        """Add the next batch in journal order."""
        for column, value in zip(self._columns, batch, strict=True):
            column.append(value)

    def extend(self, other: "StoredQueue") -> None:
        """Add the batches of the next part of the journal."""
        for column, more in zip(self._columns, other._columns, strict=True):
            column.extend(more)

    def within(self, first: int, end: int) -> Iterator[StoredBatch]:
        """Iterate over the batches that begin in [first, end)."""
        offsets = self._columns[0]
        parts = (c[bisect_left(offsets, first) : bisect_left(offsets, end)] for c in self._columns)
        return map(StoredBatch._make, zip(*parts, strict=True))

    def overlapping(self, first: int, end: int) -> Iterator[StoredBatch]:
        """Iterate over the batches with records in [first, end)."""
        offsets = self._columns[0]
        low = max(0, bisect_right(offsets, first) - 1)
        parts = (c[low : bisect_left(offsets, end)] for c in self._columns)
        batches = map(StoredBatch._make, zip(*parts, strict=True))
        return (batch for batch in batches if batch.end > first)


@dataclass(slots=True)
class StoredMember:
    """One member's copy of the topic. Mappings are by queue; a queue that lacks has 0."""

    name: str
    group: GroupName
    queues: dict[int, StoredQueue] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)  # the oldest offset that is kept
    ends: Mapping[int, int] = field(default_factory=dict)  # the next offset
    committed: Mapping[int, int] = field(default_factory=dict)  # below: known to be committed
    newer: Mapping[int, int] = field(default_factory=dict)  # from there: of later segments
    whole: bool = True  # False: a part could not be read, so what lacks here proves nothing
