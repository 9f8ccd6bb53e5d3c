"""Lag in edge cases."""

import pytest

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.consume.offsets.lag import acked_above, lag
from fmqcore.ids import Offset


def behind(floor: int, ranges: list[tuple[int, int]], begin: int, end: int) -> int:
    pairs = tuple((Offset(a), Offset(b)) for a, b in ranges)
    entry = OffsetEntry(1, Offset(floor), pairs)
    return lag(floor, begin, end, acked_above(entry, Offset(begin), Offset(end)))


@pytest.mark.parametrize(
    ("floor", "ranges", "begin", "end", "to_come"),
    [
        (0, [], 0, 0, 0),  # an empty queue
        (0, [], 0, 1000, 1000),
        (0, [(1, 1000)], 0, 1000, 1),  # all but the first
        (3, [(5, 7), (8, 9)], 0, 10, 4),
        (5, [], 2000, 2100, 100),  # retention has gone beyond the floor
        (5, [(1990, 2010), (2020, 2030)], 2000, 2100, 80),
        (5, [(10, 20)], 2000, 2100, 100),  # acked records are deleted, too
        (5, [], 2100, 2100, 0),  # and nothing is left
        (9, [], 0, 7, 0),  # the reader has less than the previous one
        (2, [(5, 9)], 0, 7, 3),
    ],
)
def test_lag_counts_unfinished_records(
    floor: int, ranges: list[tuple[int, int]], begin: int, end: int, to_come: int
) -> None:
    assert behind(floor, ranges, begin, end) == to_come
