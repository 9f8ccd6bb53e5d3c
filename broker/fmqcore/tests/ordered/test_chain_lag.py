"""The lag over a chain: what is still to come, without orphans and without doubles."""

from dataclasses import replace

import pytest

from fmqcore.batch.offset_entry import OffsetEntry
from fmqcore.ids import Offset
from fmqcore.ordered.lag import end_to_come, to_come
from fmqcore.tests.ordered.chains import CLOSING, DONE, EMPTY, G1, G2, NEXT, OPEN
from fmqcore.zk.chain import Chain, Segment

# g1: segment 1 has offsets 10 to 13 (sequences 1 to 4), orphans at 14 and 15, segment 3 from 16 on.
# g2: segment 2 starts at 0 with sequence 3: offsets 0 and 1 are doubles of segment 1.
CHAIN = replace(
    DONE,
    segments=(
        DONE.segments[0],
        replace(DONE.segments[1], end=(5,)),
        Segment(3, G1, 1, (8,), (16,)),
    ),
)


def lag(chain: Chain, floors: tuple[int, int], ends: tuple[int, int], **fields: int) -> int:
    begin = Offset(fields.get("begin", 0))
    pairs = zip((G1, G2), floors, ends, strict=True)
    return sum(
        to_come(chain, "app", group, 0, OffsetEntry(1, Offset(floor)), begin, Offset(end))
        for group, floor, end in pairs
    )


@pytest.mark.parametrize(
    ("head", "floors", "expected"),
    [
        (1, (0, 0), 4 + 3 + 2),
        (1, (12, 0), 2 + 3 + 2),
        (2, (14, 0), 3 + 2),
        (2, (14, 3), 2 + 2),
        (3, (14, 5), 2),
        (3, (17, 5), 1),
        (3, (18, 5), 0),
    ],
)
def test_orphans_and_doubles_do_not_count(
    head: int, floors: tuple[int, int], expected: int
) -> None:
    assert lag(replace(CHAIN, heads=(("app", (head,)),)), floors, (18, 5)) == expected


def test_without_a_known_end_nothing_counts_twice() -> None:
    """Segment 1 holds 1 to 6 in g1 (no end is known); the sender goes on with 3 in g2."""
    assert lag(NEXT, (0, 0), (16, 7)) == 2 + 7
    assert lag(CLOSING, (0, 0), (16, 0)) == 6, "closing: what is stored may still come"
    assert lag(OPEN, (11, 0), (16, 0)) == 5
    assert lag(EMPTY, (0, 0), (16, 3)) == 0, "records outside of every segment never count"


def test_lag_counts_neither_deleted_nor_acked_records() -> None:
    assert lag(OPEN, (0, 0), (16, 0), begin=13) == 3
    entry = OffsetEntry(1, Offset(11), ((Offset(12), Offset(14)), (Offset(15), Offset(40))))
    assert to_come(OPEN, "app", G1, 0, entry, Offset(0), Offset(16)) == 2
    assert to_come(OPEN, "new", G1, 0, None, Offset(0), Offset(16)) == 6


@pytest.mark.parametrize(
    ("head", "end", "stored_end", "expected"),
    [
        (1, 12, 13, 13),
        (1, 12, 16, 14),  # then come orphans
        (1, 14, 16, 14),
        (1, 12, 18, 18),  # segment 3 starts at 16
        (3, 12, 16, 12),
        (3, 16, 18, 18),
    ],
)
def test_stored_orphans_are_not_awaited(
    head: int, end: int, stored_end: int, expected: int
) -> None:
    chain = replace(CHAIN, heads=(("app", (head,)),))
    assert end_to_come(chain, "app", G1, 0, Offset(end), Offset(stored_end)) == expected
