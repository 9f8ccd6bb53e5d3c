"""Which segment of a group its members do not reach."""

from dataclasses import replace
from typing import Any

import pytest

from fmqcore.ordered import context
from fmqcore.ordered.evidence import Action, Duty, Evidence, Serving
from fmqcore.ordered.lowering import lowered, short_segment
from fmqcore.ordered.machine import decide
from fmqcore.tests.ordered.chains import DONE, G1, G2, NOW, PARAMS
from fmqcore.zk.chain import Chain, Segment

EMPTY_LAST = replace(DONE, segments=(*DONE.segments, Segment(3, G1, 1, (5,), (14,), (14,))))
"""Segment 3 of g1 is empty; segment 1 has offsets 10 to 13."""
DROPPED = replace(EMPTY_LAST, segments=EMPTY_LAST.segments[1:])
MASTER = Evidence(group=G1, serving=Serving.MASTER, whole_ends=(12,), progress={"app": (11,)})


@pytest.mark.parametrize("ends", [(0,), (10,), (13,)])
def test_empty_newest_segment_hides_no_short_one(ends: tuple[int]) -> None:
    short = short_segment(EMPTY_LAST, G1, ends)
    assert short is not None
    assert short.number == 1


def test_reached_newest_end_means_that_no_segment_is_short() -> None:
    assert short_segment(EMPTY_LAST, G1, (14,)) is None
    assert short_segment(EMPTY_LAST, G2, (0,)) is None, "its segment has no end"
    assert short_segment(DROPPED, G1, (12,)) is None, "nothing can be lowered"


def test_lower_end_is_computed_once_for_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counting(*given: Any) -> Chain:
        computed.append(given)
        return lowered(*given)

    monkeypatch.setattr(context, "lowered", counting)
    assert decide(Duty.END, DONE, MASTER, NOW, PARAMS).action is Action.LOWER_END
    assert len(computed) == 1
    lost = replace(MASTER, whole_ends=(11,))
    assert decide(Duty.END, DONE, lost, NOW, PARAMS).action is Action.WAIT
    assert len(computed) == 2
