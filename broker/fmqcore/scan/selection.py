"""Find the DATA batches that a reader wants, in an index or in headers. Pure.

An index is derived and may be damaged. What it must hold is known without it, from each queue's
next offset in the segment's SNAP and in the next segment's. `index_is_whole` compares the index
with them; a reader that finds a difference uses the headers instead.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import add
from typing import Final, NamedTuple

from fmqcore.batch.header import BatchType
from fmqcore.batch.offset_entry import QueueKey
from fmqcore.ids import Offset, Position, TopicId
from fmqcore.journal.index import SegmentIndex
from fmqcore.scan.headers import HeaderBlock

NO_END: Final = 2**63 - 1
"""The end of a range without an end."""
_U32: Final = 2**32 - 1


class Range(NamedTuple):
    """A range [first, end)."""

    first: int = 0
    end: int = NO_END

    def cut(self, other: "Range") -> "Range":
        """Return the intersection of both ranges."""
        return Range(max(self.first, other.first), min(self.end, other.end))

    @property
    def empty(self) -> bool:
        """Whether the range can contain nothing."""
        return self.first >= self.end


EVERYTHING: Final = Range()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions that must all hold. A batch may also hold some offsets outside `offsets`."""

    topics: frozenset[TopicId] | None = None  # None: all
    queues: frozenset[int] | None = None
    offsets: Range = EVERYTHING
    store_ms: Range = EVERYTHING
    positions: Range = EVERYTHING

    def takes(self, key: QueueKey) -> bool:
        """Whether anything of that queue can be wanted."""
        return (self.topics is None or key[0] in self.topics) and (
            self.queues is None or key[1] in self.queues
        )

    @property
    def nothing(self) -> bool:
        """Whether the selection matches no batch at all."""
        return (
            self.offsets.empty
            or self.store_ms.empty
            or self.positions.empty
            or self.topics == frozenset()
            or self.queues == frozenset()
        )


class Places(NamedTuple):
    """Positions and lengths of batches, in journal order."""

    positions: "array[int]"
    lengths: "array[int]"  # total_len of each

    def __len__(self) -> int:
        return len(self.positions)


def may_hold(
    wanted: Wanted,
    before: Mapping[QueueKey, Offset],
    after: Mapping[QueueKey, Offset] | None,
    store_ms: Range,
) -> bool:
    """Whether a segment can hold wanted batches. `before`, `after`: next offsets; None: open."""
    if wanted.nothing or wanted.store_ms.cut(store_ms).empty:
        return False
    if after is None:
        return True
    return any(
        wanted.takes(key) and not wanted.offsets.cut(Range(before.get(key, Offset(0)), end)).empty
        for key, end in after.items()
    )


def index_is_whole(
    index: SegmentIndex,
    keys: Iterable[QueueKey],
    before: Mapping[QueueKey, Offset],
    after: Mapping[QueueKey, Offset],
) -> bool:
    """Whether the index has every batch of these queues that its segment must hold."""
    for key in keys:
        first, end = before.get(key, Offset(0)), after.get(key, Offset(0))
        bases, positions, sizes, store_ms, _ = index.columns(key)
        if not len(bases):
            if first != end:
                return False
            continue
        ends = array("Q", map(add, bases, [size >> 32 for size in sizes]))
        if bases[0] != first or ends[-1] != end or ends[:-1] != bases[1:]:
            return False
        if list(positions) != sorted(positions) or list(store_ms) != sorted(store_ms):
            return False
    return True


def places_in_index(index: SegmentIndex, wanted: Wanted) -> Places:
    """Return the wanted batches in an index; binary search, so unwanted ones cost nothing.

    The index must satisfy `index_is_whole`.
    """
    found: list[tuple[int, int]] = []
    for key in index.queues():
        if not wanted.takes(key):
            continue
        bases, positions, sizes, store_ms, _ = index.columns(key)
        holds = bisect_right(bases, wanted.offsets.first) - 1
        if holds >= 0 and bases[holds] + (sizes[holds] >> 32) <= wanted.offsets.first:
            holds += 1
        first = max(
            holds,
            0,
            bisect_left(positions, wanted.positions.first),
            bisect_left(store_ms, wanted.store_ms.first),
        )
        end = min(
            bisect_left(bases, wanted.offsets.end),
            bisect_left(positions, wanted.positions.end),
            bisect_left(store_ms, wanted.store_ms.end),
        )
        lengths = [size & _U32 for size in sizes[first:end]]
        found += zip(positions[first:end], lengths, strict=True)
    found.sort()
    return Places(array("Q", [p for p, _ in found]), array("Q", [n for _, n in found]))


def places_in_headers(headers: HeaderBlock, wanted: Wanted) -> Places:
    """Return the places of the wanted batches among headers."""
    places = Places(array("Q"), array("Q"))
    if wanted.nothing:
        return places
    takes = {
        key: wanted.takes((TopicId(key[0]), key[1]))
        for key in set(zip(headers.column("topic_id"), headers.column("queue_id"), strict=True))
    }
    offsets, store_ms, within = wanted.offsets, wanted.store_ms, wanted.positions
    rows = zip(
        headers.column("type"),
        headers.column("topic_id"),
        headers.column("queue_id"),
        headers.column("base_offset"),
        headers.column("record_count"),
        headers.column("store_ms"),
        headers.column("position"),
        headers.column("total_len"),
        strict=True,
    )
    for kind, topic, queue, base, count, ms, position, length in rows:
        if (
            kind == BatchType.DATA
            and takes[topic, queue]
            and base < offsets.end
            and base + count > offsets.first
            and store_ms.first <= ms < store_ms.end
            and within.first <= position < within.end
        ):
            places.positions.append(position)
            places.lengths.append(length)
    return places


def boundary(headers: HeaderBlock, position: int) -> Position:
    """Return where the first batch at or above `position` begins, or the last one ends."""
    positions = headers.column("position")
    at = bisect_left(positions, position)
    if at < len(positions):
        return Position(positions[at])
    return Position(positions[-1] + headers.column("total_len")[-1])
