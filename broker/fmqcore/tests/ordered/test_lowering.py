"""Which segment of a group its members do not reach."""

from dataclasses import replace

import pytest

from fmqcore.ordered.lowering import short_segment
from fmqcore.tests.ordered.chains import DONE, G1, G2
from fmqcore.zk.chain import Segment

EMPTY_LAST = replace(DONE, segments=(*DONE.segments, Segment(3, G1, 1, (5,), (14,), (14,))))
"""Segment 3 of g1 is empty; segment 1 has offsets 10 to 13."""
DROPPED = replace(EMPTY_LAST, segments=EMPTY_LAST.segments[1:])


@pytest.mark.parametrize("ends", [(0,), (10,), (13,)])
def test_empty_newest_segment_hides_no_short_one(ends: tuple[int]) -> None:
    short = short_segment(EMPTY_LAST, G1, ends)
    assert short is not None
    assert short.number == 1


def test_reached_newest_end_means_that_no_segment_is_short() -> None:
    assert short_segment(EMPTY_LAST, G1, (14,)) is None
    assert short_segment(EMPTY_LAST, G2, (0,)) is None, "its segment has no end"
    assert short_segment(DROPPED, G1, (12,)) is None, "nothing can be lowered"
