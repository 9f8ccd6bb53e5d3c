"""Ranges of offsets: a set of ranges, and a map from ranges to values. Pure.

Ranges are [first, end), disjoint and ascending. A set joins ranges that touch; a map keeps them
separate, and splits a range when a part is taken. Cost grows with the ranges, never with records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from fmqcore.ids import Offset

Range = tuple[Offset, Offset]
"""[first, end)"""

V = TypeVar("V")


class RangeSet:
    """Offsets as disjoint ranges that do not touch each other."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[Offset] = []
        self._ends: list[Offset] = []
        for first, end in ranges:
            self.add(first, end)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, offset: Offset) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    @property
    def last_end(self) -> Offset | None:
        """End of the last range; None if the set is empty."""
        return self._ends[-1] if self._ends else None

    def add(self, first: Offset, end: Offset) -> None:
        """Add [first, end) and join it with the ranges that it overlaps or touches."""
        if first >= end:
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, end)
        if low < high:
            first = min(first, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [end]

    def remove_below(self, offset: Offset) -> None:
        """Remove everything below `offset`."""
        cut = bisect_right(self._ends, offset)
        del self._starts[:cut], self._ends[:cut]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset

    def gaps(self, first: Offset, end: Offset) -> list[Range]:
        """Return the parts of [first, end) that are not in the set."""
        found: list[Range] = []
        at = bisect_right(self._ends, first)
        while first < end and at < len(self._starts) and self._starts[at] < end:
            if first < self._starts[at]:
                found.append((first, self._starts[at]))
            first = self._ends[at]
            at += 1
        if first < end:
            found.append((first, end))
        return found


class Piece(NamedTuple, Generic[V]):
    """A range of a `RangeMap` with its value."""

    first: Offset
    end: Offset
    value: V


class RangeMap(Generic[V]):
    """Disjoint ranges, each with a value; `records` is the number of offsets in all of them."""

    __slots__ = ("_ends", "_starts", "_values", "records")

    def __init__(self) -> None:
        self._starts: list[Offset] = []
        self._ends: list[Offset] = []
        self._values: list[V] = []
        self.records = 0

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Piece[V]]:
        return map(Piece, self._starts, self._ends, self._values)

    def first(self) -> Piece[V] | None:
        """Return the lowest range; None if the map is empty."""
        if not self._starts:
            return None
        return Piece(self._starts[0], self._ends[0], self._values[0])

    def put(self, first: Offset, end: Offset, value: V) -> None:
        """Add a range that overlaps no other."""
        at = bisect_left(self._starts, first)
        assert first < end, "an empty range is never put"
        # C1
        assert at == 0 or self._ends[at - 1] <= first, "ranges of one map never overlap"
        assert at == len(self._starts) or end <= self._starts[at], "ranges never overlap"
        self._starts.insert(at, first)
        self._ends.insert(at, end)
        self._values.insert(at, value)
        self.records += end - first

    def take(self, first: Offset, end: Offset) -> list[Piece[V]]:
        """Remove and return what is in [first, end); a range that reaches beyond is split."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._starts, end)
        if low >= high or first >= end:
            return []
        cut = list(map(Piece, self._starts[low:high], self._ends[low:high], self._values[low:high]))
        taken = [Piece(max(p.first, first), min(p.end, end), p.value) for p in cut]
        rest = []
        if cut[0].first < first:
            rest.append(Piece(cut[0].first, first, cut[0].value))
        if cut[-1].end > end:
            rest.append(Piece(end, cut[-1].end, cut[-1].value))
        self._starts[low:high] = [p.first for p in rest]
        self._ends[low:high] = [p.end for p in rest]
        self._values[low:high] = [p.value for p in rest]
        self.records -= sum(p.end - p.first for p in taken)
        return taken

    def take_all(self) -> list[Piece[V]]:
        """Remove and return everything."""
        taken = list(self)
        self._starts, self._ends, self._values, self.records = [], [], [], 0
        return taken
